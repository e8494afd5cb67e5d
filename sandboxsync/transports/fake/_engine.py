"""The thread that bashkit's asynchronous interpreters are driven from."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from sandboxsync.transports.fake._clock import FakeClock
from sandboxsync.transports.fake._workers import Workers

__all__ = ["Engine"]

_PATIENCE = 2.0
"""Seconds that interpreters have to end in."""


class Engine:
    """An event loop in a thread of its own, started by the first command, and the timers of a clock.

    Everything that is marked as being on the loop runs there and nowhere else, so it needs no locks.
    """

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.workers = Workers()
        clock.add_waker(self._wake)
        self._lock = threading.Lock()
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._ticking: asyncio.TimerHandle | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop, running."""
        loop = self._loop
        if loop is None:
            with self._lock:
                if self._loop is None:
                    self._loop = self._start()
                loop = self._loop
        return loop

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=_run, args=(loop,), name="sandboxsync-fake", daemon=True)
        self._thread.start()
        loop.call_soon_threadsafe(self._tick)
        return loop

    def post(self, function: Callable[..., object], *args: Any) -> None:
        """Have it called on the loop, after what was posted before."""
        self.loop.call_soon_threadsafe(function, *args)

    def _wake(self) -> None:
        """A timer has to be fired, be it by real time."""
        if not self._closed:
            self.post(self._tick)

    def _tick(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()
            self._ticking = None
        left = self.clock.tick()
        if left is not None:
            self._ticking = asyncio.get_running_loop().call_later(left, self._tick)

    def close(self) -> None:
        """End the thread, once what was posted has been done. Idempotent."""
        self.workers.close()
        self.clock.remove_waker(self._wake)
        with self._lock:
            self._closed = True
            loop, self._loop = self._loop, None
            thread, self._thread = self._thread, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join()

    def renew(self) -> None:
        """In a forked child: the thread is the parent's."""
        if self._loop is not None:
            # Kept as it is: closing it would take the parent's descriptors out of what they share.
            _inherited.append(self._loop)
        self._lock = threading.Lock()
        self._loop = self._thread = self._ticking = None
        self.workers.renew()
        self.clock.add_waker(self._wake)


async def _wait_for(tasks: set[asyncio.Task[object]]) -> None:
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=_PATIENCE)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)


_inherited: list[asyncio.AbstractEventLoop] = []
"""Loops of a parent process."""


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        # Interpreters that were told to end do so by themselves, and then hold nothing of Python's any more. What else
        # runs is ended, so that no coroutine is dropped half-way.
        loop.run_until_complete(_wait_for(asyncio.all_tasks(loop)))
    finally:
        loop.close()
