"""What an archive that is unpacked in a hosted sandbox may make there, judged as its members come (F6)."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterable, Iterator
from tarfile import TarInfo

from sandboxsync._archive import header, padding
from sandboxsync._bounds import Bounds, parts_of, turns_back
from sandboxsync._tarstream import mtime_of, vet
from sandboxsync.errors import file_error

__all__ = ["TreeContent"]

_Place = tuple[str, ...]


class TreeContent:
    """The members of one archive, as `sandboxsync._unpack` takes them: regular files at once, the rest at the end."""

    def __init__(self, root: str, links: dict[_Place, str]) -> None:
        """Take the real path of the directory, and the symlinks that are below it."""
        self.refused: list[str] = []
        self._root = root
        self._links = links
        self._bounds = _KnownBounds(root, links)
        # All directories that the members need, parents first, and of those that are members mode and time.
        self._directories: dict[_Place, tuple[int, int] | None] = {}
        self._symlinks: dict[_Place, tuple[str, int]] = {}
        self._hard_links: dict[_Place, str] = {}

    def files(self, members: Iterable[tuple[TarInfo, Iterator[bytes]]]) -> Iterator[bytes]:
        """The regular files, as members of another archive. Raises for what is refused."""
        for member, data in members:
            parts = tuple(vet(member))
            if not parts:
                continue
            if member.isdir():
                self._enter(parts)
                self._directories[parts] = (member.mode & 0o777, _time_of(member))
                continue
            self._enter(parts[:-1])
            if parts in self._directories:
                raise self._error(errno.EISDIR, parts)
            if member.issym():
                self._symlink(parts, member)
                continue
            self._replace(parts)
            if member.islnk():
                self._hard_links[parts] = "/".join(parts_of(member.linkname))
            else:
                mode = stat.S_IFREG | member.mode & 0o777
                yield header("/".join(parts), mode, _time_of(member), size=member.size)
                yield from data
                yield padding(member.size)

    def finish(self) -> None:
        """Judge the symlinks again whose way may have changed: what was missing may have become a link itself."""
        for parts, (target, _) in list(self._symlinks.items()):
            if turns_back(target) and not self._bounds.hold(list(parts), target):
                self._replace(parts)
                self.refused.append("/".join(parts))

    def places(self) -> bytes:
        """What the archive has where, as `files-tree.bash` reads it."""
        found = [("d", parts, "member" if facts else "-") for parts, facts in self._directories.items()]
        found += [("l", parts, "-") for parts in self._symlinks]
        found += [("h", parts, source) for parts, source in self._hard_links.items()]
        texts = [f"{kind}\0{'/'.join(parts)}\0{text}\0" for kind, parts, text in found]
        return "".join(texts).encode("utf-8", "surrogateescape")

    def rest(self) -> Iterator[bytes]:
        """The directories and symlinks, as members of another archive."""
        for parts, facts in self._directories.items():
            if facts is not None:
                yield header("/".join(parts), stat.S_IFDIR | facts[0], facts[1])
        for parts, (target, when) in self._symlinks.items():
            yield header("/".join(parts), stat.S_IFLNK | 0o777, when, target=target)

    def _enter(self, parts: _Place) -> None:
        """A directory takes the place of a symlink, never of a file."""
        for depth in range(1, len(parts) + 1):
            place = parts[:depth]
            if place not in self._directories:
                if place in self._hard_links:
                    raise self._error(errno.ENOTDIR, place)
                self._replace(place)
                self._directories[place] = None

    def _symlink(self, parts: _Place, member: TarInfo) -> None:
        if not self._bounds.hold(list(parts), member.linkname):
            self.refused.append("/".join(parts))
            return
        self._replace(parts)
        self._symlinks[parts] = (member.linkname, _time_of(member))
        self._links[parts] = member.linkname

    def _replace(self, parts: _Place) -> None:
        """A link at this place is no more."""
        self._links.pop(parts, None)
        self._symlinks.pop(parts, None)
        self._hard_links.pop(parts, None)

    def _error(self, number: int, parts: _Place) -> Exception:
        return file_error(OSError(number, os.strerror(number)), "/".join([self._root, *parts]))


class _KnownBounds(Bounds):
    """A directory of which the symlinks are known."""

    def __init__(self, root: str, links: dict[_Place, str]) -> None:
        super().__init__(-1, root, root)
        self._known = links

    def link_at(self, place: list[str]) -> str | None:
        """The target of the symlink at a place, if there is one."""
        return self._known.get(tuple(place))


def _time_of(member: TarInfo) -> int:
    when = mtime_of(member)
    return time.time_ns() if when is None else when
