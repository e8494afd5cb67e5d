"""What kind of file the service takes a file for: by its name, else by how it begins, as `file` does."""

from __future__ import annotations

import codecs

from sandboxsync import _mime

__all__ = ["TextOf", "is_text", "kind_of"]

_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"\x1f\x8b", "application/gzip"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x7fELF", "application/x-executable"),
)
_TEXTS = frozenset(
    {
        "application/javascript",
        "application/json",
        "application/toml",
        "application/typescript",
        "application/x-sh",
        "application/xml",
        "application/yaml",
        "image/svg+xml",
        "inode/x-empty",
    }
)
# Control characters that no text has; ESC, BEL, BS and the white ones do occur.
_BINARY = bytes(byte for byte in range(32) if byte not in b"\a\b\t\n\v\f\r\x1b") + b"\x7f"


def kind_of(path: str, head: bytes) -> str:
    """The MIME type of a file, `head` being how it begins."""
    if not head:
        return "inode/x-empty"
    named = _mime.guess(path)
    if named != _mime.UNKNOWN:
        return named
    for magic, kind in _MAGIC:
        if head.startswith(magic):
            return kind
    return _mime.UNKNOWN if head.translate(None, _BINARY) != head else "text/plain"


def is_text(kind: str) -> bool:
    """Whether files of a type are read as text."""
    return kind.startswith("text/") or kind in _TEXTS


class TextOf:
    """Decodes the content of a text file as the service does: UTF-8, with U+FFFD for what is none, without its mark."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def __call__(self, data: bytes, final: bool = False) -> str:
        """The text that is complete with this piece."""
        return self._decoder.decode(data, final)
