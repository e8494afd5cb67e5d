"""A command that the host runs: followed from wherever its output broke off, until it has ended."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Literal

from sandboxsync._redact import redact
from sandboxsync.errors import (
    ProtocolError,
    SandboxError,
    SessionDestroyedError,
    SessionTerminatedError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.transports.base import CommandStream, Exited, Output, SessionRef
from sandboxsync.transports.http._retry import RetryPolicy
from sandboxsync.transports.http.hosted._host import Answer, Host, HostRefusedError
from sandboxsync.transports.http.hosted._lines import data_of, data_of_part
from sandboxsync.transports.http.hosted._outcome import Ending

__all__ = ["HostedCommand", "NoSessionError", "Taken"]

_log = logging.getLogger("sandboxsync.hosted")

_ENDING = RetryPolicy(attempts=3, total=5.0)
"""For who gives a command up: they do not wait for a service that is gone. The command's own timeout remains."""
_LAST_READER = 5.0
"""Seconds that `close` waits for another thread to read the end."""


class Taken:
    """The jobs whose results were read, until the host is told. Safe for threads."""

    def __init__(self, most: int) -> None:
        """`most` of them are told at a time."""
        self._most = most
        self._jobs: list[str] = []
        self._lock = threading.Lock()

    def add(self, job: str) -> None:
        """Note one more."""
        with self._lock:
            self._jobs.append(job)

    def pop(self) -> str:
        """Take some to tell, as the host wants them."""
        with self._lock:
            jobs, self._jobs = self._jobs[: self._most], self._jobs[self._most :]
        return ",".join(jobs)


class NoSessionError(Exception):
    """The session of a command is not there, and was not to be made: nothing was started."""


