"""Background processes of the fake: their records, their logs, their ends."""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from sandboxsync.errors import InvalidRequestError, ProcessNotFoundError, file_error
from sandboxsync.models import ProcessStatus
from sandboxsync.transports.base import Exited, LogStream, Output, ProcessInfo, ProcessRequest
from sandboxsync.transports.fake._command import CUT
from sandboxsync.transports.fake._limits import check_text
from sandboxsync.transports.fake._program import Notes
from sandboxsync.transports.fake._shell import Cut, Died, Ended, Settings, Shell, Stopped, StreamName

if TYPE_CHECKING:
    from sandboxsync.transports.fake._clock import Timer, Wait
    from sandboxsync.transports.fake._sandbox import FakeSandbox

__all__ = ["FakeProcess", "Processes"]

_TIMED_OUT = 124
_ENDING_SIGNALS = frozenset({2, 3, 9, 15})
_FIRST_PID = 100


class FakeProcess:
    """A background process: a shell that runs its command, what it has written, and how it is."""

    def __init__(self, sandbox: FakeSandbox, request: ProcessRequest, session_id: str | None, pid: int) -> None:
        self.request = request
        self.session_id = session_id
        self.pid = pid
        check_text(request.command)
        self.text = request.command
        self.stdin: bytes | None = None
        self.settings = Settings()
        self.notes = Notes()
        self.stopped = False
        self.output: list[Output] = []
        self.exit_code: int | None = None
        self.status: ProcessStatus = "running"
        self.started: datetime = sandbox.engine.clock.now()
        self.ended_at: datetime | None = None
        self.changed = threading.Condition(threading.Lock())
        self.on_ended: Callable[[], None] = lambda: None
        self.on_end: Callable[[FakeProcess, int], None] = lambda process, exit_code: None
        """Called with the exit code before anybody sees it."""
        self._clock = sandbox.engine.clock
        self._engine = sandbox.engine
        self._shell: Shell | None = None
        self._timer: Timer | None = None
        self._verdict: int | None = None
        self._waits: set[Wait] = set()

    @property
    def duration(self) -> float:
        """Seconds on the clock since it was started."""
        return (self._clock.now() - self.started).total_seconds()

    def start(self, shell: Shell) -> None:
        """Run in a shell of its own."""
        self._shell = shell
        shell.hold()
        if self.request.timeout is not None and not math.isinf(self.request.timeout):
            self._timer = self._clock.set_timer(self.request.timeout, lambda: self._expire(shell))
        shell.submit(self)

    def _expire(self, shell: Shell) -> None:
        shell.hold()
        self._stop(_TIMED_OUT)

    # For the shell

    def put(self, stream: StreamName, data: bytes) -> bool:
        with self.changed:
            self.output.append(Output(stream, data))
            self._tell()
        return True

    def on_room(self, call: Callable[[], object]) -> None:
        call()

    def ended(self, how: Cut | Died | Ended | Stopped) -> None:
        self._clock.cancel(self._timer)
        if isinstance(how, Stopped):
            code = 137 if self._verdict is None else self._verdict
            status: ProcessStatus = "killed"
        elif isinstance(how, Cut):
            code, status = 1, "error"
            self.put("stderr", f"{CUT}\n".encode())
        else:
            code = how.exit_code
            status = "completed" if code == 0 else "failed"
        self.on_end(self, code)
        with self.changed:
            self.exit_code, self.status, self.ended_at = code, status, self._clock.now()
            self._tell()
        if self._shell is not None:
            self._shell.rest()
            self._shell.end()
        self.on_ended()

    def _stop(self, exit_code: int) -> None:
        if self._verdict is None and self.status == "running" and self._shell is not None:
            self._verdict = exit_code
            self.stopped = True
            self._shell.stop(self)

    # From any thread

    def kill(self, exit_code: int) -> None:
        """End it, and return when it has ended."""
        self._stop(exit_code)
        with self.changed:
            while self.status == "running":
                self.changed.wait()

    def wait(self, timeout: float | None) -> None:
        """Return when it has ended, or `timeout` seconds have passed on the clock."""
        with self.waiting(timeout) as wait, self.changed:
            while self.status == "running" and not wait.late:
                wait.begin()
                self.changed.wait()

    @contextlib.contextmanager
    def waiting(self, timeout: float | None) -> Iterator[Wait]:
        """A wait for something to happen to the process."""
        wait = self._clock.wait(timeout, lambda: self._engine.post(self.tell))
        self._waits.add(wait)
        try:
            yield wait
        finally:
            self._waits.discard(wait)
            wait.end()

    def tell(self) -> None:
        """Let all who wait look."""
        with self.changed:
            self._tell()

    def _tell(self) -> None:
        for wait in list(self._waits):
            wait.end()
        self.changed.notify_all()

    def info(self) -> ProcessInfo:
        """What it is now."""
        with self.changed:
            return ProcessInfo(
                id=self.request.process_id,
                pid=self.pid,
                command=self.request.command,
                status=self.status,
                start_time=self.started,
                end_time=self.ended_at,
                exit_code=self.exit_code,
                session_id=self.session_id,
            )


