"""Threads for what blocks, so that the event loop never does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar

from sandboxsync.transports.base import CommandStream, LogStream

__all__ = ["MOST_COMMANDS", "NoWorkerError", "Workers"]

MOST_COMMANDS = 512
"""Calls at once that may take as long as they like."""
_MOST_SHORT = 64
"""Calls at once that end by themselves; more of them wait in line."""
_JOIN = 5.0

P = ParamSpec("P")
T = TypeVar("T")


class NoWorkerError(Exception):
    """So many commands run that no other can be begun."""


class Workers:
    """Runs each call in a thread of its own, which ends with it. For one event loop at a time.

    Two bounds, so that commands without end never keep the calls waiting that would end them: short calls wait in line,
    long ones beyond the bound are refused.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._open: set[CommandStream | LogStream] = set()
        self._long = 0
        self._short: asyncio.Semaphore | None = None
        self.closed = threading.Event()

    async def short(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what ends by itself. Returns and raises what it does."""
        if self._short is None:
            self._short = asyncio.Semaphore(_MOST_SHORT)
        async with self._short:
            return await self._run(lambda: call(*args, **kwargs))

    async def long(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run what may never end. Raises `NoWorkerError` when too many such calls run."""
        if self._long >= MOST_COMMANDS:
            raise NoWorkerError
        self._long += 1
        return await self._run(lambda: call(*args, **kwargs), self._long_ended)

    def _long_ended(self) -> None:
        self._long -= 1

    async def _run(self, call: Callable[[], T], then: Callable[[], None] | None = None) -> T:
        loop = asyncio.get_running_loop()
        result: Future[T] = Future()

        def work() -> None:
            try:
                value = call()
            except BaseException as exc:
                result.set_exception(exc)
            else:
                result.set_result(value)
            finally:
                with self._lock:
                    self._threads.discard(thread)

        thread = threading.Thread(target=work, name="sandboxsync-server-call", daemon=True)
        with self._lock:
            self._threads.add(thread)
        if then is not None:
            result.add_done_callback(lambda _: _call_in(loop, then))
        try:
            thread.start()
        except RuntimeError as exc:
            with self._lock:
                self._threads.discard(thread)
            result.set_exception(NoWorkerError(str(exc)))
        # The thread goes on when the one who waits is cancelled: a command outlives its client.
        return await asyncio.shield(asyncio.wrap_future(result))

    def opened(self, stream: CommandStream | LogStream) -> None:
        """Note a stream, which `close` is to end if nobody else has until then."""
        with self._lock:
            self._open.add(stream)

    def ended(self, stream: CommandStream | LogStream) -> None:
        """Forget a stream."""
        with self._lock:
            self._open.discard(stream)

    def close(self) -> None:
        """End the streams that are open, and wait for the threads, some seconds at most. Blocks."""
        self.closed.set()
        with self._lock:
            streams = list(self._open)
            threads = list(self._threads)
        for stream in streams:
            stream.close()
        for thread in threads:
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join(_JOIN)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    with contextlib.suppress(RuntimeError):  # the loop has ended before the thread
        loop.call_soon_threadsafe(call)
