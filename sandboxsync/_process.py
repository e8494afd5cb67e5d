"""A background process and the stream of its logs."""

from __future__ import annotations

import re
from collections import deque
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Literal

import attrs

from ._client import Client
from ._deadline import Deadline
from ._decode import make_decoder
from ._stream import Closing
from ._validate import check_limit, check_signal
from .errors import (
    InvalidRequestError,
    ProcessError,
    ProcessNotFoundError,
    ProcessTimeoutError,
    SandboxError,
)
from .models import LogEvent, LogMatch, ProcessLogs, ProcessStatus
from .transports.base import Exited, LogStream, ProcessInfo

if TYPE_CHECKING:
    from signal import Signals

    from typing_extensions import Self

RUNNING = frozenset({"starting", "running"})

# These end the whole tree, and killing returns when it is gone; any other is only sent.
_ENDING = frozenset({2, 3, 9, 15})


class Process:
    """A background process of the sandbox. It outlives the call, the session and this object.

    The attributes are as of the last call on this object; ``refresh`` asks anew. Any thread may use it. Every
    method raises ``ProcessNotFoundError`` when the process is not known any more (forgotten, or the sandbox
    was restarted), ``SandboxDestroyedError``, and a ``TransportError`` when the sandbox cannot be reached.
    """

    def __init__(self, client: Client, info: ProcessInfo) -> None:
        self._client = client
        self._info = info

    def __repr__(self) -> str:
        code = "" if self._info.exit_code is None else f" exit_code={self._info.exit_code}"
        return f"<Process {self._info.id!r} {self._info.status}{code}>"

    @property
    def id(self) -> str:
        """Its name in the sandbox."""
        return self._info.id

    @property
    def pid(self) -> int | None:
        """The number of its main process in the sandbox's own numbering; ``None`` when it is not known."""
        return self._info.pid

    @property
    def command(self) -> str:
        """The shell text it was started with."""
        return self._info.command

    @property
    def status(self) -> ProcessStatus:
        """``starting``, ``running``, ``completed``, ``failed``, ``killed`` or ``error``."""
        return self._info.status

    @property
    def start_time(self) -> datetime:
        """When it was started, in UTC."""
        return self._info.start_time

    @property
    def end_time(self) -> datetime | None:
        """When it ended, in UTC; ``None`` while it runs."""
        return self._info.end_time

    @property
    def exit_code(self) -> int | None:
        """The shell's exit code; ``None`` while it runs."""
        return self._info.exit_code

    @property
    def session_id(self) -> str | None:
        """The session whose environment and directory it was started with; ``None`` without one."""
        return self._info.session_id

    def refresh(self) -> Self:
        """Ask for the present state and return this object."""
        self._info = self._client.call(self._client.transport.get_process, self._client.sandbox_id, self.id)
        return self

    def _update(self) -> None:
        # After what was asked for has been done: a record that is forgotten by then is no failure of it.
        with suppress(ProcessNotFoundError):
            self.refresh()

    def kill(self, signal: str | int | Signals = "SIGTERM") -> None:
        """End the process, or send it a signal. Does nothing to one that has ended.

        TERM, INT, QUIT and KILL end its whole tree: returns when it is gone, KILL after 2 s. Any other signal
        is only sent to the main process. Raises ``InvalidRequestError`` for what is no signal.
        """
        number = check_signal(signal)
        self._client.call(self._client.transport.kill_process, self._client.sandbox_id, self.id, number)
        before = self._info
        self._update()
        if self._info is before and before.status in RUNNING and number in _ENDING:
            # Forgotten as it ended (auto_cleanup): it is gone, and nobody can say more than this.
            end = self._client.transport.clock.now()
            self._info = attrs.evolve(before, status="killed", exit_code=128 + number, end_time=end)

    def logs(self) -> ProcessLogs:
        """Return what it has printed so far."""
        logs = read_logs(self._client, self.id)
        self._update()
        return logs

    def stream_logs(self) -> ProcessLogStream:
        """Return the stream of what it has printed so far, then live, then one ``exit`` event."""
        stream = ProcessLogStream(self._client, self.id)
        self._update()
        return stream

    def wait_for_exit(self, timeout: float | None = None) -> int:
        """Wait until it has ended and its logs are complete; return its exit code.

        Raises ``ProcessTimeoutError`` after ``timeout`` seconds (0: look once); the process runs on. Raises
        ``ProcessError`` when it ended without an exit code, as one that could not be started.
        """
        limit = check_limit(timeout, zero=True)
        deadline = Deadline(limit, self._client.transport.clock)
        while True:
            self._info = self._client.call(
                self._client.transport.wait_process, self._client.sandbox_id, self.id, deadline.left()
            )
            if self._info.status not in RUNNING:
                break
            if deadline.passed:
                raise ProcessTimeoutError(
                    f"process {self.id!r} still runs after {limit} s", process_id=self.id, timeout=limit
                )
        if self._info.exit_code is None:
            raise ProcessError(f"process {self.id!r} ended without an exit code", process_id=self.id)
        return self._info.exit_code

    def wait_for_log(self, pattern: str | re.Pattern[str], timeout: float | None = None) -> LogMatch:
        """Wait for a line of either output that holds ``pattern``: a ``str`` literally, or a compiled pattern.

        Lines written before the call count. A line whose end has not come yet, as a prompt, is looked at when
        nothing follows for a moment; one longer than 1 MiB is looked at in pieces.

        Raises ``ProcessExitedBeforeReadyError`` when the process ended and no line matches,
        ``ProcessReadyTimeoutError`` after ``timeout`` seconds (0: look once), both with the end of the logs.
        """
        from . import _waiting

        matches = _waiting.matcher(pattern)
        limit = check_limit(timeout, zero=True)
        try:
            return _waiting.for_log(self._client, self.id, matches, limit)
        finally:
            if not self._client.end:
                self._update()

    def wait_for_port(
        self,
        port: int,
        *,
        mode: Literal["http", "tcp"] = "http",
        path: str = "/",
        status: int | tuple[int, int] = (200, 399),
        timeout: float | None = None,
        interval: float = 0.5,
    ) -> None:
        """Wait until ``port`` answers inside the sandbox, on 127.0.0.1 or ::1; looks every ``interval`` seconds.

        With ``mode="http"`` a GET of ``path`` must be answered with a status that is, or lies within,
        ``status``; with ``"tcp"`` a connection is enough. Raises ``ProcessExitedBeforeReadyError`` when the
        process has ended, ``ProcessReadyTimeoutError`` after ``timeout`` seconds (0: look once), both with
        the end of the logs.
        """
        from . import _waiting

        probe = _waiting.port_probe(port, mode, path, status)
        limit, pause = check_limit(timeout, zero=True), check_limit(interval, "interval")
        if pause is None:
            raise InvalidRequestError("interval must be a number of seconds")
        self._info = _waiting.for_port(self._client, self.id, probe, limit, pause)