class Processes:
    """The background processes of one sandbox. Any thread may ask."""

    def __init__(self, sandbox: FakeSandbox) -> None:
        self._sandbox = sandbox
        self._lock = threading.Lock()
        self._records: dict[str, FakeProcess] = {}
        self._pids = itertools.count(_FIRST_PID)

    def start(
        self,
        request: ProcessRequest,
        session_id: str | None,
        env: dict[str, str],
        directory: str,
        begin: Callable[[FakeProcess], None],
    ) -> ProcessInfo:
        """Start one beside its session. See `Transport.start_process`. `begin` is called with it before it runs."""
        sandbox = self._sandbox
        if request.cwd is not None:
            directory = sandbox.resolve(request.cwd, directory)
            try:
                sandbox.volume.listdir(directory)
            except OSError as exc:
                raise file_error(exc, directory) from exc
        elif sandbox.directory_problem(directory) is not None:
            directory = sandbox.workspace
        process = FakeProcess(sandbox, request, session_id, next(self._pids))
        with self._lock:
            old = self._records.get(request.process_id)
            if old is not None and old.status == "running":
                raise InvalidRequestError(f"process id {request.process_id!r} is in use by a running process")
            self._records.pop(request.process_id, None)  # last in the order of dictionaries is youngest
            self._records[request.process_id] = process
        if request.auto_cleanup:
            process.on_ended = lambda: self._drop(process)
        begin(process)
        process.start(sandbox.new_shell({**env, **request.env}, directory, session_id))
        return process.info()

    def all(self) -> list[ProcessInfo]:
        """Those that are not forgotten, oldest first."""
        with self._lock:
            records = list(self._records.values())
        return [record.info() for record in records]

    def get(self, process_id: str) -> FakeProcess:
        """Raises `ProcessNotFoundError`."""
        with self._lock:
            record = self._records.get(process_id)
        if record is None:
            raise ProcessNotFoundError(f"there is no process {process_id!r}", process_id=process_id)
        return record

    def wait(self, process_id: str, timeout: float | None) -> ProcessInfo:
        """See `Transport.wait_process`."""
        process = self.get(process_id)
        process.wait(timeout)
        return process.info()

    def kill(self, process_id: str, number: int) -> None:
        """See `Transport.kill_process`."""
        process = self.get(process_id)
        if process.status == "running" and number in _ENDING_SIGNALS:
            process.kill(128 + number)

    def forget(self, process_id: str) -> bool:
        """See `Transport.forget_process`."""
        with self._lock:
            record = self._records.get(process_id)
            if record is None or record.status == "running":
                return False
            del self._records[process_id]
            return True

    def probe(self, port: int, path: str | None) -> int | None:
        """See `Transport.probe_port`."""
        return self._sandbox.ports.probe(port, path)

    def _drop(self, process: FakeProcess) -> None:
        with self._lock:
            if self._records.get(process.request.process_id) is process:
                del self._records[process.request.process_id]

    def follow(self, process_id: str, live: bool) -> LogStream:
        """See `Transport.follow_logs`."""
        return FakeLog(self.get(process_id), live)

    def end(self) -> None:
        """The sandbox is ended: so are they."""
        with self._lock:
            records = list(self._records.values())
            self._records.clear()
        for record in records:
            if record.status == "running":
                record.kill(137)


class FakeLog(LogStream):
    """Reads what a process wrote, up to what there is now or to its end."""

    def __init__(self, process: FakeProcess, live: bool) -> None:
        self._process = process
        self._next = 0
        self._limit = None if live else len(process.output)
        self._over = False

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        process = self._process
        with process.waiting(timeout) as wait, process.changed:
            while True:
                if self._over:
                    raise ValueError("this log has ended or was closed")
                if self._next < (len(process.output) if self._limit is None else self._limit):
                    self._next += 1
                    return process.output[self._next - 1]
                if self._limit is not None:
                    return None
                if process.status != "running":
                    self._over = True
                    assert process.ended_at is not None
                    assert process.exit_code is not None
                    return Exited(process.exit_code, (process.ended_at - process.started).total_seconds())
                if wait.late or (timeout is not None and timeout <= 0):
                    return None
                wait.begin()
                process.changed.wait()

    def close(self) -> None:
        self._over = True
        self._process.tell()
