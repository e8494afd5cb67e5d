"""How a command ended, as the host tells it, and what that means for the caller."""

from __future__ import annotations

from typing import Literal

from sandboxsync.errors import (
    CommandTimeoutError,
    ProtocolError,
    SandboxError,
    SessionDestroyedError,
    SessionTerminatedError,
)
from sandboxsync.transports.base import Exited

__all__ = ["Ending"]


class Ending:
    """The last line of an answer: `ended KIND CODE OUT ERR REASON MICROSECONDS LIMIT`."""

    def __init__(self, line: str) -> None:
        """Raises `ProtocolError` for what is no such line."""
        try:
            _, self.kind, code, out, err, self.reason, duration, limit = line.split(" ")
            self.code = int(code)
            self.sizes: dict[Literal["stdout", "stderr"], int] = {"stdout": int(out), "stderr": int(err)}
            self.duration = int(duration) / 1e6
            self.limit = None if limit == "-" else float(limit)
        except ValueError:
            raise ProtocolError(f"the session host tells of no end: {line[:200]!r}") from None

    def outcome(self, session_id: str | None) -> Exited | SandboxError:
        """What the reader of the command gets."""
        if self.kind in ("exited", "killed"):
            return Exited(self.code, self.duration)
        if self.kind == "timeout":
            return CommandTimeoutError(f"the command was stopped after {self.limit} s", timeout=self.limit)
        if self.kind == "cancelled" and self.reason == "timeout":
            return CommandTimeoutError(
                f"the session was busy for {self.limit} s; the command was not started",
                timeout=self.limit,
                started=False,
            )
        if "deleted" in (self.kind, self.reason):
            return SessionDestroyedError(f"session {session_id!r} was deleted", session_id=session_id)
        if self.kind == "cancelled":
            return Exited(128 + 15, 0.0)
        if self.kind == "died":
            return SessionTerminatedError(
                f"the shell of session {session_id!r} ended (exit code {self.code})",
                session_id=session_id,
                exit_code=self.code,
            )
        if self.kind == "spoilt":
            return SessionTerminatedError(
                f"session {session_id!r}: the command left its shell in a state that no other command can run in",
                session_id=session_id,
                context={"why": self.reason},
            )
        raise ProtocolError(f"the session host tells of an unknown end: {self.kind!r}")
