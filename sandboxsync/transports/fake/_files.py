"""Files of a volume, as a fake sandbox offers them.

Paths are absolute; names that are not UTF-8 are ``surrogateescape`` text. Every call raises a :class:`FileError` or one
of its children, with the path it was given as ``filename``, and blocks on nothing but its own source of bytes.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from sandboxsync._archive import Exclude, header, in_pieces, padding
from sandboxsync._bounds import Bounds, parts_of, turns_back
from sandboxsync._mapped import mapped
from sandboxsync._tarstream import members, mtime_of, vet
from sandboxsync._temporary import is_temporary, temporary_name
from sandboxsync._unpack import no_file_to_link, refuse
from sandboxsync.errors import FileError, file_error
from sandboxsync.models import FileInfo, FileType
from sandboxsync.transports.fake._volume import Attributes, Kind, Volume

if TYPE_CHECKING:
    from tarfile import TarInfo

__all__ = ["VolumeFileStream", "VolumeFiles"]

_PIECE = 1 << 18
_MAX_LINKS = 40
# What these say of a rename is about its destination when the source is there.
_ABOUT_NEW = frozenset({errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR})

_TYPES: dict[Kind, FileType] = {"file": "file", "directory": "directory", "symlink": "symlink"}
_FORMATS: dict[Kind, int] = {"file": stat.S_IFREG, "directory": stat.S_IFDIR, "symlink": stat.S_IFLNK}


class VolumeFileStream:
    """A file being read; fits :class:`~sandboxsync.transports.base.ByteStream`.

    What it gives is what the file held when it was opened. Not for two threads at once.
    """

    def __init__(self, path: str, data: bytes, chunk_size: int) -> None:
        self.path = path
        self.size = len(data)
        self._data = data
        self._chunk_size = chunk_size
        self._position = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next chunk; after the last one, and after :meth:`close`, there is none."""
        chunk = self._data[self._position : self._position + self._chunk_size]
        if not chunk:
            raise StopIteration
        self._position += len(chunk)
        return chunk

    def close(self) -> None:
        """Give up the rest. Idempotent."""
        self._data = b""


