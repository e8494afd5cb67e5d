"""Files of a local sandbox: those of this machine, or as an isolated sandbox sees them (:class:`Paths`).

Paths are absolute and already meant for the sandbox (:func:`resolve`); names that are not UTF-8 are
``surrogateescape`` text. Every call blocks on the file system alone and raises a :class:`FileError` or one of
its children, with the path it was given as ``filename``.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime, timezone

from sandboxsync._atomic import AtomicFile
from sandboxsync._mapped import mapped
from sandboxsync._paths import HOST, Paths
from sandboxsync._temporary import is_temporary, temporary_name
from sandboxsync.errors import FileError, file_error
from sandboxsync.models import FileInfo, FileType
from sandboxsync.transports.local._copy import closing_fd, copy_across

__all__ = ["FileReader", "Files", "resolve"]

# What these say of a rename is about its destination when the source is there.
_ABOUT_NEW = frozenset({errno.ENOENT, errno.EEXIST, errno.ENOTEMPTY, errno.EISDIR, errno.ENOTDIR})


def resolve(path: str, cwd: str, workspace: str, remap: bool) -> str:
    """Return the absolute path that *path* means (F4, F5). Pure; nothing has to exist.

    A relative path is below *cwd*. With *remap* an absolute one that is, once its ``.`` and ``..`` are taken
    as text, ``/workspace`` or below it means the same place below *workspace*; ``/workspace/../etc``
    therefore is ``/etc``, as where there is a real ``/workspace``. All other ``..``, and a final slash, are
    left for the system, which alone knows where a symlink leads.
    """
    if not path.startswith("/"):
        return posixpath.join(cwd, path)
    first, *rest = [part for part in path.split("/") if part not in ("", ".")] or [""]
    plain = posixpath.normpath("/" + path.lstrip("/"))
    inside = plain == "/workspace" or plain.startswith("/workspace/")
    if not remap or not (inside or first == "workspace"):
        return path
    if not inside:
        meant = plain
    elif first == "workspace" and not _leaves(rest):
        meant = "/".join([workspace, *rest])
    else:
        meant = workspace + plain[len("/workspace") :]
    return meant + "/" if path.endswith(("/", "/.")) and meant != "/" else meant


def _leaves(parts: Iterable[str]) -> bool:
    depth = 0
    for part in parts:
        depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


class FileReader:
    """A file being read; fits :class:`~sandboxsync.transports.base.ByteStream`.

    Never blocks on anything but a disk. Not for two threads at once.
    """

    def __init__(self, paths: Paths, path: str, chunk_size: int) -> None:
        self.path = _shown(paths, path)
        self._chunk_size = chunk_size
        with mapped(path):
            # Without O_NONBLOCK a FIFO that nobody writes would block for ever.
            fd = paths.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            try:
                status = os.fstat(fd)
                if stat.S_ISDIR(status.st_mode):
                    raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
                if stat.S_ISFIFO(status.st_mode):
                    raise FileError(f"A FIFO cannot be read as a file: {path!r}", errno=errno.ENXIO, filename=path)
                self.size = status.st_size
                self._file = io.FileIO(fd)
            except BaseException:
                os.close(fd)
                raise

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        """Return the next chunk; after the last one, and after :meth:`close`, there is none."""
        pieces, missing = [], self._chunk_size
        while missing and not self._file.closed:
            with mapped(self.path):
                data = self._file.read(missing)
                if data is None:
                    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
            if not data:
                self.close()
            pieces.append(data)
            missing -= len(data)
        if missing == self._chunk_size:
            raise StopIteration
        return b"".join(pieces)

    def close(self) -> None:
        """Give up the rest. Idempotent."""
        self._file.close()


class Files:
    """The file operations of the seam, on absolute paths. Safe for threads."""

    def __init__(self, paths: Paths = HOST) -> None:
        self.paths = paths

    def open_read(self, path: str, chunk_size: int) -> FileReader:
        """Open a file to read it in chunks of *chunk_size* bytes, to its end even where its size is told as
        0.

        A directory raises :class:`SandboxIsADirectoryError`, a FIFO or a socket a :class:`FileError`.
        """
        return FileReader(self.paths, path, chunk_size)

    def write(self, path: str, chunks: Iterable[bytes]) -> FileInfo:
        """Write a file whole or not at all (F2) and return what is there; see :class:`AtomicFile`.

        What *chunks* raises is passed on as it is.
        """
        with mapped(path):
            file = AtomicFile(path, paths=self.paths)
        try:
            for chunk in chunks:
                with mapped(path):
                    file.write(chunk)
            with mapped(path):
                file.commit()
        finally:
            file.discard()
        return self.stat(path, follow=True)

    def stat(self, path: str, follow: bool) -> FileInfo:
        """Return what lies at *path*; with *follow*, what a symlink there leads to."""
        with mapped(path):
            status = self.paths.stat(path, follow)
            shown = _shown(self.paths, path)
        name = posixpath.basename(shown) or "/"
        return _info(name, shown, name, status)

    def list(self, path: str, recursive: bool) -> list[FileInfo]:
        """Return all entries, hidden ones too, in no order. Symlinks are not followed, but for *path* itself.

        What vanishes meanwhile is left out, and so is what :func:`is_temporary` knows as half-written.
        """
        found: list[FileInfo] = []
        with mapped(path):
            top = _shown(self.paths, path)
            waiting = [""]
            while waiting:
                below = waiting.pop()
                for info in _entries(self.paths, top, below):
                    found.append(info)
                    if recursive and info.type == "directory":
                        waiting.append(info.relative_path)
        return found

    def mkdir(self, path: str, recursive: bool) -> str:
        """Make a directory and return its path; with *recursive* its parents too, and one that exists is
        fine.
        """
        with mapped(path):
            if recursive:
                self.paths.makedirs(path)
            else:
                self.paths.mkdir(path)
            return _shown(self.paths, path)

    def remove(self, path: str) -> None:
        """Remove a file or a symlink; a directory raises :class:`SandboxIsADirectoryError`."""
        with mapped(path):
            self.paths.unlink(path)

    def rename(self, old: str, new: str) -> None:
        """Rename as :func:`os.replace` does; across file systems, copy first and remove *old* when the copy
        is there.
        """
        try:
            try:
                self.paths.replace(old, new)
            except OSError as exc:
                if exc.errno != errno.EXDEV:
                    raise
                _move_across(self.paths, old, new)
        except OSError as exc:
            about_new = exc.errno in _ABOUT_NEW and self.paths.lexists(old)
            raise file_error(exc, new if about_new else old) from exc


def _entries(paths: Paths, top: str, below: str) -> Iterator[FileInfo]:
    flags = os.O_RDONLY | os.O_DIRECTORY | (os.O_NOFOLLOW if below else 0)
    try:
        fd = paths.open(posixpath.join(top, below) if below else top, flags)
    except (FileNotFoundError, NotADirectoryError):
        if not below:
            raise
        return
    with closing_fd(fd), os.scandir(fd) as entries:
        for entry in entries:
            if is_temporary(entry.name):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                relative = posixpath.join(below, entry.name)
                yield _info(entry.name, posixpath.join(top, relative), relative, status)


def _info(name: str, path: str, relative: str, status: os.stat_result) -> FileInfo:
    return FileInfo(
        name=name,
        path=path,
        relative_path=relative,
        type=_file_type(status.st_mode),
        size=status.st_size,
        modified_at=_datetime(status.st_mtime),
        mode=stat.S_IMODE(status.st_mode),
    )


def _file_type(mode: int) -> FileType:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def _datetime(seconds: float) -> datetime:
    # A file may be dated beyond the years that datetime knows.
    try:
        return datetime.fromtimestamp(seconds, tz=timezone.utc)
    except (ValueError, OverflowError):
        return (datetime.max if seconds > 0 else datetime.min).replace(tzinfo=timezone.utc)


def _shown(paths: Paths, path: str) -> str:
    """Return *path* without ``.``, ``..`` and spare slashes, but with the symlink that its last part may
    be.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." not in parts:
        return "/" + "/".join(parts)
    if parts[-1] == "..":
        return paths.realpath(path)
    return posixpath.join(paths.realpath("/" + "/".join(parts[:-1])), parts[-1])


def _move_across(paths: Paths, old: str, new: str) -> None:
    """Copy to a name beside *new*, put that in its place, remove *old*."""
    temporary = posixpath.join(posixpath.dirname(new.rstrip("/")), temporary_name())
    tree = stat.S_ISDIR(paths.stat(old, follow=False).st_mode)
    try:
        copy_across(paths, old, temporary)
        paths.replace(temporary, new)
    except BaseException:
        with suppress(OSError):
            paths.rmtree(temporary) if tree else paths.unlink(temporary)
        raise
    if tree:
        paths.rmtree(old)
    else:
        paths.unlink(old)
