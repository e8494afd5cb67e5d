"""Requests and their answers over real sockets: bodies both ways, streams, what is told of them."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

import pytest

from sandboxsync.errors import (
    AuthenticationError,
    InvalidRequestError,
    ProtocolError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked
from sandboxsync.transports.http._events import HTTPEvent, RequestFinished, RetryScheduled
from sandboxsync.transports.http._retry import Kind
from tests._http import (
    KEY,
    ONCE_ONLY,
    QUICK,
    echo,
    get,
    lose,
    scripted,
)
from tests._loopback import Peer, Received, Server, answer, each

# Requests and answers


def test_a_request_arrives_as_it_was_asked_for() -> None:
    """Method, path, query, headers, JSON and the key reach the service; the answer's parts come back."""
    seen: list[Received] = []

    def reply(request: Received) -> bytes:
        seen.append(request)
        return answer(b'{"a":[1]}', X_One="1", x_two="2")

    with Server(each(reply)) as server, closing(Connection(server.url + "/base/", api_key=KEY)) as connection:
        response = connection.request(
            "POST",
            "/a%2Fb/%E2%82%AC;x",
            kind=Kind.ONCE,
            query={"q": "1 2"},
            json={"é": None, "n": 1.5},
            headers={"Session-Id": "s1"},
        )
        assert (response.status, response.json(), response.read()) == (200, {"a": [1]}, b'{"a":[1]}')
        assert response.headers["x-one"] + response.headers["x-two"] == "12"
        assert response.check() is response
    (request,) = seen
    assert (request.method, request.path) == ("POST", "/base/a%2Fb/%E2%82%AC;x?q=1+2")
    assert request.body == b'{"\\u00e9":null,"n":1.5}'
    expected = {
        "authorization": f"Bearer {KEY}",
        "content-type": "application/json",
        "session-id": "s1",
        "accept-encoding": "identity",
    }
    assert expected.items() <= request.headers.items()
    assert request.headers["user-agent"].startswith("sandboxsync/")
    assert " python/3." in request.headers["user-agent"]
    assert "cookie" not in request.headers


def test_a_type_of_json_may_be_named() -> None:
    """The header of the caller stands, however it is spelt."""
    with Server(each(lambda request: answer(request.headers["content-type"].encode()))) as server:
        with closing(Connection(server.url)) as connection:
            named = {"content-type": "application/x-own+json"}
            response = connection.request("POST", "/x", kind=Kind.ONCE, json={}, headers=named)
            assert response.read() == b"application/x-own+json"


def test_bodies_are_sent_as_they_are_made() -> None:
    """Bytes, a list, and an iterator with or without a length arrive whole, also 20 MiB and none."""
    big = bytes(range(256)) * 4096
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        cases: list[tuple[bytes | Iterable[bytes], int | None, bytes]] = [
            (b"abc", None, b"abc"),
            (b"", None, b""),
            ([b"a", b"", b"bc"], None, b"abc"),
            (iter([b"a", b"bc"]), 3, b"abc"),
            (iter(()), None, b""),
            (iter(()), 0, b""),
            (iter([big] * 20), None, big * 20),
            (iter([big] * 20), len(big) * 20, big * 20),
            (big * 20, None, big * 20),
        ]
        for body, length, whole in cases:
            response = connection.request("PUT", "/f", kind=Kind.ONCE, body=body, length=length, load=True)
            assert response.read() == b"PUT\n/f\n" + whole
        assert server.connections == 1


@pytest.mark.parametrize("length", [None, 5])
def test_what_the_source_of_a_body_raises(length: int | None) -> None:
    """It reaches the caller as it is, also an `OSError` of a disk, and nothing is sent again."""

    def source(error: Exception) -> Iterator[bytes]:
        yield b"abc"
        raise error

    with Server(each(echo)) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        for error in (OSError(5, "disk"), ValueError("x"), RuntimeError("y"), BrokenPipeError("z"), TimeoutError()):
            with pytest.raises(type(error)) as caught:
                connection.request("PUT", "/f", kind=Kind.READ, body=source(error), length=length)
            assert caught.value is error
        assert get(connection).status == 200
        assert server.connections == 6


@pytest.mark.parametrize("pieces", [[b"ab"], [b"abcd"], [b"ab", "c"]])
def test_a_body_that_is_not_as_it_was_said(pieces: list[bytes]) -> None:
    """Too few bytes, too many, or text: the caller's mistake, and no request is left half-way."""
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(InvalidRequestError, match="body"):
            connection.request("PUT", "/f", kind=Kind.ONCE, body=iter(pieces), length=3)


