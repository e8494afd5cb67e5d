"""Every exception that the package raises; one root, :class:`SandboxError`.

::

    SandboxError
    ├── ConfigurationError (ValueError)
    ├── InvalidRequestError (ValueError)
    ├── UnsupportedOperationError
    ├── SandboxDestroyedError
    ├── CommandFailedError
    ├── CommandTimeoutError (TimeoutError) [P]
    ├── OutputLimitError [P]
    ├── OutputDecodeError (UnicodeError) [P]
    ├── SessionError
    │   ├── SessionExistsError
    │   ├── SessionNotFoundError
    │   ├── DefaultSessionError
    │   ├── SessionTerminatedError [P]
    │   ├── SessionDestroyedError [P]
    │   └── SessionBusyError
    ├── FileError (OSError)
    │   ├── SandboxFileNotFoundError (FileNotFoundError)
    │   ├── SandboxFileExistsError (FileExistsError)
    │   ├── SandboxPermissionError (PermissionError)
    │   ├── SandboxIsADirectoryError (IsADirectoryError)
    │   ├── SandboxNotADirectoryError (NotADirectoryError)
    │   ├── FileTooLargeError
    │   └── NoSpaceError
    ├── ProcessError
    │   ├── ProcessNotFoundError
    │   ├── ProcessExitedBeforeReadyError
    │   └── ProcessTimeoutError (TimeoutError)
    │       └── ProcessReadyTimeoutError
    ├── TerminalError
    │   ├── TerminalClosedError
    │   └── TerminalTimeoutError (TimeoutError)
    ├── CodeContextError
    │   ├── CodeContextNotFoundError
    │   ├── LanguageNotAvailableError
    │   ├── InterpreterNotReadyError
    │   └── InterpreterCrashedError
    ├── GitError
    │   ├── GitAuthenticationError
    │   ├── GitRepositoryNotFoundError
    │   └── GitBranchNotFoundError
    └── TransportError (ConnectionError)
        ├── AuthenticationError
        ├── SandboxUnavailableError
        ├── RequestTimeoutError (TimeoutError)
        ├── StreamInterruptedError [P]
        └── ProtocolError

In brackets: the builtin that the class also is. ``[P]``: the error carries what the command had printed,
in ``command``, ``stdout``, ``stderr``, ``stdout_bytes`` and ``stderr_bytes``.

Every error survives :mod:`pickle` and :mod:`copy` with all its attributes, and its message, ``context``
and ``command`` hold no credential of a URL or an ``Authorization`` header.

The module is long because the tree is one thing to its readers; it holds no logic beyond its root.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from errno import EACCES, EDQUOT, EEXIST, EFBIG, EISDIR, ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS
from typing import TYPE_CHECKING, ClassVar, TypedDict, TypeVar

from ._redact import redact, redact_context

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from .models import ExecResult, ProcessLogs

_E = TypeVar("_E", bound="SandboxError")

# What OSError keeps in fields of its own, outside __dict__.
_OS_FIELDS = ("errno", "strerror", "filename", "filename2")


class _Common(TypedDict, total=False):
    code: str | None
    context: Mapping[str, object] | None
    http_status: int | None
    retryable: bool | None


class _Output(_Common, total=False):
    command: str
    stdout: str
    stderr: str
    stdout_bytes: bytes
    stderr_bytes: bytes


class SandboxError(Exception):
    """The root of the tree.

    ``code`` is a stable name in capitals, the service's own where it sent one. ``context`` holds further
    facts by name, ``http_status`` the status of the answer that said so, if any. ``retryable`` says whether
    the same call may be made again with hope of success: ``True``, ``False``, or ``None`` when it cannot be
    known. ``code`` and ``retryable`` that are left out, or ``None``, are the class's own.
    """

    code: str = "UNKNOWN_ERROR"
    retryable: bool | None = False
    context: dict[str, object]
    http_status: int | None

    def __init__(
        self,
        message: str = "",
        *,
        code: str | None = None,
        context: Mapping[str, object] | None = None,
        http_status: int | None = None,
        retryable: bool | None = None,
    ) -> None:
        super().__init__(redact(message))
        self.code = type(self).code if code is None else code
        self.context = redact_context(context)
        self.http_status = http_status
        self.retryable = type(self).retryable if retryable is None else retryable

    def __str__(self) -> str:
        # OSError would show its errno and filename in place of the message.
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        # The default calls the class with args, which loses keyword-only fields and fails on required ones.
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            state.update((name, getattr(self, name)) for name in _OS_FIELDS)
        return _rebuild, (type(self), self.args), state


def _rebuild(cls: type[_E], args: tuple[object, ...]) -> _E:
    error = cls.__new__(cls)
    error.args = args
    return error


class _PartialOutput(SandboxError):
    """Base of the errors that carry what a command had printed; not a class to catch by."""

    def __init__(
        self,
        message: str = "",
        *,
        command: str = "",
        stdout: str = "",
        stderr: str = "",
        stdout_bytes: bytes = b"",
        stderr_bytes: bytes = b"",
        **common: Unpack[_Common],
    ) -> None:
        super().__init__(message, **common)
        self.command = redact(command)
        self.stdout = stdout
        self.stderr = stderr
        self.stdout_bytes = stdout_bytes
        self.stderr_bytes = stderr_bytes

    def _with_output(
        self,
        command: str,
        stdout_bytes: bytes,
        stderr_bytes: bytes,
        encoding: str = "utf-8",
        errors: str = "replace",
    ) -> Self:
        """Attach what was collected and return the same object.

        With ``errors="strict"`` bytes that do not decode are shown as ``backslashreplace`` does: an error on
        its way to the caller must not be replaced by another one.
        """
        lenient = "backslashreplace" if errors == "strict" else errors
        self.command = redact(command)
        self.stdout_bytes = stdout_bytes
        self.stderr_bytes = stderr_bytes
        self.stdout = stdout_bytes.decode(encoding, lenient)
        self.stderr = stderr_bytes.decode(encoding, lenient)
        return self


class ConfigurationError(SandboxError, ValueError):
    """The transport or its settings cannot be used: no URL, an unknown scheme, a key over plain HTTP."""

    code = "CONFIGURATION_ERROR"


class InvalidRequestError(SandboxError, ValueError):
    """Bad input; raised before anything is sent or run."""

    code = "VALIDATION_FAILED"


class UnsupportedOperationError(SandboxError):
    """This transport cannot do that; the message names those that can. Raised before any I/O."""

    code = "UNSUPPORTED_OPERATION"


class SandboxDestroyedError(SandboxError):
    """The sandbox was destroyed, before the call or during it."""

    code = "SANDBOX_DESTROYED"


class CommandFailedError(SandboxError):
    """A command exited with another code than 0 and ``check`` was asked for; ``result`` is its result."""

    code = "COMMAND_EXECUTION_ERROR"

    def __init__(self, message: str = "", *, result: ExecResult, **common: Unpack[_Common]) -> None:
        super().__init__(message or _failure_text(result), **common)
        self.result = result


def _failure_text(result: ExecResult) -> str:
    # Redacted before they are cut: half a credential no longer looks like one.
    command, stderr = redact(result.command), redact(result.stderr[-20_000:]).rstrip()
    command = command if len(command) <= 200 else command[:200] + "..."
    tail = stderr if len(stderr) <= 2_000 else "..." + stderr[-2_000:]
    text = f"Command {command!r} failed with exit code {result.exit_code}"
    return f"{text}; standard error ends with:\n{tail}" if tail else text


class CommandTimeoutError(_PartialOutput, TimeoutError):
    """A command or code run was stopped at its ``timeout`` (s); ``started``: whether it ever began."""

    code = "COMMAND_TIMEOUT"
    retryable: bool | None = None

    def __init__(
        self,
        message: str = "",
        *,
        timeout: float | None = None,
        started: bool = True,
        **common: Unpack[_Output],
    ) -> None:
        super().__init__(message, **common)
        self.timeout = timeout
        self.started = started


class OutputLimitError(_PartialOutput):
    """A command printed more than ``max_output`` bytes to one stream and was stopped."""

    code = "OUTPUT_LIMIT_EXCEEDED"


class OutputDecodeError(_PartialOutput, UnicodeError):
    """Output is no text in the asked encoding (with ``errors="strict"``); the bytes are there."""

    code = "OUTPUT_DECODE_ERROR"


class SessionError(SandboxError):
    """Base of the errors about a session; ``session_id`` is ``None`` when it is not known."""

    code = "SESSION_ERROR"

    def __init__(self, message: str = "", *, session_id: str | None = None, **common: Unpack[_Common]) -> None:
        super().__init__(message, **common)
        self.session_id = session_id


class SessionExistsError(SessionError):
    """A session with this id is alive already."""

    code = "SESSION_ALREADY_EXISTS"


class SessionNotFoundError(SessionError):
    """There is no session with this id to delete."""

    code = "SESSION_NOT_FOUND"


class DefaultSessionError(SessionError):
    """The default session cannot be deleted."""

    code = "DEFAULT_SESSION"


class SessionTerminatedError(_PartialOutput, SessionError):
    """The shell of the session ended; ``exit_code`` is ``None`` when it is unknown.

    The next call with the same id gets a fresh shell.
    """

    code = "SESSION_TERMINATED"

    def __init__(
        self,
        message: str = "",
        *,
        session_id: str | None = None,
        exit_code: int | None = None,
        **common: Unpack[_Output],
    ) -> None:
        super().__init__(message, **common)
        self.session_id = session_id
        self.exit_code = exit_code


class SessionDestroyedError(_PartialOutput, SessionError):
    """The session was deleted, before the call or while its command ran."""

    code = "SESSION_DESTROYED"

    def __init__(self, message: str = "", *, session_id: str | None = None, **common: Unpack[_Output]) -> None:
        super().__init__(message, **common)
        self.session_id = session_id


class SessionBusyError(SessionError):
    """The call would wait for itself: its thread is inside a command of the same session."""

    code = "SESSION_BUSY"


class FileError(SandboxError, OSError):
    """A file operation failed; ``errno`` says why and ``filename`` is the path as it was given."""

    code = "FILESYSTEM_ERROR"
    errno: int | None
    filename: str | None
    _errno: ClassVar[int | None] = None

    def __init__(
        self,
        message: str = "",
        *,
        errno: int | None = None,
        filename: str | None = None,
        **common: Unpack[_Common],
    ) -> None:
        number = type(self)._errno if errno is None else errno
        reason = None if number is None else os.strerror(number)
        if not message:
            message = (reason or "File operation failed") + ("" if filename is None else f": {filename!r}")
        super().__init__(message, **common)
        self.errno = number
        self.strerror = reason
        self.filename = filename


class SandboxFileNotFoundError(FileError, FileNotFoundError):
    """There is no such file or directory."""

    code = "FILE_NOT_FOUND"
    _errno = ENOENT


class SandboxFileExistsError(FileError, FileExistsError):
    """The file or directory is there already."""

    code = "FILE_EXISTS"
    _errno = EEXIST


class SandboxPermissionError(FileError, PermissionError):
    """The sandbox's user may not do that, or the file system is read-only."""

    code = "PERMISSION_DENIED"
    _errno = EACCES


