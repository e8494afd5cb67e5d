"""What the tests of connections share."""

from __future__ import annotations

import os
import socket
import threading
import time
import traceback
from collections.abc import Callable

from sandboxsync._clock import SystemClock
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http._retry import Kind, RetryPolicy
from tests._loopback import Peer, Received, answer

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


def drip_head(peer: Peer) -> None:
    """A byte of a head now and then, for ever."""
    peer.receive()
    peer.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    while True:
        peer.send(b"x")
        time.sleep(0.05)
