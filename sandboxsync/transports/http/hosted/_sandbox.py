"""Sessions, commands and background processes of one sandbox, as the seam wants them, by its host."""

from __future__ import annotations

import base64
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone

from sandboxsync._clock import SYSTEM_CLOCK, Clock
from sandboxsync._unset import Timeout, Unset
from sandboxsync.errors import (
    InvalidRequestError,
    ProcessNotFoundError,
    ProtocolError,
    SandboxFileNotFoundError,
    SandboxNotADirectoryError,
    SandboxPermissionError,
    SessionBusyError,
    SessionDestroyedError,
    SessionError,
    SessionExistsError,
    SessionNotFoundError,
)
from sandboxsync.models import ProcessStatus
from sandboxsync.transports.base import (
    CommandRequest,
    Environment,
    Exited,
    LogStream,
    ProcessInfo,
    ProcessRequest,
    SessionRef,
    SessionSpec,
)
from sandboxsync.transports.http._retry import DEFAULT_POLICY, RetryPolicy
from sandboxsync.transports.http.hosted._command import HostedCommand, NoSessionError, Taken
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host, HostRefusedError, PlainExec, packed
from sandboxsync.transports.http.hosted._logs import HostedLog

__all__ = ["HostedSandbox"]

FIRST_VALUE = 7
"""Index in the array `__sbx` of what comes after the fixed texts: see `before.bash`."""
_MOST_TAKEN = 50
"""Jobs whose results were taken that the host is told of at once."""
_LARGE = 256 << 10
"""Bytes of standard input above which it is sent as a file."""
_PATIENCE = 20
"""Seconds that the host waits at most for the end of a process, in one call."""


