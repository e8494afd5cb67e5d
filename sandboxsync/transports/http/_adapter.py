"""One connection of requests, the way we use it, and the body of an answer; imported with the first request."""

from __future__ import annotations

import http.client
import os
import queue
import socket
import ssl
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, cast

import attrs
import requests
import requests.adapters
import urllib3
import urllib3.connectionpool
from urllib3.util.ssl_ import create_urllib3_context

from ._exchange import Exchange
from ._sockets import PIECE, PlainConnection, TLSConnection, current

if TYPE_CHECKING:
    from ._secrets import Bearer

__all__ = ["Adapter", "Body", "Head", "make_context", "send"]


class _Slots:
    """Keeps the connections of a pool that one request at a time uses, in place of a queue with a lock.

    urllib3 empties that queue when the interpreter ends, also in a forked child, where nobody may be left to unlock it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._items: list[object] = []

    def put(self, item: object, block: bool = True, timeout: float | None = None) -> None:
        if len(self._items) >= self._size:
            raise queue.Full
        self._items.append(item)

    def get(self, block: bool = True, timeout: float | None = None) -> object:
        try:
            return self._items.pop()
        except IndexError:
            raise queue.Empty from None

    def qsize(self) -> int:
        return len(self._items)


class _HTTPPool(urllib3.connectionpool.HTTPConnectionPool):
    ConnectionCls = PlainConnection
    QueueCls = _Slots  # type: ignore[assignment]


class _HTTPSPool(urllib3.connectionpool.HTTPSConnectionPool):
    ConnectionCls = TLSConnection
    QueueCls = _Slots  # type: ignore[assignment]


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
        data = answer.read1(PIECE)
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
    before = dict(vars(current))
    vars(current).update(exchange=exchange, adopt=adopt, answer=None, context=context)
    try:
        response = adapter.send(
            request,
            stream=True,
            timeout=cast("tuple[float, None]", (exchange.connect_timeout(), None)),
            verify=context is not None,
            proxies=dict(proxies),
        )
        answer = current.answer
    except BaseException:
        # Some versions of requests leave it open on an interrupt.
        if exchange.sock is not None:
            exchange.sock.close()
        raise
    finally:
        # The source of a body may make requests of its own meanwhile, in this very thread.
        vars(current).clear()
        vars(current).update(before)
    if answer is None:
        raise RuntimeError("requests gave an answer that did not come over a connection of ours")
    names = {name.lower(): value for name, value in response.headers.items()}
    return Head(response.status_code, names, Body(answer, response.raw, exchange))


def _no_auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request
