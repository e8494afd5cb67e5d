"""Time limits and retries over real sockets."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest

from sandboxsync._clock import SystemClock
from sandboxsync.errors import (
    RequestTimeoutError,
    SandboxUnavailableError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked
from sandboxsync.transports.http._retry import Kind, RetryPolicy
from tests._http import (
    ONCE_ONLY,
    QUICK,
    Impatient,
    drip_head,
    echo,
    free_port,
    get,
    lose,
    reset,
    scripted,
    stall,
)
from tests._loopback import Peer, Server, answer, each

# Limits


def test_a_service_that_is_silent() -> None:
    """H4: the read limit ends the wait; what was sent is not sent again unless it may be."""
    with Server(stall) as server, closing(Connection(server.url, read_timeout=0.2, retry=QUICK)) as connection:
        started = time.monotonic()
        with pytest.raises(RequestTimeoutError, match=r"did not answer within 0\.2 s"):
            get(connection, kind=Kind.ONCE)
        assert 0.15 < time.monotonic() - started < 3
        assert server.connections == 1
        with pytest.raises(RequestTimeoutError):
            get(connection, kind=Kind.READ)
        assert server.connections == 1 + QUICK.attempts
        with pytest.raises(RequestTimeoutError, match=r"0\.1 s"):
            get(connection, kind=Kind.ONCE, read_timeout=0.1)


def test_a_stream_that_falls_silent() -> None:
    """The read limit is on each silence, however long the whole takes."""

    def slow(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        for _ in range(5):
            time.sleep(0.15)
            peer.send(b"x")
        peer.receive()

    with Server(slow) as server, closing(Connection(server.url, read_timeout=0.5)) as connection:
        got: list[bytes] = []
        with pytest.raises(RequestTimeoutError, match=r"nothing more for 0\.5 s"):
            got.extend(connection.request("GET", "/x", kind=Kind.READ).stream())
        assert got == [b"x"] * 5


def test_a_head_that_drips() -> None:
    """H4: no single wait is long, so the total limit ends it, and without one the read limit on the head as a whole."""
    with Server(drip_head) as server:
        for limits in ({"total_timeout": 0.5}, {"read_timeout": 0.5}):
            with closing(Connection(server.url, retry=ONCE_ONLY)) as connection:
                started = time.monotonic()
                with pytest.raises(RequestTimeoutError, match="within"):
                    get(connection, **limits)  # type: ignore[arg-type]
                assert time.monotonic() - started < 3


def test_a_body_that_drips() -> None:
    """The total limit goes on while the answer is read."""

    def drip(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            peer.send(b"1\r\nx\r\n")
            time.sleep(0.05)

    with Server(drip) as server, closing(Connection(server.url)) as connection:
        started = time.monotonic()
        for load in (True, False):
            with pytest.raises(RequestTimeoutError):
                connection.request("GET", "/x", kind=Kind.READ, total_timeout=0.4, load=load).read()
        assert time.monotonic() - started < 4


def test_a_body_that_is_not_taken() -> None:
    """An upload to a service that stops reading ends at the read limit, one that is only slow does not."""
    stop = threading.Event()

    def deaf(peer: Peer) -> None:
        peer.sock.recv(1000)
        stop.wait(20)

    with Server(deaf) as server, closing(Connection(server.url, read_timeout=0.3, retry=QUICK)) as connection:
        with pytest.raises(RequestTimeoutError, match="did not take the request"):
            connection.request("PUT", "/x", kind=Kind.ONCE, body=b"x" * 2**25)
        stop.set()

    def slow(peer: Peer) -> None:
        peer.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        left = 2**23
        while left > 0:
            left -= len(peer.sock.recv(2**20))
            time.sleep(0.005)
        peer.send(answer())

    with Server(slow) as server, closing(Connection(server.url, connect_timeout=0.3, read_timeout=0.3)) as connection:
        assert connection.request("PUT", "/x", kind=Kind.ONCE, body=b"x" * 2**23).status == 200


def test_a_total_limit_includes_the_retries() -> None:
    """Attempts and waits end in time, and no attempt begins that could not."""
    with Server(each(lambda request: answer(b"", "503 Busy"))) as server:
        policy = RetryPolicy(attempts=1000, total=1000, base=0.1, cap=0.1)
        with closing(Connection(server.url, retry=policy)) as connection:
            started = time.monotonic()
            with suppress(RequestTimeoutError):
                # Where the limit passed in a wait and not in an attempt.
                assert get(connection, total_timeout=0.5).status == 503
            assert time.monotonic() - started < 2


# Retries


@pytest.mark.parametrize("kind", Kind)
@pytest.mark.parametrize("failing", [lose, reset])
def test_lost_connections(kind: Kind, failing: Callable[[Peer], None]) -> None:
    """H2: a request that was sent and not answered is sent again only where that is harmless."""
    with (
        Server(scripted(failing, failing, each(echo))) as server,
        closing(Connection(server.url, retry=QUICK)) as connection,
    ):
        if kind is Kind.ONCE:
            with pytest.raises(TransportError, match="without an answer"):
                get(connection, kind=kind)
            assert server.connections == 1
        else:
            assert get(connection, kind=kind).status == 200
            assert server.connections == 3


@pytest.mark.parametrize("kind", Kind)
def test_a_refused_connection(kind: Kind) -> None:
    """H3: nothing was sent, so each kind is tried again, as often as the policy says."""
    port, clock = free_port(), Impatient()
    with closing(Connection(f"http://127.0.0.1:{port}", retry=RetryPolicy(attempts=3), clock=clock)) as connection:
        with pytest.raises(
            TransportError, match=rf"cannot connect to http://127.0.0.1:{port}: Connection refused"
        ) as caught:
            get(connection, kind=kind)
        assert (caught.value.code, caught.value.retryable) == ("CONNECTION_REFUSED", True)
        assert caught.value.__cause__ is not None
        assert len(clock.slept) == 2


def test_answers_that_are_tried_again() -> None:
    """H3: 503 for every kind, 502 only where it is harmless and no word of the service, others never."""
    cases = [
        ("503 Busy", b"", Kind.ONCE, True),
        ("429 Slow down", b"", Kind.ONCE, True),
        ("503 Busy", b'{"error":"full","code":"capacity_exceeded"}', Kind.ONCE, True),
        ("502 Bad Gateway", b"<html>", Kind.READ, True),
        ("502 Bad Gateway", b"<html>", Kind.ONCE, False),
        ("502 Bad Gateway", b'{"error":"x","code":"session_error"}', Kind.READ, False),
        ("409 Conflict", b'{"message":"x","code":"OPERATION_INTERRUPTED"}', Kind.READ, False),
        ("404 Not Found", b"", Kind.READ, False),
        ("500 Oops", b"", Kind.READ, False),
    ]
    for status, body, kind, again in cases:
        answers = [answer(body, status), answer()]
        with Server(each(lambda request, answers=answers: answers.pop(0))) as server:  # type: ignore[misc]
            with closing(Connection(server.url, retry=QUICK)) as connection:
                response = get(connection, kind=kind)
                assert response.status == (200 if again else int(status[:3]))
                assert len(answers) == (0 if again else 1)
                assert server.connections == 1


@pytest.mark.parametrize("form", ["seconds", "date"])
def test_retry_after_is_honoured(form: str) -> None:
    """The wait is not shorter than the service asked for; one beyond the budget ends the attempts at once."""
    value = (
        "3" if form == "seconds" else format_datetime(datetime.now(timezone.utc) + timedelta(seconds=4), usegmt=True)
    )
    answers = [answer(b"", "503 Busy", Retry_After=value), answer()]
    clock = Impatient()
    with (
        Server(each(lambda request: answers.pop(0))) as server,
        closing(Connection(server.url, clock=clock)) as connection,
    ):
        assert get(connection).status == 200
        assert len(clock.slept) == 1
        assert 2 <= clock.slept[0] <= 5
    answers = [answer(b"", "503 Busy", Retry_After="3600")]
    with (
        Server(each(lambda request: answers.pop(0))) as server,
        closing(Connection(server.url, clock=clock)) as connection,
    ):
        with pytest.raises(SandboxUnavailableError) as caught:
            get(connection).check(Asked("ping"))
        assert caught.value.retry_after == 3600
        assert len(clock.slept) == 1


def test_a_body_that_cannot_be_had_again() -> None:
    """What came of an iterator is gone, so it is not sent again; a list is, and an iterator nobody touched."""
    with Server(scripted(lose, each(echo))) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        with pytest.raises(TransportError):
            connection.request("PUT", "/x", kind=Kind.DELIVERY, body=iter([b"a", b"b"]))
        assert server.connections == 1
    with Server(scripted(lose, each(echo))) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        assert connection.request("PUT", "/x", kind=Kind.DELIVERY, body=[b"a", b"b"]).read() == b"PUT\n/x\nab"
    port = free_port()
    servers: list[Server] = []

    class Opening(SystemClock):
        def sleep(self, seconds: float) -> None:
            servers.append(Server(each(echo)))
            connection._line._base = type(connection._line._base)("http", "127.0.0.1", servers[0].port)

    with closing(Connection(f"http://127.0.0.1:{port}", retry=QUICK, clock=Opening())) as connection:
        assert connection.request("PUT", "/x", kind=Kind.ONCE, body=iter([b"a", b"b"])).read() == b"PUT\n/x\nab"
    servers[0].close()
