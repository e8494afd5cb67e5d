"""A server on the loopback that answers as a test says, byte by byte if need be, and counts its connections."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from types import TracebackType

import attrs
from typing_extensions import Self


@attrs.frozen
class Received:
    """A request as it came. `headers` have lower-case names."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


class Peer:
    """One connection, as the server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._file = sock.makefile("rb")

    def receive(self) -> Received | None:
        """The next request with its body, `None` when the client is gone."""
        line = self._file.readline()
        if not line:
            return None
        method, path, _ = line.decode().split(" ", 2)
        headers: dict[str, str] = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        if "chunked" in headers.get("transfer-encoding", ""):
            pieces = []
            while size := int(self._file.readline(), 16):
                pieces.append(self._file.read(size))
                self._file.readline()
            self._file.readline()
            body = b"".join(pieces)
        else:
            body = self._file.read(int(headers.get("content-length", 0)))
        return Received(method, path, headers, body)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.sock.sendall(data)

    def reset(self) -> None:
        """Have the client see a connection that was reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close it."""
        self._file.close()
        self.sock.close()


def answer(body: bytes = b"{}", status: str = "200 OK", **headers: str) -> bytes:
    """A whole answer; `_` in the name of a header stands for a hyphen."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


Handler = Callable[[Peer], None]


def each(reply: Callable[[Received], bytes]) -> Handler:
    """Serve request after request of a connection with what `reply` returns."""

    def handle(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            peer.send(reply(request))

    return handle


class Server:
    """Accepts until it is closed; each connection is handled in a thread of its own, then closed."""

    def __init__(self, handler: Handler, tls: ssl.SSLContext | None = None) -> None:
        self._handler = handler
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{self.port}"
        self.connections = 0
        self.peers: list[Peer] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(60)
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
            peer = Peer(sock)
        except OSError:
            sock.close()
            return
        self.peers.append(peer)
        try:
            self._handler(peer)
        except (OSError, ValueError):
            # The client went away, or the test ended.
            return
        finally:
            peer.close()

    def close(self) -> None:
        """End all of it."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)
        for peer in self.peers:
            try:
                peer.sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
