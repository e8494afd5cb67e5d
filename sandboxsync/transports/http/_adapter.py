"""Where requests and urllib3 are bent to our needs; imported with the first request, because both are slow to import.

What they lack, and what is added here below them, at the socket:

- a limit on an attempt as a whole. Theirs is on each read, which a peer that sends one byte of a header now and then
  never meets, and on a request body as a whole, which a large one over a slow line always does;
- whether a byte of a request was sent, on which it depends what may be sent again;
- bytes of a body as they come. Theirs wait for a full buffer;
- the sockets themselves, which a forked child must let go of;
- one TLS context for all connections. Theirs reads the CA bundle for each, at 50 ms of work.
"""

from __future__ import annotations

import http.client
import io
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast

import attrs
import requests
import requests.adapters
import urllib3
import urllib3.connection
import urllib3.connectionpool
from urllib3.util.ssl_ import create_urllib3_context

from ._exchange import Exchange

if TYPE_CHECKING:
    from ._secrets import Bearer

__all__ = ["Adapter", "Body", "Head", "make_context", "send"]

_PIECE = 65536


class _Current(threading.local):
    exchange: Exchange | None = None
    adopt: Callable[[socket.socket], None] | None = None
    answer: http.client.HTTPResponse | None = None
    context: Callable[[], ssl.SSLContext] | None = None


_current = _Current()


def _exchange() -> Exchange:
    exchange = _current.exchange
    if exchange is None:
        raise RuntimeError("a connection of sandboxsync is used outside of a request")
    return exchange


class _LimitedReader(io.RawIOBase):
    """The bytes of a socket, within the limits of the attempt that reads them."""

    def __init__(self, raw: io.RawIOBase, sock: socket.socket, exchange: Exchange) -> None:
        self._raw = raw
        self._sock = sock
        self._exchange = exchange

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int | None:  # type: ignore[override]
        self._exchange.allow(self._sock)
        try:
            size = cast("int | None", self._raw.readinto(buffer))
        except TimeoutError:
            self._exchange.timed_out()
            raise
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
        self.fp = io.BufferedReader(_LimitedReader(raw, sock, _exchange()), _PIECE)

    def begin(self) -> None:
        exchange = _exchange()
        exchange.phase = "head"
        super().begin()
        exchange.phase = "body"
        _current.answer = self


class _Limited:
    """What is alike for connections with and without TLS."""

    sock: socket.socket | None
    response_class = _Answer
    _connecting = False

    def connect(self) -> None:
        self._connecting = True
        try:
            super().connect()  # type: ignore[misc]
        finally:
            self._connecting = False
        sock = self.sock
        if sock is not None and _current.adopt is not None:
            _current.adopt(sock)

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
            rest = rest[_send_some(sock, rest[:_PIECE], exchange) :]


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


class _HTTPConnection(_Limited, urllib3.connection.HTTPConnection):  # type: ignore[misc]
    pass


class _HTTPSConnection(_Limited, urllib3.connection.HTTPSConnection):  # type: ignore[misc]
    def connect(self) -> None:
        # TLS to a proxy has a context of its own, which urllib3 makes from the same bundle.
        if _current.context is not None and getattr(self.proxy, "scheme", None) != "https":
            self.ssl_context = _current.context()
            self.ca_certs = self.ca_cert_dir = None
        super().connect()


class _HTTPPool(urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = _HTTPConnection


class _HTTPSPool(urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = _HTTPSConnection


_POOLS = {"http": _HTTPPool, "https": _HTTPSPool}


class Adapter(requests.adapters.HTTPAdapter):
    """One connection to a host, used by one request at a time, and kept open between them."""

    def __init__(self) -> None:
        """Two hosts, for a redirect leads to a second one."""
        super().__init__(pool_connections=2, pool_maxsize=1, max_retries=0)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **kwargs: object) -> None:
        super().init_poolmanager(connections, maxsize, block, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **kwargs: object) -> object:
        manager = super().proxy_manager_for(proxy, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


def make_context(bundle: Literal[True] | str) -> ssl.SSLContext:
    """Return what checks certificates with a CA bundle, a file or a directory; `True` is the bundle of requests."""
    path = requests.adapters.DEFAULT_CA_BUNDLE_PATH if bundle is True else bundle
    context = create_urllib3_context()
    if os.path.isdir(path):
        context.load_verify_locations(capath=path)
    else:
        context.load_verify_locations(cafile=path)
    return context


@attrs.frozen
class Head:
    """An answer whose body is still to be read. `headers` have lower-case names, repeated ones are joined by commas."""

    status: int
    headers: Mapping[str, str]
    body: Body


class Body:
    """The body of an answer, as its bytes come. One thread reads at a time."""

    def __init__(self, answer: http.client.HTTPResponse, raw: urllib3.HTTPResponse, exchange: Exchange) -> None:
        self._answer = answer
        self._raw = raw
        self._exchange = exchange
        self.complete = answer.isclosed() or answer.length == 0

    def read(self) -> bytes:
        """Return what has come, at least a byte; `b""` at the end. Blocks until then.

        Raises what sockets and `http.client` raise, `IncompleteRead` also where the length that was told is not met.
        """
        if self.complete:
            return b""
        answer = self._answer
        data = answer.read1(_PIECE)
        self._exchange.bytes_received += len(data)
        left = answer.chunk_left
        if isinstance(left, int) and left < 0:
            raise http.client.HTTPException("a chunk has a negative size")
        if not data:
            if answer.length and not answer.chunked:
                raise http.client.IncompleteRead(b"", answer.length)
            self.complete = True
        elif answer.length == 0 and not answer.chunked:
            self.complete = True
        return data

    def give_back(self) -> None:
        """Let go of the connection: it is kept if the body was read to its end, else closed."""
        try:
            self._answer.close()
        finally:
            if self.complete:
                self._raw.release_conn()
            else:
                self._raw.close()


def send(
    adapter: Adapter,
    exchange: Exchange,
    adopt: Callable[[socket.socket], None],
    context: Callable[[], ssl.SSLContext] | None,
    *,
    method: str,
    url: str,
    headers: Mapping[str, str],
    body: bytes | Iterable[bytes] | None,
    auth: Bearer | None,
    proxies: Mapping[str, str],
) -> Head:
    """Send a request and return the head of its answer. Follows no redirect, repeats nothing, knows no cookies.

    `adopt` is told of a socket that was made, `context` asked for what checks certificates, `None` checks none. Raises
    what requests, urllib3 and sockets raise.
    """
    # Not a Session: what it adds are cookies, .netrc, the environment and redirects, which are ours to decide, and it
    # is not promised that threads may share one.
    request = requests.Request(method, url, headers=dict(headers), data=body, auth=auth or _no_auth).prepare()
    # Its own normalizing would resolve and unquote, so that another path would be asked for.
    request.url = url
    before = dict(vars(_current))
    vars(_current).update(exchange=exchange, adopt=adopt, answer=None, context=context)
    try:
        response = adapter.send(
            request,
            stream=True,
            timeout=cast("tuple[float, None]", (exchange.connect_timeout(), None)),
            verify=context is not None,
            proxies=dict(proxies),
        )
        answer = _current.answer
    finally:
        # The source of a body may make requests of its own meanwhile, in this very thread.
        vars(_current).clear()
        vars(_current).update(before)
    if answer is None:
        raise RuntimeError("requests gave an answer that did not come over a connection of ours")
    names = {name.lower(): value for name, value in response.headers.items()}
    return Head(response.status_code, names, Body(answer, response.raw, exchange))


def _no_auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
