"""Requests over real sockets: reuse, threads, forks, limits, retries, redirects, and what is never sent."""

from __future__ import annotations

import gc
import logging
import os
import pickle
import socket
import ssl
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from pathlib import Path

import pytest

from sandboxsync._clock import SystemClock
from sandboxsync.errors import (
    AuthenticationError,
    ConfigurationError,
    InvalidRequestError,
    ProtocolError,
    RequestTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked
from sandboxsync.transports.http._events import HTTPEvent, RequestFinished, RetryScheduled
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http._retry import Kind, RetryPolicy
from tests._loopback import Peer, Received, Server, answer, each

KEY = "sk-Zeta/9+x=4242"
QUICK = RetryPolicy(attempts=4, total=20, base=0.01, cap=0.02)
ONCE_ONLY = RetryPolicy(attempts=1)


class Impatient(SystemClock):
    """A clock whose waits pass at once, and are noted."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def get(connection: Connection, path: str = "/x", kind: Kind = Kind.READ, **options: object) -> Response:
    """A GET whose answer is read."""
    arguments: dict[str, object] = {"kind": kind, "load": True, **options}
    return connection.request("GET", path, **arguments)  # type: ignore[arg-type]


def echo(request: Received) -> bytes:
    """Method, path and body, one to a line."""
    return answer(f"{request.method}\n{request.path}\n".encode() + request.body)


def scripted(*handlers: Callable[[Peer], None]) -> Callable[[Peer], None]:
    """Handle the first connection with the first of these, the second with the second; further ones as the last."""
    left = list(handlers)
    lock = threading.Lock()

    def handle(peer: Peer) -> None:
        with lock:
            handler = left.pop(0) if len(left) > 1 else left[0]
        handler(peer)

    return handle


def stall(peer: Peer) -> None:
    """Take the request, and say nothing until the client goes away."""
    peer.receive()
    peer.receive()


def lose(peer: Peer) -> None:
    """Take the request and close the connection."""
    peer.receive()


def reset(peer: Peer) -> None:
    """Take the request and reset the connection."""
    peer.receive()
    peer.reset()


def free_port() -> int:
    """A port nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


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


# Threads, reuse, forks


def test_connections_are_kept_and_reused() -> None:
    """A thousand requests in turn use one connection, also from many threads one after the other."""
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        for _ in range(500):
            get(connection)
        for _ in range(20):
            thread = threading.Thread(target=get, args=(connection,))
            thread.start()
            thread.join()
        assert server.connections == 1


def test_many_threads_share_a_connection_object() -> None:
    """C1: 50 threads get their own answers, on no more than 50 connections."""
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:

        def work(number: int) -> None:
            for turn in range(20):
                path = f"/{number}/{turn}"
                response = connection.request("POST", path, kind=Kind.ONCE, json=number, load=True)
                assert response.read() == f"POST\n{path}\n{number}".encode()

        with ThreadPoolExecutor(50) as pool:
            list(pool.map(work, range(50)))
        assert 1 <= server.connections <= 50
        connections = server.connections
        with ThreadPoolExecutor(10) as pool:
            list(pool.map(lambda number: get(connection), range(10)))
        assert server.connections == connections


def test_an_idle_connection_that_the_service_closed() -> None:
    """One that was closed while it was idle is seen to be so, and replaced, for every kind."""
    served = threading.Event()

    def one(peer: Peer) -> None:
        peer.receive()
        peer.send(answer())
        peer.close()
        served.set()

    with Server(one) as server, closing(Connection(server.url, retry=ONCE_ONLY)) as connection:
        for kind in Kind:
            served.clear()
            assert get(connection, kind=kind).status == 200
            served.wait(10)
            time.sleep(0.02)
        assert server.connections == 3


def test_a_connection_that_closes_in_the_moment_of_its_use() -> None:
    """H2: the bytes went out, so what may not arrive twice is not sent twice; the rest is."""

    def one_and_a_half(peer: Peer) -> None:
        peer.receive()
        peer.send(answer())
        peer.receive()

    for kind in Kind:
        with Server(one_and_a_half) as server, closing(Connection(server.url, retry=QUICK)) as connection:
            get(connection, kind=kind)
            if kind is Kind.ONCE:
                with pytest.raises(TransportError, match="is not known") as caught:
                    get(connection, kind=kind)
                assert (caught.value.code, caught.value.retryable) == ("CONNECTION_LOST", None)
                assert server.connections == 1
            else:
                assert get(connection, kind=kind).status == 200
                assert server.connections == 2


def test_a_first_byte_that_the_system_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """H2: where it is known that no byte left, also what may not arrive twice is sent again."""
    was_reset = threading.Event()

    def one_then_reset(peer: Peer) -> None:
        peer.receive()
        peer.send(answer())
        time.sleep(0.05)
        peer.reset()
        was_reset.set()

    with Server(scripted(one_then_reset, each(echo))) as server:
        with closing(Connection(server.url, retry=QUICK)) as connection:
            get(connection)
            assert was_reset.wait(10)
            # As if the reset came after the look.
            monkeypatch.setattr("urllib3.connectionpool.is_connection_dropped", lambda conn: False)
            assert get(connection, kind=Kind.ONCE).status == 200
            assert server.connections == 2


def test_few_idle_connections_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more than a number, and none for long: those that nobody needs are closed when one is given back."""

    def slow(request: Received) -> bytes:
        time.sleep(0.2)
        return answer()

    monkeypatch.setattr("sandboxsync.transports.http._lanes._MOST", 3)
    with Server(each(slow)) as server, closing(Connection(server.url)) as connection:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda number: get(connection), range(6)))
        assert len(connection._own_lanes()._idle) == 3
        monkeypatch.setattr("sandboxsync.transports.http._lanes._KEPT", 0.0)
        get(connection)
        assert len(connection._own_lanes()._idle) == 1


def test_an_interrupt_leaves_nothing_behind() -> None:
    """T6: what interrupts a request reaches the caller, and the connection is closed."""

    def source() -> Iterator[bytes]:
        yield b"x"
        raise KeyboardInterrupt

    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        get(connection)
        with pytest.raises(KeyboardInterrupt):
            connection.request("PUT", "/x", kind=Kind.READ, body=source())
        assert get(connection).status == 200
        assert server.connections == 2


def test_an_answer_that_is_dropped() -> None:
    """One that nobody closed takes its descriptor along when it goes."""
    with Server(each(lambda request: answer(b"x" * 10**6))) as server, closing(Connection(server.url)) as connection:
        get(connection)
        before = len(os.listdir("/proc/self/fd"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            for _ in range(5):
                next(connection.request("GET", "/x", kind=Kind.READ).stream())
            gc.collect()
        deadline = time.monotonic() + 5
        while len(os.listdir("/proc/self/fd")) > before and time.monotonic() < deadline:
            time.sleep(0.05)
        assert len(os.listdir("/proc/self/fd")) <= before
        assert server.connections >= 2


def test_what_is_sent_once_avoids_old_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was idle for a second is not trusted with what cannot be sent again; a read uses it."""
    now = time.monotonic()
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        get(connection)
        monkeypatch.setattr("sandboxsync.transports.http._lanes.time.monotonic", lambda: now + 5)
        get(connection)
        assert server.connections == 1
        monkeypatch.setattr("sandboxsync.transports.http._lanes.time.monotonic", lambda: now + 10)
        get(connection, kind=Kind.ONCE)
        assert server.connections == 2
        monkeypatch.setattr("sandboxsync.transports.http._lanes.time.monotonic", lambda: now + 50)
        get(connection)
        assert server.connections == 3


def in_child(work: Callable[[], object]) -> int:
    """Run it in a forked child, and return the child's exit code."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_has_connections_of_its_own() -> None:
    """C3: parent and child each get their own answers; the child holds no socket of the parent."""
    with Server(each(echo)) as server, closing(Connection(server.url)) as connection:
        get(connection)
        idle = {os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name_is_open(name)}

        def work() -> None:
            for number in range(20):
                assert get(connection, f"/child/{number}").read() == f"GET\n/child/{number}\n".encode()
            connection.close()

        with ThreadPoolExecutor(1) as pool:
            stop = threading.Event()

            def parent() -> int:
                count = 0
                while not stop.is_set():
                    assert get(connection, f"/parent/{count}").read() == f"GET\n/parent/{count}\n".encode()
                    count += 1
                return count

            future = pool.submit(parent)
            assert [in_child(work) for _ in range(3)] == [0, 0, 0]
            stop.set()
            assert future.result(10) > 0
        assert get(connection).status == 200
        assert idle
        assert server.connections <= 5


def name_is_open(name: str) -> bool:
    """Whether a descriptor is there still: the one of the listing itself is not."""
    return os.path.lexists(f"/proc/self/fd/{name}")


def test_a_forked_child_lets_go_of_the_parents_sockets() -> None:
    """C3: idle ones and those in use are closed in the child, where reading on raises, and live on in the parent."""
    with Server(each(lambda request: answer(b"x" * 10**6))) as server, closing(Connection(server.url)) as connection:
        with connection.request("GET", "/busy", kind=Kind.READ) as response:
            get(connection, "/idle")
            first = next(response.stream())

            def work() -> None:
                targets = [
                    os.readlink(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd") if name_is_open(name)
                ]
                peers = {f"socket:[{os.fstat(peer.sock.fileno()).st_ino}]" for peer in server.peers}
                # What is left are the server's own ends, which live in this process too.
                assert len([target for target in targets if target in peers]) == 2
                assert len([target for target in targets if target.startswith("socket:")]) <= 3
                with pytest.raises(StreamInterruptedError, match="process"):
                    next(response.stream())
                response.close()

            assert in_child(work) == 0
            assert len(first + response.read()) >= 10**6
        assert server.connections == 2


def test_close_ends_what_is_idle_and_in_use() -> None:
    """A call in flight breaks off at once, later ones are refused, and no descriptor is left."""
    before = len(os.listdir("/proc/self/fd"))
    with Server(stall) as server:
        connection = Connection(server.url, read_timeout=None, retry=QUICK)
        timer = threading.Timer(0.2, connection.close)
        timer.start()
        with pytest.raises(TransportError, match="closed meanwhile"):
            get(connection)
        with pytest.raises(ConfigurationError, match="closed"):
            get(connection)
        timer.join()
        connection.close()
        assert server.connections == 1
    time.sleep(0.1)
    assert len(os.listdir("/proc/self/fd")) <= before


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


def drip_head(peer: Peer) -> None:
    """A byte of a head now and then, for ever."""
    peer.receive()
    peer.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        peer.send(b"x")
        time.sleep(0.05)


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


# Redirects, the key, proxies


def test_redirects_of_reads_are_followed() -> None:
    """Within the service the key goes along; a circle ends; what has a body is not redirected."""
    keys: list[str | None] = []

    def reply(request: Received) -> bytes:
        keys.append(request.headers.get("authorization"))
        if request.path == "/end":
            return answer(b"done")
        to = {"/a": "b", "/b": "/end", "/loop": "/loop"}[request.path]
        return answer(b"moved", "307 Moved", Location=to)

    with Server(each(reply)) as server, closing(Connection(server.url, api_key=KEY, retry=QUICK)) as connection:
        assert get(connection, "/a").read() == b"done"
        assert keys == [f"Bearer {KEY}"] * 3
        with pytest.raises(ProtocolError, match="redirects"):
            get(connection, "/loop")
        response = connection.request("POST", "/a", kind=Kind.ONCE, json={})
        assert response.status == 307
        with pytest.raises(ProtocolError, match="not followed"):
            response.check()
        with connection.request("DELETE", "/a", kind=Kind.ONCE) as response:
            assert response.status == 307


def test_the_key_is_dropped_on_the_way_elsewhere() -> None:
    """H5: another host gets neither the key nor the headers of the service, also when it sends back."""
    there: list[dict[str, str]] = []
    here: list[dict[str, str]] = []

    def elsewhere(request: Received) -> bytes:
        there.append(request.headers)
        return answer(b"moved", "302 Found", Location=f"{home.url}/back")

    def reply(request: Received) -> bytes:
        here.append(request.headers)
        if request.path == "/back":
            return answer(b"back")
        return answer(b"moved", "302 Found", Location=f"{other.url}/x?y=1")

    with Server(each(elsewhere)) as other, Server(each(reply)) as home:
        options = {"X-Token": "hunter2-header"}
        with closing(Connection(home.url, api_key=KEY, headers=options)) as connection:
            assert get(connection, headers={"Session-Id": "s1"}).read() == b"back"
    assert "authorization" in here[0]
    for headers in (there[0], here[1]):
        assert not {"authorization", "x-token", "session-id", "cookie"} & set(headers)
        assert KEY not in str(headers)


@pytest.mark.parametrize("location", ["ftp://x/", "http://", "http://u:p@127.0.0.1/", "//[", "http://h:0/", "/a b\x7f"])
def test_redirects_to_nowhere(location: str) -> None:
    """H6: they are answers that make no sense."""
    reply = answer(b"", "302 Found", Location=location)
    with Server(each(lambda request: reply)) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ProtocolError):
            get(connection)


def test_netrc_never_replaces_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: nor does it add one where there is none."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login user password hunter2\ndefault login user password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[str | None] = []

    def reply(request: Received) -> bytes:
        seen.append(request.headers.get("authorization"))
        return answer()

    with Server(each(reply)) as server:
        for key in (KEY, None):
            with closing(Connection(server.url, api_key=key)) as connection:
                get(connection)
    assert seen == [f"Bearer {KEY}", None]


def test_cookies_are_not_kept() -> None:
    """What a service sets is not sent back: a session belongs to no connection."""
    seen: list[Received] = []

    def reply(request: Received) -> bytes:
        seen.append(request)
        return answer(Set_Cookie="a=b")

    with Server(each(reply)) as server, closing(Connection(server.url)) as connection:
        get(connection)
        get(connection)
    assert "cookie" not in seen[1].headers


def test_a_proxy_is_used() -> None:
    """A named proxy gets the whole URL; one that cannot be used is named in the error, without its password."""
    with Server(each(echo)) as proxy:
        url = proxy.url.replace("http://", "http://user:hunter2@")
        with closing(Connection("http://service.example:81", proxies={"http": url})) as connection:
            assert get(connection).read() == b"GET\nhttp://service.example:81/x\n"

    def refuse(peer: Peer) -> None:
        peer.receive()
        peer.send(answer(b"", "407 Proxy Authentication Required"))

    with Server(refuse) as proxy:
        url = proxy.url.replace("http://", "http://user:hunter2@")
        with closing(Connection("https://service.example", proxies={"https": url}, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match=rf"through the proxy 127\.0\.0\.1:{proxy.port}: .*407") as caught:
                get(connection)
            assert caught.value.code == "PROXY_ERROR"
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))
            assert proxy.connections == 1
        with closing(Connection("http://service.example", proxies={"http": url}, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="407") as caught:
                get(connection).check()
            assert caught.value.code == "PROXY_ERROR"
    gone = f"http://user:hunter2@127.0.0.1:{free_port()}"
    with closing(Connection("https://service.example", proxies={"https": gone}, retry=ONCE_ONLY)) as connection:
        with pytest.raises(TransportError, match=r"the proxy 127\.0\.0\.1:.*Connection refused") as caught:
            get(connection)
        assert caught.value.code == "PROXY_ERROR"
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_proxies_of_the_environment_are_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy cannot reach this machine, and would see the key."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with Server(each(echo)) as server, closing(Connection(server.url, api_key=KEY)) as connection:
        assert get(connection).status == 200


# Ways to fail


def test_a_name_that_means_no_host() -> None:
    """The sentence names the service, and the reason."""
    with closing(Connection("http://no-such-host.invalid", retry=ONCE_ONLY)) as connection:
        with pytest.raises(TransportError, match=r"cannot connect to http://no-such-host\.invalid: ") as caught:
            get(connection)
        assert caught.value.code == "NAME_NOT_RESOLVED"


@pytest.mark.parametrize(
    "data",
    [
        b"220 smtp.example ESMTP\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http(data: bytes) -> None:
    """H6: it is an answer that makes no sense, and not asked for again."""

    def other(peer: Peer) -> None:
        peer.receive()
        peer.send(data)

    with Server(other) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        with pytest.raises(ProtocolError, match="is not HTTP"):
            get(connection)
        assert server.connections == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for 127.0.0.1 with its key, in one file, signed by itself."""
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    )
    key = path.with_name("key.pem")
    done = subprocess.run([*command.split(), "-keyout", str(key)], check=False, capture_output=True)
    if done.returncode != 0:
        pytest.skip("openssl cannot make a certificate")
    path.write_bytes(key.read_bytes() + done.stdout)
    return path


