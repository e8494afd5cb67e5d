"""The table from the codes of the services to the errors of this package. No I/O."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping
from typing import TypedDict

import attrs

from sandboxsync import errors
from sandboxsync.errors import SandboxError, file_error

from ._error_words import errno_in

__all__ = ["TABLE", "Asked", "Said"]


@attrs.frozen
class Asked:
    """What a request was about, for its errors.

    `operation` is the verb as users know it. `path` is the file or directory (a `cwd` too) as it was given, `timeout`
    in seconds.
    """

    operation: str
    path: str | None = None
    session_id: str | None = None
    process_id: str | None = None
    context_id: str | None = None
    command: str = ""
    timeout: float | None = None


class _Common(TypedDict):
    code: str
    context: Mapping[str, object]
    http_status: int | None


@attrs.frozen
class Said:
    """What a service said, with what was asked: `code` in capitals, `reason` its own words without ours around them."""

    code: str
    message: str
    reason: str
    context: Mapping[str, object]
    status: int | None
    retry_after: float | None
    asked: Asked

    @property
    def common(self) -> _Common:
        """The fields of every error."""
        return {"code": self.code, "context": self.context, "http_status": self.status}


Builder = Callable[[Said], SandboxError]


def _plain(cls: type[SandboxError]) -> Builder:
    return lambda said: cls(said.message, **said.common)


def _file(cls: type[errors.FileError], number: int | None = None) -> Builder:
    return lambda said: cls(said.message, errno=number, filename=said.asked.path, **said.common)


def _system_file(said: Said) -> SandboxError:
    number = errno_in(said.reason)
    if number is None:
        return _file(errors.FileError)(said)
    cls = type(file_error(OSError(number, os.strerror(number)), ""))
    if cls is not errors.FileError:
        said = attrs.evolve(said, code=cls.code)
    return _file(cls, number)(said)


def _too_large(said: Said) -> SandboxError:
    if said.asked.path is None:
        return errors.InvalidRequestError(said.message, **said.common)
    return _file(errors.FileTooLargeError)(said)


def _session(cls: type[errors.SessionError]) -> Builder:
    return lambda said: cls(said.message, session_id=said.asked.session_id, **said.common)


def _session_terminated(said: Said) -> SandboxError:
    code = said.context.get("exitCode")
    return errors.SessionTerminatedError(
        said.message,
        session_id=said.asked.session_id,
        exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
        command=said.asked.command,
        **said.common,
    )


def _session_destroyed(said: Said) -> SandboxError:
    return errors.SessionDestroyedError(
        said.message, session_id=said.asked.session_id, command=said.asked.command, **said.common
    )


def _process(cls: type[errors.ProcessError]) -> Builder:
    return lambda said: cls(said.message, process_id=said.asked.process_id, **said.common)


def _code_context(cls: type[errors.CodeContextError]) -> Builder:
    return lambda said: cls(said.message, context_id=said.asked.context_id, **said.common)


def _code_run(said: Said) -> SandboxError:
    crashed = "has terminated" in said.reason
    return _code_context(errors.InterpreterCrashedError if crashed else errors.CodeContextError)(said)


def _command_timeout(said: Said) -> SandboxError:
    told = re.search(r"after (\d{1,12})\s*ms", said.reason)
    return errors.CommandTimeoutError(
        said.message,
        timeout=int(told[1]) / 1000 if told else said.asked.timeout,
        command=said.asked.command,
        **said.common,
    )


def _unavailable(said: Said) -> SandboxError:
    return errors.SandboxUnavailableError(said.message, retry_after=said.retry_after, **said.common)


def _outside(said: Said) -> SandboxError:
    # The bridge's word for a path out of the workspace, and for every other bad request.
    if said.status == 403:
        return _file(errors.SandboxPermissionError)(attrs.evolve(said, code=errors.SandboxPermissionError.code))
    return errors.InvalidRequestError(said.message, **said.common)


_invalid = _plain(errors.InvalidRequestError)
_transport = _plain(errors.TransportError)
_protocol = _plain(errors.ProtocolError)

TABLE: Mapping[str, Builder] = {
    # Files
    "FILE_NOT_FOUND": _file(errors.SandboxFileNotFoundError),
    "WORKSPACE_READ_NOT_FOUND": _file(errors.SandboxFileNotFoundError),
    "FILE_EXISTS": _file(errors.SandboxFileExistsError),
    "PERMISSION_DENIED": _file(errors.SandboxPermissionError),
    "READ_ONLY": _file(errors.SandboxPermissionError, errno.EROFS),
    "IS_DIRECTORY": _file(errors.SandboxIsADirectoryError),
    "NOT_DIRECTORY": _file(errors.SandboxNotADirectoryError),
    "NO_SPACE": _file(errors.NoSpaceError),
    "FILE_TOO_LARGE": _file(errors.FileTooLargeError),
    "PAYLOAD_TOO_LARGE": _too_large,
    "TOO_MANY_FILES": _file(errors.FileError, errno.EMFILE),
    "RESOURCE_BUSY": _file(errors.FileError, errno.EBUSY),
    "NAME_TOO_LONG": _file(errors.FileError, errno.ENAMETOOLONG),
    "TOO_MANY_LINKS": _file(errors.FileError, errno.EMLINK),
    "FILESYSTEM_ERROR": _system_file,
    "WORKSPACE_ARCHIVE_WRITE_ERROR": _system_file,
    "WORKSPACE_ARCHIVE_READ_ERROR": _system_file,
    # Sessions
    "SESSION_ALREADY_EXISTS": _session(errors.SessionExistsError),
    "SESSION_NOT_FOUND": _session(errors.SessionNotFoundError),
    "SESSION_TERMINATED": _session_terminated,
    "SESSION_DESTROYED": _session_destroyed,
    "SESSION_ERROR": _session(errors.SessionError),
    # Commands and processes
    "COMMAND_TIMEOUT": _command_timeout,
    "COMMAND_NOT_FOUND": _transport,
    "COMMAND_PERMISSION_DENIED": _transport,
    "COMMAND_EXECUTION_ERROR": _transport,
    "STREAM_START_ERROR": _transport,
    "EXEC_ERROR": _transport,
    "EXEC_TRANSPORT_ERROR": _transport,
    "INVALID_COMMAND": _invalid,
    "PROCESS_NOT_FOUND": _process(errors.ProcessNotFoundError),
    "PROCESS_PERMISSION_DENIED": _process(errors.ProcessError),
    "PROCESS_ERROR": _process(errors.ProcessError),
    "PROCESS_READY_TIMEOUT": _process(errors.ProcessReadyTimeoutError),
    "PROCESS_EXITED_BEFORE_READY": _process(errors.ProcessExitedBeforeReadyError),
    # Code
    "CONTEXT_NOT_FOUND": _code_context(errors.CodeContextNotFoundError),
    "INTERPRETER_NOT_READY": _code_context(errors.InterpreterNotReadyError),
    "PYTHON_NOT_AVAILABLE": _code_context(errors.LanguageNotAvailableError),
    "JAVASCRIPT_NOT_AVAILABLE": _code_context(errors.LanguageNotAvailableError),
    "CODE_EXECUTION_ERROR": _code_run,
    # Git
    "GIT_AUTH_FAILED": _plain(errors.GitAuthenticationError),
    "GIT_REPOSITORY_NOT_FOUND": _plain(errors.GitRepositoryNotFoundError),
    "GIT_BRANCH_NOT_FOUND": _plain(errors.GitBranchNotFoundError),
    "GIT_NETWORK_ERROR": _plain(errors.GitError),
    "GIT_CLONE_FAILED": _plain(errors.GitError),
    "GIT_CHECKOUT_FAILED": _plain(errors.GitError),
    "GIT_OPERATION_FAILED": _plain(errors.GitError),
    "INVALID_GIT_URL": _invalid,
    # Ports, tunnels and mounts: the tree has no classes of their own for these
    "INVALID_PORT": _invalid,
    "INVALID_PORT_NUMBER": _invalid,
    "PORT_ALREADY_EXPOSED": _transport,
    "PORT_IN_USE": _transport,
    "PORT_NOT_EXPOSED": _transport,
    "PORT_OPERATION_ERROR": _transport,
    "SERVICE_NOT_RESPONDING": _transport,
    "CUSTOM_DOMAIN_REQUIRED": _invalid,
    "TUNNEL_ERROR": _transport,
    "BUCKET_MOUNT_ERROR": _transport,
    "BUCKET_UNMOUNT_ERROR": _transport,
    "S3FS_MOUNT_ERROR": _transport,
    "MOUNT_ERROR": _transport,
    "UNMOUNT_ERROR": _transport,
    "MISSING_CREDENTIALS": _invalid,
    "INVALID_MOUNT_CONFIG": _invalid,
    # The service itself
    "UNAUTHORIZED": _plain(errors.AuthenticationError),
    "CAPACITY_EXCEEDED": _unavailable,
    "POOL_ERROR": _unavailable,
    "INVALID_REQUEST": _outside,
    "VALIDATION_FAILED": _invalid,
    "OPERATION_INTERRUPTED": _transport,
    "RPC_TRANSPORT_ERROR": _transport,
    "NO_SUCH_ROUTE": _protocol,
    "INVALID_JSON_RESPONSE": _protocol,
    "UNKNOWN_ERROR": _transport,
    "INTERNAL_ERROR": _transport,
}
"""By code, in capitals. `SESSION_NOT_FOUND`, `COMMAND_TIMEOUT` and `NO_SUCH_ROUTE` no service sends: they are what
`narrowed` makes of codes that say too little."""
