"""Which request gets which fault."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from random import Random
from typing import TypeAlias

import attrs

from sandboxsync.errors import ConfigurationError

from ._values import Fault, check_fault, settled

__all__ = ["PathPattern", "ProxiedRequest", "Rules"]

PathPattern: TypeAlias = str | re.Pattern[str] | Callable[[str], bool] | None
"""A part of the path, a pattern to search in it, or a function of it. With the query, as it was sent."""


@attrs.frozen
class ProxiedRequest:
    """A request that came to a proxy: `path` with its query, as it was sent, and the fault that it got, if any.

    Where the fault was given with a range, here it has the number that was drawn.
    """

    method: str
    path: str
    fault: Fault | None


@attrs.define(eq=False)
class _Rule:
    method: str | None
    path: PathPattern
    fault: Fault
    left: int | None
    """How often it may strike; `None` is always."""
    skip: int
    """How many requests that match pass before it does."""
    chance: float
    random: Random

    def matches(self, method: str, path: str) -> bool:
        if self.method is not None and self.method.upper() != method.upper():
            return False
        if self.path is None:
            return True
        if isinstance(self.path, str):
            return self.path in path
        return self.path.search(path) is not None if isinstance(self.path, re.Pattern) else self.path(path)

    def strike(self) -> Fault | None:
        """The fault for a request that matches, if it is its turn."""
        if self.skip:
            self.skip -= 1
            return None
        if self.left == 0 or (self.chance < 1 and self.random.random() >= self.chance):
            return None
        if self.left is not None:
            self.left -= 1
        return settled(self.fault, self.random)


class Rules:
    """The faults that are to come, and the requests that came. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rules: list[_Rule] = []
        self._requests: list[ProxiedRequest] = []

    def add(
        self,
        method: str | None,
        path: PathPattern,
        fault: Fault,
        *,
        times: int | None,
        nth: int,
        chance: float,
        seed: int,
    ) -> None:
        """Add a rule after all others. Raises `ConfigurationError` for what makes no sense."""
        check_fault(fault)
        _check(method, path, times, nth, chance)
        with self._lock:
            self._rules.append(_Rule(method, path, fault, times, nth - 1, chance, Random(seed)))

    def clear(self) -> None:
        """Let nothing fail any more."""
        with self._lock:
            self._rules.clear()

    def take(self, method: str, path: str) -> Fault | None:
        """Note a request, and return the fault for it: that of the first rule whose turn it is."""
        with self._lock:
            fault = None
            for rule in self._rules:
                if rule.matches(method, path) and (fault is None or rule.skip):
                    struck = rule.strike()
                    fault = struck if fault is None else fault
            self._requests.append(ProxiedRequest(method, path, fault))
        return fault

    @property
    def requests(self) -> list[ProxiedRequest]:
        """What came so far, in its order."""
        with self._lock:
            return list(self._requests)


def _check(method: object, path: object, times: object, nth: object, chance: object) -> None:
    if not isinstance(method, (str, type(None))):
        raise ConfigurationError(f"method must be a name such as 'POST', or None for any, not {method!r}")
    if not isinstance(path, (str, re.Pattern, type(None))) and not callable(path):
        raise ConfigurationError(f"path must be text, a pattern, a function or None for any, not {path!r}")
    for what, value in (("times", 1 if times is None else times), ("nth", nth)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigurationError(f"{what} must be a whole number of at least 1, not {value!r}")
    if isinstance(chance, bool) or not isinstance(chance, (int, float)) or not 0 <= chance <= 1:
        raise ConfigurationError(f"chance must be a number from 0 to 1, not {chance!r}")
