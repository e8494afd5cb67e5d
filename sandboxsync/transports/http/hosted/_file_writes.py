"""Files that are written, whole or not at all: small ones in one call, large ones by the service's own route."""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress

import attrs

from sandboxsync.errors import SandboxError, TransportError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import SessionRef
from sandboxsync.transports.http.hosted._file_host import FileHost, info_of, is_final, told
from sandboxsync.transports.http.hosted._host import Answer

__all__ = ["write_file"]

_INLINE = 84_000
"""Bytes that go in arguments of one call. All of those become one argument of a shell, which Linux cuts at 131,071."""
_ARGUMENT = 15_000
"""Bytes in one argument."""
_PIECES_AT_ONCE = 3
"""How many pieces wait until the host takes them, while the next ones are sent."""


def write_file(host: FileHost, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
    """See `Transport.write_file`."""
    pieces = _pieces(chunks, host.raw.piece)
    first = next(pieces)
    # Every quote in a path makes five characters in that argument.
    if len(first) <= _INLINE - 5 * len(path):
        data = [base64.b64encode(first[at : at + _ARGUMENT]).decode() for at in range(0, len(first), _ARGUMENT)]
        return info_of(host.ask_at(ref, "file_w_small", path, secrets.token_hex(12), *data))
    write = _Write.open(host, ref, path)
    try:
        piece: bytes | None = first
        del first
        while piece is not None:
            write.put(piece)
            # Else there would be three in memory.
            del piece
            piece = next(pieces, None)
        return write.commit()
    except BaseException:
        write.give_up()
        # What cannot be removed now is removed an hour later.
        with suppress(SandboxError):
            host.ask(ref, "file_w_abort", write.id)
        raise


def _pieces(chunks: Iterable[bytes], size: int) -> Iterator[bytes]:
    """Content in pieces of this size, but the last; there is at least one, which may be empty."""
    waiting = bytearray()
    empty = True
    for chunk in chunks:
        view = memoryview(chunk)
        while view:
            missing = size - len(waiting)
            waiting += view[:missing]
            view = view[missing:]
            if len(waiting) == size:
                empty = False
                yield bytes(waiting)
                waiting.clear()
    if waiting or empty:
        yield bytes(waiting)


@attrs.define
class _Write:
    """A large file on its way."""

    host: FileHost
    ref: SessionRef
    id: str
    staged: str
    _at: int = 0
    _waiting: list[int] = attrs.field(factory=list)
    _taking: tuple[list[str], Answer] | None = None

    @classmethod
    def open(cls, host: FileHost, ref: SessionRef, path: str) -> _Write:
        """Find the target. Raises `FileError`."""
        name = secrets.token_hex(12)
        lines = host.ask_at(ref, "file_w_open", path, name, host.raw.staging or "")
        return cls(host, ref, name, told(lines, "staged"))

    def put(self, piece: bytes) -> None:
        """Send a piece, and have those that wait taken when they are many."""
        if len(self._waiting) == _PIECES_AT_ONCE:
            self._finish_taking()
            arguments = self._taken()
            self._taking = arguments, self.host.open(self.ref, "file_w_take", self.id, *arguments)
        self.host.raw.write(f"{self.staged}/{self._at + sum(self._waiting)}", piece)
        self._waiting.append(len(piece))

    def commit(self) -> FileInfo:
        """Put the content in its place."""
        self._finish_taking()
        return info_of(self.host.ask(self.ref, "file_w_commit", self.id, *self._taken()))

    def give_up(self) -> None:
        """Leave what is being taken."""
        if self._taking is not None:
            self._taking[1].close()

    def _finish_taking(self) -> None:
        """Wait until the host has the pieces that it was told of. Raises what it says of them."""
        if self._taking is None:
            return
        arguments, answer = self._taking
        self._taking = None
        try:
            self.host.rest_of(answer)
        except TransportError as exc:
            if is_final(exc):
                raise
            self.host.ask(self.ref, "file_w_take", self.id, *arguments)

    def _taken(self) -> list[str]:
        """Where the pieces that wait begin, and their sizes."""
        numbers = [self._at, *self._waiting]
        self._at, self._waiting = sum(numbers), []
        return [str(number) for number in numbers]