class VolumeFiles:
    """The file operations of the seam, on absolute paths of a volume. Holds nothing else; safe for threads."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def open_read(self, path: str, chunk_size: int) -> VolumeFileStream:
        """Open a file to read it in chunks of *chunk_size* bytes.

        A directory raises :class:`SandboxIsADirectoryError`, a FIFO a :class:`FileError`.
        """
        with mapped(path):
            if self._volume.stat(path).kind == "fifo":
                raise FileError(f"A FIFO cannot be read as a file: {path!r}", errno=errno.ENXIO, filename=path)
            return VolumeFileStream(self._shown(path), self._volume.read(path), chunk_size)

    def write(self, path: str, chunks: Iterable[bytes]) -> FileInfo:
        """Write a file whole or not at all (F2) and return what is there.

        A symlink is followed, a missing target and missing parents are made. The mode of an existing file is kept, and
        of hard links only the name that is written changes. A FIFO or device is written in place. What *chunks* raises
        is passed on as it is.
        """
        with mapped(path):
            target = self._target(path)
            old = self._found(target)
            if old is not None and old.kind == "directory":
                raise _os_error(errno.EISDIR)
        data = b"".join(chunks)
        with mapped(path):
            if old is not None and old.kind in ("fifo", "device"):
                self._volume.write(target, data)
            else:
                self._volume.replace(target, data)
        return self.stat(path, follow=True)

    def stat(self, path: str, follow: bool) -> FileInfo:
        """Return what lies at *path*; with *follow*, what a symlink there leads to."""
        with mapped(path):
            attributes = self._volume.stat(path, follow)
            shown = self._shown(path)
        name = posixpath.basename(shown) or "/"
        return _info(name, shown, name, attributes)

    def list(self, path: str, recursive: bool) -> list[FileInfo]:
        """Return all entries, hidden ones too, in no order. Symlinks are not followed, but for *path* itself."""
        found: list[FileInfo] = []
        with mapped(path):
            entries = self._volume.scandir(path)
            top = self._shown(path)
        waiting = [("", entries)]
        while waiting:
            below, entries = waiting.pop()
            for name, attributes in entries:
                if is_temporary(name):
                    continue
                relative = posixpath.join(below, name)
                here = posixpath.join(top, relative)
                found.append(_info(name, here, relative, attributes))
                if recursive and attributes.kind == "directory":
                    # It may have gone meanwhile.
                    with suppress(FileNotFoundError, NotADirectoryError), mapped(path):
                        waiting.append((relative, self._volume.scandir(here)))
        return found

    def mkdir(self, path: str, recursive: bool) -> str:
        """Make a directory and return its path; with *recursive* its parents too, and one that exists is fine."""
        with mapped(path):
            self._volume.mkdir(path, parents=recursive)
            return self._shown(path)

    def remove(self, path: str) -> None:
        """Remove a file or a symlink; a directory raises :class:`SandboxIsADirectoryError`."""
        with mapped(path):
            self._volume.remove(path)

    def rename(self, old: str, new: str) -> None:
        """Rename as :func:`os.replace` does."""
        try:
            self._volume.rename(old, new)
        except OSError as exc:
            about_new = exc.errno in _ABOUT_NEW and self._volume.exists(old, follow=False)
            raise file_error(exc, new if about_new else old) from exc

    def read_tree(self, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        """Return the tree below a directory as an uncompressed tar, as :func:`~sandboxsync._archive.pack` does.

        Raises :class:`InvalidRequestError` for *exclude* at once, and while iterating a :class:`FileError` for what is
        no directory, and (``EINVAL``) for FIFOs and devices that are not excluded.
        """
        return in_pieces(self._packed(path, Exclude(exclude)))

    def write_tree(self, path: str, chunks: Iterable[bytes]) -> None:
        """Unpack a tar into a directory, made if missing, merged if it exists.

        Promises and raises what :func:`~sandboxsync._archive.unpack` does.
        """
        with mapped(path):
            _make_directories(self._volume, path)
            place = _Unpacker(self._volume, self._volume.realpath(path), path)
        try:
            for member, data in members(chunks):
                place.take(member, data)
        except BaseException:
            with suppress(OSError):
                place.finish()
            raise
        refuse(place.finish())

    def _packed(self, root: str, exclude: Exclude) -> Iterator[bytes]:
        with mapped(root):
            waiting = [iter(self._volume.scandir(root))]
        place: list[str] = []
        while waiting:
            name, attributes = next(waiting[-1], ("", None))
            if attributes is None:
                waiting.pop()
                del place[-1:]
                continue
            relative = "/".join([*place, name])
            path = posixpath.join(root, relative)
            if is_temporary(name) or exclude.matches(relative, attributes.kind == "directory"):
                continue
            with suppress(FileNotFoundError), mapped(path):
                yield from self._member(path, relative, attributes)
                if attributes.kind == "directory":
                    waiting.append(iter(self._volume.scandir(path)))
                    place.append(name)

    def _member(self, path: str, relative: str, attributes: Attributes) -> Iterator[bytes]:
        kind = _FORMATS.get(attributes.kind)
        if kind is None:
            text = f"{'a FIFO' if attributes.kind == 'fifo' else 'a device'} cannot be copied: {path!r}"
            raise FileError(text, errno=errno.EINVAL, filename=path)
        content = self._volume.read(path) if attributes.kind == "file" else b""
        target = self._volume.readlink(path) if attributes.kind == "symlink" else ""
        yield header(relative, kind | attributes.mode, attributes.mtime_ns, size=len(content), target=target)
        for start in range(0, len(content), _PIECE):
            yield content[start : start + _PIECE]
        yield padding(len(content))

    def _target(self, path: str) -> str:
        """Return where *path* leads once no symlink is left in its last part, and make the parents of that."""
        for _ in range(_MAX_LINKS):
            parent = posixpath.dirname(path)
            if path.endswith("/"):
                raise _os_error(errno.EISDIR)
            try:
                path = posixpath.join(parent, self._volume.readlink(path))
            except FileNotFoundError:
                if self._volume.exists(parent):
                    return path
                _make_directories(self._volume, parent)
            except OSError as exc:
                if exc.errno != errno.EINVAL:
                    raise
                return path
        raise _os_error(errno.ELOOP)

    def _found(self, path: str) -> Attributes | None:
        try:
            return self._volume.stat(path)
        except FileNotFoundError:
            return None

    def _shown(self, path: str) -> str:
        """Return *path* without ``.``, ``..`` and spare slashes, but with the symlink that its last part may be."""
        parts = parts_of(path)
        if ".." not in parts:
            return "/" + "/".join(parts)
        if parts[-1] == "..":
            return self._volume.realpath(path)
        return posixpath.join(self._volume.realpath("/" + "/".join(parts[:-1])), parts[-1])


class _VolumeBounds(Bounds):
    def __init__(self, volume: Volume, root: str) -> None:
        # There is no descriptor; links are read from the volume.
        super().__init__(-1, root, root)
        self._volume = volume
        self._top = root

    def link_at(self, place: list[str]) -> str | None:
        try:
            return self._volume.readlink(posixpath.join(self._top, *place))
        except OSError:
            return None


class _Unpacker:
    """Puts members below one directory, whose path has no symlinks; none below it is followed."""

    def __init__(self, volume: Volume, root: str, shown: str) -> None:
        self._volume = volume
        self._root = root
        self._shown_root = shown
        self._bounds = _VolumeBounds(volume, root)
        self._directories: dict[tuple[str, ...], tuple[int, int | None]] = {}
        self._doubtful: list[list[str]] = []
        self._refused: list[str] = []

    def take(self, member: TarInfo, data: Iterator[bytes]) -> None:
        parts = vet(member)
        if not parts:
            return
        if member.isdir():
            self._enter(parts, parts)
            self._directories[tuple(parts)] = (member.mode & 0o777, mtime_of(member))
            return
        self._enter(parts[:-1], parts)
        with mapped(self._shown(parts)):
            there = self._kind(parts)
            if there == "directory":
                raise _os_error(errno.EISDIR)
        if member.issym():
            self._symlink(parts, member.linkname)
        elif member.islnk():
            self._hard_link(parts, member)
        else:
            content = b"".join(data)
            with mapped(self._shown(parts)):
                self._volume.replace(self._at(parts), content, mode=member.mode & 0o777, mtime_ns=mtime_of(member))

    def _enter(self, parts: list[str], told: list[str]) -> None:
        """Make the directories that are missing; one takes the place of a symlink."""
        with mapped(self._shown(told)):
            for depth in range(1, len(parts) + 1):
                here = parts[:depth]
                kind = self._kind(here)
                if kind == "symlink":
                    self._volume.remove(self._at(here))
                elif kind is not None and kind != "directory":
                    raise _os_error(errno.ENOTDIR)
                if kind != "directory":
                    self._volume.mkdir(self._at(here))

    def _symlink(self, parts: list[str], target: str) -> None:
        if not self._bounds.hold(parts, target):
            self._refused.append("/".join(parts))
            return
        temporary = self._at([*parts[:-1], temporary_name()])
        with mapped(self._shown(parts)):
            self._volume.symlink(target, temporary)
            self._volume.rename(temporary, self._at(parts))
        if turns_back(target):
            self._doubtful.append(parts)

    def _hard_link(self, parts: list[str], member: TarInfo) -> None:
        source = parts_of(member.linkname)
        # One name after the other, so that no symlink among them is followed.
        expected = ["directory"] * (len(source) - 1) + ["file"]
        if not source or any(self._kind(source[:depth]) != kind for depth, kind in enumerate(expected, 1)):
            raise no_file_to_link(member)
        temporary = self._at([*parts[:-1], temporary_name()])
        with mapped(self._shown(parts)):
            self._volume.link(self._at(source), temporary)
            self._volume.rename(temporary, self._at(parts))
            # A rename onto another name of the same file does nothing.
            with suppress(FileNotFoundError):
                self._volume.remove(temporary)

    def finish(self) -> list[str]:
        """Set what had to wait for all members, and return the symlinks that lead outside and are not there."""
        for parts in self._doubtful:
            # What was missing when the link was made may have become a link itself.
            link = self._bounds.link_at(parts)
            if link is not None and not self._bounds.hold(parts, link):
                with mapped(self._shown(parts)):
                    self._volume.remove(self._at(parts))
                self._refused.append("/".join(parts))
        for names, (mode, mtime) in self._directories.items():
            with suppress(FileNotFoundError), mapped(self._shown(names)):
                path = self._at(names)
                # The special bits of a directory that was there are not the archive's.
                self._volume.chmod(path, self._volume.stat(path).mode & ~0o777 | mode)
                if mtime is not None:
                    self._volume.utime(path, mtime)
        return self._refused

    def _kind(self, parts: Sequence[str]) -> Kind | None:
        try:
            return self._volume.stat(self._at(parts), follow=False).kind
        except FileNotFoundError:
            return None

    def _at(self, parts: Sequence[str]) -> str:
        return posixpath.join(self._root, *parts)

    def _shown(self, parts: Sequence[str]) -> str:
        return posixpath.join(self._shown_root, *parts)


def _make_directories(volume: Volume, path: str) -> None:
    try:
        volume.mkdir(path, parents=True)
    except FileExistsError:
        raise _os_error(errno.ENOTDIR) from None


def _info(name: str, path: str, relative: str, attributes: Attributes) -> FileInfo:
    return FileInfo(
        name=name,
        path=path,
        relative_path=relative,
        type=_TYPES.get(attributes.kind, "other"),
        size=attributes.size,
        modified_at=_datetime(attributes.mtime),
        mode=attributes.mode,
    )


def _datetime(seconds: float) -> datetime:
    # A file may be dated beyond the years that datetime knows.
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (ValueError, OverflowError):
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=timezone.utc)


def _os_error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
