"""Finding out what a URL leads to."""

from __future__ import annotations

from sandboxsync.errors import ProtocolError
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http._retry import Kind
from sandboxsync.transports.http.dialects._bridge import BridgeDialect, routes_of
from sandboxsync.transports.http.dialects._container import ContainerDialect
from sandboxsync.transports.http.dialects._dialect import Dialect

__all__ = ["detect"]

_ASKED = Asked("connect")


def detect(open_connection: Connection, connection: Connection) -> Dialect:
    """Return the dialect of the service. Two or three requests; `open_connection` is one without the key.

    Raises `TransportError`: what the service says, `AuthenticationError` when a bridge does not take the key, and
    `ProtocolError` when what answers is no sandbox service.
    """
    health = _get(open_connection, "/health")
    if _says(health, "ok"):
        return BridgeDialect(connection, _routes(connection))
    ping = _get(open_connection, "/api/ping")
    if _says(ping, "success"):
        return ContainerDialect(open_connection)
    for answer in (health, ping):
        if answer.status in (401, 403, 407, 429) or answer.status >= 500:
            answer.check(_ASKED)
    raise ProtocolError(
        f"neither a bridge nor a container server answers at {connection.base_url}: {_told(health)}; {_told(ping)}; "
        "is the URL that of a sandbox service?",
        http_status=ping.status,
    )


def _routes(connection: Connection) -> frozenset[str]:
    """What a bridge says that it has; nothing where it does not say."""
    answer = _get(connection, "/v1/openapi.json")
    if answer.status == 404:
        return frozenset()
    return routes_of(answer.check(_ASKED).json())


def _get(connection: Connection, path: str) -> Response:
    with connection.request("GET", path, kind=Kind.READ, asked=_ASKED, load=True) as answer:
        return answer


def _says(answer: Response, word: str) -> bool:
    if answer.status != 200:
        return False
    try:
        value = answer.json()
    except ProtocolError:
        return False
    return isinstance(value, dict) and value.get(word) is True


def _told(answer: Response) -> str:
    return str(answer.nonsense(str(answer.status))).removeprefix("connect: ")
