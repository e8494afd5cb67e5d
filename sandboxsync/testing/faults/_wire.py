"""HTTP/1.1 as it is on the wire: heads and bodies, as pieces that together are all of its bytes."""

from __future__ import annotations

import select
import selectors
import socket
import struct
from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, TypeAlias

import attrs

__all__ = [
    "CHUNKED",
    "END",
    "Framing",
    "Head",
    "HungUpError",
    "Piece",
    "Wire",
    "has_left",
    "is_readable",
    "reset",
    "shut",
]

_PIECE = 65536
_MOST_HEAD = 1 << 20

END = -1
CHUNKED = -2
Framing: TypeAlias = int
"""Where a body ends: its length, or `CHUNKED`, or `END` for the end of the connection."""


class HungUpError(Exception):
    """The connection is over: as a fault says, or because the other side broke off."""

    def __init__(self, reset: bool) -> None:
        super().__init__("reset" if reset else "closed")
        self.reset = reset


class Piece(NamedTuple):
    """Some bytes of a message, all of one part of it; a `frame` is what surrounds chunks."""

    data: bytes
    part: Literal["head", "frame", "body"]


@attrs.frozen
class Head:
    """A head as it came. `fields` have lower-case names."""

    raw: bytes
    start: str
    fields: dict[str, str]

    @classmethod
    def parse(cls, raw: bytes) -> Head:
        """Take it apart."""
        start, *lines = raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        return cls(raw, start, {name.strip().lower(): value.strip() for name, _, value in pairs})

    @property
    def words(self) -> tuple[str, str, str]:
        """The three of its first line."""
        first, second, third = [*self.start.split(" ", 2), "", ""][:3]
        return first, second, third

    @property
    def framing(self) -> Framing | None:
        """What it says about the body; `None` when it says nothing."""
        if "chunked" in self.fields.get("transfer-encoding", "").lower():
            return CHUNKED
        length = self.fields.get("content-length", "")
        return int(length) if length.isascii() and length.isdigit() else None

    def says(self, name: str, token: str) -> bool:
        """Whether a field has this token in its list."""
        return token in (word.strip().lower() for word in self.fields.get(name, "").split(","))

    def changed(self, **fields: str | None) -> Head:
        """Return it with fields (`_` is a hyphen) that have other values, or none."""
        given = {name.replace("_", "-"): value for name, value in fields.items()}
        start, *lines = self.raw.decode("latin-1").rstrip("\r\n").split("\r\n")
        kept = [line for line in lines if line.partition(":")[0].strip().lower() not in given]
        kept += [f"{name.title()}: {value}" for name, value in given.items() if value is not None]
        return Head.parse("\r\n".join([start, *kept, "", ""]).encode("latin-1"))


class Wire:
    """One connection. `wait` is called before it blocks for more bytes. One thread reads."""

    def __init__(self, sock: socket.socket, wait: Callable[[], None] | None = None) -> None:
        self.sock = sock
        self._wait = wait
        self._buffer = bytearray()

    def read_head(self) -> Head | None:
        """Read a head; `None` when the connection is closed in place of one."""
        while (line := self._find(b"\r\n")) == 2:  # before a request empty lines do no harm
            self._take(2)
        if line < 0:
            return None
        end = self._find(b"\r\n\r\n")
        if end < 0:
            raise HungUpError(reset=False)
        return Head.parse(self._take(end))

    def read_body(self, framing: Framing) -> Iterator[Piece]:
        """Yield a body as it comes. Raises `HungUpError` when it breaks off."""
        if framing == END:
            while data := self._some(_PIECE):
                yield Piece(data, "body")
        elif framing == CHUNKED:
            yield from self._read_chunks()
        else:
            yield from self._read_exactly(framing)

    def _read_chunks(self) -> Iterator[Piece]:
        size = -1
        while size:
            line = self._read_line()
            yield Piece(line, "frame")
            try:
                size = int(line.partition(b";")[0], 16)
            except ValueError:
                raise HungUpError(reset=True) from None
            if size:
                yield from self._read_exactly(size)
                yield Piece(self._read_line(), "frame")
        while True:
            line = self._read_line()
            yield Piece(line, "frame")
            if line == b"\r\n":
                return

    def _read_exactly(self, size: int) -> Iterator[Piece]:
        while size:
            data = self._some(min(size, _PIECE))
            if not data:
                raise HungUpError(reset=False)
            size -= len(data)
            yield Piece(data, "body")

    def _read_line(self) -> bytes:
        end = self._find(b"\r\n")
        if end < 0:
            raise HungUpError(reset=False)
        return self._take(end)

    def _find(self, mark: bytes) -> int:
        """The place after the next mark; -1 when the connection is closed before the first byte, or in between."""
        start = 0
        while (found := self._buffer.find(mark, start)) < 0:
            start = max(0, len(self._buffer) - len(mark) + 1)
            if len(self._buffer) > _MOST_HEAD:
                raise HungUpError(reset=True)
            if not self._fill():
                return -1
        return found + len(mark)

    def _some(self, most: int) -> bytes:
        if not self._buffer:
            self._fill()
        return self._take(most)

    def _take(self, size: int) -> bytes:
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def _fill(self) -> bool:
        if self._wait is not None:
            self._wait()
        try:
            data = self.sock.recv(_PIECE)
        except OSError:
            raise HungUpError(reset=True) from None
        self._buffer += data
        return bool(data)


def is_readable(*socks: socket.socket, timeout: float | None = 0) -> list[socket.socket]:
    """Those that can be read, or are closed, within a time."""
    if hasattr(select, "poll"):
        selector: selectors.BaseSelector = selectors.PollSelector()
    else:
        selector = selectors.SelectSelector()
    with selector:
        for sock in socks:
            selector.register(sock, selectors.EVENT_READ)
        ready = {key.fd for key, _ in selector.select(timeout)}
    return [sock for sock in socks if sock.fileno() in ready]


def has_left(sock: socket.socket) -> bool:
    """Whether the other side has closed or reset the connection, as far as can be seen."""
    try:
        return bool(is_readable(sock)) and not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return True


def shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """End a connection, so that whoever waits for it wakes up."""
    try:
        sock.shutdown(how)
    except OSError:
        return  # it is over already


def reset(sock: socket.socket) -> None:
    """Have the connection reset when it is closed."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
