"""Where time is measured: on a clock of the transport's, which may be one that a test moves."""

from __future__ import annotations

import time
from abc import abstractmethod
from datetime import datetime, timezone
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "SystemClock"]


class Clock(Protocol):
    """Time as a transport's sandboxes see it. Safe for threads."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds since some moment. Never goes back."""

    @abstractmethod
    def now(self) -> datetime:
        """The date and time, aware, UTC."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Return when `seconds` have passed on this clock."""


class SystemClock(Clock):
    """The time of this machine."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()
