"""Background processes: their records, their logs, their ends. Standard output and error go to one file each."""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import attrs

from sandboxsync.errors import (
    InvalidRequestError,
    ProcessNotFoundError,
    SandboxError,
    SandboxUnavailableError,
)
from sandboxsync.models import ProcessStatus
from sandboxsync.transports.base import Exited, LogStream, Output, ProcessInfo, ProcessRequest
from sandboxsync.transports.local._channel import Pending, SupervisorGoneError

if TYPE_CHECKING:
    from sandboxsync.transports.local._sandbox import LocalSandbox

__all__ = ["Processes", "Records"]

_CHUNK = 1 << 16
_LOOK = 20
"""Milliseconds between looks at a log that did not grow."""
_TIMED_OUT = 124
_ENDING_SIGNALS = frozenset({2, 3, 9, 15})


@attrs.frozen
class _Record:
    """A process that was started, and where its logs are."""

    request: ProcessRequest
    session_id: str | None
    key: int
    pid: int
    tag: int
    started: datetime
    place: str
    logs: str

    def info(self, verdict: dict[str, Any]) -> ProcessInfo:
        status, exit_code = _status(verdict)
        ended = verdict.get("ended_at")
        return ProcessInfo(
            id=self.request.process_id,
            pid=self.pid,
            command=self.request.command,
            status=status,
            start_time=self.started,
            end_time=None if ended is None else datetime.fromtimestamp(ended, timezone.utc),
            exit_code=exit_code,
            session_id=self.session_id,
        )


def _status(verdict: dict[str, Any]) -> tuple[ProcessStatus, int | None]:
    code, reason, died_of = verdict["exit_code"], verdict["reason"], verdict["died_of"]
    if code is None:
        return "running", None
    if reason == "timeout":
        return "killed", _TIMED_OUT
    if reason is not None:
        return "killed", 128 + (died_of or verdict["signal"])
    if died_of is not None:
        return "killed", code
    return ("completed" if code == 0 else "failed"), code