class SandboxIsADirectoryError(FileError, IsADirectoryError):
    """A file is needed, and the path is a directory."""

    code = "IS_DIRECTORY"
    _errno = EISDIR


class SandboxNotADirectoryError(FileError, NotADirectoryError):
    """A directory is needed, and the path is something else."""

    code = "NOT_DIRECTORY"
    _errno = ENOTDIR


class FileTooLargeError(FileError):
    """The file is larger than the service, or the file system, takes."""

    code = "FILE_TOO_LARGE"
    _errno = EFBIG


class NoSpaceError(FileError):
    """The file system, or the quota, is full."""

    code = "NO_SPACE"
    _errno = ENOSPC


_BY_ERRNO: dict[int, type[FileError]] = {
    ENOENT: SandboxFileNotFoundError,
    EEXIST: SandboxFileExistsError,
    EACCES: SandboxPermissionError,
    EPERM: SandboxPermissionError,
    EROFS: SandboxPermissionError,
    EISDIR: SandboxIsADirectoryError,
    ENOTDIR: SandboxNotADirectoryError,
    EFBIG: FileTooLargeError,
    ENOSPC: NoSpaceError,
    EDQUOT: NoSpaceError,
}


def file_error(exc: OSError, path: str) -> FileError:
    """Return (not raise) the :class:`FileError` for *exc*, with its ``errno`` and *path* as ``filename``.

    An ``errno`` without a class of its own, such as ``ENOTEMPTY``, gives a plain :class:`FileError`.
    Raise it ``from`` *exc*.
    """
    cls = FileError if exc.errno is None else _BY_ERRNO.get(exc.errno, FileError)
    return cls("" if exc.errno is not None else f"{exc}: {path!r}", errno=exc.errno, filename=path)


