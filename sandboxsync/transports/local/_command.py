"""A command that runs: its two pipes, and who tells of its end.

A command of a session runs in the session's shell, which reports the exit status; one without a session is a process of
its own, of whose end the supervisor tells. Everything else is alike, and is in `Running`.
"""

from __future__ import annotations

import contextlib
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
from typing import TYPE_CHECKING, Any, Literal

from sandboxsync.errors import (
    CommandTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    SessionDestroyedError,
    SessionTerminatedError,
)
from sandboxsync.transports.base import CommandStream, Exited, Output
from sandboxsync.transports.local._channel import Pending, Supervisor, SupervisorGoneError
from sandboxsync.transports.local._shell import Report, Shell, is_readable

if TYPE_CHECKING:
    from sandboxsync.transports.local._session import LocalSession

__all__ = ["Running", "SessionCommand", "SingleCommand"]

_CHUNK = 1 << 16
_LARGE_PIPE = 1 << 20
_LEFT_ALONE = 0.5
"""Seconds without a reader after which a command counts as one that nobody reads."""
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


class SingleCommand(Running):
    """A command without a session: a process that is its own shell, by the supervisor's key for it."""

    def __init__(
        self,
        supervisor: Supervisor,
        pipes: dict[int, StreamName],
        timeout: float | None,
        key: int,
        tag: int,
        script: str,
    ) -> None:
        super().__init__(supervisor, pipes, timeout, None)
        self._script = script
        self._key = key
        self._tag = tag
        try:
            self._ask_verdict(key)
        except SupervisorGoneError:
            self._finish(self._restarted())

    def kill(self) -> None:
        if self._over:
            return
        end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
        try:
            self._supervisor.answer(end)
        except SupervisorGoneError:
            return

    def abandon(self) -> None:
        if not self._over:
            end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
            with contextlib.suppress(SupervisorGoneError):
                self._supervisor.tell(end)
                self._supervisor.tell({"do": "forget", "key": self._key})
            for fd in self._pipes:
                os.close(fd)
            self._over = True
            if self._verdict is not None:
                self._verdict.close()

    def _told(self, fd: int) -> None:
        try:
            verdict = self._take_verdict()
        except SupervisorGoneError:
            self._finish(self._restarted())
            return
        self._finish(self._outcome(verdict) or Exited(verdict["exit_code"], self._duration()))

    def _silence(self) -> None:
        return

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._script)  # there only for a command that was too long for an argument
        with contextlib.suppress(SupervisorGoneError):
            self._supervisor.tell({"do": "forget", "key": self._key})


