"""One connection of a client, and the one to the server that belongs to it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

from ._hub import Hub
from ._shapes import framing_of, interrupted, own_answer, slowed, split, truncated
from ._values import Answer, Drop, Fault, HangUp, Silence, Slow, Split, Stall, Truncate, Twice
from ._wire import END, Framing, Head, HungUpError, Piece, Wire, has_left, is_readable, reset, shut

__all__ = ["Relay"]

_SMALL = 65536
"""A body of up to so many bytes is sent together with its head."""
_DRAIN = 1.0
"""Seconds in which a client that is still sending may see the end before it is cut off."""


class Relay:
    """Takes requests of a connection to the server and its answers back, with the faults of the proxy's rules."""

    def __init__(
        self,
        hub: Hub,
        client: socket.socket,
        server: tuple[str, int],
        authority: str,
        take: Callable[[str, str], Fault | None],
    ) -> None:
        """`take` notes a request, by method and path, and returns its fault."""
        self._hub = hub
        self._client = Wire(client)
        self._address = server
        self._authority = authority
        self._take = take
        self._upstream: Wire | None = None
        self._upload: _Upload | None = None

    def run(self) -> None:
        """Serve it until one side closes it, or a fault does."""
        try:
            while self._exchange():
                pass
            self._finish_upload(reset=False)
        except HungUpError as end:
            self._finish_upload(end.reset)
            if end.reset:
                reset(self._client.sock)
        finally:
            self._leave_server()

    def _exchange(self) -> bool:
        """Serve one request. Return whether there may be another."""
        head = self._client.read_head()
        if head is None:
            return False
        method, path, version = head.words
        fault = self._take(method, path)
        if isinstance(fault, HangUp) and fault.before == "reading":
            raise HungUpError(fault.reset)
        keep_alive = version == "HTTP/1.1" and not head.says("connection", "close")
        if head.says("expect", "100-continue"):
            self._tell(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = self._client.read_body(head.framing or 0)
        forwarded = self._for_server(head)
        if isinstance(fault, (HangUp, Silence, Answer, Twice)):
            whole = b"".join(piece.data for piece in body)
            return self._answer_otherwise(fault, method, forwarded, whole) and keep_alive
        if 0 <= (head.framing or 0) <= _SMALL:
            self._send(forwarded + b"".join(piece.data for piece in body))
        else:
            self._send(forwarded)
            self._upload = _Upload(body, self._server.sock)
        if not (self._pass_answer(fault, method) and keep_alive):
            return False
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.wait()
        return upload is None or upload.is_complete

    def _answer_otherwise(
        self, fault: HangUp | Silence | Answer | Twice, method: str, head: bytes, body: bytes
    ) -> bool:
        """Do what a fault says with a request that was read. Return whether the connection can stay open."""
        if isinstance(fault, Silence):
            self._hub.hold(self._client.sock, None)
            raise HungUpError(reset=False)
        if isinstance(fault, HangUp):
            if fault.before == "answering":
                self._send(head + body)
                self._read_answer()
            raise HungUpError(fault.reset)
        if isinstance(fault, Twice):
            self._deliver(method, head + body)
            self._send(head + body)
            return self._pass_answer(None, method)
        if fault.forward:
            self._deliver(method, head + body)
        self._tell(own_answer(fault, has_body=method != "HEAD", keep_alive=True))
        return True

    def _deliver(self, method: str, request: bytes) -> None:
        """Let the server do it, and lose what it answers."""
        self._send(request)
        answer = self._read_answer()
        for _ in self._server.read_body(framing_of(answer, method, int(answer.words[1]))):
            pass
        self._leave_server()

    def _pass_answer(self, fault: Fault | None, method: str) -> bool:
        """Return whether the connection can stay open after it."""
        head = self._read_answer()
        version, status, _ = head.words
        framing = framing_of(head, method, int(status))
        body = self._server.read_body(framing)
        if status == "101":
            self._upload = _Upload(self._client.read_body(END), self._server.sock, is_tunnel=True)
        for piece in self._with_fault(fault, head, framing, body):
            self._tell(piece.data)
        if status == "101":
            raise HungUpError(reset=False)
        stays_open = version == "HTTP/1.1" and framing != END and not head.says("connection", "close")
        if isinstance(fault, Truncate):
            self._leave_server()  # which has not been read to its end
        return stays_open

    def _with_fault(self, fault: Fault | None, head: Head, framing: Framing, body: Iterable[Piece]) -> Iterator[Piece]:
        client = self._client.sock
        pieces = _chained(head, body)
        match fault:
            case Drop(after=int(after)):
                return interrupted(pieces, after, fault.part, lambda: _hang_up(fault.reset))
            case Stall(after=int(after)):
                return interrupted(pieces, after, fault.part, lambda: self._hub.stall(client, fault.seconds))
            case Truncate(after=int(after)):
                return truncated(head, framing, body, after)
            case Split():
                return split(pieces, fault.sizes)
            case Slow():
                return slowed(pieces, fault.size, fault.part, lambda: self._hub.hold(client, fault.pause))
        return pieces

    def _for_server(self, head: Head) -> bytes:
        """The head of a request as it would be if the server had been asked itself."""
        fields: dict[str, str | None] = {"host": self._authority, "expect": None}
        if head.fields.get("origin") == f"http://{head.fields.get('host')}":
            fields["origin"] = f"http://{self._authority}"
        return head.changed(**fields).raw

    # The two sides

    def _tell(self, data: bytes) -> None:
        try:
            self._client.sock.sendall(data)
        except OSError:
            raise HungUpError(reset=False) from None

    @property
    def _server(self) -> Wire:
        assert self._upstream is not None
        return self._upstream

    def _leave_server(self) -> None:
        if self._upstream is not None:
            self._hub.end(self._upstream.sock)
            self._upstream = None

    def _send(self, data: bytes) -> None:
        """Begin a request, on a connection that is open still."""
        if self._upstream is not None and has_left(self._upstream.sock):
            self._leave_server()
        if self._upstream is None:
            try:
                self._upstream = Wire(self._hub.connect(*self._address), self._wait_for_server)
            except OSError:
                raise HungUpError(reset=True) from None
        # A server may answer, and close, without reading all of a request.
        with contextlib.suppress(OSError):
            self._server.sock.sendall(data)

    def _read_answer(self) -> Head:
        """Read the head of the answer, after passing on those that only tell to wait for it."""
        while (head := self._server.read_head()) is not None:
            status = head.words[1]
            if not status.isdecimal():
                break
            if status == "101" or not status.startswith("1"):
                return head
            self._tell(head.raw)
        raise HungUpError(reset=head is not None)

    def _wait_for_server(self) -> None:
        """Wait for bytes of the server. Raises `HungUpError` when the client goes away meanwhile."""
        if self._upload is not None:
            return  # it sees that
        server, client = self._server.sock, self._client.sock
        if server not in is_readable(server, client, timeout=None) and has_left(client):
            raise HungUpError(reset=False)

    def _finish_upload(self, reset: bool) -> None:
        upload, self._upload = self._upload, None
        if upload is None:
            return
        if not reset:
            shut(self._client.sock, socket.SHUT_WR)
            upload.wait(_DRAIN)
        upload.stop()
        shut(self._client.sock, socket.SHUT_RD)
        if self._upstream is not None:
            shut(self._upstream.sock)
        upload.wait()


class _Upload:
    """Passes bytes of the client on to the server while the answer may come already, in a thread.

    That is the body of a request, or what a client says in a tunnel.
    """

    def __init__(self, pieces: Iterator[Piece], server: socket.socket, *, is_tunnel: bool = False) -> None:
        self.is_complete = False
        self._pieces = pieces
        self._server = server
        self._is_tunnel = is_tunnel
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="sandboxsync-faults-upload", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        is_read = True
        try:
            for piece in self._pieces:
                if self._stopped:
                    return
                try:
                    if is_read:
                        self._server.sendall(piece.data)
                except OSError:
                    is_read = False  # it may have answered; the client wants to get rid of the rest
        except HungUpError:
            shut(self._server)
            return
        self.is_complete = True
        if self._is_tunnel:
            shut(self._server, socket.SHUT_WR)

    def stop(self) -> None:
        """Read no more."""
        self._stopped = True

    def wait(self, seconds: float | None = None) -> None:
        """Wait until all of it is read, or the client has gone."""
        self._thread.join(seconds)


def _chained(head: Head, body: Iterable[Piece]) -> Iterator[Piece]:
    yield Piece(head.raw, "head")
    yield from body


def _hang_up(reset: bool) -> None:
    raise HungUpError(reset)
