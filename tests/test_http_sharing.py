"""Connections that threads share, that are kept, and that a forked child does not touch."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import sandboxsync
from sandboxsync.errors import (
    ConfigurationError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind
from tests._http import (
    ONCE_ONLY,
    QUICK,
    echo,
    get,
    in_child,
    scripted,
    stall,
)
from tests._loopback import Peer, Received, Server, answer, each


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


def open_sockets() -> set[str]:
    """The sockets that this process has."""
    names = [name for name in os.listdir("/proc/self/fd") if name_is_open(name)]
    return {target for name in names if (target := os.readlink(f"/proc/self/fd/{name}")).startswith("socket:")}


def test_a_forked_child_lets_go_of_the_parents_sockets() -> None:
    """C3: idle ones and those in use are closed in the child, where reading on raises, and live on in the parent."""
    before = open_sockets()
    with Server(each(lambda request: answer(b"x" * 10**6))) as server, closing(Connection(server.url)) as connection:
        with connection.request("GET", "/busy", kind=Kind.READ) as response:
            get(connection, "/idle")
            first = next(response.stream())

            def work() -> None:
                peers = {f"socket:[{os.fstat(peer.sock.fileno()).st_ino}]" for peer in server.peers}
                ours = open_sockets() - before
                # What is left are the server's own ends, which live in this process too, and that it listens on.
                assert len(ours & peers) == 2
                assert len(ours) <= 3
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


FORKS = """
import os, sys, threading
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind

connection = Connection(sys.argv[1])
stop = threading.Event()

def ask(path):
    assert connection.request("GET", path, kind=Kind.READ, load=True).read() == f"GET\\n{path}\\n".encode()

def work(number):
    while not stop.is_set():
        ask(f"/{number}")

threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
codes = []
for number in range(6):
    pid = os.fork()
    if pid == 0:
        ask("/child")
        stop.set()
        # As a program ends that was not told to leave the rest alone.
        sys.exit(0)
    codes.append(os.waitpid(pid, 0)[1])
stop.set()
for thread in threads:
    thread.join()
print(codes)
"""


@pytest.mark.parametrize("round", range(3))
def test_forks_beside_first_requests(round: int) -> None:
    """C3: a child that is forked while other threads make their first requests works, and ends as programs end."""
    with Server(each(echo)) as server:
        command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, server.url]
        root = Path(sandboxsync.__file__).parent.parent
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=root)
        assert (done.stdout, done.stderr) == ("[0, 0, 0, 0, 0, 0]\n", "")