def test_tls(certificate: Path) -> None:
    """A trusted certificate is accepted, one that is not is told in a sentence, and not tried again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Server(each(echo), context) as server:
        with closing(Connection(server.url, api_key=KEY, verify=str(certificate))) as connection:
            assert get(connection).status == 200
            body = [b"x" * 2**20] * 5
            assert len(connection.request("PUT", "/f", kind=Kind.ONCE, body=body).read()) == 5 * 2**20 + 7
            assert server.connections == 1
            assert in_child(lambda: get(connection)) == 0
            assert get(connection).status == 200
        with closing(Connection(server.url, api_key=KEY, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="its certificate is not valid") as caught:
                get(connection)
            assert (caught.value.code, caught.value.retryable) == ("TLS_ERROR", False)
    with Server(each(echo), context) as server:
        other_name = server.url.replace("127.0.0.1", "localhost")
        with closing(Connection(other_name, verify=str(certificate), retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="localhost") as caught:
                get(connection)
            assert caught.value.code == "TLS_ERROR"
    with Server(each(echo), context) as server, closing(Connection(server.url, verify=False)) as connection:
        with pytest.warns(Warning, match="Unverified HTTPS"):
            assert get(connection).status == 200
    with Server(stall, context) as server:
        with closing(Connection(server.url, verify=str(certificate), read_timeout=0.2, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError, match="did not answer"):
                get(connection)
            with pytest.raises(RequestTimeoutError, match="whole call"):
                get(connection, total_timeout=0.1)


def test_a_tunnel_through_a_proxy(certificate: Path) -> None:
    """Https goes through a proxy unseen; what is said to the proxy does not count as sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    asked: list[Received] = []

    def tunnel(peer: Peer) -> None:
        request = peer.receive()
        assert request is not None
        asked.append(request)
        host, _, port = request.path.partition(":")
        with socket.create_connection((host, int(port))) as there:
            peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            thread = threading.Thread(target=pump, args=(there, peer.sock))
            thread.start()
            pump(peer.sock, there)
            thread.join()

    with Server(each(echo), context) as server, Server(tunnel) as proxy:
        options = {"https": proxy.url.replace("http://", "http://user:hunter2@")}
        with closing(Connection(server.url, api_key=KEY, verify=str(certificate), proxies=options)) as connection:
            assert get(connection).read() == b"GET\n/x\n"
            assert get(connection).read() == b"GET\n/x\n"
    (request,) = asked
    assert request.method == "CONNECT"
    assert request.headers["proxy-authorization"].startswith("Basic ")
    assert "authorization" not in request.headers

    def hang_up(peer: Peer) -> None:
        peer.receive()

    with Server(hang_up) as proxy:
        options = {"https": proxy.url}
        with closing(Connection("https://service.example", proxies=options, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="through the proxy"):
                get(connection, kind=Kind.ONCE)
            assert proxy.connections == QUICK.attempts


def pump(source: socket.socket, sink: socket.socket) -> None:
    """Send on what comes, then its end."""
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return


def test_a_bundle_of_the_environment(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`REQUESTS_CA_BUNDLE` counts as it does for requests."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    with Server(each(echo), context) as server, closing(Connection(server.url)) as connection:
        assert get(connection).status == 200
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/file")
    with Server(each(echo), context) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ConfigurationError, match="REQUESTS_CA_BUNDLE"):
            get(connection)


def test_tls_to_what_speaks_none() -> None:
    """Https to a port that speaks http is told as such, and not tried again."""

    def plain(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with Server(plain) as server:
        with closing(Connection(server.url.replace("http:", "https:"), retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="TLS failed") as caught:
                get(connection)
            assert caught.value.code == "TLS_ERROR"
            assert server.connections == 1


def test_a_handshake_that_stalls() -> None:
    """The connect limit holds for TLS too, and says so."""
    stop = threading.Event()

    def deaf(peer: Peer) -> None:
        stop.wait(20)

    with Server(deaf) as server:
        url = server.url.replace("http:", "https:")
        with closing(Connection(url, connect_timeout=0.2, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError, match=r"cannot connect to .* within 0\.2 s") as caught:
                get(connection)
            assert caught.value.code == "CONNECT_TIMEOUT"
        with closing(Connection(url, retry=ONCE_ONLY)) as connection:
            with pytest.raises(RequestTimeoutError):
                get(connection, total_timeout=0.2)
        stop.set()


@pytest.mark.parametrize("handler", [lose, reset, stall, drip_head])
def test_no_error_shows_the_key(handler: Callable[[Peer], None], caplog: pytest.LogCaptureFixture) -> None:
    """H5: not in its text, its causes, their attributes, its pickle, or the log."""
    caplog.set_level(logging.DEBUG)
    with Server(handler) as server:
        options = {"X-Token": "hunter2-header"}
        connection = Connection(server.url, api_key=KEY, headers=options, read_timeout=0.2, retry=QUICK)
        with closing(connection), pytest.raises(SandboxError) as caught:
            get(connection, query={"token": "hunter2-query"})
    shown = [pickle.dumps(caught.value).decode("latin-1"), caplog.text]
    exc: BaseException | None = caught.value
    while exc is not None:
        shown.append(f"{exc!s} {exc!r} {vars(exc)!r} {exc.args!r}")
        shown.append(repr(getattr(getattr(exc, "request", None), "headers", None)))
        exc = exc.__cause__ or exc.__context__
    for text in shown:
        assert KEY not in text
        assert "hunter2" not in text


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