class SessionCommand(Running):
    """A command that runs in the shell of a session, whose turn it holds until it is over."""

    def __init__(
        self,
        supervisor: Supervisor,
        pipes: dict[int, StreamName],
        timeout: float | None,
        session: LocalSession,
        shell: Shell,
        tag: int,
        armed: bool,
    ) -> None:
        super().__init__(supervisor, pipes, timeout, session.id)
        self._session = session
        self._shell = shell
        self._tag = tag
        self._armed = armed
        self._state = threading.Lock()
        self._killing = False
        self._ended = False
        self.abandoned = False
        self._poll.register(shell.reports, select.POLLIN)
        self._poll.register(shell.pidfd, select.POLLIN)

    def abandon(self) -> None:
        # The supervisor ends the command, unless it has ended. Who wants the session next does the rest.
        self.abandoned = True
        if not self._over:
            end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
            with contextlib.suppress(SupervisorGoneError):
                self._supervisor.tell({**end, "at_once": self._shell.pid}, self._shell.reports)

    def look(self) -> None:
        """Take in the end of the command if it has come, so that others get their turn though nobody reads this."""
        # Not of one that is being read: its reader may be busy with what it got, and holds the turn meanwhile.
        if time.monotonic() - self._read_at < _LEFT_ALONE or not self._reading.acquire(blocking=False):
            return
        try:
            if self._verdict is not None:
                if is_readable(self._verdict.fileno()):
                    self._die()
            elif not self._over and not self._hear() and not self._shell.is_alive():
                self._told(self._shell.pidfd)
            if self._over:
                self._release()
        finally:
            self._reading.release()

    def kill(self) -> None:
        with self._state:
            if self._over or self._ended:
                return
            # From here on a report is left unread, so that the supervisor can see that the command ended by itself.
            # The state before the command must have been read, because it is what remains.
            self._killing = True
            if not self._shell.settle() or self._shell.has_report():
                self._killing = False
                if self._shell.is_alive():
                    return
            end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
            try:
                pending = self._supervisor.ask({**end, "at_once": self._shell.pid}, self._shell.reports)
            except SupervisorGoneError:
                self._killing = False
                return
        try:
            result = pending.result()
        except SupervisorGoneError:
            result = None
        if result is None or result[0].get("ended"):
            self._killing = False

    def _told(self, fd: int) -> None:
        if self._verdict is not None and fd == self._verdict.fileno():
            self._die()
        elif not self._hear():
            if fd == self._shell.pidfd:
                self._ended = True
                self._poll.unregister(fd)
                try:
                    self._ask_verdict(self._shell.key)
                except SupervisorGoneError:
                    self._die()
            elif self._supervisor.is_there():
                time.sleep(0.001)  # a report that `kill` wants left alone would be told of again at once
            else:
                self._lose()

    def _hear(self) -> bool:
        """Read what the shell reports; `True` when that was the end of the command."""
        with self._state:
            if self._killing or self._ended or not self._shell.has_report():
                return False
            if self._armed:
                # Before the report is read: afterwards nothing would show the supervisor that the command has ended.
                self._armed = False
                with contextlib.suppress(SupervisorGoneError):
                    self._supervisor.tell({"do": "disarm", "tag": self._tag})
            try:
                report = self._shell.report()
            except ValueError:
                report = Report(0, spoilt=True, directory="")  # something else got in between
            if report is None:
                return False
            self._ended = True
        if report.spoilt or not self._all_opened():
            self._finish(self._session.spoilt())
        else:
            self._session.command_ended(report)
            self._finish(Exited(report.status, self._duration()))
        return True

    def _silence(self) -> None:
        if not self._supervisor.is_there():
            self._lose()
            return
        try:
            self._shell.collect(always=True)
            self._shell.resume()
            astray = not (self._killing or self._ended) and self._shell.is_alive() and self._shell.is_astray()
        except FileNotFoundError:
            return  # the session was deleted this moment: the end of its shell is what comes next
        if astray:
            # `set -r`, say, or somebody defined a function called `builtin`.
            self._ended = True
            self._finish(self._session.spoilt())

    def _lose(self) -> None:
        """The supervisor was killed: nothing here can be watched, ended or reaped any more."""
        self._shell.kill()
        self._die()

    def _die(self) -> None:
        try:
            verdict = self._take_verdict() if self._verdict is not None else {"gone": True}
        except SupervisorGoneError:
            verdict = {"gone": True}
        outcome = self._restarted() if "gone" in verdict else self._outcome(verdict)
        self._session.shell_ended(self._shell, restore=verdict.get("reason") in ("timeout", "killed"))
        self._finish(outcome or self._session.terminated(verdict["exit_code"]))

    def _all_opened(self) -> bool:
        """Whether the shell could open both pipes: one that nobody opened is at its end, but was not hung up."""
        quiet = self._pipes.keys() - self._look_at_pipes().keys()
        for fd in quiet:
            try:
                # Looked at once more, because a background job that held it may have let go of it in between.
                if not os.read(fd, 1) and fd not in self._look_at_pipes():
                    return False
            except BlockingIOError:
                continue  # a background job holds it
        return True

    def _hand_over(self, held: list[int]) -> None:
        super()._hand_over(held)
        self._session.renew_pipes([self._pipes[fd] for fd in held])

    def _release(self) -> None:
        if not self._released:
            self._released = True
            self._session.turn.release()
