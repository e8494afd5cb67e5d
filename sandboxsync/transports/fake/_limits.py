"""What bashkit would cut without a word: told before it runs."""

from __future__ import annotations

import re

from sandboxsync.errors import UnsupportedOperationError

__all__ = ["check_text"]

_LONGEST_RANGE = 10_000
_MOST_BYTES = 1 << 20
_RANGE = re.compile(r"\{(-?\d{1,18})\.\.(-?\d{1,18})(?:\.\.(-?\d{1,18}))?\}")
_HEAD = re.compile(r"\bhead\s+(?:-c\s*|--bytes[= ])(\d+)([kKMGmb]?)")
_UNITS = {"": 1, "b": 512, "k": 1 << 10, "K": 1 << 10, "m": 1 << 20, "M": 1 << 20, "G": 1 << 30}


def check_text(text: str) -> None:
    """Raise `UnsupportedOperationError` for a command of which bashkit would leave something out."""
    if "\x1e" in text or "\x1f" in text:
        raise UnsupportedOperationError(
            "FakeTransport runs no text with U+001E or U+001F, which quoting would lose there; pass them in a variable"
        )
    for first, last, step in _RANGE.findall(text):
        count = abs(int(last) - int(first)) // max(1, abs(int(step or 1))) + 1
        if count > _LONGEST_RANGE:
            raise UnsupportedOperationError(
                f"FakeTransport expands no range of more than {_LONGEST_RANGE} words: {{{first}..{last}}}; use seq"
            )
    for number, unit in _HEAD.findall(text):
        if int(number) * _UNITS[unit] > _MOST_BYTES:
            raise UnsupportedOperationError(
                f"FakeTransport takes no more than {_MOST_BYTES} bytes with head -c: {number}{unit} were asked for"
            )
