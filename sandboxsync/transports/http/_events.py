"""What a connection tells a hook about its requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs

__all__ = ["HTTPEvent", "Hook", "RequestFinished", "RetryScheduled"]


@attrs.frozen
class RequestFinished:
    """One attempt is over: its answer was read, closed or broke off, or none came.

    `route` is the path with names in place of ids, where the caller gave one. `status` is `None` when no answer came,
    `error` the class name of what broke it, `None` when nothing did. `duration` are the seconds from its beginning to
    the end of the answer's body, `first_byte` those to the end of its head, `None` without one. `bytes_sent` and
    `bytes_received` count bodies. `attempt` counts from 1.
    """

    method: str
    route: str
    status: int | None
    duration: float
    first_byte: float | None
    attempt: int
    bytes_sent: int
    bytes_received: int
    error: str | None


@attrs.frozen
class RetryScheduled:
    """Attempt number `attempt` failed because of `reason`; the next one begins in `delay` seconds."""

    method: str
    route: str
    attempt: int
    delay: float
    reason: str


HTTPEvent: TypeAlias = RequestFinished | RetryScheduled

Hook: TypeAlias = Callable[[HTTPEvent], object]
"""Called on the thread of the request, after its connection was given back. What it returns is not looked at; what it
raises reaches the caller of the request, as with the hooks of requests: a broken hook is seen, not swallowed."""
