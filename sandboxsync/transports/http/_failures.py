"""From what requests, urllib3, http.client and sockets raise to the errors of this package: one sentence each.

Imported with the first request, because it imports requests.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from collections.abc import Collection, Iterator

import attrs
import requests.exceptions as theirs
import urllib3.exceptions as below

from sandboxsync.errors import (
    ConfigurationError,
    InvalidRequestError,
    ProtocolError,
    RequestTimeoutError,
    SandboxError,
    StreamInterruptedError,
    TransportError,
)

from ._errors import hide
from ._exchange import Exchange
from ._retry import Failure, Reached

__all__ = ["FOREIGN", "Where", "explain", "fit_to_show"]

FOREIGN = (OSError, http.client.HTTPException, below.HTTPError, ValueError)
"""What a request may raise that is not of this package. All of requests is an `OSError`."""


@attrs.frozen
class Where:
    """Where a request went, and its limits in seconds, for messages."""

    operation: str
    origin: str
    proxy: str | None
    connect: float | None
    read: float | None
    total: float | None


_NOT_SENT: tuple[tuple[type[BaseException], type[SandboxError], str], ...] = (
    (theirs.InvalidProxyURL, ConfigurationError, "the URL of the proxy cannot be used"),
    (theirs.InvalidURL, ConfigurationError, "the URL cannot be used"),
    (theirs.InvalidSchema, ConfigurationError, "the URL cannot be used"),
    (theirs.MissingSchema, ConfigurationError, "the URL cannot be used"),
    (theirs.URLRequired, ConfigurationError, "the URL cannot be used"),
    (below.LocationValueError, ConfigurationError, "the URL cannot be used"),
    (theirs.InvalidHeader, InvalidRequestError, "a header cannot be sent"),
    (below.InvalidHeader, InvalidRequestError, "a header cannot be sent"),
    (theirs.InvalidJSONError, InvalidRequestError, "the body is no JSON"),
    (theirs.UnrewindableBodyError, InvalidRequestError, "the body cannot be sent again"),
    (below.UnrewindableBodyError, InvalidRequestError, "the body cannot be sent again"),
)
"""What is wrong with the request itself, found before anything was sent."""

_NONSENSE = (
    http.client.BadStatusLine,
    http.client.LineTooLong,
    http.client.UnknownProtocol,
    theirs.ContentDecodingError,
    theirs.TooManyRedirects,
    below.DecodeError,
    below.HeaderParsingError,
    below.BodyNotHttplibCompatible,
    below.ResponseNotChunked,
    below.ResponseError,
)
_LOST = (OSError, http.client.IncompleteRead, http.client.RemoteDisconnected, http.client.CannotSendRequest)


def explain(exc: BaseException, exchange: Exchange, where: Where) -> tuple[SandboxError, Failure]:
    """Return (not raise) the error for an attempt that broke, and what it means for the next one."""
    chain = list(_chain(exc))
    if exchange.expired == "total":
        error: SandboxError = RequestTimeoutError(
            f"{where.operation}: {where.origin} did not answer within the {where.total:g} s of the whole call"
        )
        return error, Failure(_reached(exchange), permanent=True)
    for kind, cls, text in _NOT_SENT:
        if _find(chain, kind) is not None and not exchange.sent:
            return cls(f"{where.operation}: {text}: {exc}"), Failure(Reached.UNSENT, permanent=True)
    if exchange.phase == "connect":
        return _no_connection(exc, chain, exchange, where)
    if exchange.phase == "body":
        return _broken_body(exc, chain, exchange, where), Failure(Reached.SENT)
    if exchange.expired:
        what = "take the request" if exchange.phase == "send" else "answer"
        error = RequestTimeoutError(f"{where.operation}: {where.origin} did not {what} within {where.read:g} s")
        return error, Failure(_reached(exchange))
    if _is_nonsense(chain):
        return _nonsense(exc, where, "answered with what is not HTTP"), Failure(_reached(exchange), permanent=True)
    doubt = "; whether it did what was asked is not known" if exchange.sent else " before anything was sent"
    error = TransportError(
        f"{where.operation}: {where.origin} closed the connection without an answer{doubt}",
        code="CONNECTION_LOST",
        retryable=None if exchange.sent else True,
    )
    return error, Failure(_reached(exchange))


def _reached(exchange: Exchange) -> Reached:
    return Reached.SENT if exchange.sent else Reached.UNSENT


def _no_connection(
    exc: BaseException, chain: list[BaseException], exchange: Exchange, where: Where
) -> tuple[SandboxError, Failure]:
    start = f"{where.operation}: cannot connect to {where.origin}"
    if where.proxy is not None:
        start += f" through the proxy {where.proxy}"
    unsent = Failure(Reached.UNSENT)
    if where.proxy is not None and (_find(chain, theirs.ProxyError) or _find(chain, below.ProxyError)):
        return TransportError(f"{start}: {_reason(chain)}", code="PROXY_ERROR"), attrs.evolve(
            unsent, permanent=_is_told(chain)
        )
    invalid = _find(chain, ssl.SSLCertVerificationError)
    if invalid is not None:
        text = f"{start}: its certificate is not valid: {getattr(invalid, 'verify_message', '') or invalid}"
        return TransportError(text, code="TLS_ERROR", retryable=False), attrs.evolve(unsent, permanent=True)
    if exchange.expired or _find(chain, below.ConnectTimeoutError, but=below.NewConnectionError) or _timed_out(chain):
        text = f"{start} within {where.connect:g} s" if where.connect is not None else f"{start}: it timed out"
        return RequestTimeoutError(text, code="CONNECT_TIMEOUT", retryable=True), unsent
    tls = _find(chain, ssl.SSLError)
    if tls is not None or _find(chain, theirs.SSLError) or _find(chain, below.SSLError):
        text = f"{start}: TLS failed: {_reason(chain)}"
        # A side that goes away in the handshake may be one that restarts.
        passing = isinstance(tls, (ssl.SSLEOFError, ssl.SSLSyscallError, ssl.SSLZeroReturnError))
        return (
            TransportError(text, code="TLS_ERROR", retryable=passing),
            attrs.evolve(unsent, permanent=not passing),
        )
    if _find(chain, socket.gaierror) is not None:
        return TransportError(f"{start}: {_reason(chain)}", code="NAME_NOT_RESOLVED", retryable=True), unsent
    code = "CONNECTION_REFUSED" if _find(chain, ConnectionRefusedError) else "CONNECTION_FAILED"
    return TransportError(f"{start}: {_reason(chain)}", code=code, retryable=True), unsent


def _broken_body(exc: BaseException, chain: list[BaseException], exchange: Exchange, where: Where) -> SandboxError:
    if exchange.expired:
        return RequestTimeoutError(f"{where.operation}: {where.origin} sent nothing more for {where.read:g} s")
    if _is_nonsense(chain):
        return _nonsense(exc, where, "sent a body that is not HTTP")
    return StreamInterruptedError(f"{where.operation}: the answer of {where.origin} broke off: {_reason(chain)}")


def _nonsense(exc: BaseException, where: Where, what: str) -> ProtocolError:
    text = str(exc)
    return ProtocolError(f"{where.operation}: {where.origin} {what}: {text[:200]}")


def _is_nonsense(chain: list[BaseException]) -> bool:
    if any(isinstance(exc, _NONSENSE) and not isinstance(exc, http.client.RemoteDisconnected) for exc in chain):
        return True
    return any(isinstance(exc, http.client.HTTPException) and not isinstance(exc, _LOST) for exc in chain)


def _is_told(chain: list[BaseException]) -> bool:
    """Whether a proxy refused in words: it will again."""
    return any("Tunnel connection failed: 4" in str(exc) for exc in chain)


def _timed_out(chain: list[BaseException]) -> bool:
    return any(isinstance(exc, (TimeoutError, below.TimeoutError)) for exc in chain[-1:])


def _reason(chain: list[BaseException]) -> str:
    """What the system said, without the layers around it."""
    for exc in reversed(chain):
        if isinstance(exc, ssl.SSLError) and isinstance(getattr(exc, "reason", None), str):
            return exc.reason.replace("_", " ").lower()
        if isinstance(exc, OSError) and exc.strerror and not isinstance(exc, theirs.RequestException):
            return exc.strerror
    text = str(chain[-1])
    return text[:200] if text else type(chain[-1]).__name__


def _find(
    chain: list[BaseException], kind: type[BaseException], *, but: type[BaseException] | None = None
) -> BaseException | None:
    for exc in chain:
        if isinstance(exc, kind) and (but is None or not isinstance(exc, but)):
            return exc
    return None


def _chain(exc: BaseException) -> Iterator[BaseException]:
    """The exception and those it wraps, by arguments, reasons and causes, the outermost first."""
    seen: set[int] = set()
    todo: list[object] = [exc]
    while todo:
        found = todo.pop(0)
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        todo += [*found.args, getattr(found, "reason", None), found.__cause__]
        if isinstance(found, below.ConnectTimeoutError):
            # urllib3 1 raises it without a cause. Of others it may be an exception that the caller was handling.
            todo.append(found.__context__)


def fit_to_show(exc: BaseException, secrets: Collection[str]) -> BaseException | None:
    """Return the exception as the cause of an error, without the request it holds; `None` where a text has a secret."""
    for found in _chain(exc):
        if isinstance(found, theirs.RequestException):
            # Its headers hold the key.
            found.request = None
            found.response = None
        if isinstance(found, below.RequestError) and isinstance(found.url, str):
            found.url = hide(found.url, secrets)
        if any(hide(text, secrets) != text for text in (str(found), repr(found))):
            return None
    return exc
