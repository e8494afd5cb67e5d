"""A command that the host runs: followed from wherever its output broke off, until it has ended."""

from __future__ import annotations

import base64
import binascii
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Literal

from sandboxsync.errors import (
    CommandTimeoutError,
    ProtocolError,
    SandboxError,
    SessionDestroyedError,
    SessionTerminatedError,
    StreamInterruptedError,
)
from sandboxsync.transports.base import CommandStream, Exited, Output
from sandboxsync.transports.http.hosted._host import Answer, Host, HostRefusedError

__all__ = ["HostedCommand"]


class HostedCommand(CommandStream):
    """A job of the host. `begin` waits until its turn has come."""

    def __init__(
        self,
        host: Host,
        job: str,
        session_id: str | None,
        timeout: float | None,
        answer: Answer,
        taken: Callable[[str], None],
    ) -> None:
        """`taken` is told the job when its result was read, so that the host may forget it."""
        self._host = host
        self._job = job
        self._session_id = session_id
        self._timeout = timeout
        self._answer: Answer | None = answer
        self._taken = taken
        self._at: dict[Literal["stdout", "stderr"], int] = {"stdout": 0, "stderr": 0}
        self._queue: deque[Output | Exited | SandboxError] = deque()
        self._over = False
        self._reading = threading.Lock()
        self._closing = False
        self._broken = False
        self.started_at = datetime.now(timezone.utc)

    def begin(self) -> None:
        """Wait until it runs. Raises what `Transport.run` does when it does not begin."""
        with self._reading:
            line = self._line()
            if line != "begun":
                raise ProtocolError(f"the session host says {line!r} of a command")
        self.started_at = datetime.now(timezone.utc)

    def is_over(self) -> bool:
        """Whether its end was read, or nobody will."""
        return self._broken or (self._over and not self._queue)

    def read(self) -> Output | Exited:
        if not self._reading.acquire(blocking=self._closing):
            raise ValueError("this command is being read by another thread")
        try:
            while not self._queue:
                if self._over:
                    raise ValueError("this command has ended and all of it was read")
                self._step()
            item = self._queue.popleft()
        except SandboxError:
            self._broken = True
            raise
        finally:
            self._reading.release()
        if isinstance(item, SandboxError):
            raise item
        return item

    def kill(self) -> None:
        if not self._over:
            self._host.ask("kill", self._job, "")

    def close(self) -> None:
        self._closing = True
        if not self._over:
            self.kill()
        with self._reading:
            while not self._over:
                self._step()
                self._queue.clear()
            self._queue.clear()

    def abandon(self) -> None:
        # Asking takes a connection, which a collector may not wait for: somebody else does.
        if not self._over:
            self._over = True
            self._queue.clear()
            threading.Thread(target=self._kill_quietly, daemon=True).start()

    def _kill_quietly(self) -> None:
        try:
            self._host.ask("kill", self._job, "")
        except (SandboxError, HostRefusedError):
            return  # the sandbox cannot be reached; the command's own timeout remains

    def _line(self) -> str:
        assert self._answer is not None
        line = self._answer.line()
        if line is None:
            raise StreamInterruptedError("the answer of the session host ended before the command did")
        return line

    def _step(self) -> None:
        """Take in the next line."""
        if self._answer is None:
            self._answer = self._host.open("follow", self._job, "", str(self._at["stdout"]), str(self._at["stderr"]))
        item = self._answer.next()
        if item is None:
            raise StreamInterruptedError("the answer of the session host ended before the command did")
        stream, line = item
        line = line.replace(".", "")  # the sign that it still runs
        if stream == "stdout":
            if line in ("", "begun"):
                return
            if line == "again":
                self._answer.close()
                self._answer = None
                return
            if line.startswith("ended "):
                self._end(line.split(" "))
                return
            if line.startswith("!"):
                raise ProtocolError(f"the session host refuses to follow a command: {line[1:]}")
        if not line:
            return
        try:
            data = base64.b64decode(line, validate=True)
        except binascii.Error:
            raise ProtocolError(f"the session host prints what is no output: {line[:200]!r}") from None
        self._at[stream] += len(data)
        self._queue.append(Output(stream, data))

    def _end(self, words: list[str]) -> None:
        _, kind, code, out, err, reason, duration, *_ = [*words, "0", "0"]
        # Standard error comes on a channel of its own, whose end may be later.
        assert self._answer is not None
        if self._at != {"stdout": int(out), "stderr": int(err)}:
            while (item := self._answer.next()) is not None:
                stream, line = item
                data = base64.b64decode(line.replace(".", ""), validate=True)
                if data:
                    self._at[stream] += len(data)
                    self._queue.append(Output(stream, data))
        if self._at != {"stdout": int(out), "stderr": int(err)}:
            raise ProtocolError(f"the session host told of {out} and {err} bytes, and sent {self._at}")
        self._over = True
        self._answer.close()
        self._queue.append(self._outcome(kind, int(code), reason, int(duration) / 1e6))
        self._taken(self._job)

    def _outcome(self, kind: str, code: int, reason: str, duration: float) -> Exited | SandboxError:
        if kind in ("exited", "killed"):
            return Exited(code, duration)
        if kind == "timeout":
            return CommandTimeoutError(f"the command was stopped after {self._timeout:g} s", timeout=self._timeout)
        if kind == "cancelled" and reason == "timeout":
            return CommandTimeoutError(
                f"the session was busy for {self._timeout:g} s; the command was not started",
                timeout=self._timeout,
                started=False,
            )
        if kind == "deleted" or reason == "deleted":
            return SessionDestroyedError(
                f"session {self._session_id!r} was deleted while the command ran", session_id=self._session_id
            )
        if kind == "died":
            return SessionTerminatedError(
                f"the shell of session {self._session_id!r} ended (exit code {code})",
                session_id=self._session_id,
                exit_code=code,
            )
        if kind == "spoilt":
            return SessionTerminatedError(
                f"session {self._session_id!r}: the command left its shell in a state that no other command can run in",
                session_id=self._session_id,
                context={"why": reason},
            )
        raise ProtocolError(f"the session host tells of an unknown end: {kind!r}")
