"""What the libraries below raise: every class of it is mapped, in every phase of a request, to one clear sentence."""

from __future__ import annotations

import errno
import http.client
import inspect
import socket
import ssl
from contextlib import closing

import pytest
import requests
import requests.exceptions
import urllib3.exceptions

from sandboxsync import errors
from sandboxsync._clock import SYSTEM_CLOCK
from sandboxsync._deadline import Deadline
from sandboxsync.errors import SandboxError
from sandboxsync.transports.http._adapter import Adapter
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._exchange import Exchange, Phase
from sandboxsync.transports.http._failures import FOREIGN, Where, explain, fit_to_show
from sandboxsync.transports.http._retry import Kind, Reached, RetryPolicy

WHERE = Where("exec", "https://bridge.example", "proxy:3128", 5.0, 60.0, 90.0)
KEY = "sk-Zeta/9+x=4242"
PHASES: tuple[Phase, ...] = ("connect", "send", "head", "body")


def exceptions_of(module: object, root: type[BaseException]) -> list[type[BaseException]]:
    """The exceptions that a module defines or exports, without warnings."""
    found = {cls for _, cls in inspect.getmembers(module, inspect.isclass) if issubclass(cls, root)}
    return sorted((cls for cls in found if not issubclass(cls, Warning)), key=lambda cls: cls.__qualname__)


THEIRS = [
    *exceptions_of(requests.exceptions, requests.exceptions.RequestException),
    *exceptions_of(urllib3.exceptions, urllib3.exceptions.HTTPError),
    *exceptions_of(http.client, http.client.HTTPException),
    *exceptions_of(ssl, OSError),
    *exceptions_of(socket, OSError),
    ConnectionResetError,
    BrokenPipeError,
    ConnectionAbortedError,
    UnicodeError,
    ValueError,
]


def make(cls: type[BaseException]) -> BaseException:
    """An instance, whatever its class wants to be made from."""
    if cls is urllib3.exceptions.InvalidChunkLength:
        return cls(urllib3.HTTPResponse(b""), b"zz")
    if cls is urllib3.exceptions.IncompleteRead:
        return cls(1, 2)
    if issubclass(cls, requests.exceptions.JSONDecodeError):
        return cls("it broke", "", 0)
    pool = urllib3.HTTPConnectionPool("bridge.example")
    for args in (("it broke",), (pool, "it broke"), (pool, "/x", "it broke"), ()):
        try:
            return cls(*args)
        except (TypeError, AttributeError):
            continue
    raise AssertionError(f"{cls} cannot be made")


def attempt(phase: Phase = "connect", sent: bool | None = None) -> Exchange:
    """One that came that far."""
    exchange = Exchange(5.0, 60.0, Deadline(90.0, SYSTEM_CLOCK))
    exchange.phase = phase
    exchange.sent = phase in ("head", "body") if sent is None else sent
    return exchange


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("cls", THEIRS, ids=lambda cls: f"{cls.__module__}.{cls.__qualname__}")
def test_every_exception_is_mapped(cls: type[BaseException], phase: Phase) -> None:
    """Each is foreign to `FOREIGN` no more, and becomes an error of the package in one sentence."""
    exc = make(cls)
    assert isinstance(exc, FOREIGN)
    error, failure = explain(exc, attempt(phase), WHERE)
    assert isinstance(error, errors.TransportError | errors.ConfigurationError | errors.InvalidRequestError)
    assert str(error).startswith("exec: ")
    assert "\n" not in str(error)
    assert len(str(error)) < 500
    if phase == "connect":
        assert failure.reached is Reached.UNSENT
    if phase in ("head", "body"):
        assert failure.reached is Reached.SENT
        assert isinstance(error, errors.TransportError)


