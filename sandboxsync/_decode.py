"""From bytes to text. No I/O."""

from __future__ import annotations

import codecs
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from .errors import InvalidRequestError, OutputDecodeError

if TYPE_CHECKING:
    from typing_extensions import Buffer

# They exist, but only for the other direction.
_ENCODE_ONLY = frozenset({"xmlcharrefreplace", "namereplace"})


def check_decoding(encoding: object, errors: object) -> None:
    """Raise ``InvalidRequestError`` unless output can be decoded with ``encoding`` and ``errors``."""
    if not isinstance(encoding, str) or not isinstance(errors, str):
        raise InvalidRequestError("encoding and errors must be str")
    _look_up(encoding, errors)


@lru_cache(maxsize=64)
def _look_up(encoding: str, errors: str) -> None:
    try:
        info = codecs.lookup(encoding)
    except (LookupError, ValueError):
        raise InvalidRequestError(f"unknown encoding: {encoding!r}") from None
    if getattr(info, "incrementaldecoder", None) is None or not getattr(info, "_is_text_encoding", True):
        raise InvalidRequestError(f"not an encoding of text: {encoding!r}")
    try:
        codecs.lookup_error(errors)
    except (LookupError, ValueError):
        raise InvalidRequestError(f"unknown errors handler: {errors!r}") from None
    if errors in _ENCODE_ONLY:
        raise InvalidRequestError(f"errors handler {errors!r} cannot be used to decode")


def make_decoder(encoding: str, errors: str) -> codecs.IncrementalDecoder:
    """Return a decoder that keeps a cut character until its rest comes: one per stream, for one thread."""
    info = codecs.lookup(encoding)
    if info.name in _WIDE:
        return _WideDecoder(info.name, errors)
    return codecs.getincrementaldecoder(encoding)(errors)


_WIDE = {
    "utf-16": (2, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-32": (4, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
}


class _WideDecoder(codecs.IncrementalDecoder):
    """UTF-16 and UTF-32 as ``bytes.decode`` reads them: without a byte order mark in the order of this machine.

    Python's own incremental decoders refuse text without a mark.
    """

    def __init__(self, name: str, errors: str) -> None:
        super().__init__(errors)
        self._name = name
        self._head = b""
        self._rest: codecs.IncrementalDecoder | None = None

    def decode(self, data: Buffer, final: bool = False) -> str:
        """Return the text that is complete."""
        if self._rest is not None:
            return self._rest.decode(data, final)
        head = self._head + bytes(data)
        width, little, big = _WIDE[self._name]
        if len(head) < width and not final:
            self._head = head
            return ""
        order = "be" if head.startswith(big) else "le" if head.startswith(little) else sys.byteorder[0] + "e"
        if head.startswith((little, big)):
            head = head[width:]
        self._rest = codecs.getincrementaldecoder(f"{self._name}-{order}")(self.errors)
        return self._rest.decode(head, final)


def decode_error(exc: UnicodeError, command: str, stdout: bytes, stderr: bytes, encoding: str) -> OutputDecodeError:
    """Return (not raise) the error for output that is no text; raise it ``from`` *exc*."""
    error = OutputDecodeError(f"output is no text in {encoding!r}: {exc}")
    return error._with_output(command, stdout, stderr, encoding, "strict")
