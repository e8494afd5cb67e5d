"""A point in time that a call must not pass. No I/O; safe for threads."""

from __future__ import annotations

import time


class Deadline:
    """``timeout`` seconds from now on the monotonic clock; ``None`` never comes."""

    __slots__ = ("_at",)

    def __init__(self, timeout: float | None) -> None:
        self._at = None if timeout is None else time.monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds left, never below 0; ``None`` when there is no limit."""
        return None if self._at is None else max(0.0, self._at - time.monotonic())

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or what is left if that is less."""
        return seconds if self._at is None else min(seconds, max(0.0, self._at - time.monotonic()))

    @property
    def passed(self) -> bool:
        """Whether the point has come."""
        return self._at is not None and time.monotonic() >= self._at
