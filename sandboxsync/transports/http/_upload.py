"""The body of a request: bytes, or pieces that are sent as they are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sandboxsync.errors import InvalidRequestError

from ._exchange import Exchange

__all__ = ["SourceFailed", "Upload"]


class SourceFailed(Exception):
    """What made the pieces raised; its own exception is `Upload.error`.

    In its place, because urllib3 takes an `OSError` of a body, such as one of a disk, for one of the connection.
    """


class Upload:
    """A body, and whether it can be sent once more.

    Bytes can, and what gives a new iterator each time it is asked for one (a list, an object with `__iter__`). What is
    an iterator itself can until its first piece was taken.
    """

    def __init__(self, body: bytes | Iterable[bytes] | None, length: int | None) -> None:
        """`length` in bytes, where it is known; without, the body is sent in chunks."""
        self.error: Exception | None = None
        self._body = body
        self._length = length
        self._once = not isinstance(body, (bytes, type(None))) and iter(body) is body
        self._touched = False

    @property
    def can_repeat(self) -> bool:
        """Whether `begin` would give the same bytes again."""
        return not (self._once and self._touched)

    @property
    def is_empty(self) -> bool:
        """Whether there is no body at all."""
        return self._body is None

    def begin(self, exchange: Exchange) -> bytes | Iterable[bytes] | None:
        """Return what requests is to send. It counts what is taken of it in `exchange`."""
        body = self._body
        if body is None:
            return None
        if isinstance(body, bytes):
            exchange.bytes_sent = len(body)
            return body
        pieces = self._pieces(body, exchange)
        return _Chunked(pieces) if self._length is None else _Sized(pieces, self._length)

    def _pieces(self, body: Iterable[bytes], exchange: Exchange) -> Iterator[bytes]:
        self._touched = True
        try:
            for piece in body:
                if not isinstance(piece, (bytes, bytearray, memoryview)):
                    raise InvalidRequestError(f"a body is made of bytes, not {type(piece).__name__}")
                exchange.bytes_sent += len(piece)
                if self._length is not None and exchange.bytes_sent > self._length:
                    raise InvalidRequestError(f"the body has more than the {self._length} bytes it was to have")
                if piece:
                    yield bytes(piece)
            if self._length is not None and exchange.bytes_sent < self._length:
                raise InvalidRequestError(f"the body has {exchange.bytes_sent} bytes, not {self._length}")
        except Exception as exc:
            self.error = exc
            raise SourceFailed from exc


class _Chunked:
    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces


class _Sized(_Chunked):
    """With a length, from which requests makes the header of it."""

    def __init__(self, pieces: Iterator[bytes], length: int) -> None:
        super().__init__(pieces)
        self._length = length

    def __len__(self) -> int:
        return self._length