def test_a_body_may_come_from_another_answer() -> None:
    """The source of an upload may read a download of the same connection, in the same thread."""
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        with connection.request("GET", "/from", kind=Kind.READ) as response:

            def source() -> Iterator[bytes]:
                yield from response.stream()
                yield get(connection, "/more").read()

            sent = connection.request("PUT", "/to", kind=Kind.ONCE, body=source(), load=True)
        assert sent.read() == b"PUT\n/to\nGET\n/from\nGET\n/more\n"


def test_an_answer_before_the_body_was_taken() -> None:
    """A service that refuses a large body and closes is heard."""

    def refuse(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(answer(b'{"code":"PAYLOAD_TOO_LARGE","error":"too large"}', "413 Too Large"))
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.sock.recv(65536):
            pass

    with Server(refuse) as server, closing(Connection(server.url)) as connection:
        assert connection.request("PUT", "/f", kind=Kind.ONCE, body=iter([b"x" * 2**20] * 3)).status == 413


# Streams


def test_bytes_come_as_they_are_sent() -> None:
    """E14: a chunk is handed out when it is there, whatever the framing."""
    step = threading.Semaphore(0)

    def drip(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            chunked = request.path == "/chunked"
            head = "Transfer-Encoding: chunked" if chunked else "Content-Length: 6"
            peer.send(f"HTTP/1.1 200 OK\r\n{head}\r\n\r\n".encode())
            for piece in (b"a", b"bc", b"def"):
                peer.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
                step.acquire(timeout=10)
            if chunked:
                peer.send(b"0\r\nX-Trailer: 1\r\n\r\n")

    with Server(drip) as server, closing(Connection(server.url)) as connection:
        for path in ("/chunked", "/length"):
            got = []
            for piece in connection.request("GET", path, kind=Kind.READ).stream():
                got.append(piece)
                step.release()
            assert got == [b"a", b"bc", b"def"]
        assert server.connections == 1


def test_an_answer_until_the_connection_closes() -> None:
    """Without a length the body ends with the connection."""

    def until_close(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.0 200 OK\r\n\r\nabc")

    with Server(until_close) as server, closing(Connection(server.url)) as connection:
        assert get(connection).read() == b"abc"
        assert get(connection).read() == b"abc"
        assert server.connections == 2


@pytest.mark.parametrize(
    "data",
    [
        b"Content-Length: 10\r\n\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"Transfer-Encoding: chunked\r\n\r\n9\r\nabc",
        b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n5",
    ],
)
def test_a_body_that_breaks_off(data: bytes) -> None:
    """H1: it raises after what came, and never just ends; loading one that may be repeated does so."""

    def cut(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\n" + data)

    with Server(scripted(cut, cut, each(echo))) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        response = connection.request("GET", "/x", kind=Kind.READ)
        stream = response.stream()
        assert next(stream) == b"abc"
        with pytest.raises(StreamInterruptedError, match="broke off"):
            next(stream)
        with pytest.raises(StreamInterruptedError):
            response.read()
        assert get(connection).status == 200
        assert server.connections == 3
    with Server(cut) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        with pytest.raises(StreamInterruptedError):
            get(connection, kind=Kind.ONCE)
        assert server.connections == 1


@pytest.mark.parametrize("size", [b"zz", b"-5", b"", b"x" * 70000])
def test_chunks_that_are_none(size: bytes) -> None:
    """H6: a size of a chunk that makes no sense is an error, never data."""

    def nonsense(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nabcde\r\n0\r\n\r\n")

    with Server(nonsense) as server, closing(Connection(server.url, retry=ONCE_ONLY)) as connection:
        with pytest.raises((ProtocolError, StreamInterruptedError)):
            get(connection)


def test_a_body_is_bounded() -> None:
    """`read` keeps no more than its limit, and the connection is not used again."""
    with Server(each(lambda request: answer(b"x" * 10**6))) as server, closing(Connection(server.url)) as connection:
        response = connection.request("GET", "/x", kind=Kind.READ)
        with pytest.raises(ProtocolError, match="more than 999 bytes"):
            response.read(999)
        assert len(connection.request("GET", "/x", kind=Kind.READ).read(10**6)) == 10**6
        assert server.connections == 2


def test_an_answer_that_is_closed_early() -> None:
    """Its connection is closed with it; reading on raises; closing again does nothing."""
    with Server(each(lambda request: answer(b"x" * 10**6))) as server, closing(Connection(server.url)) as connection:
        with connection.request("GET", "/x", kind=Kind.READ) as response:
            assert next(response.stream())
        response.close()
        with pytest.raises(StreamInterruptedError, match="closed before its end"):
            response.read()
        assert len(get(connection).read()) == 10**6
        assert server.connections == 2


def test_close_wakes_a_thread_that_reads() -> None:
    """A stream that is silent is ended from another thread at once, without a limit of its own."""

    def silent(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n")
        peer.receive()

    with Server(silent) as server, closing(Connection(server.url, read_timeout=None)) as connection:
        response = connection.request("GET", "/x", kind=Kind.READ)
        stream = response.stream()
        assert next(stream) == b"a"
        timer = threading.Timer(0.2, response.close)
        timer.start()
        started = time.monotonic()
        with pytest.raises(StreamInterruptedError):
            next(stream)
        assert time.monotonic() - started < 5
        timer.join()


# What is told


def test_events_and_log(caplog: pytest.LogCaptureFixture) -> None:
    """One event and one line at DEBUG an attempt, one of each at WARNING a retry."""
    caplog.set_level(logging.DEBUG, "sandboxsync.http")
    events: list[HTTPEvent] = []
    answers = [answer(b"no", "503 Busy"), answer(b"yes!")]
    with Server(each(lambda request: answers.pop(0))) as server:
        with closing(Connection(server.url, retry=QUICK, on_event=events.append)) as connection:
            response = connection.request("PUT", "/box/7", route="/box/{id}", kind=Kind.ONCE, body=b"abc")
            assert len(events) == 2
            response.read()
    first, retry, last = events
    assert isinstance(first, RequestFinished)
    assert isinstance(retry, RetryScheduled)
    assert isinstance(last, RequestFinished)
    assert (first.method, first.route, first.status, first.attempt, first.error) == ("PUT", "/box/{id}", 503, 1, None)
    assert (first.bytes_sent, first.bytes_received) == (3, 2)
    assert (retry.attempt, retry.reason) == (1, "answered 503")
    assert 0 <= retry.delay <= 0.02
    assert (last.status, last.attempt, last.bytes_received) == (200, 2, 4)
    assert last.first_byte is not None
    assert 0 <= last.first_byte <= last.duration < 5
    levels = [(record.levelname, record.name) for record in caplog.records if record.name.startswith("sandboxsync")]
    assert levels == [("DEBUG", "sandboxsync.http"), ("WARNING", "sandboxsync.http"), ("DEBUG", "sandboxsync.http")]
    assert "PUT /box/7: answered 503; attempt 2 of 4" in caplog.text


def test_events_of_what_failed() -> None:
    """An attempt without an answer has no status, and the name of its error."""
    events: list[HTTPEvent] = []
    with Server(lose) as server, closing(Connection(server.url, on_event=events.append)) as connection:
        with pytest.raises(TransportError):
            get(connection, kind=Kind.ONCE)
    (event,) = events
    assert isinstance(event, RequestFinished)
    assert (event.status, event.error, event.first_byte) == (None, "TransportError", None)


def test_what_a_hook_raises() -> None:
    """It reaches the caller, the connection is given back before, and it does not hide an exception of a block."""
    broken = True

    def hook(event: HTTPEvent) -> None:
        if broken:
            raise RuntimeError("hook")

    with Server(each(echo)) as server, closing(Connection(server.url, on_event=hook)) as connection:
        for _ in range(3):
            with pytest.raises(RuntimeError, match="hook"):
                get(connection)
        with pytest.raises(KeyError):
            with connection.request("GET", "/x", kind=Kind.READ):
                raise KeyError("block")
        broken = False
        assert get(connection).status == 200
        assert server.connections == 2


def test_errors_of_answers() -> None:
    """`check` raises what the table says, with what was asked."""
    reply = answer(b'{"error":"Unauthorized","code":"unauthorized"}', "401 Unauthorized")
    with Server(each(lambda request: reply)) as server, closing(Connection(server.url, api_key=KEY)) as connection:
        with pytest.raises(AuthenticationError, match="ping: Unauthorized") as caught:
            get(connection, asked=Asked("ping")).check()
        assert caught.value.http_status == 401
    with Server(each(lambda request: answer(b'{"a":'))) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ProtocolError, match=r"""the answer is no JSON: '{"a":'"""):
            get(connection).json()


def test_an_error_whose_body_breaks_off() -> None:
    """The status is worth more than the rest of its text."""

    def cut(peer: Peer) -> None:
        peer.receive()
        peer.send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 100\r\n\r\n<html>")

    with Server(cut) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ProtocolError, match="404 Not Found: '<html>'"):
            get(connection).check()