class ProcessError(SandboxError):
    """Base of the errors about a background process; ``process_id`` is ``None`` when it is not known."""

    code = "PROCESS_ERROR"

    def __init__(self, message: str = "", *, process_id: str | None = None, **common: Unpack[_Common]) -> None:
        super().__init__(message, **common)
        self.process_id = process_id


class ProcessNotFoundError(ProcessError):
    """No process with this id is known; it may have been forgotten, or its sandbox restarted."""

    code = "PROCESS_NOT_FOUND"


class ProcessExitedBeforeReadyError(ProcessError):
    """The process ended before what was waited for came; ``logs`` holds the end of its output."""

    code = "PROCESS_EXITED_BEFORE_READY"

    def __init__(
        self,
        message: str = "",
        *,
        process_id: str | None = None,
        exit_code: int | None = None,
        logs: ProcessLogs | None = None,
        **common: Unpack[_Common],
    ) -> None:
        super().__init__(message, process_id=process_id, **common)
        self.exit_code = exit_code
        self.logs = logs


class ProcessTimeoutError(ProcessError, TimeoutError):
    """The process did not end within ``timeout`` seconds; it still runs."""

    code = "PROCESS_TIMEOUT"
    retryable = True

    def __init__(
        self,
        message: str = "",
        *,
        process_id: str | None = None,
        timeout: float | None = None,
        **common: Unpack[_Common],
    ) -> None:
        super().__init__(message, process_id=process_id, **common)
        self.timeout = timeout


