"""Read the members of a tar, or gzipped tar, from pieces of any size, in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import IO, TYPE_CHECKING, cast

from ._bounds import parts_of
from .errors import InvalidRequestError

if TYPE_CHECKING:
    from tarfile import TarFile, TarInfo

__all__ = ["gunzip", "gzipped", "members", "mtime_of", "vet"]

_GZIP = b"\x1f\x8b"
_PIECE = 1 << 18
# tarfile reads extended headers whole; those of real archives hold a few names.
_MAX_READ = 1 << 20
_ZEROS = bytes(512)


def members(chunks: Iterable[bytes]) -> Iterator[tuple[TarInfo, Iterator[bytes]]]:
    """Yield each member with its content, which is empty but for regular files and is read before the next
    one.

    *chunks* are read to their end, past the end of the archive, so that who writes them can finish. Raises
    :class:`InvalidRequestError` when they are no tar, or one that is damaged or cut (an archive without its
    end mark is cut), and what *chunks* raises.
    """
    import tarfile

    source = _Source(gunzip(chunks))
    with _refusing(source):
        tar = tarfile.TarFile(fileobj=cast("IO[bytes]", source), encoding="utf-8", errors="surrogateescape")
    # Opening it has read the first header; of an empty archive that is all there is to read.
    empty = source.tell() == len(_ZEROS) and source.last == _ZEROS
    while not empty:
        with _refusing(source):
            member = tar.next()
            # It would keep every one.
            vars(tar)["members"].clear()
        if member is None:
            break
        if member.size < 0:
            raise InvalidRequestError(f"the archive is damaged: {member.name!r} has a negative size")
        yield member, _content(tar, member, source)
    # tarfile also takes a damaged or missing header for the end.
    if source.last != _ZEROS:
        raise InvalidRequestError("the archive is damaged or cut")
    source.drain()


def _content(tar: TarFile, member: TarInfo, source: _Source) -> Iterator[bytes]:
    if not member.isreg():
        return
    with _refusing(source):
        file = tar.extractfile(member)
    while file is not None:
        with _refusing(source):
            data = file.read(_PIECE)
        if not data:
            return
        yield data


def vet(member: TarInfo) -> list[str]:
    """Return the parts of a member's name, none for the root.

    Raises :class:`InvalidRequestError` for what is never unpacked: names that lead outside, and special files.
    """
    name = member.name
    parts = parts_of(name)
    if "\0" in name or "\0" in member.linkname:
        raise InvalidRequestError(f"the archive holds a name with a NUL: {name!r}")
    if name.startswith("/") or ".." in parts:
        raise InvalidRequestError(f"the archive holds a name that leads outside: {name!r}")
    if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
        raise InvalidRequestError(f"the archive holds a device, a FIFO or something unknown: {name!r}")
    if not parts and not member.isdir():
        raise InvalidRequestError(f"the archive holds a file without a name: {name!r}")
    if member.islnk() and (member.linkname.startswith("/") or ".." in parts_of(member.linkname)):
        raise InvalidRequestError(f"the archive holds a hard link that leads outside: {name!r}")
    if (member.issym() or member.islnk()) and not member.linkname:
        raise InvalidRequestError(f"the archive holds a link to nothing: {name!r}")
    return parts


def mtime_of(member: TarInfo) -> int | None:
    """Return the member's time in nanoseconds, if it is one."""
    whole, _, fraction = member.pax_headers.get("mtime", "").partition(".")
    if whole.isdecimal() and (fraction.isdecimal() or not fraction):
        return int(whole) * 10**9 + int((fraction + "0" * 9)[:9])
    try:
        return int(member.mtime * 10**9)
    except (ValueError, OverflowError):
        return None


def gunzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *chunks* as they are, or unzipped when they begin as gzip does, in pieces of 256 KiB at most.

    Raises :class:`InvalidRequestError` when the gzip is damaged or cut, or its checksum is wrong.
    """
    pieces = iter(chunks)
    start = b""
    while len(start) < len(_GZIP) and (piece := next(pieces, None)) is not None:
        start += piece
    everything = chain([start], pieces)
    return _inflate(everything) if start.startswith(_GZIP) else everything


def _inflate(chunks: Iterable[bytes]) -> Iterator[bytes]:
    import zlib

    inflater = zlib.decompressobj(wbits=31)
    for chunk in chunks:
        rest = chunk
        while rest:
            if inflater.eof:
                # Zeros are padding; anything else is a second gzip, whose content follows the first's.
                rest = rest.lstrip(b"\0")
                inflater = zlib.decompressobj(wbits=31) if rest else inflater
                continue
            try:
                data = inflater.decompress(rest, _PIECE)
            except zlib.error as exc:
                raise InvalidRequestError(f"the gzip is damaged: {exc}") from exc
            rest = inflater.unused_data or inflater.unconsumed_tail
            if data:
                yield data
    if not inflater.eof:
        raise InvalidRequestError("the gzip is cut")


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield *chunks* as one gzip."""
    import zlib

    deflater = zlib.compressobj(wbits=31)
    for chunk in chunks:
        if data := deflater.compress(chunk):
            yield data
    yield deflater.flush()


class _Source:
    """As much of a file as tarfile needs: it reads forward only."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = memoryview(b"")
        self._position = 0
        self.last = b""
        self.failure: Exception | None = None

    def read(self, size: int) -> bytes:
        if size > _MAX_READ:
            raise InvalidRequestError("the archive has a header of more than 1 MiB")
        pieces = []
        missing = size
        while missing > 0 and self._fill():
            piece = self._rest[:missing]
            self._rest = self._rest[missing:]
            missing -= len(piece)
            pieces.append(piece)
        self.last = b"".join(pieces)
        self._position += len(self.last)
        return self.last

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        missing = position - self._position
        if missing < 0:
            raise InvalidRequestError("the archive is damaged: a size leads back")
        while missing > 0 and self._fill():
            skipped = min(missing, len(self._rest))
            self._rest = self._rest[skipped:]
            self._position += skipped
            missing -= skipped

    def drain(self) -> None:
        while self._fill():
            self._rest = self._rest[:0]

    def _fill(self) -> bool:
        while not self._rest:
            try:
                chunk = next(self._chunks, None)
            except Exception as exc:
                self.failure = exc
                raise
            if chunk is None:
                return False
            self._rest = memoryview(chunk)
        return True


@contextmanager
def _refusing(source: _Source) -> Iterator[None]:
    """Turn what tarfile makes of garbage into one error, and pass on what the source raised."""
    try:
        yield
    except Exception as exc:
        if source.failure is not None:
            raise source.failure from None
        if isinstance(exc, InvalidRequestError):
            raise
        raise InvalidRequestError(f"not a tar archive, or a damaged one: {exc}") from exc
