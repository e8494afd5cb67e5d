"""What runs: two pipes to read, and an end that somebody tells of.

A command of a session runs in the session's shell, which reports its exit status (`_command`); one without a session is
a process of its own, of whose end the supervisor tells (`_single`). Everything else is alike, and is here.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
import struct
import termios
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from datetime import datetime, timezone
from typing import Any, Literal

from sandboxsync.errors import (
    CommandTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    SessionDestroyedError,
    SessionTerminatedError,
)
from sandboxsync.transports.base import CommandStream, Exited, Output
from sandboxsync.transports.local._channel import Pending, Supervisor, SupervisorGoneError

__all__ = ["Running", "StreamName"]

_CHUNK = 1 << 16
_LARGE_PIPE = 1 << 20
_LOOK = 250
"""Milliseconds between looks at a shell that says nothing, for signs that it never will."""

StreamName = Literal["stdout", "stderr"]


class Running(CommandStream, ABC):
    """What the two kinds share: reading, handing over what still writes, ending."""

    def __init__(
        self, supervisor: Supervisor, pipes: dict[int, StreamName], timeout: float | None, session_id: str | None
    ) -> None:
        self.started_at = datetime.now(timezone.utc)
        self._began = time.monotonic()
        self._supervisor = supervisor
        self._timeout = timeout
        self._session_id = session_id
        self._pipes = pipes
        self._large: set[int] = set()
        self._queue: deque[Output | Exited | SandboxError] = deque()
        self._over = False
        self._verdict: Pending | None = None
        self._poll = select.poll()
        for fd in pipes:
            self._poll.register(fd, select.POLLIN)
        self._reading = threading.Lock()
        self._read_at = time.monotonic()
        self._released = False
        self._closing = False

    def read(self) -> Output | Exited:
        if not self._reading.acquire(blocking=self._closing):
            raise ValueError("this command is being read by another thread")
        try:
            while not self._queue:
                if self._over:
                    raise ValueError("this command has ended and all of it was read")
                self._step()
            item = self._queue.popleft()
            self._read_at = time.monotonic()
            if not isinstance(item, Output):
                self._release()
        finally:
            self._reading.release()
        if isinstance(item, SandboxError):
            raise item
        return item

    def close(self) -> None:
        self._closing = True
        while not self._over:
            try:
                self.kill()
                break
            except SandboxUnavailableError:
                time.sleep(0.05)  # out of descriptors; others will give some back
        with self._reading:
            while not self._over:
                self._step()
                self._queue.clear()
            self._queue.clear()
            self._release()

    @abstractmethod
    def kill(self) -> None: ...

    @abstractmethod
    def abandon(self) -> None: ...

    @abstractmethod
    def _told(self, fd: int) -> None:
        """Something that is not output is ready to be read."""

    @abstractmethod
    def _silence(self) -> None:
        """Nothing happened for a while."""

    @abstractmethod
    def _release(self) -> None:
        """The end was taken, or nobody will: give back what the command held. May be called again."""

    def _step(self) -> None:
        """Wait for something to happen and take it in."""
        others = []
        events = self._poll.poll(_LOOK)
        for fd, event in events:
            name = self._pipes.get(fd)
            if name is None:
                others.append(fd)
            elif event & select.POLLIN:
                data = os.read(fd, _CHUNK)
                if len(data) == _CHUNK and fd not in self._large:
                    self._enlarge(fd)
                if data:
                    self._queue.append(Output(name, data))
            else:
                # Nobody writes to it any more, and polling it would return at once for ever.
                self._poll.unregister(fd)
        for fd in others:
            if not self._over:
                self._told(fd)
        if not events:
            self._silence()

    def _enlarge(self, fd: int) -> None:
        """Make room for a command that writes much. The system may refuse, which only makes it slower."""
        self._large.add(fd)
        try:
            fcntl.fcntl(fd, getattr(fcntl, "F_SETPIPE_SZ", 1031), _LARGE_PIPE)
        except PermissionError:
            return

    def _ask_verdict(self, key: int) -> None:
        """Have the supervisor tell how a process ended, once its whole ending is over."""
        if self._verdict is None:
            self._verdict = self._supervisor.ask({"do": "wait", "key": key})
            self._poll.register(self._verdict, select.POLLIN)

    def _take_verdict(self) -> dict[str, Any]:
        assert self._verdict is not None
        self._poll.unregister(self._verdict)
        result = self._verdict.result()
        assert result is not None  # no timeout was given
        return result[0]

    def _finish(self, outcome: Exited | SandboxError) -> None:
        """Take in what was written up to now, let go of the pipes, and put the outcome last."""
        seen = self._look_at_pipes()
        for fd, name in self._pipes.items():
            if seen.get(fd, 0) & select.POLLIN:
                # What lies in the pipe now was written before the end. A job that still writes must not prolong this.
                left = struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0]
                while left > 0:
                    data = os.read(fd, left)
                    left -= len(data)
                    self._queue.append(Output(name, data))
        held = [fd for fd in self._pipes if not seen.get(fd, 0) & select.POLLHUP]
        if held:
            self._hand_over(held)
        for fd in self._pipes:
            os.close(fd)
        self._pipes = {}
        self._over = True
        self._queue.append(outcome)
        if self._verdict is not None:
            self._verdict.close()

    def _look_at_pipes(self) -> dict[int, int]:
        look = select.poll()
        for fd in self._pipes:
            look.register(fd, select.POLLIN)
        return dict(look.poll(0))

    def _hand_over(self, held: list[int]) -> None:
        """Let the supervisor read to nowhere what background jobs write from now on (E4)."""
        try:
            self._supervisor.tell({"do": "drain"}, *held)
        except SupervisorGoneError:
            return  # and so are the jobs

    def _duration(self) -> float:
        return time.monotonic() - self._began

    def _outcome(self, verdict: dict[str, Any]) -> Exited | SandboxError | None:
        """What it means that the supervisor or somebody else ended the command; `None`: it ended by itself."""
        reason = verdict.get("reason")
        if reason == "timeout":
            return CommandTimeoutError(f"the command was stopped after {self._timeout:g} s", timeout=self._timeout)
        if reason == "killed":
            return Exited(128 + signal.SIGTERM, self._duration())
        if reason == "destroyed":
            return self._restarted()
        if reason == "deleted":
            return SessionDestroyedError(
                f"session {self._session_id!r} was deleted while the command ran", session_id=self._session_id
            )
        return None

    def _restarted(self) -> SandboxError:
        return SessionTerminatedError(
            "the sandbox was ended while the command ran", code="SANDBOX_RESTARTED", session_id=self._session_id
        )
