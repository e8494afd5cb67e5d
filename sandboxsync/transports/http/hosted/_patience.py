"""How long one call goes on trying while answers break off."""

from __future__ import annotations

import random

from sandboxsync._clock import Clock
from sandboxsync.errors import TransportError
from sandboxsync.transports.http._retry import Failure, Kind, Reached, RetryPolicy

__all__ = ["Patience"]


class Patience:
    """Counts failures in a row, for one thread at a time. Whatever comes from the sandbox begins the count anew."""

    def __init__(self, policy: RetryPolicy, clock: Clock) -> None:
        self._policy = policy
        self._clock = clock
        self.failures = 0
        self._began = 0.0

    def renew(self) -> None:
        """Something came."""
        self.failures = 0

    def bear(self, error: TransportError) -> bool:
        """Wait before the next attempt, after an error; `False` when there is to be none."""
        if error.retryable is False:
            return False
        self.failures += 1
        now = self._clock.monotonic()
        if self.failures == 1:
            self._began = now
        # All that is asked of the host may come twice.
        wait = self._policy.delay(
            Kind.DELIVERY,
            Failure(Reached.SENT),
            attempt=self.failures,
            elapsed=now - self._began,
            now=self._clock.now(),
            random=random.random,
        )
        if wait is None:
            return False
        self._clock.sleep(wait)
        return True