class HostedCommand(CommandStream):
    """A job of the host. `begin` waits until its turn has come."""

    def __init__(
        self, host: Host, ref: SessionRef, job: str, text: str, arguments: Sequence[str], taken: Taken
    ) -> None:
        """`text` is what the log tells of it, `arguments` what the host gets. `taken` is told the job at its end."""
        self._host = host
        self._ref = ref
        self._job = job
        self._text = text
        self._arguments = arguments
        self._taken = taken
        self._answer: Answer | None = None
        self._incarnation = ""
        self._at: dict[Literal["stdout", "stderr"], int] = {"stdout": 0, "stderr": 0}
        self._queue: deque[Output | Exited | SandboxError] = deque()
        self._ending: Ending | None = None
        self._begun = False
        self._over = False
        self._closed = False
        self._patience = host.patience()
        self._reading = threading.Lock()
        self._called = time.monotonic()
        self.started_at = datetime.now(timezone.utc)

    def begin(self) -> None:
        """Deliver it and wait until it runs. Raises what `Transport.run` does when it does not begin."""
        with self._reading:
            while not (self._begun or self._over):
                self._step()
            if not self._begun:
                first = self._queue[0]
                if isinstance(first, SandboxError):
                    raise first
        self.started_at = datetime.now(timezone.utc)

    def is_over(self) -> bool:
        """Whether its end was read, or nobody will."""
        return self._over and not self._queue

    def read(self) -> Output | Exited:
        if not self._reading.acquire(blocking=False):
            raise ValueError("this command is being read by another thread")
        try:
            while not self._queue:
                if self._over:
                    raise ValueError("this command has ended and all of it was read, or it was closed")
                self._step()
            item = self._queue.popleft()
        finally:
            self._reading.release()
        if isinstance(item, SandboxError):
            raise item
        return item

    def kill(self) -> None:
        if not self._over:
            self._host.ask("kill", self._job, "")

    def close(self) -> None:
        if not self._over:
            self._kill_quietly()
        # Another thread that reads comes to the end by that.
        if self._reading.acquire(timeout=_LAST_READER):
            try:
                self._give_up()
            finally:
                self._reading.release()
        else:
            self._give_up()

    def abandon(self) -> None:
        # Asking takes a connection, which a collector may not wait for: somebody else does.
        if not self._over:
            self._over = True
            threading.Thread(target=self._kill_quietly, daemon=True).start()

    def _give_up(self) -> None:
        if not self._over:
            self._tell("closed")
            self._taken.add(self._job)
        self._closed = self._over = True
        self._queue.clear()
        self._drop_answer()

    def _kill_quietly(self) -> None:
        try:
            self._host.ask("kill", self._job, "", patience=self._host.patience(_ENDING))
        except (TransportError, HostRefusedError) as exc:
            _log.debug("job %s: cannot be ended: %s", self._job, exc)

    def _step(self) -> None:
        """Take in the next line, or what went wrong."""
        try:
            if self._answer is None:
                self._answer = self._open()
            item = self._answer.next()
            if item is None:
                raise StreamInterruptedError("the answer of the session host ended before the command did")
            self._take(*item)
        except TransportError as exc:
            if self._answer is not None:
                for stream, part in self._answer.parts():
                    self._take_data(stream, data_of_part(part))
            self._drop_answer()
            if not self._over:
                self._broke(exc)
        except HostRefusedError as exc:
            self._drop_answer()
            if str(exc) == "no-session":
                self._over = True
                raise NoSessionError from None
            self._finish(self._refused(str(exc)))
        except SessionTerminatedError as exc:  # of another incarnation
            self._finish(exc)

    def _open(self) -> Answer:
        if self._begun:
            offsets = (str(self._at["stdout"]), str(self._at["stderr"]))
            return self._host.open("follow", self._job, self._incarnation, *offsets, install=False)
        # Under the same id it runs once, however often it is delivered.
        session, known = self._ref.session_id or "", self._ref.incarnation or ""
        answer = self._host.open("run", session, self._job, known, self._taken.pop(), *self._arguments)
        try:
            self._ref.meet(answer.incarnation)
        except BaseException:
            answer.close()
            raise
        self._incarnation = answer.incarnation
        return answer

    def _drop_answer(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()

    def _end_answer(self) -> None:
        """Read the answer to its end, which is near, so that the connection can be used again."""
        try:
            while self._answer is not None and self._answer.next() is not None:
                pass
        except TransportError as exc:
            _log.debug("job %s: the end of the answer is missing: %s", self._job, exc)
        self._drop_answer()

    def _broke(self, exc: TransportError) -> None:
        """Go on where it broke off, or not."""
        if self._closed:
            raise ValueError("this command was closed") from exc
        if self._patience.bear(exc):
            _log.warning("job %s: going on from %s after %s", self._job, self._at, exc)
            return
        if self._begun and exc.retryable is not False:
            error = StreamInterruptedError(
                f"the output of a command broke off and could not be resumed: {exc}", retryable=False
            )
            error.__cause__ = exc
            self._finish(error)
        else:
            self._finish(exc)

    def _take(self, stream: Literal["stdout", "stderr"], line: str) -> None:
        if line.startswith("."):  # the sign that it still runs
            self._patience.renew()
            line = line.lstrip(".")
        if not line:
            return
        if stream == "stdout":
            if line == "begun":
                self._begun = True
                return
            if line == "again":
                self._drop_answer()
                return
            if line.startswith("ended "):
                self._ending = Ending(line)
                self._complete()
                return
            if line.startswith("!"):
                raise HostRefusedError(line[1:])
        self._take_data(stream, data_of(line))

    def _take_data(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if data:
            self._begun = True
            self._patience.renew()
            self._at[stream] += len(data)
            self._queue.append(Output(stream, data))
            self._complete()

    def _complete(self) -> None:
        """Standard error comes on a channel of its own, so its end may come after that of the command."""
        ending = self._ending
        if ending is not None and self._at == ending.sizes:
            self._end_answer()
            if ending.kind != "cancelled":
                self._begun = True
            outcome = ending.outcome(self._ref.session_id)
            if isinstance(outcome, (SessionTerminatedError, SessionDestroyedError)) and self._is_restarted():
                outcome = self._refused("restarted")
            self._finish(outcome, ending.kind)
            self._taken.add(self._job)

    def _is_restarted(self) -> bool:
        """Whether the shell ended with the whole sandbox: then another host is there now, or none."""
        patience = self._host.patience(_ENDING)
        while True:
            try:
                answer = self._host.open("list", "", install=False)
            except HostRefusedError:
                return True
            except TransportError as exc:
                # A sandbox that is just ending may answer nothing for a while.
                if not patience.bear(exc):
                    _log.debug("job %s: cannot tell whether the sandbox was restarted: %s", self._job, exc)
                    return False
            else:
                answer.close()
                return answer.incarnation != self._incarnation

    def _refused(self, reason: str) -> SandboxError:
        if reason == "restarted":
            return SessionTerminatedError(
                f"sandbox {self._ref.sandbox_id!r} was restarted while the command ran",
                code="SANDBOX_RESTARTED",
                session_id=self._ref.session_id,
            )
        if reason == "no-job":
            return StreamInterruptedError("the session host has forgotten the command", retryable=False)
        return ProtocolError(f"the session host refuses a command: {reason}")

    def _finish(self, item: Exited | SandboxError, how: str = "") -> None:
        self._over = True
        self._queue.append(item)
        self._tell(how or type(item).__name__)

    def _tell(self, how: str) -> None:
        _log.debug(
            "job %s in session %r: %s after %.3f s: %s",
            self._job,
            self._ref.session_id,
            how,
            time.monotonic() - self._called,
            redact(self._text[:2000])[:200],
        )
