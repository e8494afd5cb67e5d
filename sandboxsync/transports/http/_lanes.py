"""The connections that are kept open, one set per process.

A lane is an adapter of requests that one request at a time uses: taken for it, given back when its answer was read.
requests promises nothing to threads that share one of its objects, so none is shared; and one object per thread would
keep a connection for each thread that ever was. Two hundred threads that work at once have two hundred lanes, and two
hundred that work in turns have one. The newest is used first, so that those that are not needed get old and are closed.

Not kept: a lane that was idle for so long that the other side may have closed it (`max_idle`), and more than `_MOST`.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import ssl

    from ._adapter import Adapter

__all__ = ["Lanes", "shut"]

_MOST = 256
_KEPT = 60.0


class Lanes:
    """The lanes of one process. The lock is held for a step on the list, never while a socket is used or closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: deque[tuple[float, Adapter]] = deque()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._closed = False
        self._contexts: dict[str, ssl.SSLContext] = {}
        self._contexts_lock = threading.Lock()
        _living.add(self)

    def take(self, max_idle: float) -> Adapter:
        """Return a lane for one request; its connection, if it has one, was used in the last `max_idle` seconds."""
        from ._adapter import Adapter

        with self._lock:
            found = self._idle.pop() if self._idle else None
        if found is None:
            return Adapter()
        since, lane = found
        if time.monotonic() - since > max_idle:
            lane.close()
        return lane

    def give(self, lane: Adapter) -> None:
        """Take a lane back, with its connection as it is."""
        now = time.monotonic()
        surplus: list[Adapter] = []
        with self._lock:
            if self._closed:
                surplus.append(lane)
            else:
                self._idle.append((now, lane))
                while len(self._idle) > _MOST or now - self._idle[0][0] > _KEPT:
                    surplus.append(self._idle.popleft()[1])
        for old in surplus:
            old.close()

    def adopt(self, sock: socket.socket) -> None:
        """Note a socket, to end it in `close` and in a forked child."""
        with self._lock:
            self._sockets.add(sock)
        if self._closed:
            shut(sock)

    def context(self, bundle: Literal[True] | str) -> ssl.SSLContext:
        """Return what all connections of this process check certificates with. Reads the CA bundle once."""
        from ._adapter import make_context

        # A lock of its own, held meanwhile: else each of the first threads would do that work.
        with self._contexts_lock:
            name = str(bundle)
            if name not in self._contexts:
                self._contexts[name] = make_context(bundle)
            return self._contexts[name]

    def close(self) -> None:
        """Close what is idle, and break off what is in use."""
        with self._lock:
            self._closed = True
            idle = list(self._idle)
            self._idle.clear()
            sockets = list(self._sockets)
        for _, lane in idle:
            lane.close()
        for sock in sockets:
            shut(sock)

    def let_go(self) -> None:
        """In a forked child: close its copies of the parent's sockets, which tells the other side nothing.

        No lock is taken and nothing of requests is called: a thread that is not here may hold what they wait for.
        """
        for sock in list(self._sockets):
            try:
                number = sock.detach()
                if number >= 0:
                    os.close(number)
            except OSError:
                # It is closed, which is what was wanted.
                continue
        self._idle.clear()


def shut(sock: socket.socket) -> None:
    """End both directions of a connection, so that a thread that waits for it wakes. Raises nothing."""
    try:
        # Of the class, because TLS sockets forget their keys first, under the feet of a thread that reads.
        socket.socket.shutdown(getattr(sock, "socket", sock), socket.SHUT_RDWR)
    except OSError:
        # The other side, or the thread that uses it, was quicker.
        return


_living: weakref.WeakSet[Lanes] = weakref.WeakSet()


def _after_fork() -> None:
    for lanes in list(_living):
        lanes.let_go()


os.register_at_fork(after_in_child=_after_fork)
