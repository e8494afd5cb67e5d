r"""Lines of output as the host prints them: base64, or text behind `=` with `\n` for newline, `\\` for backslash."""

from __future__ import annotations

import base64
import binascii
import re

from sandboxsync.errors import ProtocolError

__all__ = ["data_of", "data_of_part"]

_ESCAPES = {"\\n": "\n", "\\\\": "\\"}
_PART = re.compile(r"[A-Za-z0-9+/]{8,}")
"""No word of the host's begins like that."""


def data_of(line: str) -> bytes:
    """The bytes of a line. Raises `ProtocolError`."""
    if line.startswith("="):
        return _unescaped(line[1:])
    try:
        return base64.b64decode(line.replace(".", ""), validate=True)
    except binascii.Error:
        raise ProtocolError(f"the session host prints what is no output: {line[:200]!r}") from None


def data_of_part(line: str) -> bytes:
    """The bytes that are sure in a line that broke off."""
    line = line.lstrip(".")
    if line.startswith("="):
        whole = re.match(r"(?:[^\\]|\\[n\\])*", line[1:])
        return _unescaped(whole[0]) if whole else b""
    line = line.replace(".", "")
    return base64.b64decode(line[: len(line) // 4 * 4]) if _PART.fullmatch(line) else b""


def _unescaped(text: str) -> bytes:
    return re.sub(r"\\[n\\]", lambda match: _ESCAPES[match[0]], text).encode()
