"""Faults on demand: what stands between a call of the transport and what it does."""

from __future__ import annotations

import copy
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

import attrs

from sandboxsync.errors import (
    AuthenticationError,
    FileError,
    InvalidRequestError,
    ProcessError,
    SandboxError,
    SandboxUnavailableError,
    SessionError,
)
from sandboxsync.transports.base import ByteStream, SessionRef, Transport

__all__ = ["CutFile", "ErrorToRaise", "Faults", "intercepted"]

OPERATIONS = frozenset(
    name for name, member in vars(Transport).items() if inspect.isfunction(member) and not name.startswith("_")
) - {"close"}
_ALSO = {
    "cleanup_completed_processes": "forget_process",
    "delete_file": "remove_file",
    "download": "read_tree",
    "exec": "run",
    "exec_stream": "run",
    "exists": "stat",
    "get_process_logs": "follow_logs",
    "git_checkout": "run",
    "hydrate": "write_tree",
    "mkdir": "make_directory",
    "move_file": "rename",
    "persist": "read_tree",
    "read_bytes": "read_file",
    "read_file_stream": "read_file",
    "read_text": "read_file",
    "rename_file": "rename",
    "set_env_vars": "set_session_env",
    "stream_process_logs": "follow_logs",
    "wait_for_exit": "wait_process",
    "wait_for_log": "follow_logs",
    "wait_for_port": "probe_port",
}
"""The verbs of a sandbox that are not called as what they ask of a transport."""
_CUTTABLE = frozenset({"run", "read_file"})
_STATUS = {AuthenticationError: 401, SandboxUnavailableError: 503}

_Class = TypeVar("_Class", bound=type)
ErrorToRaise = SandboxError | type[SandboxError]


class _Interceptable(Protocol):
    _faults: Faults

    def _before(self, operation: str, given: inspect.BoundArguments) -> None: ...


def intercepted(cls: _Class) -> _Class:
    """Have the `_before` of a transport called, while there are faults, before each of its operations."""
    for operation in OPERATIONS:
        setattr(cls, operation, _intercepted(operation, getattr(cls, operation)))
    return cls


def _intercepted(operation: str, method: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(method)

    @functools.wraps(method)
    def call(self: _Interceptable, *args: Any, **kwargs: Any) -> Any:
        if self._faults.are_armed:
            self._before(operation, signature.bind(self, *args, **kwargs))
        return method(self, *args, **kwargs)

    return call


@attrs.define(eq=False)
class _Fault:
    operation: str | None
    error: ErrorToRaise
    left: int
    after: int | None
    sandbox_id: str | None


class Faults:
    """The faults that are still to come, in their order. Any thread may use it."""

    def __init__(self) -> None:
        self.latency = 0.0
        """Seconds that each operation takes before anything is done."""
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []

    @property
    def are_armed(self) -> bool:
        """Whether any call may be struck or slow."""
        return bool(self._faults) or self.latency > 0

    def add(self, operation: str | None, error: object, times: int, after: int | None, sandbox_id: str | None) -> None:
        """Let the next operations of a name, or of any, fail. Raises `InvalidRequestError` for unknown ones."""
        if operation is not None:
            operation = _ALSO.get(operation, operation)
            if operation not in OPERATIONS:
                known = ", ".join(sorted(OPERATIONS | set(_ALSO)))
                raise InvalidRequestError(f"there is no operation {operation!r}; there are {known}")
        if not (isinstance(error, SandboxError) or (isinstance(error, type) and issubclass(error, SandboxError))):
            raise InvalidRequestError(f"a sandbox raises a SandboxError, not {error!r}")
        if after is not None and operation not in _CUTTABLE:
            raise InvalidRequestError("after_bytes is for exec and read_file, whose output comes in pieces")
        _made(error, "", {})  # now rather than in the middle of what is tested
        with self._lock:
            self._faults.append(_Fault(operation, error, times, after, sandbox_id))

    def clear(self) -> None:
        """Let nothing fail any more."""
        with self._lock:
            self._faults.clear()
        self.latency = 0.0

    def strike(self, operation: str, given: inspect.BoundArguments) -> None:
        """Raise the error of the next fault that is for this operation, if there is one."""
        fault = self._next(operation, _sandbox_id(given), cut=False)
        if fault is not None:
            raise _made(fault.error, operation, given.arguments)

    def cut(self, operation: str, sandbox_id: str, **given: object) -> tuple[int, SandboxError] | None:
        """After how many bytes the output of this operation has to break off, if at all, and the error then."""
        fault = self._next(operation, sandbox_id, cut=True) if self._faults else None
        if fault is None or fault.after is None:
            return None
        return fault.after, _made(fault.error, operation, given)

    def renew(self) -> None:
        """In a forked child: who held the lock is not here."""
        self._lock = threading.Lock()

    def _next(self, operation: str, sandbox_id: str, cut: bool) -> _Fault | None:
        with self._lock:
            for fault in self._faults:
                if (
                    fault.operation in (None, operation)
                    and fault.sandbox_id in (None, sandbox_id)
                    and (fault.after is not None) == cut
                ):
                    fault.left -= 1
                    if fault.left == 0:
                        self._faults.remove(fault)
                    return fault
        return None


class CutFile(ByteStream):
    """A file whose reading breaks off after some bytes, at the latest before its end is told."""

    def __init__(self, inner: ByteStream, after: int, error: SandboxError) -> None:
        self.path = inner.path
        self.size = inner.size
        self._inner = inner
        self._left = after
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        chunk = next(self._inner, b"")[: self._left]
        self._left -= len(chunk)
        if chunk:
            return chunk
        raise self._error

    def close(self) -> None:
        self._inner.close()


def _sandbox_id(given: inspect.BoundArguments) -> str:
    ref = given.arguments.get("ref")
    found: str = ref.sandbox_id if isinstance(ref, SessionRef) else given.arguments["sandbox_id"]
    return found


def _made(error: ErrorToRaise, operation: str, given: dict[str, Any]) -> SandboxError:
    """Return the error to raise, a new one each time; what a class needs to know is taken from the arguments."""
    if isinstance(error, SandboxError):
        return copy.copy(error)
    message = f"{operation} failed, as the test has asked for"
    fields: dict[str, Any] = {"http_status": _STATUS.get(error)}
    if issubclass(error, FileError):
        message, fields["filename"] = "", given.get("path", given.get("old"))
    if issubclass(error, SessionError):
        fields["session_id"] = getattr(given.get("ref"), "session_id", None)
    if issubclass(error, ProcessError):
        fields["process_id"] = given.get("process_id")
    try:
        return error(message, **fields)
    except TypeError:
        raise InvalidRequestError(f"{error.__name__} needs more than a message: give one that is made") from None
