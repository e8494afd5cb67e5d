"""A POSIX file system in memory: what a fake sandbox has for a disk."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Literal, TypeAlias

import attrs

__all__ = ["SYSTEM_FILES", "Attributes", "Kind", "Volume"]

Kind: TypeAlias = Literal["file", "directory", "symlink", "fifo", "device"]

_PROGRAM_FILES = {
    # What is called by its path; the name alone is the interpreter's own.
    "/bin/bash": b'bash "$@"\n',
    "/bin/sh": b'sh "$@"\n',
}
SYSTEM_FILES = {
    **_PROGRAM_FILES,
    "/etc/group": b"root:x:0:\nnogroup:x:65534:\n",
    "/etc/hostname": b"sandbox\n",
    "/etc/passwd": b"root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
}
"""The regular files that a new volume has."""

_SYSTEM_DIRECTORIES = {
    "/bin": 0o755,
    "/dev": 0o755,
    # Where bashkit puts the files of process substitutions.
    "/dev/fd": 0o755,
    "/etc": 0o755,
    "/home": 0o755,
    "/root": 0o700,
    "/tmp": 0o1777,
    "/usr": 0o755,
    "/usr/bin": 0o755,
    "/usr/local": 0o755,
    "/usr/local/bin": 0o755,
    "/workspace": 0o755,
}
_DEVICES = ("full", "null", "random", "urandom", "zero")
# Whoever reads a device here reads it whole. `head -c` takes no more than this.
_DEVICE_SIZE = 1 << 20

_MAX_LINKS = 40
_MAX_NAME = 255
_MAX_PATH = 4096
_DIRECTORY_SIZE = 4096


@attrs.frozen
class Attributes:
    """What is known of a file. `mode` is without the bits of the kind; times are nanoseconds since the epoch."""

    kind: Kind
    mode: int
    size: int
    mtime_ns: int
    created_ns: int
    ino: int

    @property
    def mtime(self) -> float:
        """The time of the last change, in seconds."""
        return self.mtime_ns / 10**9

    @property
    def created(self) -> float:
        """The time when it was made, in seconds."""
        return self.created_ns / 10**9


@attrs.define(eq=False, kw_only=True)
class _Node:
    """Something that has a name. Nothing leads back up, so that a volume is freed as soon as nobody holds it."""

    kind: Kind
    mode: int
    mtime: int
    created: int
    ino: int
    links: int = 0

    @property
    def size(self) -> int:
        return 0


@attrs.define(eq=False, kw_only=True)
class _File(_Node):
    """A regular file or a FIFO, which here keeps what was written to it last."""

    kind: Kind = "file"
    content: bytes | bytearray = b""

    @property
    def size(self) -> int:
        return len(self.content)

    def read(self) -> bytes:
        if not isinstance(self.content, bytes):
            self.content = bytes(self.content)
        return self.content

    def append(self, data: bytes) -> None:
        if isinstance(self.content, bytes):
            self.content = bytearray(self.content)
        self.content += data


@attrs.define(eq=False, kw_only=True)
class _Directory(_Node):
    kind: Kind = "directory"
    entries: dict[str, _Node] = attrs.field(factory=dict)

    @property
    def size(self) -> int:
        return _DIRECTORY_SIZE


@attrs.define(eq=False, kw_only=True)
class _Symlink(_Node):
    kind: Kind = "symlink"
    target: str

    @property
    def size(self) -> int:
        return _length(self.target)


@attrs.define(eq=False, kw_only=True)
class _Device(_Node):
    kind: Kind = "device"
    name: str

    def read(self) -> bytes:
        if self.name == "null":
            return b""
        return os.urandom(_DEVICE_SIZE) if self.name.endswith("random") else bytes(_DEVICE_SIZE)


@attrs.define
class _Place:
    """Where a path leads: the directories on the way and their names, the last name, and what has it.

    The name is empty when the path ends in ``.``, ``..`` or ``/``; then the last directory is meant.
    """

    trail: list[_Directory]
    names: list[str]
    name: str
    node: _Node | None

    @property
    def path(self) -> str:
        return "/" + "/".join([*self.names, self.name] if self.name else self.names)


class Volume:
    """A tree of files, directories and symlinks, with a few devices and FIFOs.

    Paths are absolute POSIX text (``surrogateescape``) and are resolved as the Linux kernel resolves them: ``..`` is
    the directory above wherever symlinks have led, and a final slash means a directory. Every failure raises the
    :class:`OSError` that the system would raise, with ``errno``, ``strerror`` and ``filename``, and changes nothing.
    The user is root: modes are kept, and forbid nothing.

    Any thread may call. Nothing blocks but for the moment that another call takes.
    """

    capacity: int | None = None
    """The bytes that all regular files together may hold (then ``ENOSPC``); `None` is no limit."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """Make the volume that a new sandbox has. *now* dates all changes: seconds since the epoch."""
        self._now = now
        self.private: dict[str, bytes] = {}
        """Files outside of the tree, by path: only a shell that knows the path can read one, and nothing lists them."""
        self._lock = threading.Lock()
        self._numbers = count(1)
        self._used = 0
        when = self._time()
        self._root = self._directory(0o755, when)
        for path, mode in _SYSTEM_DIRECTORIES.items():
            self._put(self._find(path, False), self._directory(mode, when), when)
        for path, content in SYSTEM_FILES.items():
            mode = 0o755 if path in _PROGRAM_FILES else 0o644
            self._put(self._find(path, False), self._file(mode, when, content), when)
        for name in _DEVICES:
            device = _Device(name=name, mode=0o666, mtime=when, created=when, ino=next(self._numbers))
            self._put(self._find(f"/dev/{name}", False), device, when)

    def clone(self, now: Callable[[], float]) -> Volume:
        """Return an independent copy that is dated by *now* from here on. Files keep their times and inode numbers."""
        copy = Volume.__new__(Volume)
        copy._now = now
        copy.private = {}
        copy._lock = threading.Lock()
        with self._lock:
            made: dict[int, _Node] = {}
            copy._root = _copied(self._root, made)
            copy._numbers = count(next(self._numbers))
            copy._used = self._used
            copy.capacity = self.capacity
        return copy

    def renew_lock(self) -> None:
        """Forget who held the lock. For a child after a fork, in which that thread does not exist."""
        self._lock = threading.Lock()

    @property
    def used(self) -> int:
        """The bytes that all regular files together hold."""
        return self._used

    # Files

    def read(self, path: str) -> bytes:
        """Return what the file holds: of a device that never ends, 1 MiB; of a FIFO, what was written last."""
        with self._lock:
            node = self._existing(path)
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            assert isinstance(node, (_File, _Device))
            return node.read()

    def write(self, path: str, data: bytes) -> None:
        """Make *data* all that the file holds; a new file gets mode 0o644. A final symlink is followed."""
        self._write(path, data, append=False)

    def append(self, path: str, data: bytes) -> None:
        """Put *data* after what the file holds, and make it if need be. A final symlink is followed."""
        self._write(path, data, append=True)

    def replace(self, path: str, data: bytes, *, mode: int | None = None, mtime_ns: int | None = None) -> None:
        """Put a new file in the place of the file or symlink at *path*, or where there is none.

        Other hard links of an old file keep its content. Without *mode*, that of an old file is kept.
        """
        when = self._time()
        with self._lock:
            place = self._creatable(path)
            old = place.node
            if isinstance(old, _Directory):
                raise _error(errno.EISDIR, path)
            if mode is None:
                mode = old.mode if isinstance(old, _File) else 0o644
            freed = old.size if old is not None and old.kind == "file" and old.links == 1 else 0
            self._make_room(len(data) - freed, path)
            self._take_away(place, when)
            new = self._file(mode & 0o7777, when, bytes(data))
            if mtime_ns is not None:
                new.mtime = mtime_ns
            self._put(place, new, when)

    def remove(self, path: str) -> None:
        """Remove a file or a symlink, as :func:`os.unlink` does; but a directory raises ``EISDIR`` in any case."""
        when = self._time()
        with self._lock:
            place = self._find(_without_slash(path), False, path)
            if not place.name or isinstance(place.node, _Directory):
                raise _error(errno.EISDIR, path)
            if place.node is None:
                raise _error(errno.ENOENT, path)
            if path.endswith("/"):
                raise _error(errno.ENOTDIR, path)
            self._take_away(place, when)

    def copy(self, old: str, new: str) -> None:
        """Copy a file, a symlink to a directory, or a directory with all below it, which is merged into one at *new*.

        A file that is there is overwritten, and keeps its mode; a symlink is followed when it is the file itself that
        *old* names. Raises ``EINVAL`` for a copy of something onto itself or into itself.
        """
        when = self._time()
        with self._lock:
            source = self._find(old, True)
            if isinstance(source.node, _Directory) and isinstance(self._find(old, False).node, _Symlink):
                source = self._find(old, False)
            target = self._find(_without_slash(new), not isinstance(source.node, _Symlink), new)
            node = source.node
            if node is None:
                raise _error(errno.ENOENT, old, new)
            if node is target.node or node in target.trail:
                raise _error(errno.EINVAL, old, new)
            if new.endswith("/") and not isinstance(target.node or node, _Directory):
                raise _error(errno.ENOTDIR, old, new)
            if not target.name and not isinstance(node, _Directory):
                raise _error(errno.EISDIR, old, new)
            if isinstance(node, _Device):
                node = self._file(0o644, when, node.read())
            self._copy(node, target, when, old, new)

    # Directories

    def mkdir(self, path: str, parents: bool = False) -> None:
        """Make a directory; with *parents* as :func:`os.makedirs` does with ``exist_ok``."""
        when = self._time()
        with self._lock:
            if not parents:
                self._mkdir(path, when)
                return
            names = [name for name in path.split("/") if name]
            for depth in range(len(names)):
                above = "/" + "/".join(names[: depth + 1])
                if self._is_directory(above):
                    continue
                try:
                    self._mkdir(above, when)
                except FileExistsError:
                    # What it leads to is no directory, which the next name will meet.
                    if depth == len(names) - 1:
                        raise _error(errno.EEXIST, path) from None

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        when = self._time()
        with self._lock:
            place = self._directory_at(path)
            assert isinstance(place.node, _Directory)
            if place.node.entries:
                raise _error(errno.ENOTEMPTY, path)
            self._take_away(place, when)

    def rmtree(self, path: str) -> None:
        """Remove a directory and all below it. A symlink at *path* is not followed."""
        when = self._time()
        with self._lock:
            self._take_away(self._directory_at(path), when)

    def listdir(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        with self._lock:
            return sorted(self._entries(path))

    def scandir(self, path: str) -> list[tuple[str, Attributes]]:
        """Return the names in a directory, sorted, each with what has it; symlinks are not followed."""
        with self._lock:
            return [(name, _attributes(node)) for name, node in sorted(self._entries(path).items())]

    # Names

    def rename(self, old: str, new: str) -> None:
        """Rename as :func:`os.replace` does."""
        when = self._time()
        with self._lock:
            source = self._find(_without_slash(old), False, old, new)
            target = self._find(_without_slash(new), False, old, new)
            node, replaced = source.node, target.node
            if not source.name or not target.name:
                raise _error(errno.EBUSY, old, new)
            if node is None:
                raise _error(errno.ENOENT, old, new)
            if not isinstance(node, _Directory) and (old.endswith("/") or new.endswith("/")):
                raise _error(errno.ENOTDIR, old, new)
            if node in target.trail:
                raise _error(errno.EINVAL, old, new)
            if replaced in source.trail:
                raise _error(errno.ENOTEMPTY, old, new)
            if node is replaced:
                return
            if isinstance(node, _Directory) and replaced is not None and not isinstance(replaced, _Directory):
                raise _error(errno.ENOTDIR, old, new)
            if isinstance(replaced, _Directory):
                if not isinstance(node, _Directory):
                    raise _error(errno.EISDIR, old, new)
                if replaced.entries:
                    raise _error(errno.ENOTEMPTY, old, new)
            self._take_away(target, when)
            self._put(target, node, when)
            self._take_away(source, when)

    def link(self, old: str, new: str) -> None:
        """Give a file or symlink another name; a symlink at *old* is not followed."""
        when = self._time()
        with self._lock:
            source = self._find(old, False)
            target = self._find(_without_slash(new), False, old, new)
            if source.node is None:
                raise _error(errno.ENOENT, old, new)
            if target.node is not None:
                raise _error(errno.EEXIST, old, new)
            if new.endswith("/"):
                raise _error(errno.ENOENT, old, new)
            if isinstance(source.node, _Directory):
                raise _error(errno.EPERM, old, new)
            self._put(target, source.node, when)

    def symlink(self, target: str, path: str) -> None:
        """Make a symlink at *path* that leads to *target*."""
        if not target or _length(target) >= _MAX_PATH:
            raise _error(errno.ENAMETOOLONG if target else errno.ENOENT, target, path)
        when = self._time()
        with self._lock:
            place = self._find(_without_slash(path), False, target, path)
            if place.node is not None:
                raise _error(errno.EEXIST, target, path)
            if path.endswith("/"):
                raise _error(errno.ENOENT, target, path)
            number = next(self._numbers)
            self._put(place, _Symlink(target=target, mode=0o777, mtime=when, created=when, ino=number), when)

    def readlink(self, path: str) -> str:
        """Return where the symlink at *path* leads; ``EINVAL`` for what is none."""
        with self._lock:
            node = self._existing(path, follow=False)
            if not isinstance(node, _Symlink):
                raise _error(errno.EINVAL, path)
            return node.target

    def mkfifo(self, path: str, mode: int = 0o644) -> None:
        """Make a FIFO."""
        when = self._time()
        with self._lock:
            place = self._find(_without_slash(path), False, path)
            if place.node is not None:
                raise _error(errno.EEXIST, path)
            if path.endswith("/"):
                raise _error(errno.ENOENT, path)
            fifo = self._file(mode & 0o7777, when)
            fifo.kind = "fifo"
            self._put(place, fifo, when)

    def realpath(self, path: str) -> str:
        """Return the path without symlinks, ``.`` and ``..``; as with ``strict``, it has to lead somewhere."""
        with self._lock:
            place = self._find(path, True)
            if place.node is None:
                raise _error(errno.ENOENT, path)
            return place.path

    # Attributes

    def stat(self, path: str, follow: bool = True) -> Attributes:
        """Return what lies at *path*; with *follow*, what a symlink there leads to."""
        with self._lock:
            return _attributes(self._existing(path, follow))

    def exists(self, path: str, follow: bool = True) -> bool:
        """Whether there is something; an error on the way there is a no."""
        try:
            self.stat(path, follow)
        except OSError:
            return False
        return True

    def chmod(self, path: str, mode: int) -> None:
        """Set the mode of what *path* leads to."""
        with self._lock:
            self._existing(path).mode = mode & 0o7777

    def utime(self, path: str, mtime_ns: int | None = None, follow: bool = True) -> None:
        """Set the time of the last change, by default to now."""
        when = self._time() if mtime_ns is None else mtime_ns
        with self._lock:
            self._existing(path, follow).mtime = when

    # All below is called with the lock held, or before anybody else can see the volume

    def _time(self) -> int:
        return round(self._now() * 10**9)

    def _find(self, path: str, follow: bool, *told: str) -> _Place:
        """Go along *path*, of which the last name alone may be missing. Errors are about *told*, if given."""
        told = told or (path,)
        if not path or (len(path) >= _MAX_PATH // 4 and _length(path) >= _MAX_PATH):
            raise _error(errno.ENAMETOOLONG if path else errno.ENOENT, *told)
        trail: list[_Directory] = [self._root]
        names: list[str] = []
        links = 0
        ahead = _steps(path)
        while ahead:
            step = ahead.pop()
            if step == ".":
                continue
            if step == "..":
                if names:
                    trail.pop()
                    names.pop()
                continue
            if len(step) > _MAX_NAME // 4 and _length(step) > _MAX_NAME:
                raise _error(errno.ENAMETOOLONG, *told)
            node = trail[-1].entries.get(step)
            if isinstance(node, _Symlink) and (ahead or follow):
                links += 1
                if links > _MAX_LINKS:
                    raise _error(errno.ELOOP, *told)
                ahead.extend(_steps(node.target))
                if node.target.startswith("/"):
                    del trail[1:], names[:]
            elif not ahead:
                return _Place(trail, names, step, node)
            elif isinstance(node, _Directory):
                trail.append(node)
                names.append(step)
            else:
                raise _error(errno.ENOENT if node is None else errno.ENOTDIR, *told)
        return _Place(trail, names, "", trail[-1])

    def _existing(self, path: str, follow: bool = True) -> _Node:
        node = self._find(path, follow).node
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def _is_directory(self, path: str) -> bool:
        try:
            return isinstance(self._find(path, True).node, _Directory)
        except OSError:
            return False

    def _entries(self, path: str) -> dict[str, _Node]:
        node = self._existing(path)
        if not isinstance(node, _Directory):
            raise _error(errno.ENOTDIR, path)
        return node.entries

    def _creatable(self, path: str, follow: bool = False) -> _Place:
        """Find where a file may be made."""
        if path.endswith("/"):
            self._find(_without_slash(path), False, path)
            raise _error(errno.EISDIR, path)
        return self._find(path, follow)

    def _directory_at(self, path: str) -> _Place:
        """Find a directory that is to be removed."""
        place = self._find(_without_slash(path), False, path)
        if not place.name:
            last = _without_slash(path).rpartition("/")[2]
            raise _error({"..": errno.ENOTEMPTY, ".": errno.EINVAL}.get(last, errno.EBUSY), path)
        if not isinstance(place.node, _Directory):
            raise _error(errno.ENOENT if place.node is None else errno.ENOTDIR, path)
        return place

    def _directory(self, mode: int, when: int) -> _Directory:
        return _Directory(mode=mode, mtime=when, created=when, ino=next(self._numbers))

    def _file(self, mode: int, when: int, content: bytes = b"") -> _File:
        return _File(mode=mode, mtime=when, created=when, ino=next(self._numbers), content=content)

    def _mkdir(self, path: str, when: int) -> None:
        place = self._find(_without_slash(path), False, path)
        if place.node is not None:
            raise _error(errno.EEXIST, path)
        # The setgid bit of a directory goes on to those that are made in it.
        self._put(place, self._directory(0o755 | place.trail[-1].mode & 0o2000, when), when)

    def _write(self, path: str, data: bytes, append: bool) -> None:
        when = self._time()
        with self._lock:
            place = self._creatable(path, follow=True)
            node = place.node
            if isinstance(node, _Directory):
                raise _error(errno.EISDIR, path)
            if isinstance(node, _Device):
                if node.name == "full" and data:
                    raise _error(errno.ENOSPC, path)
                return
            assert node is None or isinstance(node, _File)
            if node is None or node.kind == "file":
                self._make_room(len(data) - (0 if node is None or append else node.size), path)
            if node is None:
                node = self._file(0o644, when)
                self._put(place, node, when)
            before = node.size
            if append:
                node.append(data)
            else:
                node.content = bytes(data)
            node.mtime = when
            if node.kind == "file":
                self._used += node.size - before

    def _copy(self, node: _Node, target: _Place, when: int, old: str, new: str) -> None:
        # First all that can fail: a copy that does not fit changes nothing.
        growth = 0
        pairs = [(node, target.node)]
        for source, present in pairs:
            if isinstance(source, _Directory):
                if present is not None and not isinstance(present, _Directory):
                    raise _error(errno.ENOTDIR, old, new)
                there = present.entries if present is not None else {}
                pairs += [(child, there.get(name)) for name, child in source.entries.items()]
            elif isinstance(present, _Directory):
                raise _error(errno.EISDIR, old, new)
            elif source.kind == "file" and not isinstance(present, _Device):
                growth += source.size
            if present is not None and present.kind == "file" and (source.kind == "file" or present.links == 1):
                growth -= present.size
        self._make_room(growth, old, new)
        waiting = [(node, target)]
        while waiting:
            source, place = waiting.pop()
            present = place.node
            if isinstance(source, _Directory):
                if not isinstance(present, _Directory):
                    present = self._directory(source.mode, when)
                    self._put(place, present, when)
                waiting += [
                    (child, _Place([present], [], name, present.entries.get(name)))
                    for name, child in source.entries.items()
                ]
            elif isinstance(source, _File) and isinstance(present, _File) and source.kind == present.kind == "file":
                self._used += source.size - present.size
                present.content, present.mtime = source.read(), when
            elif not isinstance(present, _Device):
                self._take_away(place, when)
                made = attrs.evolve(source, mtime=when, created=when, ino=next(self._numbers), links=0)
                if isinstance(source, _File) and isinstance(made, _File):
                    made.content = source.read()
                self._put(place, made, when)

    def _make_room(self, growth: int, *told: str) -> None:
        if self.capacity is not None and growth > 0 and self._used + growth > self.capacity:
            raise _error(errno.ENOSPC, *told)

    def _put(self, place: _Place, node: _Node, when: int) -> None:
        place.trail[-1].entries[place.name] = node
        place.trail[-1].mtime = when
        node.links += 1
        if node.links == 1 and node.kind == "file":
            self._used += node.size

    def _take_away(self, place: _Place, when: int) -> None:
        """Remove a name, if there is one, and what is left without any name by that."""
        gone = place.trail[-1].entries.pop(place.name, None)
        place.trail[-1].mtime = when
        waiting = [] if gone is None else [gone]
        while waiting:
            node = waiting.pop()
            node.links -= 1
            if node.links == 0:
                if node.kind == "file":
                    self._used -= node.size
                elif isinstance(node, _Directory):
                    waiting.extend(node.entries.values())


def _copied(root: _Directory, made: dict[int, _Node]) -> _Directory:
    """Return a deep copy of a tree, in which hard links are hard links again. *made* takes the copies by number."""
    top = attrs.evolve(root, entries={})
    waiting = [(root, top)]
    while waiting:
        source, copy = waiting.pop()
        for name, node in source.entries.items():
            if isinstance(node, _Directory):
                below = attrs.evolve(node, entries={})
                waiting.append((node, below))
                copy.entries[name] = below
            else:
                if node.ino not in made:
                    if isinstance(node, _File):
                        # Bytes can be shared, what is appended to cannot.
                        node.read()
                    made[node.ino] = attrs.evolve(node)
                copy.entries[name] = made[node.ino]
    return top


def _attributes(node: _Node) -> Attributes:
    return Attributes(node.kind, node.mode, node.size, node.mtime, node.created, node.ino)


def _steps(path: str) -> list[str]:
    """Return the names of a path, the first one last."""
    steps = [step for step in path.split("/") if step]
    if path.endswith("/"):
        # It leads to nothing but a directory then, even where its last name is a symlink.
        steps.append(".")
    return steps[::-1]


def _without_slash(path: str) -> str:
    return path.rstrip("/") or path[:1]


def _length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def _error(number: int, path: str, second: str | None = None) -> OSError:
    return OSError(number, os.strerror(number), path, None, second)
