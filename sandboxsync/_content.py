"""What a file is written from, in pieces of bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol, TypeAlias

from ._decode import check_decoding
from .errors import InvalidRequestError

Progress: TypeAlias = Callable[[int, int | None], object]
"""Called with the bytes done and the bytes in all, ``None`` when that is unknown."""

PIECE = 1 << 20


class Readable(Protocol):
    """What is read from to write a file: a binary file object."""

    def read(self, size: int, /) -> bytes:
        """Return at most ``size`` bytes, none at the end."""


Content: TypeAlias = str | bytes | bytearray | memoryview | Readable | Iterable[bytes]
"""What a file is written from."""


def chunks_of(content: Any, encoding: str, want_total: bool) -> tuple[Iterable[bytes], int | None]:
    """Return the content in pieces, and its size if it is known."""
    if isinstance(content, str):
        check_decoding(encoding, "strict")
        try:
            content = content.encode(encoding)
        except UnicodeError as exc:
            raise InvalidRequestError(f"content cannot be encoded in {encoding!r}: {exc}") from exc
    if isinstance(content, (bytes, bytearray, memoryview)):
        data = content if isinstance(content, bytes) else bytes(content)
        return _slices(data), len(data)
    if hasattr(content, "read"):
        if hasattr(content, "encoding"):
            raise InvalidRequestError("content is a text file; open it in binary mode")
        return _pieces(content), _rest_of(content) if want_total else None
    if isinstance(content, Iterable):
        return _checked(content), None
    raise InvalidRequestError(
        f"content must be str, bytes, a binary file or an iterable of bytes, not {type(content).__name__}"
    )


def _slices(data: bytes) -> Iterable[bytes]:
    if len(data) <= PIECE:
        return (data,) if data else ()
    return (data[start : start + PIECE] for start in range(0, len(data), PIECE))


def _pieces(file: Any) -> Iterator[bytes]:
    while piece := file.read(PIECE):
        yield _as_bytes(piece)


def _checked(chunks: Iterable[object]) -> Iterator[bytes]:
    for chunk in chunks:
        if piece := _as_bytes(chunk):
            yield piece


def _as_bytes(chunk: object) -> bytes:
    if isinstance(chunk, bytes):
        return chunk
    if isinstance(chunk, (bytearray, memoryview)):
        return bytes(chunk)
    raise InvalidRequestError(f"content must come in bytes, not {type(chunk).__name__}")


def _rest_of(file: Any) -> int | None:
    """The bytes from where a file stands to its end, if it can tell."""
    try:
        here: int = file.tell()
        end: int = file.seek(0, 2)
        file.seek(here)
    except (AttributeError, OSError, ValueError):
        return None
    return end - here


def told(chunks: Iterable[bytes], total: int | None, progress: Progress) -> Iterator[bytes]:
    """Hand the pieces on, and tell ``progress`` of each that was taken."""
    done = 0
    progress(done, total)
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        progress(done, total)
