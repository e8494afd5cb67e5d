"""Unpack a tar stream without leaving the directory it is unpacked into (F6)."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ._atomic import write_all
from ._bounds import Bounds, parts_of, turns_back
from ._paths import HOST, Paths
from ._tarstream import members, mtime_of, vet
from ._temporary import temporary_name
from .errors import InvalidRequestError, file_error

if TYPE_CHECKING:
    from tarfile import TarInfo

__all__ = ["check", "no_file_to_link", "refuse", "unpack"]

_READ = 1 << 18
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def check(chunks: Iterable[bytes]) -> None:
    """Read an archive to its end, raising what :func:`unpack` would raise for what it holds, and write
    nothing.

    Where symlinks lead is not looked at, for that depends on the destination.
    """
    for member, _ in members(chunks):
        vet(member)


def unpack(
    chunks: Iterable[bytes],
    root: str,
    *,
    seen_as: str | None = None,
    on_data: Callable[[int], object] | None = None,
    paths: Paths = HOST,
) -> None:
    """Unpack the tar, or gzipped tar, in *chunks* into the directory *root*; memory stays constant.

    *root* is made with its parents if it is missing, and merged if it exists. A file takes the place of any
    file, symlink or special file, whole or not at all; a directory takes the place of a symlink, never of a
    file. Nothing is written through a symlink below *root*, be it of the archive or older. Modes are the
    archive's without setuid, setgid and sticky, times too; owners and the mode of *root* itself are not
    touched.

    Nothing outside is ever made or followed: a member whose name is absolute or holds ``..``, a device, FIFO
    or socket, and a hard link to anything but a regular file below *root*, raise before that member is made.
    A symlink whose target lies outside is not made, the rest is, and then the call raises, naming such links.
    A target is absolute as *seen_as* (by default, *root*) has it, which is where users of the tree see
    *root*.

    *on_data* is told the bytes of file content as they are written. What it or *chunks* raises is passed on.
    *paths* is where *root* is a path.

    Raises :class:`InvalidRequestError` for an archive that is refused, cut or damaged (also when only the
    gzip checksum says so), a :class:`FileError` for what the file system refuses. What was unpacked before
    stays. Blocks on the file system and on *chunks*, which are read to their end.
    """
    with paths.mapped(root):
        _make_root(paths, root)
        fd = paths.open(root, os.O_RDONLY | os.O_DIRECTORY)
        seen_as = seen_as or paths.realpath(root)
    place = _Unpacker(paths, fd, root, seen_as, on_data or (lambda count: None))
    try:
        try:
            for member, data in members(chunks):
                place.take(member, data)
        except BaseException:
            with suppress(OSError):
                place.finish()
            raise
        refused = place.finish()
    finally:
        place.close()
    refuse(refused)


class _Unpacker:
    """Puts members below one directory. Directories are reached without following a symlink, one at a
    time.
    """

    def __init__(self, paths: Paths, root: int, path: str, seen_as: str, on_data: Callable[[int], object]) -> None:
        self._paths = paths
        self._root = root
        self._path = path
        self._bounds = Bounds(root, path, seen_as)
        self._on_data = on_data
        # The parent of the last member: most have the same one as the one before.
        self._parent = os.dup(root)
        self._parent_parts: list[str] = []
        self._directories: dict[tuple[str, ...], tuple[int, int | None]] = {}
        self._doubtful: list[list[str]] = []
        self._refused: list[str] = []

    def take(self, member: TarInfo, data: Iterator[bytes]) -> None:
        parts = vet(member)
        if not parts:
            return
        path = self._shown(parts)
        if member.isdir():
            with self._paths.mapped(path):
                fd = self._enter(parts)
                with suppress(PermissionError):
                    os.fchmod(fd, stat.S_IMODE(os.fstat(fd).st_mode) | 0o700)
            self._directories[tuple(parts)] = (member.mode & 0o777, mtime_of(member))
            return
        with self._paths.mapped(path):
            parent = self._enter(parts[:-1])
            self._no_directory(parent, parts[-1])
        if member.issym():
            self._symlink(parent, parts, member.linkname)
        elif member.islnk():
            self._hard_link(parent, parts, member)
        else:
            self._file(parent, parts, member, data)

    def _enter(self, parts: list[str], make: bool = True) -> int:
        """Return a descriptor of the directory, made if it is missing; it is open until the next call."""
        if parts != self._parent_parts:
            known = len(self._parent_parts)
            if parts[:known] != self._parent_parts:
                known = 0
            fd = os.dup(self._parent if known else self._root)
            try:
                for part in parts[known:]:
                    following = _open_or_make(fd, part) if make else os.open(part, _DIRECTORY, dir_fd=fd)
                    os.close(fd)
                    fd = following
            except BaseException:
                os.close(fd)
                raise
            os.close(self._parent)
            self._parent, self._parent_parts = fd, parts
        return self._parent

    def _no_directory(self, parent: int, name: str) -> None:
        with suppress(FileNotFoundError):
            if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)

    def _file(self, parent: int, parts: list[str], member: TarInfo, data: Iterator[bytes]) -> None:
        path, temporary = self._shown(parts), temporary_name()
        try:
            with self._paths.mapped(path):
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                fd = os.open(temporary, flags, 0o600, dir_fd=parent)
            try:
                for piece in data:
                    with self._paths.mapped(path):
                        write_all(fd, piece)
                    self._on_data(len(piece))
                with self._paths.mapped(path):
                    os.fchmod(fd, member.mode & 0o777)
                    _set_time(fd, mtime_of(member))
            finally:
                os.close(fd)
            with self._paths.mapped(path):
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            _unlink(temporary, parent)
            raise

    def _symlink(self, parent: int, parts: list[str], target: str) -> None:
        if not self._bounds.hold(parts, target):
            self._refused.append("/".join(parts))
            return
        temporary = temporary_name()
        try:
            with self._paths.mapped(self._shown(parts)):
                os.symlink(target, temporary, dir_fd=parent)
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            _unlink(temporary, parent)
            raise
        if turns_back(target):
            self._doubtful.append(parts)

    def _hard_link(self, parent: int, parts: list[str], member: TarInfo) -> None:
        temporary = temporary_name()
        source = self._source_of_link(member)
        try:
            with self._paths.mapped(self._shown(parts)):
                name = parts_of(member.linkname)[-1]
                os.link(name, temporary, src_dir_fd=source, dst_dir_fd=parent, follow_symlinks=False)
                os.rename(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            os.close(source)
            # A rename onto another name of the same file does nothing.
            _unlink(temporary, parent)

    def _source_of_link(self, member: TarInfo) -> int:
        *above, name = parts_of(member.linkname) or ["."]
        fd = os.dup(self._root)
        try:
            for part in above:
                following = os.open(part, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = following
            if stat.S_ISREG(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                return fd
        except OSError as exc:
            if exc.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                os.close(fd)
                raise file_error(exc, self._shown(parts_of(member.linkname))) from exc
        os.close(fd)
        raise no_file_to_link(member)

    def finish(self) -> list[str]:
        """Set what had to wait for all members, and return the symlinks that lead outside and are not
        there.
        """
        for parts in self._doubtful:
            # What was missing when the link was made may have become a link itself.
            link = self._bounds.link_at(parts)
            if link is not None and not self._bounds.hold(parts, link):
                with self._paths.mapped(self._shown(parts)):
                    os.unlink(parts[-1], dir_fd=self._enter(parts[:-1], make=False))
                self._refused.append("/".join(parts))
        # From the deepest up: a directory may not be entered any more once it has its mode.
        for names, (mode, mtime) in sorted(self._directories.items(), key=lambda item: -len(item[0])):
            with self._paths.mapped(self._shown(list(names))), suppress(FileNotFoundError):
                fd = self._enter(list(names), make=False)
                now = stat.S_IMODE(os.fstat(fd).st_mode)
                # The special bits of a directory that was there, or that it has from its parent, are not the archive's.
                if now & 0o777 != mode:
                    os.fchmod(fd, now & ~0o777 | mode)
                with suppress(PermissionError):
                    _set_time(fd, mtime)
        return self._refused

    def close(self) -> None:
        os.close(self._parent)
        os.close(self._root)

    def _shown(self, parts: list[str]) -> str:
        return os.path.join(self._path, *parts)


def _open_or_make(fd: int, name: str) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=fd)
    except FileNotFoundError:
        pass
    except OSError as exc:
        if exc.errno not in (errno.ENOTDIR, errno.ELOOP):
            raise
        if not stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
            raise
        os.unlink(name, dir_fd=fd)
    with suppress(FileExistsError):
        os.mkdir(name, dir_fd=fd)
    return os.open(name, _DIRECTORY, dir_fd=fd)


def _make_root(paths: Paths, root: str) -> None:
    try:
        paths.makedirs(root)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), root) from None


def _set_time(fd: int, nanoseconds: int | None) -> None:
    if nanoseconds is not None:
        with suppress(OverflowError):
            os.utime(fd, ns=(nanoseconds, nanoseconds))


def _unlink(name: str, directory: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=directory)


def no_file_to_link(member: TarInfo) -> InvalidRequestError:
    """Return the error for a hard link whose source is missing, or is no file."""
    return InvalidRequestError(f"the archive holds a hard link to what is no file in it: {member.name!r}")


def refuse(links: list[str]) -> None:
    """Raise for the symlinks of an archive that were not made, if there are some."""
    if links:
        raise InvalidRequestError(
            f"the archive holds symlinks that lead outside, which were not made: {_some(links)}",
            context={"refused": links},
        )


def _some(names: list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
