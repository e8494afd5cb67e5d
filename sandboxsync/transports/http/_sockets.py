"""Where urllib3 is bent to our needs, at the socket; imported with the first request.

What it lacks, and what is added here below it:

- a limit on an attempt as a whole. Its own is on each read, which a peer that sends one byte of a header now and then
  never meets, and on a request body as a whole, which a large one over a slow line always does;
- whether a byte of a request was sent, on which it depends what may be sent again;
- bytes of a body as they come. Its own reads wait for a full buffer;
- the sockets themselves, which a forked child must let go of;
- one TLS context for all connections. requests has the CA bundle read for each, at 50 ms of work.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from typing import cast

import urllib3.connection

from ._exchange import Exchange

__all__ = ["PIECE", "PlainConnection", "TLSConnection", "current"]

PIECE = 65536
"""Bytes that are read or sent at once."""


class Current(threading.local):
    """The attempt that a thread makes now. Connections of urllib3 are not told what they are used for."""

    exchange: Exchange | None = None
    adopt: Callable[[socket.socket], None] | None = None
    answer: http.client.HTTPResponse | None = None
    context: Callable[[], ssl.SSLContext] | None = None


current = Current()


def _exchange() -> Exchange:
    exchange = current.exchange
    if exchange is None:
        raise RuntimeError("a connection of sandboxsync is used outside of a request")
    return exchange


class _LimitedReader(io.RawIOBase):
    """The bytes of a socket, within the limits of the attempt that reads them."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._sock = sock
        self._exchange = exchange
        self._began = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._exchange.allow(self._sock)
        try:
            size = cast("int | None", self._raw.readinto(buffer))
        except TimeoutError:
            self._exchange.timed_out()
            raise
        if size == 0 and self._began and self._exchange.phase == "head":
            # http.client takes that for the end of the head, and the answer for one without a length.
            raise ConnectionAbortedError("the head of the answer broke off")
        self._began = True
        self._exchange.came(size or 0)
        return size

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


class _Answer(http.client.HTTPResponse):
    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(_LimitedReader(raw, sock, _exchange()), PIECE)

    def begin(self) -> None:
        exchange = _exchange()
        exchange.phase = "head"
        super().begin()
        exchange.phase = "body"
        current.answer = self


class _Limited:
    """What is alike for connections with and without TLS."""

    sock: socket.socket | None
    timeout: float | None
    response_class = _Answer
    _connecting = False

    def connect(self) -> None:
        self._connecting = True
        # Some versions of requests forget it for bodies that are sent in chunks.
        self.timeout = _exchange().connect_timeout()
        try:
            super().connect()  # type: ignore[misc]
        finally:
            self._connecting = False
        sock = self.sock
        if sock is not None and current.adopt is not None:
            current.adopt(sock)

    def send(self, data: bytes | Iterable[bytes]) -> None:
        if self._connecting:
            # To a proxy, which is asked for the way: nothing of the request itself.
            super().send(data)  # type: ignore[misc]
            return
        if self.sock is None:
            self.connect()
        sock, exchange = cast("socket.socket", self.sock), _exchange()
        exchange.phase = "send"
        exchange.sock = sock
        if not isinstance(data, (bytes, bytearray, memoryview)):
            for piece in data:
                self.send(piece)
            return
        rest = memoryview(data)
        while rest:
            rest = rest[_send_some(sock, rest[:PIECE], exchange) :]


def _send_some(sock: socket.socket, data: memoryview, exchange: Exchange) -> int:
    exchange.allow(sock)
    is_first, exchange.sent = not exchange.sent, True
    try:
        return sock.send(data)
    except TimeoutError:
        exchange.timed_out()
        raise
    except (BrokenPipeError, ConnectionResetError):
        # The system knew already that the other side is gone. With TLS a part of the data may have left before.
        if is_first and not isinstance(sock, ssl.SSLSocket) and type(sock) is socket.socket:
            exchange.sent = False
        raise


class PlainConnection(_Limited, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    """Without TLS."""


class TLSConnection(_Limited, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    """With TLS, on the context of the attempt."""

    def connect(self) -> None:
        # TLS to a proxy has a context of its own, which urllib3 makes from the same bundle.
        if current.context is not None and getattr(self.proxy, "scheme", None) != "https":
            self.ssl_context = current.context()
            self.ca_certs = self.ca_cert_dir = None
        super().connect()
