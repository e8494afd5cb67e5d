"""Where a recording keeps bytes until it is written: small ones in memory, the others in one file without a name."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

import attrs

from sandboxsync._atomic import write_all

SMALL = 4096
"""Bytes below which a piece stays in memory."""


@attrs.frozen
class Spooled:
    """A piece that is in the file."""

    spool: Spool
    start: int
    size: int

    def read(self) -> bytes:
        """Return it. Blocks on the disk; raises `OSError`."""
        data = bytearray()
        while len(data) < self.size:
            more = os.pread(self.spool.descriptor, self.size - len(data), self.start + len(data))
            if not more:
                raise EOFError("the temporary file of a recording was cut")
            data += more
        return bytes(data)


Kept: TypeAlias = "bytes | Spooled"


def bytes_of(kept: Kept) -> bytes:
    """Return what was kept."""
    return kept if isinstance(kept, bytes) else kept.read()


class Spool:
    """Keeps pieces, from any thread. Not for use after a fork. The file goes with the object and the pieces.

    `descriptor` is that of the file, -1 while there is none.
    """

    def __init__(self) -> None:
        self.descriptor = -1
        self._lock = threading.Lock()
        self._end = 0

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)

    def keep(self, data: bytes) -> Kept:
        """Return what stands for *data*. Blocks on the disk."""
        if len(data) < SMALL:
            return bytes(data)
        with self._lock:
            try:
                if self.descriptor < 0:
                    with tempfile.TemporaryFile() as file:
                        self.descriptor = os.dup(file.fileno())
                os.lseek(self.descriptor, self._end, os.SEEK_SET)
                write_all(self.descriptor, data)
            except OSError:
                # A full disk must not make a call fail that the transport can answer.
                return bytes(data)
            piece = Spooled(self, self._end, len(data))
            self._end += len(data)
            return piece


class Taken:
    """Hands on the pieces of a content that is written, and keeps them; `whole` once all of them were taken."""

    def __init__(self, chunks: Iterable[bytes], keep: Callable[[bytes], Kept]) -> None:
        self._chunks = chunks
        self._keep = keep
        self.pieces: list[Kept] = []
        self.whole = False

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._chunks:
            self.pieces.append(self._keep(chunk))
            yield chunk
        self.whole = True