class Records:
    """What is remembered of the background processes of a sandbox, by id: `None` is one that is being started."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.by_id: dict[str, _Record | None] = {}


class Processes:
    """The background processes of one sandbox, whose use this is: made for each. Any thread may ask."""

    def __init__(self, sandbox: LocalSandbox, records: Records) -> None:
        self._sandbox = sandbox
        self._lock = records.lock
        self._records = records.by_id

    def start(
        self, request: ProcessRequest, session_id: str | None, env: dict[str, str], snapshot: Snapshot
    ) -> ProcessInfo:
        """Start one from the state of its session. See `Transport.start_process`."""
        sandbox = self._sandbox
        cwd = snapshot.directory
        if request.cwd is not None:
            cwd = sandbox.resolve(request.cwd, cwd)
            sandbox.paths.check_directory(cwd)
        elif not sandbox.paths.is_dir(cwd):
            cwd = sandbox.workspace
        self._claim(request.process_id)
        try:
            record = self._spawn(request, session_id, env, snapshot.state, cwd)
        except BaseException as exc:
            with self._lock:
                self._records.pop(request.process_id, None)
            if isinstance(exc, OSError) and not isinstance(exc, SandboxError):
                raise SandboxUnavailableError(f"cannot start a process here now: {exc}") from exc
            raise
        with self._lock:
            self._records.pop(request.process_id)  # last in the order of dictionaries is youngest
            self._records[request.process_id] = record
        return self.get(request.process_id) if not request.auto_cleanup else record.info(_RUNNING)

    def _claim(self, process_id: str) -> None:
        """Reserve an id; the record of an ended process gives way."""
        while True:
            with self._lock:
                if process_id not in self._records:
                    self._records[process_id] = None
                    return
                record = self._records[process_id]
            if record is None or self._look([record])[0].status == "running":
                raise InvalidRequestError(f"process id {process_id!r} is in use by a running process")
            self.forget(process_id)

    def _spawn(
        self, request: ProcessRequest, session_id: str | None, env: dict[str, str], state: bytes | None, cwd: str
    ) -> _Record:
        sandbox = self._sandbox
        name, ground = sandbox.next_place(), sandbox.ground
        place = ground.here + name
        logs = ground.logs + name
        with ground.paths.acting():
            os.makedirs(place, 0o700)
            os.makedirs(logs, 0o700, exist_ok=True)
        argv = sandbox.shell_command(request.command, name + "command")
        environment = {**env, **request.env}
        if state is not None:
            sandbox.put(name + "state", state)
            pairs = [f"{name}={value}" for name, value in request.env.items()]
            scripts = ground.inside + "scripts/"
            launch = [sandbox.bash, "--norc", "--noprofile", "-O", "extglob", scripts + "launch.bash"]
            argv = [*launch, ground.inside + name + "state", str(len(pairs)), *pairs, *argv]
            environment = {}
        tag = sandbox.tag_of(sandbox.next_owner())
        fds = [os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)]
        try:
            for stream in ("stdout", "stderr"):
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
                with ground.paths.acting():
                    fds.append(os.open(logs + stream, flags, 0o600))
            started = datetime.now(timezone.utc)
            process = sandbox.spawn(argv, environment, cwd, tag, fds, timeout=request.timeout)
        finally:
            for fd in fds:
                os.close(fd)
        os.close(process.pidfd)
        return _Record(request, session_id, process.key, process.pid, tag, started, place, logs)

    def all(self) -> list[ProcessInfo]:
        """Those that are not forgotten, oldest first."""
        with self._lock:
            records = [record for record in self._records.values() if record is not None]
        return self._look(records)

    def get(self, process_id: str) -> ProcessInfo:
        """Raises `ProcessNotFoundError`."""
        found = self._look([self._record(process_id)])
        if not found:
            raise _unknown(process_id)
        return found[0]

    def wait(self, process_id: str, timeout: float | None) -> ProcessInfo:
        """See `Transport.wait_process`."""
        record = self._record(process_id)
        pending = self._ask(record)
        try:
            result = pending.result(timeout)
        except SupervisorGoneError:
            raise _unknown(process_id) from None
        finally:
            pending.close()
        if result is None:
            return self.get(process_id)  # it may have ended, and only not have told yet
        if record.request.auto_cleanup:
            self.forget(process_id)
        return record.info(result[0])

    def kill(self, process_id: str, number: int) -> None:
        """See `Transport.kill_process`."""
        record = self._record(process_id)
        if self._look([record])[0].status != "running":
            return
        request: dict[str, object] = {"do": "signal", "key": record.key, "number": number}
        if number in _ENDING_SIGNALS:
            request = {"do": "end", "low": record.tag, "high": record.tag, "reason": "killed", "number": number}
        try:
            self._sandbox.supervisor.answer(request)
        except SupervisorGoneError:
            raise _unknown(process_id) from None

    def forget(self, process_id: str) -> bool:
        """See `Transport.forget_process`."""
        with self._lock:
            record = self._records.get(process_id)
        if record is None or record.info(self._verdicts([record])[0]).status == "running":
            return False
        with self._lock:
            if self._records.get(process_id) is not record:
                return False
            del self._records[process_id]
        # Neither is there any more when the sandbox was ended meanwhile.
        with contextlib.suppress(SupervisorGoneError, FileNotFoundError):
            self._sandbox.supervisor.tell({"do": "forget", "key": record.key})
            for place in {record.place, record.logs}:
                for name in os.listdir(place):
                    os.unlink(place + name)
                os.rmdir(place)
        return True

    def follow(self, process_id: str, live: bool) -> LogStream:
        """See `Transport.follow_logs`."""
        record = self._record(process_id)
        pending = self._ask(record)
        try:
            return _LocalLog(record, pending, live)
        except FileNotFoundError:
            pending.close()
            raise _unknown(process_id) from None

    def _ask(self, record: _Record) -> Pending:
        try:
            return self._sandbox.supervisor.ask({"do": "wait", "key": record.key})
        except SupervisorGoneError:
            raise _unknown(record.request.process_id) from None

    def _record(self, process_id: str) -> _Record:
        with self._lock:
            record = self._records.get(process_id)
        if record is None:
            raise _unknown(process_id)
        return record

    def _look(self, records: list[_Record]) -> list[ProcessInfo]:
        """How processes are now, without those that are to be forgotten at their end and have ended."""
        infos = []
        for record, verdict in zip(records, self._verdicts(records), strict=True):
            info = record.info(verdict)
            if record.request.auto_cleanup and info.status != "running":
                self.forget(info.id)
            else:
                infos.append(info)
        return infos

    def _verdicts(self, records: list[_Record]) -> list[dict[str, Any]]:
        if not records:
            return []
        try:
            answer = self._sandbox.supervisor.answer({"do": "look", "keys": [record.key for record in records]})
        except SupervisorGoneError:
            raise self._sandbox.gone() from None
        found: dict[str, dict[str, Any]] = answer["found"]
        return [found.get(str(record.key), _LOST) for record in records]


@attrs.frozen
class Snapshot:
    """The state of a session for what starts beside it: what `after.bash` wrote (or `None`), and the directory."""

    state: bytes | None
    directory: str


_RUNNING: dict[str, Any] = {"exit_code": None, "reason": None, "signal": None, "died_of": None, "ended_at": None}
_LOST: dict[str, Any] = {**_RUNNING, "exit_code": 137, "died_of": 9}
"""Of a process whose record was dropped in the same moment."""


def _unknown(process_id: str) -> ProcessNotFoundError:
    return ProcessNotFoundError(f"there is no process {process_id!r}", process_id=process_id)


class _LocalLog(LogStream):
    """Reads the two log files, up to what they hold now or until the process has ended and they hold no more."""

    def __init__(self, record: _Record, pending: Pending, live: bool) -> None:
        self._record = record
        self._pending = pending
        self._live = live
        self._verdict: dict[str, Any] | None = None
        self._over = False
        self._reading = threading.Lock()
        self._files: list[_File] = []
        names: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
        for name in names:
            fd = os.open(record.logs + name, os.O_RDONLY | os.O_CLOEXEC)
            self._files.append(_File(name, fd, None if live else os.fstat(fd).st_size))
        self._poll = select.poll()
        self._poll.register(pending, select.POLLIN)

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        with self._reading:
            try:
                return self._read(timeout)
            finally:
                if self._over:
                    self._let_go()

    def _read(self, timeout: float | None) -> Output | Exited | None:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            if self._over:
                raise ValueError("this log has ended or was closed")
            # Looked at before the files: what was written before the end is in them then.
            if self._verdict is None and self._live and self._poll.poll(0):
                self._verdict = self._take_verdict()
            for file in self._files:
                data = file.read()
                if data:
                    self._files.reverse()  # so that none keeps the other from being read
                    return Output(file.name, data)
            if not self._live:
                return None
            if self._verdict is not None:
                return self._end()
            left = _LOOK if until is None else min(_LOOK, (until - time.monotonic()) * 1000)
            if left <= 0:
                return None
            self._poll.poll(left)

    def _take_verdict(self) -> dict[str, Any]:
        try:
            result = self._pending.result()
        except SupervisorGoneError:
            raise _unknown(self._record.request.process_id) from None
        assert result is not None  # no timeout was given
        return result[0]

    def _end(self) -> Exited:
        assert self._verdict is not None
        info = self._record.info(self._verdict)
        self._over = True
        assert info.exit_code is not None
        assert info.end_time is not None
        return Exited(info.exit_code, (info.end_time - info.start_time).total_seconds())

    def close(self) -> None:
        self._over = True
        # A reader in another thread looks at this within 20 ms, and lets go itself of what it is using.
        if self._reading.acquire(blocking=False):
            self._let_go()
            self._reading.release()

    def _let_go(self) -> None:
        self._pending.close()
        for file in self._files:
            os.close(file.fd)
        self._files = []


@attrs.define
class _File:
    """A log file being read, at most `left` bytes more of it."""

    name: Literal["stdout", "stderr"]
    fd: int
    left: int | None

    def read(self) -> bytes:
        data = os.read(self.fd, _CHUNK if self.left is None else min(_CHUNK, self.left))
        if self.left is not None:
            self.left -= len(data)
        return data
