"""Whose turn it is: the line of calls that wait for one session (E12)."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from sandboxsync.errors import SessionBusyError

__all__ = ["Turn"]

_STEP = 0.1


class Turn:
    """A lock that serves first come first, knows who holds it, and can be closed under those who wait.

    Not re-entrant: a thread that holds it and asks again would wait for itself, so it gets `SessionBusyError` at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holder: int | None = None
        self._line: deque[_Place] = deque()
        self._closed: Callable[[], BaseException] | None = None

    def acquire(self, timeout: float | None = None, meanwhile: Callable[[], None] | None = None) -> bool:
        """Wait for the turn, at most `timeout` seconds; `False` when they passed (0 looks once).

        `meanwhile` is called every 0.1 s of the wait, without losing the place in the line.

        Raises `SessionBusyError` for the thread that holds it, and what `close` was given, also to those who wait.
        """
        me = threading.get_ident()
        with self._lock:
            if self._closed is not None:
                raise self._closed()
            if self._holder == me:
                raise SessionBusyError(
                    "this thread holds an open command of the session: finish or close it before the next one"
                )
            if self._holder is None and not self._line:
                self._holder = me
                return True
            if timeout is not None and timeout <= 0:
                return False
            place = _Place(me)
            self._line.append(place)
        try:
            came = _wait(place.gate, timeout, meanwhile)
        except BaseException:
            self._leave(place)
            raise
        if not came and not self._leave(place, keep=True):
            return False
        with self._lock:
            if self._closed is not None:
                raise self._closed()
        return True

    def _leave(self, place: _Place, keep: bool = False) -> bool:
        """Step out of the line. Where the turn came in the same moment: keep it (`True`) or pass it on."""
        with self._lock:
            if place in self._line:
                self._line.remove(place)
                return False
        if keep:
            return True
        self.release()
        return False

    def take(self) -> bool:
        """Take the turn if nobody has it; never waits, and may be asked by the holder too."""
        with self._lock:
            if self._holder is not None or self._line:
                return False
            self._holder = threading.get_ident()
            return True

    def release(self) -> None:
        """Give the turn to the next in line."""
        with self._lock:
            if self._line:
                place = self._line.popleft()
                self._holder = place.thread
                place.gate.release()
            else:
                self._holder = None

    def close(self, reason: Callable[[], BaseException]) -> None:
        """Let all who wait, and all who come, get what `reason` makes. The holder still has to release."""
        with self._lock:
            self._closed = reason
            for place in self._line:
                place.gate.release()
            self._line.clear()


class _Place:
    """A place in the line: a gate that is shut until the turn comes."""

    __slots__ = ("gate", "thread")

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.gate = threading.Lock()
        self.gate.acquire()


def _wait(gate: threading.Lock, timeout: float | None, meanwhile: Callable[[], None] | None) -> bool:
    until = None if timeout is None else time.monotonic() + timeout
    while True:
        left = threading.TIMEOUT_MAX if until is None else max(0.0, until - time.monotonic())
        step = left if meanwhile is None else min(left, _STEP)
        if gate.acquire(timeout=min(step, threading.TIMEOUT_MAX)):
            return True
        if meanwhile is None or left <= _STEP:
            return False
        meanwhile()
