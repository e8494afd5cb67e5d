"""Sandboxes to run commands in, one API on every backend.

``Sandbox`` over a transport, or ``connect`` with a URL, is where to begin; the errors are those of
``sandboxsync.errors``. Each name is imported when it is first asked for, so that importing the package costs
next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from . import errors as errors
    from . import models as models
    from ._connect import connect
    from ._process import Process, ProcessLogStream
    from ._sandbox import Sandbox
    from ._session import Session
    from ._stream import ExecStream, FileStream
    from ._unset import UNSET
    from .errors import (
        AuthenticationError,
        CodeContextError,
        CodeContextNotFoundError,
        CommandFailedError,
        CommandTimeoutError,
        ConfigurationError,
        DefaultSessionError,
        FileError,
        FileTooLargeError,
        GitAuthenticationError,
        GitBranchNotFoundError,
        GitError,
        GitRepositoryNotFoundError,
        InterpreterCrashedError,
        InterpreterNotReadyError,
        InvalidRequestError,
        LanguageNotAvailableError,
        NoSpaceError,
        OutputDecodeError,
        OutputLimitError,
        ProcessError,
        ProcessExitedBeforeReadyError,
        ProcessNotFoundError,
        ProcessReadyTimeoutError,
        ProcessTimeoutError,
        ProtocolError,
        RequestTimeoutError,
        SandboxDestroyedError,
        SandboxError,
        SandboxFileExistsError,
        SandboxFileNotFoundError,
        SandboxIsADirectoryError,
        SandboxNotADirectoryError,
        SandboxPermissionError,
        SandboxUnavailableError,
        SessionBusyError,
        SessionDestroyedError,
        SessionError,
        SessionExistsError,
        SessionNotFoundError,
        SessionTerminatedError,
        StreamInterruptedError,
        TerminalClosedError,
        TerminalError,
        TerminalTimeoutError,
        TransportError,
        UnsupportedOperationError,
    )
    from .models import (
        Completed,
        ExecEvent,
        ExecResult,
        FileInfo,
        FileType,
        GitCheckoutResult,
        LogEvent,
        LogMatch,
        MkdirResult,
        ProcessLogs,
        ProcessStatus,
        ReadFileResult,
        SessionDeleteResult,
        Started,
        Stderr,
        Stdout,
        WriteFileResult,
    )
    from .transports.fake import FakeCall, FakeClock, FakeResult, FakeTransport
    from .transports.http import HTTPTimeouts, HTTPTransport, RequestFinished, RetryPolicy, RetryScheduled
    from .transports.local import Bind, Limits, LocalTransport

    __version__: str

__all__ = [
    "UNSET",
    "AuthenticationError",
    "Bind",
    "CodeContextError",
    "CodeContextNotFoundError",
    "CommandFailedError",
    "CommandTimeoutError",
    "Completed",
    "ConfigurationError",
    "DefaultSessionError",
    "ExecEvent",
    "ExecResult",
    "ExecStream",
    "FakeCall",
    "FakeClock",
    "FakeResult",
    "FakeTransport",
    "FileError",
    "FileInfo",
    "FileStream",
    "FileTooLargeError",
    "FileType",
    "GitAuthenticationError",
    "GitBranchNotFoundError",
    "GitCheckoutResult",
    "GitError",
    "GitRepositoryNotFoundError",
    "HTTPTimeouts",
    "HTTPTransport",
    "InterpreterCrashedError",
    "InterpreterNotReadyError",
    "InvalidRequestError",
    "LanguageNotAvailableError",
    "Limits",
    "LocalTransport",
    "LogEvent",
    "LogMatch",
    "MkdirResult",
    "NoSpaceError",
    "OutputDecodeError",
    "OutputLimitError",
    "Process",
    "ProcessError",
    "ProcessExitedBeforeReadyError",
    "ProcessLogStream",
    "ProcessLogs",
    "ProcessNotFoundError",
    "ProcessReadyTimeoutError",
    "ProcessStatus",
    "ProcessTimeoutError",
    "ProtocolError",
    "ReadFileResult",
    "RequestFinished",
    "RequestTimeoutError",
    "RetryPolicy",
    "RetryScheduled",
    "Sandbox",
    "SandboxDestroyedError",
    "SandboxError",
    "SandboxFileExistsError",
    "SandboxFileNotFoundError",
    "SandboxIsADirectoryError",
    "SandboxNotADirectoryError",
    "SandboxPermissionError",
    "SandboxUnavailableError",
    "Session",
    "SessionBusyError",
    "SessionDeleteResult",
    "SessionDestroyedError",
    "SessionError",
    "SessionExistsError",
    "SessionNotFoundError",
    "SessionTerminatedError",
    "Started",
    "Stderr",
    "Stdout",
    "StreamInterruptedError",
    "TerminalClosedError",
    "TerminalError",
    "TerminalTimeoutError",
    "TransportError",
    "UnsupportedOperationError",
    "WriteFileResult",
    "connect",
]

# Where the names are, what costs least to import first.
_HOMES = (
    "errors",
    "models",
    "_unset",
    "_stream",
    "_process",
    "_session",
    "_sandbox",
    "_connect",
)
_TRANSPORTS = {
    "Bind": "transports.local",
    "FakeCall": "transports.fake",
    "FakeClock": "transports.fake",
    "FakeResult": "transports.fake",
    "FakeTransport": "transports.fake",
    "HTTPTimeouts": "transports.http",
    "HTTPTransport": "transports.http",
    "Limits": "transports.local",
    "LocalTransport": "transports.local",
    "RequestFinished": "transports.http",
    "RetryPolicy": "transports.http",
    "RetryScheduled": "transports.http",
}


def __getattr__(name: str) -> object:
    if name in ("errors", "models"):
        return import_module(f"{__name__}.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    for home in [_TRANSPORTS[name]] if name in _TRANSPORTS else _HOMES:
        names = vars(import_module(f"{__name__}.{home}"))
        if name in names:
            return globals().setdefault(name, names[name])
    raise AssertionError(f"{name!r} is in __all__ and nowhere else")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__", "errors", "models"})
