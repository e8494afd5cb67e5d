"""What the connections of a proxy share: the list of them, so that they can be ended, and what holds answers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

from ._wire import HungUpError, has_left, shut

__all__ = ["Hub"]

_HOST = "127.0.0.1"
_LOOK = 0.05
"""Seconds between two looks at whether a client still waits for an answer that is held."""
_KNOCK = 10.0


class Hub:
    """Accepts connections until it is closed, and serves each in a thread of its own."""

    def __init__(self, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._changed = threading.Condition()
        self._closed = False
        self._stalled = 0
        self._released = 0
        self._socks: set[socket.socket] = set()
        self._threads: set[threading.Thread] = set()
        self._listener = socket.create_server((_HOST, 0), backlog=128)
        self.connections = 0
        self.address = f"{_HOST}:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept, name="sandboxsync-faults", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except ConnectionAbortedError:
                continue
            thread = threading.Thread(target=self._run, args=(sock,), name="sandboxsync-faults-relay", daemon=True)
            with self._changed:
                if self._closed:
                    sock.close()
                    return
                self.connections += 1
                self._socks.add(sock)
                self._threads.add(thread)
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve(sock)
        finally:
            self.end(sock)
            with self._changed:
                self._threads.discard(threading.current_thread())

    def connect(self, host: str, port: int) -> socket.socket:
        """Return a new connection to a server. Raises `OSError`."""
        failure = OSError(f"no address for {host}")
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            sock = socket.socket(family, kind, protocol)
            with self._changed:
                self._socks.add(sock)
            try:
                sock.connect(address)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                # Not before: what is not connected cannot be shut.
                self._check_open()
                return sock
            except OSError as exc:
                failure = exc
                self.end(sock)
        raise failure

    def _check_open(self) -> None:
        with self._changed:
            if self._closed:
                raise ConnectionAbortedError("the proxy was closed")

    def end(self, sock: socket.socket) -> None:
        """Close a connection, of a client or to a server."""
        with self._changed:
            self._socks.discard(sock)
        sock.close()

    def hold(self, client: socket.socket, seconds: float | None) -> None:
        """Wait so long, `None` is for ever. Raises `HungUpError` when the client leaves, or all is closed."""
        self._wait(client, seconds, lambda: False)

    def stall(self, client: socket.socket, seconds: float | None) -> None:
        """Do the same, until `release` at the latest."""
        with self._changed:
            released = self._released
            self._stalled += 1
            self._changed.notify_all()
        try:
            self._wait(client, seconds, lambda: self._released != released)
        finally:
            with self._changed:
                self._stalled -= 1

    def _wait(self, client: socket.socket, seconds: float | None, is_over: Callable[[], bool]) -> None:
        end = None if seconds is None else time.monotonic() + seconds
        while True:
            left = _LOOK if end is None else end - time.monotonic()
            with self._changed:
                if self._changed.wait_for(lambda: self._closed or is_over(), min(_LOOK, max(0.0, left))):
                    if self._closed:
                        raise HungUpError(reset=False)
                    return
            if left <= _LOOK and end is not None:
                return
            if has_left(client):
                raise HungUpError(reset=False)

    def wait_for_stall(self, timeout: float) -> bool:
        """Wait until something is held, and return whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._stalled > 0, timeout)

    def release(self) -> None:
        """Let go on what is stalled now."""
        with self._changed:
            self._released += 1
            self._changed.notify_all()

    def close(self) -> None:
        """End all of it, and wait for that. Idempotent."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            for sock in self._socks:
                shut(sock)
        with socket.socket() as knock:
            # Wakes the thread that accepts, on every system.
            knock.settimeout(_KNOCK)
            knock.connect_ex(self._listener.getsockname())
        self._thread.join()
        self._listener.close()
        with self._changed:
            threads = list(self._threads)
        for thread in threads:
            thread.join()
