"""Threads that run what blocks, kept for a while because starting one costs more than a short command."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Workers"]

_KEPT = 8
_PATIENCE = 1.0
"""Seconds without work after which a thread ends."""


class Workers:
    """Runs functions in threads of its own: at once, as many as there are. Any thread may ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._closed = False

    def run(self, function: Callable[[], None]) -> None:
        """Have it run in another thread. It must not raise."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        if worker is not None:
            worker.run(function)
        else:
            _Worker(self).start(function)

    def keep(self, worker: _Worker) -> bool:
        """Whether a worker that has nothing to do is to wait for more."""
        with self._lock:
            if self._closed or len(self._idle) >= _KEPT:
                return False
            self._idle.append(worker)
            return True

    def dismiss(self, worker: _Worker) -> bool:
        """Whether a worker that has waited for long may end; not when it was just given something."""
        with self._lock:
            if worker not in self._idle:
                return False
            self._idle.remove(worker)
            return True

    def close(self) -> None:
        """Let the idle threads end, and the others when they are done."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.run(None)

    def renew(self) -> None:
        """In a forked child: the threads are the parent's."""
        self._lock = threading.Lock()
        self._idle = []


class _Worker:
    """One thread, and the gate at which it waits for something to do."""

    __slots__ = ("_function", "_gate", "_workers")

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._function: Callable[[], None] | None = None
        self._gate = threading.Lock()
        self._gate.acquire()

    def start(self, function: Callable[[], None]) -> None:
        self.run(function)
        threading.Thread(target=self._live, name="sandboxsync-fake-command", daemon=True).start()

    def run(self, function: Callable[[], None] | None) -> None:
        """Give it something to do; `None` is to end."""
        self._function = function
        self._gate.release()

    def _live(self) -> None:
        while True:
            if not self._gate.acquire(timeout=_PATIENCE):
                if self._workers.dismiss(self):
                    return
                self._gate.acquire()  # it was given something in that very moment
            if self._function is None:
                return
            function, self._function = self._function, None
            function()
            del function
            if not self._workers.keep(self):
                return
