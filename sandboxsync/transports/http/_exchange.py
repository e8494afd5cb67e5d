"""One attempt at a request: its time limits, and how far it came."""

from __future__ import annotations

import socket
import time
from typing import Literal

from sandboxsync._deadline import Deadline

__all__ = ["Exchange"]

Phase = Literal["connect", "send", "head", "body"]
Expired = Literal["", "connect", "read", "total"]


class Exchange:
    """Written by the one thread that makes the attempt, later by the one that reads the answer.

    `connect` bounds the way to a connection that can be used, name look-up aside; `read` each wait for the other side,
    and the head of the answer as a whole from its first byte on; `deadline` everything. In seconds, `None` is no limit.
    """

    __slots__ = (
        "_connect_until",
        "_head_until",
        "_read",
        "bytes_received",
        "bytes_sent",
        "deadline",
        "expired",
        "phase",
        "sent",
        "sock",
    )

    def __init__(self, connect: float | None, read: float | None, deadline: Deadline) -> None:
        self.deadline = deadline
        self.phase: Phase = "connect"
        self.expired: Expired = ""
        self.sent = False
        self.bytes_sent = 0
        self.bytes_received = 0
        self.sock: socket.socket | None = None
        self._read = read
        self._connect_until = None if connect is None else time.monotonic() + connect
        self._head_until: float | None = None

    def allow(self, sock: socket.socket) -> None:
        """Give the next operation of the socket the time that is left. Raises `TimeoutError` when there is none."""
        limit, name = self._left()
        if limit is not None and limit <= 0:
            self.expired = name
            raise TimeoutError("timed out")
        if sock.gettimeout() != limit:
            sock.settimeout(limit)

    def connect_timeout(self) -> float | None:
        """The seconds left to connect, a little more than 0 when there are none: then it fails at once."""
        limit, _ = self._left()
        return None if limit is None else max(limit, 0.001)

    def timed_out(self) -> None:
        """Note which limit it was that just passed."""
        self.expired = self._left()[1]

    def hurry(self, seconds: float) -> None:
        """From now on, wait at most so long each time."""
        self._read = seconds if self._read is None else min(self._read, seconds)

    def came(self, size: int) -> None:
        """Note bytes that came. The first ones of a head begin its time."""
        if size and self.phase == "head" and self._head_until is None and self._read is not None:
            self._head_until = time.monotonic() + self._read

    def _left(self) -> tuple[float | None, Expired]:
        limit: float | None
        name: Expired
        if self.phase == "connect":
            limit, name = self._connect_until, "connect"
        else:
            limit, name = self._head_until if self.phase == "head" else None, "read"
        if limit is not None:
            limit -= time.monotonic()
        elif name == "read":
            limit = self._read
        total = self.deadline.left()
        if total is not None and (limit is None or total < limit):
            return total, "total"
        return limit, name
