"""What a dialect is: the few things that hosted sessions and files need of a service."""

from __future__ import annotations

from abc import abstractmethod
from typing import Literal, Protocol

from sandboxsync.errors import UnsupportedOperationError
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http.hosted._host import PlainExec
from sandboxsync.transports.http.hosted._raw import RawFiles

__all__ = ["BINARY", "Dialect", "DialectName", "RemoteSandbox", "checked", "silence_of"]

DialectName = Literal["bridge", "container"]

BINARY = ".png"
"""What the name of a file ends with that a service hands out as bytes: it goes by the name, and what it takes for text
loses what is no UTF-8. Not `.bin`, for which it looks at the content.
"""
_LEAST_SILENCE = 45.0


class RemoteSandbox(PlainExec, RawFiles, Protocol):
    """One sandbox of a service. Any thread may use it, and a forked child."""

    key: str
    """What tells it from the other sandboxes of the service."""

    @abstractmethod
    def ping(self, timeout: float | None) -> None:
        """Return when it answers. Raises `TransportError`, within `timeout` seconds."""

    @abstractmethod
    def end(self) -> bool:
        """End it, with its files; `False` where the service cannot do that. Idempotent."""


class Dialect(Protocol):
    """A service."""

    name: DialectName

    @abstractmethod
    def sandbox(self, sandbox_id: str) -> RemoteSandbox:
        """The sandbox that is meant by an id of the user's. No I/O."""


def checked(answer: Response, route: str) -> Response:
    """Return an answer of success. Raises `UnsupportedOperationError` where the service has no such route, else the
    error that it tells; then the answer is closed.
    """
    if answer.status in (404, 405) and _says_no_route(answer.load_error()):
        raise UnsupportedOperationError(f"this service has no route {route!r}")
    return answer.check()


def silence_of(connection: Connection) -> float | None:
    """Seconds without a byte after which a command's answer counts as lost.

    Not less than a few of the signs of life that the host in the sandbox gives of a quiet command, one in 15 seconds.
    """
    limit = connection.read_timeout
    return None if limit is None else max(limit, _LEAST_SILENCE)


def _says_no_route(body: bytes) -> bool:
    """Whether a body is what the bridge or the container server says of a path that it does not know."""
    return body.strip() == b"404 Not Found" or b"requested endpoint was not found" in body
