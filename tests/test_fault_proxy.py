"""The proxy that damages HTTP: what passes unharmed, and each fault as clients see it."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
import requests

from sandboxsync.errors import (
    ConfigurationError,
    ProtocolError,
    RequestTimeoutError,
    SandboxUnavailableError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.testing import (
    Answer,
    Drop,
    Fault,
    FaultProxy,
    HangUp,
    ProxiedRequest,
    Silence,
    Slow,
    Split,
    Stall,
    Truncate,
    Twice,
)
from sandboxsync.testing._machine import descriptors
from sandboxsync.testing.faults._shapes import split
from sandboxsync.testing.faults._wire import Piece
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind, RetryPolicy
from tests._http import QUICK, Impatient, echo, free_port, get
from tests._loopback import Peer, Received, Server, answer, each

VALUE = {"numbers": list(range(20)), "text": "ä€😀"}
PLAIN = answer(json.dumps(VALUE).encode(), Content_Type="application/json")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;x=y\r\nhello\r\n6\r\n world\r\n0\r\nX-End: 1\r\n\r\n"
UNTIL_CLOSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello world"


class Upstream(Server):
    """A server that keeps what it was asked."""

    def __init__(
        self, reply: Callable[[Received], bytes] = echo, handler: Callable[[Peer], None] | None = None
    ) -> None:
        self.received: list[Received] = []

        def kept(request: Received) -> bytes:
            self.received.append(request)
            return reply(request)

        super().__init__(handler or each(kept))


@contextlib.contextmanager
def proxied(
    reply: Callable[[Received], bytes] | bytes = echo, handler: Callable[[Peer], None] | None = None
) -> Iterator[tuple[Upstream, FaultProxy]]:
    """A server that answers so, and a proxy before it."""
    with Upstream((lambda _: reply) if isinstance(reply, bytes) else reply, handler) as server:
        with FaultProxy(server.url) as proxy:
            yield server, proxy


def dial(proxy: FaultProxy) -> socket.socket:
    """A connection to a proxy."""
    host, _, port = proxy.url.removeprefix("http://").partition(":")
    return socket.create_connection((host, int(port)), timeout=10)


def client_of(proxy: FaultProxy) -> closing[http.client.HTTPConnection]:
    """A client that keeps one connection."""
    return closing(http.client.HTTPConnection(proxy.url.removeprefix("http://"), timeout=10))


def raw(proxy: FaultProxy, method: str = "GET", path: str = "/x", extra: str = "", body: bytes = b"") -> bytes:
    """All bytes that come for a request until the end. Raises `ConnectionResetError`."""
    with dial(proxy) as sock:
        sock.sendall(f"{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{extra}\r\n".encode() + body)
        return read_all(sock)


def read_all(sock: socket.socket) -> bytes:
    """What comes until the end."""
    pieces = []
    while piece := sock.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def take(sock: socket.socket, size: int) -> bytes:
    """So many bytes."""
    got = b""
    while len(got) < size:
        piece = sock.recv(size - len(got))
        assert piece, got
        got += piece
    return got


def until(condition: Callable[[], bool], seconds: float = 5) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


# Without a fault


@pytest.mark.parametrize("wanted", [PLAIN, CHUNKED, UNTIL_CLOSE], ids=["length", "chunked", "until close"])
def test_an_answer_passes_as_it_is(wanted: bytes) -> None:
    """Each byte of it arrives, the framing of chunks and their trailers too."""

    def handler(peer: Peer) -> None:
        peer.receive()
        peer.send(wanted)

    with proxied(handler=handler) as (_, proxy):
        assert raw(proxy) == wanted


def test_connections_are_kept_on_both_sides() -> None:
    """Any number of requests of one connection to the proxy share one to the server."""
    replies = {"/plain": PLAIN, "/chunked": CHUNKED, "/none": b"HTTP/1.1 204 No Content\r\n\r\n"}
    with proxied(lambda request: replies.get(request.path, echo(request))) as (server, proxy):
        with client_of(proxy) as client:
            for _ in range(3):
                for path, body in (
                    ("/plain", json.dumps(VALUE).encode()),
                    ("/chunked", b"hello world"),
                    ("/none", b""),
                ):
                    client.request("GET", path)
                    assert client.getresponse().read() == body
                client.request("POST", "/x?y=%20", body=b"some", headers={"X-A": "1"})
                assert client.getresponse().read() == b"POST\n/x?y=%20\nsome"
        assert (server.connections, proxy.connections) == (1, 1)
        assert server.received[3].headers["x-a"] == "1"


def test_a_head_alone_has_no_body() -> None:
    """The length in the answer to HEAD, and a status without a body, are not waited for."""
    replies = {"HEAD": b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n", "GET": b"HTTP/1.1 304 Not Modified\r\n\r\n"}
    with proxied(lambda request: replies[request.method]) as (_, proxy), client_of(proxy) as client:
        for method, status in (("HEAD", 200), ("GET", 304), ("HEAD", 200)):
            client.request(method, "/")
            response = client.getresponse()
            assert (response.status, response.read()) == (status, b"")


def test_the_server_is_asked_by_its_own_name() -> None:
    """`Host`, and the origin of a page that the proxy would have served, are those of the server; a path is kept."""
    with Upstream() as server, FaultProxy(f"{server.url}/base/") as proxy:
        host = proxy.url.removeprefix("http://").removesuffix("/base")
        assert requests.get(f"{proxy.url}/x", headers={"Origin": f"http://{host}"}, timeout=10).status_code == 200
        (request,) = server.received
        assert request.path == "/base/x"
        assert request.headers["host"] == server.url.removeprefix("http://")
        assert request.headers["origin"] == server.url


def test_large_bodies_pass_while_they_come() -> None:
    """The server has the beginning of an upload before the client has made its end."""
    began = threading.Event()
    block = bytes(range(256)) * 4096

    def handler(peer: Peer) -> None:
        data = b""
        while not data.endswith(b"\r\n0\r\n\r\n"):
            data += peer.sock.recv(65536)
            if len(data) > len(block):
                began.set()
        peer.send(answer(data[data.index(b"\r\n\r\n") + 4 :]))

    def pieces() -> Iterator[bytes]:
        yield block
        assert began.wait(10)
        yield block

    with proxied(handler=handler) as (_, proxy):
        body = requests.post(proxy.url, data=pieces(), timeout=10).content
        assert body == (b"100000\r\n" + block + b"\r\n") * 2 + b"0\r\n\r\n"


def test_an_answer_before_the_end_of_an_upload() -> None:
    """A server may refuse, and close, without reading the body: its answer arrives."""

    def handler(peer: Peer) -> None:
        peer.sock.recv(65536)
        peer.send(answer(b"too large", "413 Payload Too Large", Connection="close"))
        peer.sock.shutdown(socket.SHUT_WR)
        while peer.sock.recv(65536):
            continue

    with proxied(handler=handler) as (_, proxy):
        response = requests.post(proxy.url, data=b"x" * 5_000_000, timeout=10)
        assert (response.status_code, response.content) == (413, b"too large")


def test_who_waits_with_a_body_is_told_to_send_it() -> None:
    """`Expect: 100-continue` is answered, and interim answers of the server pass too."""
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
    with proxied(lambda request: early + echo(request)) as (_, proxy), dial(proxy) as sock:
        sock.sendall(b"PUT /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
        assert sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        sock.sendall(b"body")
        assert take(sock, len(early)) == early
        assert sock.recv(12) == b"HTTP/1.1 200"


def test_a_server_that_breaks_off_is_seen_as_such() -> None:
    """Ends and resets of the server, and a server that is not there, reach the client as what they are."""

    def handler(peer: Peer) -> None:
        request = peer.receive()
        peer.send(PLAIN[:-10])
        if request is not None and request.path == "/reset":
            time.sleep(0.05)
            peer.reset()

    with proxied(handler=handler) as (_, proxy):
        assert raw(proxy) == PLAIN[:-10]
        with pytest.raises(ConnectionResetError):
            raw(proxy, path="/reset")
    with FaultProxy(f"http://127.0.0.1:{free_port()}") as proxy:
        with pytest.raises(ConnectionResetError):
            raw(proxy)


def test_a_server_that_has_closed_a_kept_connection_is_asked_on_a_new_one() -> None:
    """The proxy adds no fault of its own to a connection that was idle."""

    def handler(peer: Peer) -> None:
        peer.receive()
        peer.send(PLAIN)

    with proxied(handler=handler) as (server, proxy), client_of(proxy) as client:
        for turn in (1, 2, 3):
            client.request("GET", "/")
            assert json.loads(client.getresponse().read()) == VALUE
            assert server.connections == turn
            time.sleep(0.05)


def test_a_client_that_leaves_is_missed_by_the_server() -> None:
    """While the server has nothing to say, it sees that nobody listens any more."""
    left = threading.Event()

    def handler(peer: Peer) -> None:
        peer.receive()
        peer.send(CHUNKED[:60])
        peer.receive()
        left.set()

    with proxied(handler=handler) as (_, proxy):
        with dial(proxy) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert sock.recv(10)
            assert not left.is_set()
        assert left.wait(5)


# Answers that break off


@pytest.mark.parametrize("wanted", [PLAIN, CHUNKED], ids=["length", "chunked"])
def test_an_answer_is_dropped_after_any_byte(wanted: bytes) -> None:
    """The client has so many bytes of it, exactly, and then the end."""
    with proxied(wanted) as (_, proxy):
        for after in range(len(wanted) + 1):
            proxy.on(None, None, Drop(after))
            assert raw(proxy) == wanted[:after]
        proxy.on(None, None, Drop(len(wanted) + 1))
        with client_of(proxy) as client:
            for _ in range(2):
                client.request("GET", "/")
                assert client.getresponse().read()
        assert proxy.requests[-2].fault == Drop(len(wanted) + 1)
        assert proxy.requests[-1].fault is None


def test_an_answer_is_reset_after_some_bytes() -> None:
    """The client sees a reset, not an end."""
    with proxied(PLAIN) as (_, proxy):
        for after in (0, 10, len(PLAIN) - 1):
            proxy.on("GET", "/x", Drop(after, reset=True))
            with pytest.raises(ConnectionResetError):
                raw(proxy)


def test_bytes_of_a_body_are_counted_without_framing() -> None:
    """With `part="body"` a chunked body breaks off after so many bytes of what it carries."""
    expected = {0: b"", 3: b"5;x=y\r\nhel", 5: b"5;x=y\r\nhello", 6: b"5;x=y\r\nhello\r\n6\r\n "}
    head = CHUNKED[: CHUNKED.index(b"\r\n\r\n") + 4]
    with proxied(CHUNKED) as (_, proxy):
        for after, body in expected.items():
            proxy.on(None, None, Drop(after, part="body"))
            assert raw(proxy) == head + body
        proxy.on(None, None, Drop(12, part="body"))
        assert raw(proxy) == CHUNKED


def test_a_drop_does_not_wait_for_what_comes_next() -> None:
    """The connection ends when its bytes are out, while the server is silent."""

    def handler(peer: Peer) -> None:
        peer.receive()
        peer.send(CHUNKED[: CHUNKED.index(b"hello") + 5])
        peer.receive()

    with proxied(handler=handler) as (_, proxy):
        proxy.on(None, None, Drop(5, part="body"))
        proxy.on(None, None, Drop(0, part="body"))
        assert raw(proxy).endswith(b"hello")
        assert raw(proxy).endswith(b"chunked\r\n\r\n")


@pytest.mark.parametrize(("before", "delivered"), [("reading", 0), ("forwarding", 0), ("answering", 1)])
@pytest.mark.parametrize("is_reset", [True, False])
def test_H2_it_is_known_whether_the_server_saw_the_request(before: Any, delivered: int, is_reset: bool) -> None:
    """A request without an answer was delivered, or was not, as the fault says."""
    with proxied() as (server, proxy):
        proxy.on("POST", "/x", HangUp(before, reset=is_reset))
        if is_reset or before == "reading":
            with pytest.raises(ConnectionResetError):
                raw(proxy, "POST", extra="Content-Length: 70000\r\n", body=b"x" * 70000)
        else:
            assert raw(proxy, "POST", extra="Content-Length: 70000\r\n", body=b"x" * 70000) == b""
        assert len(server.received) == delivered
        assert raw(proxy, "POST").endswith(b"POST\n/x\n")


def test_an_upload_does_not_keep_a_fault_from_striking() -> None:
    """An answer that comes, and is dropped, while the client is still sending."""

    def handler(peer: Peer) -> None:
        peer.sock.recv(65536)
        peer.send(PLAIN)
        while peer.sock.recv(65536):
            continue

    with proxied(handler=handler) as (_, proxy):
        for fault in (Drop(20), Drop(20, reset=True)):
            proxy.on(None, None, fault)
            with dial(proxy) as sock:
                sock.sendall(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc")
                if fault.reset:
                    with pytest.raises(ConnectionResetError):
                        read_all(sock)
                else:
                    assert read_all(sock) == PLAIN[:20]


# Answers that take their time


@pytest.mark.parametrize("after", [0, 12, len(PLAIN) - 3], ids=["before the head", "in the head", "in the body"])
def test_a_stalled_answer_goes_on_when_it_is_released(after: int) -> None:
    """So many bytes come, then nothing, then the rest."""
    with proxied(PLAIN) as (server, proxy), dial(proxy) as sock:
        proxy.on(None, None, Stall(after))
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        proxy.wait_for_stall()
        assert len(server.received) == 1
        got = sock.recv(after) if after else b""
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)
        sock.settimeout(10)
        proxy.release()
        assert got + read_all(sock) == PLAIN


def test_a_stall_may_have_an_end_of_its_own() -> None:
    """With `seconds` nobody has to release it; what was stalled later is not released before."""
    with proxied(PLAIN) as (_, proxy):
        proxy.on(None, None, Stall(5, part="body", seconds=0.2))
        proxy.release()
        began = time.monotonic()
        assert raw(proxy) == PLAIN
        assert time.monotonic() - began >= 0.2
        with pytest.raises(TimeoutError):
            proxy.wait_for_stall(0.01)


def test_silence_reaches_nobody() -> None:
    """The request is taken, the server does not see it, and nothing comes."""
    with proxied() as (server, proxy):
        proxy.on("POST", None, Silence())
        with pytest.raises(requests.ReadTimeout):
            requests.post(proxy.url, data=b"x" * 100_000, timeout=0.2)
        assert server.received == []
        assert requests.post(proxy.url, timeout=10).status_code == 200


def test_a_slow_head_comes_byte_by_byte() -> None:
    """A pause before each byte of the head, and none in the body."""
    small = answer(b"x" * 5000)
    head = small.index(b"\r\n\r\n") + 4
    with proxied(small) as (_, proxy), dial(proxy) as sock:
        proxy.on(None, None, Slow(0.01, part="head"))
        began = time.monotonic()
        sock.sendall(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert take(sock, head) == small[:head]
        assert time.monotonic() - began >= 0.01 * head
        read_all(sock)
        assert time.monotonic() - began < 10


def test_a_slow_body() -> None:
    """So many bytes at once, and a pause before each."""
    with proxied(answer(b"x" * 100)) as (_, proxy):
        proxy.on(None, None, Slow(0.02, 10, part="body"))
        began = time.monotonic()
        assert requests.get(proxy.url, timeout=10).content == b"x" * 100
        assert 0.2 <= time.monotonic() - began < 5


@pytest.mark.parametrize("fault", [Split(), Split(3), Split((1, 2, 700))])
def test_H4_borders_of_segments_do_not_matter(fault: Split) -> None:
    """However an answer is cut, it is the same bytes."""
    with proxied(CHUNKED) as (_, proxy):
        proxy.on(None, None, fault)
        assert raw(proxy) == CHUNKED


def test_pieces_have_the_sizes_that_were_asked_for() -> None:
    """In turn, from one part of the answer to the next."""
    cut = split([Piece(b"abcdefg", "head"), Piece(b"hij", "body")], (1, 3))
    assert [data for data, _ in cut] == [b"a", b"bcd", b"e", b"fg", b"h", b"ij"]


# Answers that are others


def test_H2_a_request_can_arrive_twice() -> None:
    """The server has it two times, whole, on two connections; the second answer comes back."""
    count = iter(range(1, 10))
    with proxied(lambda request: answer(f"{next(count)} {len(request.body)}".encode())) as (server, proxy):
        proxy.on("POST", "/exec", Twice())
        assert requests.post(proxy.url + "/exec", data=b"x" * 100_000, timeout=10).content == b"2 100000"
        assert requests.post(proxy.url + "/exec", timeout=10).content == b"3 0"
        assert [len(request.body) for request in server.received] == [100_000, 100_000, 0]


def test_another_status_comes_and_then_the_server() -> None:
    """With its headers and body, on a connection that stays open; the server sees nothing of the request."""
    with proxied() as (server, proxy), client_of(proxy) as client:
        proxy.on("GET", "/x", Answer(503, '{"error": "busy"}', {"Retry-After": "7"}), times=2)
        seen = []
        for method in ("GET", "GET", "GET", "HEAD"):
            client.request(method, "/x")
            response = client.getresponse()
            seen.append((response.status, response.headers["Retry-After"], response.read()))
        assert seen[:2] == [(503, "7", b'{"error": "busy"}')] * 2
        assert [status for status, *_ in seen[2:]] == [200, 200]
        assert proxy.connections == 1
        assert [request.method for request in server.received] == ["GET", "HEAD"]


def test_a_gateway_may_fail_after_the_work_is_done() -> None:
    """With `forward` the server has done it, and its answer is lost."""
    with proxied() as (server, proxy):
        proxy.on(None, None, Answer.page(502, "Bad <gateway>", forward=True))
        response = requests.post(proxy.url, timeout=10)
        assert (response.status_code, response.headers["Content-Type"]) == (502, "text/html; charset=utf-8")
        assert response.text.startswith("<!DOCTYPE html>")
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("whole", "left"),
    [
        (answer(b'{"a": "hello"}'), answer(b'{"a": "')),
        (CHUNKED, CHUNKED[: CHUNKED.index(b"5;")] + b"5\r\nhello\r\n2\r\n w\r\n0\r\n\r\n"),
        (UNTIL_CLOSE, UNTIL_CLOSE[:-4]),
    ],
    ids=["length", "chunked", "until close"],
)
def test_a_truncated_answer_looks_whole(whole: bytes, left: bytes) -> None:
    """Its framing says that there is no more, and the connection can be used again."""

    def handler(peer: Peer) -> None:
        while peer.receive() is not None:
            peer.send(whole)
            if whole is UNTIL_CLOSE:
                return

    with proxied(handler=handler) as (_, proxy):
        proxy.on(None, None, Truncate(7))
        assert raw(proxy) == left
        proxy.on(None, None, Truncate(7))
        with client_of(proxy) as client:
            for size in (7, None):
                client.request("GET", "/")
                body = client.getresponse().read()
                assert len(body) == size or size is None
        assert raw(proxy) == whole


# Which requests


def test_rules_choose_by_method_path_turn_and_number() -> None:
    """The first rule counts that matches and whose turn it is; the others wait."""
    busy, gone, lost = Answer(503), Answer(410), Answer(404)
    with proxied() as (_, proxy), requests.Session() as client:
        proxy.on("post", "/exec", busy, times=2)
        proxy.on(None, re.compile(r"/file/\w+$"), gone, nth=2)
        proxy.on(None, lambda path: path.endswith("?q=1"), lost, times=None)
        asked = [
            ("POST", "/a/exec", 503),
            ("GET", "/a/exec", 200),
            ("POST", "/a/exec?q=1", 503),
            ("POST", "/a/exec", 200),
            ("GET", "/file/one", 200),
            ("GET", "/file/", 200),
            ("GET", "/file/two", 410),
            ("GET", "/file/two", 200),
            ("GET", "/?q=1", 404),
            ("PUT", "/?q=1", 404),
        ]
        statuses = [client.request(method, proxy.url + path, timeout=10).status_code for method, path, _ in asked]
        assert statuses == [status for *_, status in asked]
        faults: dict[int, Fault | None] = {200: None, 503: busy, 410: gone, 404: lost}
        assert proxy.requests == [ProxiedRequest(method, path, faults[status]) for method, path, status in asked]
        proxy.heal()
        assert client.get(proxy.url + "/?q=1", timeout=10).status_code == 200


def test_chance_has_a_seed() -> None:
    """The same seed strikes the same requests with the same numbers; another one, others."""

    def run(seed: int) -> list[Fault | None]:
        with proxied(answer(b"x" * 500)) as (_, proxy):
            proxy.random(Drop(range(5000)), seed=seed, chance=0.3)
            for _ in range(60):
                raw(proxy)
            return [request.fault for request in proxy.requests]

    faults = run(7)
    assert faults == run(7) != run(8)
    numbers = [fault.after for fault in faults if isinstance(fault, Drop)]
    assert 5 < len(numbers) < 40
    assert len(set(numbers)) > 5
    assert all(isinstance(number, int) and 0 <= number < 5000 for number in numbers)


@pytest.mark.parametrize(
    "make",
    [
        lambda proxy: FaultProxy("https://127.0.0.1:1"),
        lambda proxy: FaultProxy("http://127.0.0.1:none"),
        lambda proxy: FaultProxy("127.0.0.1:80"),
        lambda proxy: Drop(-1),
        lambda proxy: Drop(True),
        lambda proxy: Drop(range(5, 5)),
        lambda proxy: Drop(1, part="head"),  # type: ignore[arg-type]
        lambda proxy: HangUp("soon"),  # type: ignore[arg-type]
        lambda proxy: Stall(0, seconds=float("nan")),
        lambda proxy: Split(()),
        lambda proxy: Split(0),
        lambda proxy: Slow(-1),
        lambda proxy: Truncate(1.5),  # type: ignore[arg-type]
        lambda proxy: Answer(100),
        lambda proxy: Answer(200, headers={"Content-Length": "3"}),
        lambda proxy: Answer(200, headers={"A": "b\r\nc"}),
        lambda proxy: proxy.on(None, None, 503),
        lambda proxy: proxy.on(None, None, Drop),
        lambda proxy: proxy.on(None, 5, Silence()),
        lambda proxy: proxy.on(b"GET", None, Silence()),
        lambda proxy: proxy.on(None, None, Silence(), times=0),
        lambda proxy: proxy.on(None, None, Silence(), nth=0),
        lambda proxy: proxy.random(Silence(), seed=1, chance=1.1),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[Any], object]) -> None:
    """At once, not when a request comes."""
    with proxied() as (_, proxy):
        with pytest.raises(ConfigurationError):
            make(proxy)
        assert requests.get(proxy.url, timeout=10).status_code == 200


# Tunnels


def tunnel(peer: Peer) -> None:
    """Change the protocol, and give everything back."""
    peer.receive()
    peer.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
    while data := peer.sock.recv(65536):
        peer.send(data)


def upgrade(sock: socket.socket) -> bytes:
    """Ask for another protocol, and return the head of the answer."""
    sock.sendall(b"GET /ws HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
    got = b""
    while not got.endswith(b"\r\n\r\n"):
        got += sock.recv(1)
    return got


def test_an_upgraded_connection_is_a_tunnel() -> None:
    """Bytes pass both ways as they are, until one side ends it."""
    with proxied(handler=tunnel) as (_, proxy), dial(proxy) as sock:
        assert upgrade(sock).startswith(b"HTTP/1.1 101 ")
        for data in (b"\x81\x85\0\0", b"\r\n\r\n" * 1000):
            sock.sendall(data)
            assert take(sock, len(data)) == data
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""


@pytest.mark.parametrize("is_reset", [True, False])
def test_a_tunnel_is_dropped_after_some_bytes(is_reset: bool) -> None:
    """Counted are the bytes that come from the server, after the head of its answer."""
    with proxied(handler=tunnel) as (_, proxy), dial(proxy) as sock:
        proxy.on("GET", "/ws", Drop(10, part="body", reset=is_reset))
        upgrade(sock)
        sock.sendall(b"0123456")
        assert take(sock, 7) == b"0123456"
        sock.sendall(b"789abc")
        if is_reset:
            with pytest.raises(ConnectionResetError):
                read_all(sock)
        else:
            assert read_all(sock) == b"789"


# Its end


def test_C5_nothing_is_left_after_its_end() -> None:
    """Whatever connections wait for, `close` ends them within a second, with all threads and descriptors."""

    def handler(peer: Peer) -> None:
        request = peer.receive()
        if request is not None and request.path == "/ws":
            peer.send(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")
        peer.receive()

    with Upstream(handler=handler) as server, Upstream() as quick:
        threads, fds = threading.active_count(), descriptors()
        proxies = [FaultProxy(server.url), FaultProxy(quick.url)]
        faults: list[Fault] = [Stall(0), Stall(5), Silence(), Slow(0.3), HangUp("answering"), Drop(10**9), Twice()]
        clients: list[socket.socket] = []
        for proxy in proxies:
            for fault in faults:
                proxy.on(None, f"/{len(clients)}/", fault)
                clients.append(dial(proxy))
                clients[-1].sendall(f"GET /{len(clients) - 1}/ HTTP/1.1\r\nHost: a\r\n\r\n".encode())
            clients += [dial(proxy) for _ in range(4)]
            clients[-3].sendall(b"GET /ws HTTP/1.1\r\nHost: a\r\n\r\n")
            clients[-2].sendall(b"PUT /p HTTP/1.1\r\nHost: a\r\nContent-Length: 999999\r\n\r\nx")
            clients[-1].sendall(b"GET /p HTT")
        for proxy in proxies:
            assert until(lambda proxy=proxy: len(proxy.requests) == 9)  # type: ignore[misc]
            began = time.monotonic()
            proxy.close()
            assert time.monotonic() - began < 1
            proxy.close()
        for client in clients:
            with contextlib.suppress(ConnectionResetError):
                read_all(client)
            client.close()
        assert until(lambda: (threading.active_count(), descriptors()) == (threads, fds))


def test_a_stall_ends_when_its_client_leaves() -> None:
    """A thread and its connections do not wait for an answer that nobody wants."""
    with proxied() as (_, proxy):
        threads = threading.active_count()
        proxy.on(None, None, Stall())
        proxy.on(None, None, Silence())
        for _ in range(2):
            with pytest.raises(requests.ReadTimeout):
                requests.get(proxy.url, timeout=0.1)
        assert until(lambda: threading.active_count() <= threads)


# As the connection of this package sees it


def connection_to(proxy: FaultProxy, **options: Any) -> closing[Connection]:
    """A connection that repeats soon."""
    return closing(Connection(proxy.url, **{"retry": QUICK, "read_timeout": 10, **options}))


@pytest.mark.parametrize("wanted", [PLAIN, CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("is_reset", [True, False])
def test_H1_an_answer_that_breaks_off_is_an_error(wanted: bytes, is_reset: bool) -> None:
    """Wherever that is, in the head too, no short answer is taken for a whole one."""
    # Of what comes after the mark of the last chunk nothing is needed.
    whole = wanted.index(b"\r\n0\r\n") + 2 if wanted is CHUNKED and not is_reset else len(wanted)
    with proxied(wanted) as (server, proxy), connection_to(proxy) as connection:
        for after in range(len(wanted)):
            proxy.heal()
            proxy.on("POST", None, Drop(after, reset=is_reset))
            if after > whole:
                assert connection.request("POST", "/x", kind=Kind.ONCE, load=True).read() == b"hello world"
                continue
            with pytest.raises(TransportError) as caught:
                connection.request("POST", "/x", kind=Kind.ONCE, load=True)
            is_in_body = after >= wanted.index(b"\r\n\r\n") + 4
            assert type(caught.value) is (StreamInterruptedError if is_in_body else TransportError), after
        assert len(server.received) == len(wanted)


def test_H3_reads_survive_random_drops() -> None:
    """With a few attempts each, and the same answer as without faults."""
    with proxied(PLAIN) as (_, proxy), connection_to(proxy, clock=Impatient()) as connection:
        proxy.random(Drop(range(2 * len(PLAIN)), reset=True), seed=3, chance=0.4)
        assert all(get(connection).json() == VALUE for _ in range(50))
        assert any(request.fault for request in proxy.requests)


def test_H3_many_threads_survive_all_kinds_of_faults() -> None:
    """Each read has its own answer in the end, whatever struck the others."""
    faults: tuple[Fault, ...] = (
        Drop(range(200)),
        Drop(range(200), reset=True),
        HangUp("answering"),
        Split(7),
        Twice(),
        Answer(503),
    )
    patient = RetryPolicy(attempts=20, total=60, base=0.001, cap=0.002)
    with proxied() as (_, proxy), connection_to(proxy, retry=patient) as connection, ThreadPoolExecutor(8) as pool:
        for seed, fault in enumerate(faults):
            proxy.random(fault, seed=seed, chance=0.1)
        paths = [f"/{number}" for number in range(200)]
        bodies = pool.map(lambda path: get(connection, path).read().decode(), paths)
        assert list(bodies) == [f"GET\n{path}\n" for path in paths]
        assert {type(request.fault) for request in proxy.requests} == {type(None), *map(type, faults)}


def test_H3_a_busy_service_is_asked_again_when_it_says() -> None:
    """503 with `Retry-After`, then the answer: also for what may be done once only."""
    clock = Impatient()
    with proxied() as (server, proxy), connection_to(proxy, clock=clock) as connection:
        proxy.on("POST", "/exec", Answer(503, headers={"Retry-After": "3"}), times=2)
        assert connection.request("POST", "/exec", kind=Kind.ONCE).status == 200
        assert len(server.received) == 1
    assert len(clock.slept) == 2
    assert all(seconds >= 3 for seconds in clock.slept)


def test_H2_what_may_have_been_done_is_not_repeated() -> None:
    """A reset tells nothing of whether the server has the request, so it is sent once."""
    for before, delivered in (("reading", 0), ("forwarding", 0), ("answering", 1)):
        with proxied() as (server, proxy), connection_to(proxy) as connection:
            proxy.on(None, None, HangUp(before), times=None)  # type: ignore[arg-type]
            with pytest.raises(TransportError) as caught:
                connection.request("POST", "/exec", kind=Kind.ONCE, body=b"x")
            assert (caught.value.code, caught.value.retryable) == ("CONNECTION_LOST", None)
            assert len(proxy.requests) == 1
            assert len(server.received) == delivered


def test_H6_a_page_in_the_place_of_an_answer() -> None:
    """HTML of a gateway is repeated for reads and quoted in the error; half of a JSON text is an error too."""
    with proxied(PLAIN) as (_, proxy), connection_to(proxy, clock=Impatient()) as connection:
        proxy.on(None, "/x", Answer.page(502), times=3)
        assert get(connection).json() == VALUE
        proxy.on(None, "/page", Answer.page(200), times=None)
        with pytest.raises(ProtocolError, match="<!DOCTYPE html>"):
            get(connection, "/page").json()
        proxy.on(None, "/once", Answer.page(502, forward=True), times=None)
        with pytest.raises(SandboxUnavailableError) as caught:
            connection.request("POST", "/once", kind=Kind.ONCE).check()
        assert caught.value.retryable is None
        proxy.on(None, "/half", Truncate(30))
        with pytest.raises(ProtocolError, match="numbers"):
            get(connection, "/half").json()


@pytest.mark.parametrize("fault", [Silence(), Stall(), Stall(20), Stall(3, part="body"), Slow(0.1, part="head")])
def test_H4_a_silent_peer_ends_in_a_bounded_error(fault: Fault) -> None:
    """Nothing comes, or too little, for the read limit: that ends it, with every attempt."""
    with proxied(PLAIN) as (_, proxy), connection_to(proxy, read_timeout=0.3, clock=Impatient()) as connection:
        proxy.on(None, None, fault, times=None)
        began = time.monotonic()
        with pytest.raises(RequestTimeoutError):
            get(connection)
        assert time.monotonic() - began < 0.3 * QUICK.attempts + 3
        assert len(proxy.requests) == QUICK.attempts


def test_H4_chunk_borders_of_an_answer_do_not_matter_to_a_connection() -> None:
    """Byte by byte it is the same answer."""
    with proxied(PLAIN) as (_, proxy), connection_to(proxy) as connection:
        proxy.on(None, None, Split(), times=None)
        for _ in range(3):
            assert get(connection).json() == VALUE
        assert all(isinstance(request.fault, Split) for request in proxy.requests)