class ProcessLogStream(Closing):
    """The logs of a process: a context manager and an iterator of ``LogEvent``.

    Everything from its start, then live as it comes, then one ``exit`` event. Iterating blocks; it raises
    ``ProcessNotFoundError`` when the record is forgotten meanwhile, a ``TransportError`` when the stream
    broke, and ``InvalidRequestError`` after ``close``. One thread iterates, any may close. The process is not
    touched.
    """

    def __init__(self, client: Client, process_id: str) -> None:
        self.process_id = process_id
        self._client = client
        self._stream: LogStream = client.call(client.transport.follow_logs, client.sandbox_id, process_id, True)
        self._decoders = {name: make_decoder("utf-8", "replace") for name in ("stdout", "stderr")}
        self._next: deque[LogEvent] = deque()
        self._ended = self._closed = self._over = False

    def __repr__(self) -> str:
        return f"<ProcessLogStream {self.process_id!r}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> LogEvent:
        while not self._next and not self._ended and not self._closed:
            self._read()
        if self._closed:
            raise InvalidRequestError("the stream was closed before the process's end was read")
        if not self._next:
            raise StopIteration
        return self._next.popleft()

    def _read(self) -> None:
        try:
            item = self._stream.read()
        except SandboxError as exc:
            self.close()
            self._client.tell_end(exc)
            raise
        except ValueError:
            if not self._closed:
                raise
            return
        if isinstance(item, Exited):
            self._ended = self._over = True
            self._stream.close()
            for name in ("stdout", "stderr"):
                self._add(name, self._decoders[name].decode(b"", True))
            self._next.append(self._event("exit", "", item.exit_code))
        elif item is not None:
            self._add(item.stream, self._decoders[item.stream].decode(item.data))

    def _add(self, name: str, text: str) -> None:
        if text:
            self._next.append(self._event("stdout" if name == "stdout" else "stderr", text))

    def _event(self, kind: Literal["stdout", "stderr", "exit"], text: str, exit_code: int | None = None) -> LogEvent:
        return LogEvent(kind, text, self._client.transport.clock.now(), self.process_id, exit_code)

    def close(self) -> None:
        """Stop following. Idempotent; from any thread. Raises nothing."""
        self._over = True
        if not self._ended or self._next:
            self._closed = True
        self._stream.close()


def read_logs(client: Client, process_id: str) -> ProcessLogs:
    """Return what a process has printed so far, without waiting for more."""
    pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}

    def read() -> None:
        stream = client.transport.follow_logs(client.sandbox_id, process_id, False)
        try:
            while not isinstance(item := stream.read(0), Exited) and item is not None:
                pieces[item.stream].append(item.data)
        finally:
            stream.close()

    client.call(read)
    out, err = (b"".join(pieces[name]).decode("utf-8", "replace") for name in ("stdout", "stderr"))
    return ProcessLogs(out, err, process_id)