@pytest.mark.parametrize(
    "cls",
    exceptions_of(requests.exceptions, requests.exceptions.RequestException),
    ids=lambda cls: cls.__qualname__,
)
def test_a_connection_maps_every_exception_of_requests(
    cls: type[requests.RequestException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of them, and nothing that holds the key, reaches the caller but as the cause."""
    request = requests.Request("GET", "http://localhost", headers={"Authorization": f"Bearer {KEY}"}).prepare()
    if issubclass(cls, requests.exceptions.JSONDecodeError):
        exc: requests.RequestException = cls("it broke", "", 0, request=request)
    else:
        exc = cls("it broke", request=request)

    def send(self: Adapter, *args: object, **kwargs: object) -> None:
        raise exc

    monkeypatch.setattr(Adapter, "send", send)
    with closing(Connection("http://localhost:9", api_key=KEY, retry=RetryPolicy(attempts=1))) as connection:
        with pytest.raises(SandboxError) as caught:
            connection.request("GET", "/x", kind=Kind.READ)
    assert caught.value.__cause__ is exc
    assert exc.request is None
    assert exc.response is None


PLAIN, LATE, BAD = errors.TransportError, errors.RequestTimeoutError, errors.InvalidRequestError
WAYS: list[tuple[Exception, type[SandboxError], str, str, bool]] = [
    (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), PLAIN, "CONNECTION_REFUSED", "refused", False),
    (OSError(errno.ENETUNREACH, "no network"), PLAIN, "CONNECTION_FAILED", "no network", False),
    (socket.gaierror(-2, "Name not known"), PLAIN, "NAME_NOT_RESOLVED", "Name not known", False),
    (TimeoutError("timed out"), LATE, "CONNECT_TIMEOUT", "within 5 s", False),
    (ssl.SSLEOFError(8, "EOF occurred"), PLAIN, "TLS_ERROR", "TLS failed: EOF occurred", False),
    (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong"), PLAIN, "TLS_ERROR", "TLS failed", True),
    (ssl.SSLCertVerificationError("bad"), PLAIN, "TLS_ERROR", "certificate is not valid", True),
    (requests.exceptions.InvalidURL("x"), errors.ConfigurationError, "CONFIGURATION_ERROR", "URL", True),
    (requests.exceptions.InvalidHeader("x"), BAD, "VALIDATION_FAILED", "header", True),
]


@pytest.mark.parametrize(("exc", "cls", "code", "text", "permanent"), WAYS, ids=lambda value: type(value).__name__)
def test_ways_not_to_connect(exc: Exception, cls: type[SandboxError], code: str, text: str, permanent: bool) -> None:
    """Through the layers of urllib3 and requests, each is told by what the system said."""
    pool = urllib3.HTTPSConnectionPool("bridge.example")
    wrapped: Exception = exc
    if isinstance(exc, OSError) and not isinstance(exc, requests.RequestException):
        inner = urllib3.exceptions.SSLError(exc) if isinstance(exc, ssl.SSLError) else exc
        wrapped = requests.exceptions.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/x", inner))
    error, failure = explain(wrapped, attempt(), WHERE)
    assert type(error) is cls
    assert error.code == code
    assert text in str(error)
    assert failure.permanent is permanent
    assert failure.reached is Reached.UNSENT


def test_limits_are_named() -> None:
    """A limit that passed is told with its seconds, whichever layer noticed it."""
    exchange = attempt("head")
    exchange.expired = "read"
    error, failure = explain(TimeoutError(), exchange, WHERE)
    assert str(error) == "exec: https://bridge.example did not answer within 60 s"
    assert failure.reached is Reached.SENT
    assert not failure.permanent
    exchange.expired = "total"
    error, failure = explain(TimeoutError(), exchange, WHERE)
    assert str(error) == "exec: https://bridge.example did not answer within the 90 s of the whole call"
    assert failure.permanent


def test_whether_it_was_sent_is_told() -> None:
    """H2: where no byte left it is said, and it may be tried again; else it is said that nobody knows."""
    error, failure = explain(ConnectionResetError(), attempt("send", sent=False), WHERE)
    assert "before anything was sent" in str(error)
    assert (error.retryable, failure.reached) == (True, Reached.UNSENT)
    error, failure = explain(http.client.RemoteDisconnected("x"), attempt("head"), WHERE)
    assert "is not known" in str(error)
    assert (error.retryable, failure.reached) == (None, Reached.SENT)


def test_an_exception_that_the_caller_handles_is_no_reason() -> None:
    """A request inside of an `except` block does not fail for what that block is about."""
    try:
        raise socket.gaierror(-2, "Name or service not known")
    except socket.gaierror:
        try:
            raise requests.exceptions.ConnectionError(ConnectionRefusedError(errno.ECONNREFUSED, "refused"))
        except requests.exceptions.ConnectionError as caught:
            exc = caught
    assert explain(exc, attempt(), WHERE)[0].code == "CONNECTION_REFUSED"


def test_causes_that_show_a_secret_are_left_out() -> None:
    """H5: an exception whose text holds the key or a password is not kept as a cause."""
    assert fit_to_show(ValueError("fine"), (KEY,)) is not None
    assert fit_to_show(ValueError(f"bad {KEY}"), (KEY,)) is None
    assert fit_to_show(requests.exceptions.InvalidURL("http://u:hunter2@host"), ()) is None
    nested = requests.exceptions.ConnectionError(ValueError(KEY))
    assert fit_to_show(nested, (KEY,)) is None
