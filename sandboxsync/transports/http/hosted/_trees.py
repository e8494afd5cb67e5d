"""Directory trees of a hosted sandbox, out and in, as `sandboxsync._archive` has them (F6).

What is in an archive is judged here, not by the `tar` of the sandbox: that packs what was chosen from a list, and
unpacks regular files into an empty directory, from where they go to their places.
"""

from __future__ import annotations

import base64
import errno
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

from sandboxsync._archive import in_pieces
from sandboxsync._exclude import Exclude
from sandboxsync._tarstream import members
from sandboxsync._unpack import refuse
from sandboxsync.errors import FileError, SandboxError
from sandboxsync.transports.base import SessionRef
from sandboxsync.transports.http.hosted._file_host import SMALL, FileHost, maybe_told, told
from sandboxsync.transports.http.hosted._file_lists import Listing, kept, look
from sandboxsync.transports.http.hosted._file_writes import write_file
from sandboxsync.transports.http.hosted._host import packed
from sandboxsync.transports.http.hosted._tree_content import TreeContent

__all__ = ["read_tree", "write_tree"]

_INLINE = 15_000
"""Bytes that go as an argument."""
_SPECIAL = {"p": "a FIFO", "s": "a socket", "c": "a device", "b": "a device"}


def read_tree(host: FileHost, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
    """See `Transport.read_tree`."""
    return _packed_tree(host, ref, path, Exclude(exclude))


def _packed_tree(host: FileHost, ref: SessionRef, path: str, exclude: Exclude) -> Iterator[bytes]:
    listing = look(host, ref, path)
    names = "".join(f"{name}\0" for name in _chosen(listing, exclude)).encode("utf-8", "surrogateescape")
    name = secrets.token_hex(12)
    argument = _handed(host, ref, f"{listing.home}/{name}.data", iter([names]))
    lines = host.ask_at(ref, "file_t_pack", listing.path, name, host.raw.staging or "", str(SMALL), argument)
    if argument == "-" and maybe_told(lines, "kept") is None:
        host.ask(ref, "file_drop", name)
    yield from kept(host, ref, lines, name)


def _chosen(listing: Listing, exclude: Exclude) -> list[str]:
    """The names to pack, parents first. Raises for what cannot be packed."""
    chosen = [entry for entry in listing.entries if not exclude.matches(entry.name, entry.kind == "d")]
    for entry in chosen:
        if entry.kind not in "fdl":
            where = f"{listing.path}/{entry.name}"
            what = _SPECIAL.get(entry.kind, "a special file")
            raise FileError(f"{what} cannot be copied: {where!r}", errno=errno.EINVAL, filename=where)
    return sorted((entry.name for entry in chosen), key=lambda name: name.split("/"))


def write_tree(host: FileHost, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
    """See `Transport.write_tree`."""
    name = secrets.token_hex(12)
    lines = host.ask_at(ref, "file_t_place", path, name)
    root, spool = told(lines, "root"), told(lines, "spool")
    try:
        there = look(host, ref, root, kind="l").entries if "old" in lines else []
        content = TreeContent(root, {tuple(entry.name.split("/")): entry.target for entry in there})
        files = _handed(host, ref, f"{spool}/files", in_pieces(content.files(members(chunks))))
        content.finish()
        places = _handed(host, ref, f"{spool}/places", iter([content.places()]))
        rest = _handed(host, ref, f"{spool}/rest", in_pieces(content.rest()))
        host.ask(ref, "file_t_unpack", name, packed(root), files, places, rest)
    except BaseException:
        # What cannot be removed now is removed an hour later.
        with suppress(SandboxError):
            host.ask(ref, "file_drop", name)
        raise
    refuse(content.refused)


def _handed(host: FileHost, ref: SessionRef, path: str, chunks: Iterator[bytes]) -> str:
    """How bytes are handed over: as an argument, or, when they are many, in a file."""
    first = next(chunks, b"")
    if len(first) <= _INLINE:
        second = next(chunks, None)
        if second is None:
            return base64.b64encode(first).decode()
        chunks = chain([second], chunks)
    write_file(host, ref, path, chain([first], chunks))
    return "-"
