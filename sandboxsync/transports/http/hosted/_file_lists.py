"""What is below a directory of a hosted sandbox."""

from __future__ import annotations

import posixpath
import secrets
from collections.abc import Iterator
from contextlib import closing

import attrs

from sandboxsync.models import FileInfo, FileType
from sandboxsync.transports.base import SessionRef
from sandboxsync.transports.http.hosted._file_host import FileHost, data_of, maybe_told, time_of, told
from sandboxsync.transports.http.hosted._file_reads import HostedReader

__all__ = ["Entry", "Listing", "kept", "list_files", "look"]

_TYPES: dict[str, FileType] = {"f": "file", "d": "directory", "l": "symlink"}
_PIECE = 1 << 18


@attrs.frozen
class Entry:
    """One entry; `name` is relative to the directory, `target` that of a symlink, `kind` a letter as of `find`."""

    kind: str
    size: int
    seconds: str
    mode: int
    name: str
    target: str


@attrs.frozen
class Listing:
    """What is below `path`; `home` is the directory of the host's own files."""

    path: str
    home: str
    entries: list[Entry]


def look(host: FileHost, ref: SessionRef, path: str, *, depth: str = "", kind: str = "") -> Listing:
    """List a directory, to this depth, of this kind alone. Raises `FileError`."""
    name = secrets.token_hex(12)
    lines = host.ask_at(ref, "file_list", path, depth, kind, name)
    data = b"".join(kept(host, ref, lines, name))
    texts = data.decode("utf-8", "surrogateescape").split("\0")
    entries = [
        Entry(kind, int(size), seconds, int(mode, 8), name, target)
        for kind, size, seconds, mode, name, target in zip(*[iter(texts[:-1])] * 6, strict=True)
    ]
    return Listing(told(lines, "at"), told(lines, "home"), entries)


def kept(host: FileHost, ref: SessionRef, lines: list[str], name: str) -> Iterator[bytes]:
    """The bytes that an answer holds, or that are in a file it tells of, which is removed at the end."""
    path = maybe_told(lines, "kept")
    if path is None:
        yield data_of(lines)
        return
    try:
        with closing(HostedReader(host, ref, path, _PIECE)) as content:
            yield from content
    finally:
        host.ask(ref, "file_drop", name)


def list_files(host: FileHost, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
    """See `Transport.list_files`."""
    listing = look(host, ref, path, depth="" if recursive else "1")
    return [
        FileInfo(
            name=posixpath.basename(entry.name),
            path=posixpath.join(listing.path, entry.name),
            relative_path=entry.name,
            type=_TYPES.get(entry.kind, "other"),
            size=entry.size,
            modified_at=time_of(entry.seconds),
            mode=entry.mode,
        )
        for entry in listing.entries
    ]
