"""A command of a session: it runs in the session's shell, which reports its end."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
import time
from typing import TYPE_CHECKING

from sandboxsync.transports.base import Exited
from sandboxsync.transports.local._channel import Supervisor, SupervisorGoneError
from sandboxsync.transports.local._running import Running, StreamName
from sandboxsync.transports.local._shell import Report, Shell, is_readable

if TYPE_CHECKING:
    from sandboxsync.transports.local._session import LocalSession

__all__ = ["SessionCommand"]

_LEFT_ALONE = 0.5
"""Seconds without a reader after which a command counts as one that nobody reads."""


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
            self._session.release(self)