class HostedSandbox:
    """One sandbox of a service. Any thread may use it."""

    def __init__(
        self,
        plain: PlainExec,
        workspace: str = "/workspace",
        *,
        files: HostedFiles | None = None,
        policy: RetryPolicy = DEFAULT_POLICY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """With `files`, large standard input takes their way."""
        self._files = files
        self._host = Host(plain, workspace, policy=policy, clock=clock)
        self._lock = threading.Lock()
        self._taken = Taken(_MOST_TAKEN)
        self._open_commands: dict[str, tuple[int, HostedCommand]] = {}

    # Sessions

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        """See `Transport.create_session`."""
        assert ref.session_id is not None
        texts = [spec.cwd or "", _time_of(spec.command_timeout, "call") or "", *_assignments(spec.env)]
        try:
            self._ask_once(ref, 1, "create", ref.session_id, *map(packed, texts))
        except HostRefusedError as exc:
            reason, _, path = str(exc).partition(" ")
            if reason == "exists":
                raise SessionExistsError(
                    f"session {ref.session_id!r} exists already", session_id=ref.session_id
                ) from None
            raise _no_directory(reason, path) from None

    def delete_session(self, ref: SessionRef) -> None:
        """See `Transport.delete_session`."""
        assert ref.session_id is not None
        try:
            self._ask_once(ref, 1, "delete", ref.session_id)
        except HostRefusedError:
            raise SessionNotFoundError(f"there is no session {ref.session_id!r}", session_id=ref.session_id) from None

    def list_sessions(self) -> list[str]:
        """See `Transport.list_sessions`."""
        return self._host.ask("list", "")

    def directory(self, ref: SessionRef) -> str:
        """What relative paths of a reference start from."""
        if ref.session_id is None:
            return self._host.workspace
        (line,) = self._ask(ref, "where", ref.session_id)
        return base64.b64decode(line).decode("utf-8", "surrogateescape")

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        """See `Transport.set_session_env`."""
        values = {name: value for name, value in changes.items() if value is not None}
        words = [rf'\builtin export {name}="${{__sbx[{index}]}}"' for index, name in enumerate(values, FIRST_VALUE)]
        words += [rf"\builtin unset -v {name}" for name, value in changes.items() if value is None]
        request = CommandRequest(" && ".join(words) or ":", timeout=timeout)
        command = self.run(ref, request, list(values.values()))
        said = b""
        try:
            while not isinstance(item := command.read(), Exited):
                said += item.data
        finally:
            command.close()
        if item.exit_code != 0:
            raise SessionError(
                f"session {ref.session_id!r} refused to change its environment: "
                f"{said.decode(errors='replace').strip()}",
                session_id=ref.session_id,
            )
        assert ref.session_id is not None
        self._ask_once(ref, 1, "set", ref.session_id, *map(packed, _assignments(changes)))

    def end(self) -> None:
        """End all sessions, commands and processes; files stay. Who uses them next learns that they are gone (S17)."""
        self._host.ask_once("end", "")

    # Commands

    def run(self, ref: SessionRef, request: CommandRequest, values: Sequence[str] = ()) -> HostedCommand:
        """See `Transport.run`. `values` come after those of the request's own variables."""
        if ref.session_id is not None and ref.is_deleted():
            raise SessionDestroyedError(f"session {ref.session_id!r} was deleted", session_id=ref.session_id)
        self._check_free(ref.session_id)
        time = _time_of(request.timeout, "call") or _time_of(request.default_timeout, "default") or ""
        stdin = self._stdin(ref, request.stdin)
        made = ["", "", *_assignments(ref.env)]
        texts = [request.command, time, request.cwd or "", str(len(request.env))]
        for name, value in request.env.items():
            texts += name, value
        texts += values
        arguments = [str(len(made)), *map(packed, made), stdin, *map(packed, texts)]
        command = self._begin(ref, request.command, "", arguments)
        if command is None:
            # It is not there; and was not deleted by who calls, or it would be known by now.
            if ref.is_deleted():
                raise SessionDestroyedError(f"session {ref.session_id!r} was deleted", session_id=ref.session_id)
            command = self._begin(ref, request.command, "make", arguments)
        assert command is not None
        if ref.session_id is not None:
            with self._lock:
                self._open_commands[ref.session_id] = (threading.get_ident(), command)
        return command

    def _stdin(self, ref: SessionRef, data: bytes | None) -> str:
        """Standard input as an argument; what is large goes as a file does."""
        if data is None:
            return "-"
        if self._files is not None and len(data) > _LARGE:
            return f"@{self._files.lend(ref, data)}"
        return "~" + base64.b64encode(data).decode()

    def _begin(self, ref: SessionRef, text: str, make: str, arguments: Sequence[str]) -> HostedCommand | None:
        """Start a command; `None` when its session is not there and not to be made."""
        command = HostedCommand(self._host, ref, secrets.token_hex(8), text, [make, *arguments], self._taken)
        try:
            command.begin()
        except NoSessionError:
            return None
        except BaseException:
            command.close()
            raise
        return command

    def _check_free(self, session_id: str | None) -> None:
        """Raise for a thread that would wait for itself (E15)."""
        with self._lock:
            thread, command = self._open_commands.get(session_id or "", (0, None))
        if command is not None and thread == threading.get_ident() and not command.is_over():
            raise SessionBusyError(
                "this thread holds an open command of the session: finish or close it before the next one"
            )

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        """See `Transport.start_process`."""
        made = ["", "", *_assignments(ref.env)]
        time = _time_of(request.timeout, "call") or ""
        texts = [request.command, time, request.cwd or "", str(len(request.env))]
        for name, value in request.env.items():
            texts += name, value
        arguments = [request.process_id, ref.session_id or "", "1" if request.auto_cleanup else "0", str(len(made))]
        try:
            lines = self._ask_once(ref, 2, "start", *arguments, *map(packed, made), *map(packed, texts))
        except HostRefusedError as exc:
            reason, _, path = str(exc).partition(" ")
            if reason == "in-use":
                raise InvalidRequestError(f"process id {request.process_id!r} is in use by a running process") from None
            raise _no_directory(reason, path) from None
        return _process(lines[-1])[0]

    def list_processes(self) -> list[ProcessInfo]:
        """See `Transport.list_processes`."""
        found = [_process(line) for line in self._host.ask("processes", "")]
        for info, auto_cleanup in found:
            if auto_cleanup and info.status != "running":
                self.forget_process(info.id)
        alive = [info for info, auto_cleanup in found if not auto_cleanup or info.status == "running"]
        return sorted(alive, key=lambda info: info.start_time)

    def get_process(self, process_id: str) -> ProcessInfo:
        """See `Transport.get_process`."""
        return self.wait_process(process_id, 0)

    def wait_process(self, process_id: str, timeout: float | None) -> ProcessInfo:
        """See `Transport.wait_process`."""
        left = timeout
        while True:
            patience = _PATIENCE if left is None else min(_PATIENCE, int(left + 0.999))
            with _process_errors(process_id):
                lines = self._host.ask("process", process_id, "", str(patience))
            info, auto_cleanup = _process(lines[-1])
            if info.status != "running" or (left is not None and left <= patience):
                break
            left = None if left is None else left - patience
        if auto_cleanup and info.status != "running":
            self.forget_process(process_id)
        return info

    def kill_process(self, process_id: str, signal: int) -> None:
        """See `Transport.kill_process`."""
        with _process_errors(process_id):
            self._host.ask_once("signal", process_id, "", str(signal))

    def forget_process(self, process_id: str) -> bool:
        """See `Transport.forget_process`."""
        try:
            self._host.ask_once("drop", process_id, "")
        except HostRefusedError:
            return False
        return True

    def follow_logs(self, process_id: str, live: bool) -> LogStream:
        """See `Transport.follow_logs`."""
        self.get_process(process_id)
        return HostedLog(self._host, process_id, live)

    # Inside

    def _ask(self, ref: SessionRef, verb: str, first: str) -> list[str]:
        return self._host.ask(verb, first, ref.incarnation or "", met=ref.meet)

    def _ask_once(self, ref: SessionRef, at: int, verb: str, *arguments: str) -> list[str]:
        """Ask for a change, with the incarnation that the client knows among the arguments."""
        known = ref.incarnation or ""
        return self._host.ask_once(verb, *arguments[:at], known, *arguments[at:], met=ref.meet)


def _time_of(timeout: Timeout, word: str) -> str | None:
    """How a time limit is told: `call 2.5`, `call none`; `None` when nothing was said."""
    if isinstance(timeout, Unset):
        return None
    return f"{word} none" if timeout is None or timeout == float("inf") else f"{word} {timeout:.6f}"


@contextmanager
def _process_errors(process_id: str) -> Iterator[None]:
    try:
        yield
    except HostRefusedError:
        raise ProcessNotFoundError(f"there is no process {process_id!r}", process_id=process_id) from None


def _assignments(env: Environment) -> list[str]:
    return [name if value is None else f"{name}={value}" for name, value in env.items()]


def _no_directory(reason: str, path: str) -> Exception:
    if reason == "missing":
        return SandboxFileNotFoundError(f"No such file or directory: {path!r}", errno=2, filename=path)
    if reason == "no-directory":
        return SandboxNotADirectoryError(f"Not a directory: {path!r}", errno=20, filename=path)
    if reason == "forbidden":
        return SandboxPermissionError(f"Permission denied: {path!r}", errno=13, filename=path)
    return ProtocolError(f"the session host refuses: {reason} {path}")


def _process(line: str) -> tuple[ProcessInfo, bool]:
    """What a line tells of a process, and whether it is to be forgotten at its end."""
    word, name, pid, start, session, auto, command, what, *ended = line.split(" ")
    if word != "process":
        raise ProtocolError(f"the session host says {line[:200]!r} of a process")
    began = datetime.fromtimestamp(int(start) / 1e6, timezone.utc)
    status: ProcessStatus = "running"
    code = end = None
    if what != "running":
        code, end = int(ended[0]), began + timedelta(microseconds=int(ended[4]))
        if what == "timeout":
            status, code = "killed", 124
        elif what == "killed" or 128 < code < 160:
            status = "killed"  # the shell tells a signal so
        else:
            status = "completed" if code == 0 else "failed"
    return ProcessInfo(
        id=name,
        pid=int(pid) if pid.isdigit() else None,
        command=base64.b64decode(command).decode("utf-8", "surrogateescape"),
        status=status,
        start_time=began,
        end_time=end,
        exit_code=code,
        session_id=None if session == "-" else session,
    ), auto == "1"
