"""From bytes to text. No I/O."""

from __future__ import annotations

import codecs
from functools import lru_cache

from .errors import InvalidRequestError, OutputDecodeError

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
    return codecs.getincrementaldecoder(encoding)(errors)


def decode_error(
    exc: UnicodeError, command: str, stdout: bytes, stderr: bytes, encoding: str
) -> OutputDecodeError:
    """Return (not raise) the error for output that is no text; raise it ``from`` *exc*."""
    error = OutputDecodeError(f"output is no text in {encoding!r}: {exc}")
    return error._with_output(command, stdout, stderr, encoding, "strict")
