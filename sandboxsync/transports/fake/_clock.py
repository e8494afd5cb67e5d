"""The clock of a fake: it runs with real time, and jumps over the time in which everything only sleeps."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone

from sandboxsync.errors import InvalidRequestError

__all__ = ["Activity", "FakeClock", "Timer", "Wait"]


class Timer:
    """Something that happens at a time of the clock. `fire` is called once, with the clock's lock held: it must not
    block.
    """

    __slots__ = ("at", "cancelled", "fire")

    def __init__(self, at: float, fire: Callable[[], None]) -> None:
        self.at = at
        self.fire = fire
        self.cancelled = False


class FakeClock:
    """Time as a fake's sandboxes see it.

    It goes on as real time does, and it jumps: when every command in flight sleeps (and every call that waits, waits
    for the clock), to the next moment at which something happens. So `exec("sleep 10")` takes no time, and a loop that
    never sleeps takes its `timeout` in real seconds.

    `start` is what it shows at first, an aware `datetime`; left out, the present time. One clock may be given to
    several transports. Safe for threads.
    """

    def __init__(self, start: datetime | None = None) -> None:
        if start is not None and start.tzinfo is None:
            raise InvalidRequestError("start must be an aware datetime, such as datetime.now(timezone.utc)")
        self._start = (start or datetime.now(timezone.utc)).astimezone(timezone.utc)
        self._born = time.monotonic()
        self._jumped = 0.0
        self.lock = threading.RLock()
        """Held while the clock moves: what is done under it takes no time."""
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._busy = 0
        self._waiting = 0
        self._holds = 0
        self._wakers: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        return f"<FakeClock {self.now().isoformat(timespec='milliseconds')}>"

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._born + self._jumped

    def now(self) -> datetime:
        """The date and time it shows, aware, UTC."""
        return self._start + timedelta(seconds=self.monotonic())

    def time(self) -> float:
        """The same in seconds since 1970."""
        return self._start.timestamp() + self.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait until `seconds` have passed on the clock; a jump may make that no time at all."""
        over = threading.Event()
        wait = self.wait(seconds, over.set)
        try:
            wait.begin()
            over.wait()
        finally:
            wait.end()

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass at once, and all that happens in them, also while the clock is `paused`."""
        if not math.isfinite(seconds) or seconds < 0:
            raise InvalidRequestError("a clock is advanced by a finite number of seconds, 0 or more")
        with self.lock:
            held, self._holds = self._holds, 0
        try:
            self.sleep(seconds)
        finally:
            with self.lock:
                self._holds += held

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Hold all jumps until the block ends, so that what several threads start sleeps together.

        Real time still counts. Blocks may be nested and used by several threads: the last one to end lets it go.
        """
        with self.lock:
            self._holds += 1
        try:
            yield
        finally:
            with self.lock:
                self._holds -= 1
                self._jump()

    # For the transport

    def add_waker(self, wake: Callable[[], None]) -> None:
        """Have `wake()` called when the next timer is nearer than before: then `tick` should be called."""
        with self.lock:
            self._wakers.append(wake)

    def remove_waker(self, wake: Callable[[], None]) -> None:
        with self.lock:
            if wake in self._wakers:
                self._wakers.remove(wake)

    def tick(self) -> float | None:
        """Fire what is due by real time. Returns the seconds until the next timer, `None` without one."""
        with self.lock:
            self._fire_until(self.monotonic())
            self._jump()
            return None if not self._timers else max(0.0, self._timers[0][0] - self.monotonic())

    def set_timer(self, seconds: float, fire: Callable[[], None]) -> Timer:
        """Have `fire` called when `seconds` have passed."""
        with self.lock:
            timer = Timer(self.monotonic() + seconds, fire)
            heapq.heappush(self._timers, (timer.at, next(self._order), timer))
            self._jump()
            if self._timers and self._timers[0][2] is timer:
                for wake in self._wakers:
                    wake()
            return timer

    def cancel(self, timer: Timer | None) -> None:
        """Make sure that it does not fire any more."""
        if timer is None:
            return
        with self.lock:
            timer.cancelled = True
            while self._timers and self._timers[0][2].cancelled:
                heapq.heappop(self._timers)
            self._jump()

    def wait(self, seconds: float | None, wake: Callable[[], None]) -> Wait:
        """A wait for at most `seconds` from now on, that has not begun. `wake` is as `fire` of a timer."""
        return Wait(self, seconds, wake)

    def activity(self) -> Activity:
        """One more thing that may run; at first it does not."""
        return Activity(self)

    def renew(self) -> None:
        """In a forked child: what the parent's threads waited for is none of ours."""
        self.lock = threading.RLock()
        self._timers = []
        self._busy = self._waiting = self._holds = 0
        self._wakers = []

    def _count(self, change: int) -> None:
        with self.lock:
            self._busy += change
            if change < 0:
                self._jump()

    def _jump(self) -> None:
        """Move to the next timer, and the next, while nothing runs and somebody waits. The lock is held."""
        while self._timers and self._waiting > 0 and self._busy == 0 and self._holds == 0:
            at = self._timers[0][0]
            self._jumped += max(0.0, at - self.monotonic())
            self._fire_until(at)

    def _fire_until(self, limit: float) -> None:
        while self._timers and self._timers[0][0] <= limit:
            timer = heapq.heappop(self._timers)[2]
            if not timer.cancelled:
                timer.cancelled = True
                timer.fire()


class Wait:
    """A call that waits. While there is one, and nothing runs, the clock jumps.

    Who brings what it waits for ends it, so that the clock does not go on before the call has seen that.
    """

    __slots__ = ("_at", "_clock", "_timer", "_waits", "_wake", "late")

    def __init__(self, clock: FakeClock, seconds: float | None, wake: Callable[[], None]) -> None:
        self.late = False
        """Whether the time has passed."""
        self._clock = clock
        self._at = None if seconds is None or math.isinf(seconds) else clock.monotonic() + seconds
        self._wake = wake
        self._timer: Timer | None = None
        self._waits = False

    def begin(self) -> None:
        """Wait, or wait on."""
        clock = self._clock
        with clock.lock:
            if not self._waits and not self.late:
                self._waits = True
                clock._waiting += 1
                if self._at is not None:
                    self._timer = clock.set_timer(self._at - clock.monotonic(), self._expire)
                else:
                    clock._jump()

    def end(self) -> None:
        """Wait no more. Idempotent."""
        clock = self._clock
        with clock.lock:
            if self._waits:
                self._waits = False
                clock._waiting -= 1
            timer, self._timer = self._timer, None
            clock.cancel(timer)

    def _expire(self) -> None:
        self.late = True
        self._timer = None
        self.end()
        self._wake()


class Activity:
    """Whether something runs (so that the clock must not jump) or sleeps or is over. Any thread may say so."""

    __slots__ = ("_clock", "_running")

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._running = False

    def run(self) -> None:
        self._set(True)

    def rest(self) -> None:
        self._set(False)

    def _set(self, running: bool) -> None:
        with self._clock.lock:
            if self._running != running:
                self._running = running
                self._clock._count(1 if running else -1)
