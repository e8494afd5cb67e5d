"""A point in time that a call must not pass. No I/O; safe for threads."""

from __future__ import annotations

from ._clock import Clock


class Deadline:
    """``timeout`` seconds from now on ``clock``; ``None`` never comes."""

    __slots__ = ("_at", "_clock")

    def __init__(self, timeout: float | None, clock: Clock) -> None:
        self._clock = clock
        self._at = None if timeout is None else clock.monotonic() + timeout

    def left(self) -> float | None:
        """Return the seconds left, never below 0; ``None`` when there is no limit."""
        return None if self._at is None else max(0.0, self._at - self._clock.monotonic())

    def within(self, seconds: float) -> float:
        """Return ``seconds``, or what is left if that is less."""
        return seconds if self._at is None else min(seconds, max(0.0, self._at - self._clock.monotonic()))

    @property
    def passed(self) -> bool:
        """Whether the point has come."""
        return self._at is not None and self._clock.monotonic() >= self._at
