"""A tree in a cassette: the members of its tar one by one, so that they can be read, compared and redacted."""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from sandboxsync._tarstream import members, mtime_of
from sandboxsync.errors import InvalidRequestError

_TYPES = {"file": tarfile.REGTYPE, "directory": tarfile.DIRTYPE, "symlink": tarfile.SYMTYPE, "link": tarfile.LNKTYPE}
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def list_tree(pieces: Iterable[bytes]) -> list[dict[str, Any]] | None:
    """Return the members with `name`, `type`, `mode`, `time`, and `content` or `target`.

    `None` for what is no whole tar, or holds more than files, directories and links.
    """
    listed = []
    try:
        for member, content in members(pieces):
            kind = next((name for name, type in _TYPES.items() if type == member.type), None)
            if kind is None:
                return None
            when = _EPOCH + timedelta(microseconds=(mtime_of(member) or 0) // 1000)
            entry: dict[str, Any] = {"name": member.name, "type": kind, "mode": f"{member.mode:04o}", "time": when}
            if kind == "file":
                entry["content"] = b"".join(content)
            elif kind != "directory":
                entry["target"] = member.linkname
            listed.append(entry)
    except (InvalidRequestError, OverflowError):
        return None
    return listed


def build_tree(listed: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the tar of what `list_tree` has listed, `mode` as a number. Raises `KeyError` for an unknown type."""
    blocks = []
    for entry in listed:
        info = tarfile.TarInfo(entry["name"])
        info.type, info.mode, info.linkname = _TYPES[entry["type"]], entry["mode"], entry.get("target", "")
        info.mtime, fraction = divmod((entry["time"] - _EPOCH) // timedelta(microseconds=1), 10**6)
        if fraction and info.mtime >= 0:
            info.pax_headers = {"mtime": f"{info.mtime}.{fraction:06d}"}
        content = entry.get("content", b"")
        info.size = len(content)
        blocks += [info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"), content, bytes(-len(content) % 512)]
    return b"".join([*blocks, bytes(1024)])