class ProcessReadyTimeoutError(ProcessTimeoutError):
    """What was waited for did not come within ``timeout`` seconds; ``logs`` holds the end of the output."""

    code = "PROCESS_READY_TIMEOUT"

    def __init__(
        self,
        message: str = "",
        *,
        process_id: str | None = None,
        timeout: float | None = None,
        logs: ProcessLogs | None = None,
        **common: Unpack[_Common],
    ) -> None:
        super().__init__(message, process_id=process_id, timeout=timeout, **common)
        self.logs = logs


class TerminalError(SandboxError):
    """Base of the errors about a terminal."""

    code = "TERMINAL_ERROR"


class TerminalClosedError(TerminalError):
    """The terminal was closed, here or on the far side."""

    code = "TERMINAL_CLOSED"


class TerminalTimeoutError(TerminalError, TimeoutError):
    """Nothing came from the terminal in time; it is still open."""

    code = "TERMINAL_TIMEOUT"
    retryable = True


class CodeContextError(SandboxError):
    """Base of the errors about code contexts; ``context_id`` is ``None`` when it is not known."""

    code = "CODE_CONTEXT_ERROR"

    def __init__(self, message: str = "", *, context_id: str | None = None, **common: Unpack[_Common]) -> None:
        super().__init__(message, **common)
        self.context_id = context_id


class CodeContextNotFoundError(CodeContextError):
    """There is no code context with this id."""

    code = "CONTEXT_NOT_FOUND"


class LanguageNotAvailableError(CodeContextError):
    """The sandbox has no interpreter for this language."""

    code = "LANGUAGE_NOT_AVAILABLE"


class InterpreterNotReadyError(CodeContextError):
    """The interpreter is still starting."""

    code = "INTERPRETER_NOT_READY"
    retryable = True


class InterpreterCrashedError(CodeContextError):
    """The interpreter ended during the run; what the code had defined is lost."""

    code = "INTERPRETER_CRASHED"


class GitError(SandboxError):
    """A git operation failed; ``context`` may hold ``exit_code`` and ``stderr``."""

    code = "GIT_OPERATION_FAILED"


class GitAuthenticationError(GitError):
    """The repository asks for other credentials."""

    code = "GIT_AUTH_FAILED"


class GitRepositoryNotFoundError(GitError):
    """There is no such repository, or it is hidden from these credentials."""

    code = "GIT_REPOSITORY_NOT_FOUND"


class GitBranchNotFoundError(GitError):
    """The repository has no such branch."""

    code = "GIT_BRANCH_NOT_FOUND"


class TransportError(SandboxError, ConnectionError):
    """The sandbox could not be reached, or the way to it broke."""

    code = "TRANSPORT_ERROR"
    retryable: bool | None = None


class AuthenticationError(TransportError):
    """The service refused the API key (401, 403)."""

    code = "UNAUTHORIZED"
    retryable = False


class SandboxUnavailableError(TransportError):
    """The service has no room, or the sandbox is starting or gone; ``retry_after`` is in seconds, if told."""

    code = "SANDBOX_UNAVAILABLE"
    retryable: bool | None = True

    def __init__(self, message: str = "", *, retry_after: float | None = None, **common: Unpack[_Common]) -> None:
        super().__init__(message, **common)
        self.retry_after = retry_after


class RequestTimeoutError(TransportError, TimeoutError):
    """The service did not answer in time; whether it did what was asked is not known."""

    code = "REQUEST_TIMEOUT"


class StreamInterruptedError(_PartialOutput, TransportError):
    """An output stream broke before the command's end was told, and could not be resumed."""

    code = "STREAM_INTERRUPTED"


class ProtocolError(TransportError):
    """The service gave an answer that makes no sense; the message quotes its beginning."""

    code = "PROTOCOL_ERROR"
    retryable = False
