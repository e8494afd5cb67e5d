"""Directory trees as tar streams, out (:func:`pack`) and in (:func:`unpack`), in constant memory.

Pure of any transport: the façade uses it on the caller's machine, a local transport on the sandbox's. What it
promises is rule F6: nothing outside the tree is read, followed or made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence

import attrs

from ._exclude import Exclude
from ._paths import HOST, Paths
from ._temporary import is_temporary
from ._unpack import check, unpack
from .errors import FileError

__all__ = ["Exclude", "check", "header", "in_pieces", "measure", "pack", "pack_file", "padding", "unpack"]

_PIECE = 1 << 18
_BLOCK = 512
_END = bytes(2 * _BLOCK)
_READ_ONLY = os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC

_KINDS = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def pack(
    root: str,
    exclude: Sequence[str] = (),
    *,
    on_data: Callable[[int], object] | None = None,
    paths: Paths = HOST,
) -> Iterator[bytes]:
    """Return the tree below the directory *root* as an uncompressed PAX tar, in pieces of some 256 KiB.

    Names are relative to *root*, sorted, and not UTF-8 where the system's are not. Regular files keep their
    mode (without setuid, setgid, sticky) and time, hard links become files of their own, directories are kept
    when empty, symlinks as they are, wherever they lead; none is followed, but for *root* itself. Owners are
    not told. What vanishes before it is read is left out, and so is what
    :func:`~sandboxsync._temporary.is_temporary` knows.

    A file that grows while it is read is cut to the size it had. One that shrinks raises :class:`FileError`
    (``EBUSY``, retryable): padding it would pass off damage as its content.

    *on_data* is told the bytes of file content as they are read. What it raises is passed on. *paths* is where
    *root* is a path.

    Raises :class:`InvalidRequestError` for *exclude* at once; while iterating, a :class:`FileError` with the
    path as ``filename`` for what cannot be read, and (``EINVAL``) for FIFOs, sockets and devices that are not
    excluded. Closing the iterator gives up. Blocks on the file system alone; two descriptors are open at
    most.
    """
    return in_pieces(_pack(paths, root, Exclude(exclude), on_data or (lambda count: None)))


def pack_file(fd: int, name: str, *, on_data: Callable[[int], object]) -> Iterator[bytes]:
    """Return a tar with one regular file, open at its beginning as *fd*, under *name*. Otherwise as
    :func:`pack`.
    """
    yield from _content(HOST, fd, name, name, on_data)
    yield _END


def measure(root: str, exclude: Sequence[str] = ()) -> int:
    """Return how many bytes of file content :func:`pack` would read now. Raises as it does, but reads no
    file.
    """
    entries = _walk(HOST, root, Exclude(exclude))
    return sum(entry.status.st_size for entry in entries if stat.S_ISREG(entry.status.st_mode))


def _pack(paths: Paths, root: str, exclude: Exclude, on_data: Callable[[int], object]) -> Iterator[bytes]:
    for entry in _walk(paths, root, exclude):
        yield from _member(paths, entry, on_data)


def in_pieces(members: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the headers and contents of members, with the end mark of a tar after them, in pieces of some 256 KiB."""
    waiting = bytearray()
    for data in members:
        waiting += data
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting) + _END


@attrs.define
class _Entry:
    directory: int
    """A descriptor of the directory that has it, open until the next entry is asked for."""
    name: str
    relative: str
    path: str
    status: os.stat_result


def _walk(paths: Paths, root: str, exclude: Exclude) -> Iterator[_Entry]:
    """Go through a tree from the top, without following a symlink even when one is put in a directory's
    place.

    One descriptor is enough for any depth: the way back up is "..", if that still is the directory it was.
    """
    with paths.mapped(root):
        fd = paths.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        names = [_names(paths, fd, root)]
        place: list[str] = []
        above: list[os.stat_result] = []
        while names:
            name = next(names[-1], None)
            if name is None:
                names.pop()
                if above:
                    fd = _step(paths, fd, "..", os.path.join(root, *place))
                    place.pop()
                    if not os.path.samestat(os.fstat(fd), above.pop()):
                        raise FileError(f"{root!r} was moved while it was read", errno=errno.ESTALE, filename=root)
                continue
            relative = "/".join([*place, name])
            path = os.path.join(root, relative)
            try:
                with paths.mapped(path):
                    status = os.stat(name, dir_fd=fd, follow_symlinks=False)
                    is_directory = stat.S_ISDIR(status.st_mode)
                    if is_temporary(name) or exclude.matches(relative, is_directory):
                        continue
                    here = os.fstat(fd)
                    if is_directory:
                        fd = _step(paths, fd, name, path)
                        names.append(_names(paths, fd, path))
            except FileNotFoundError:
                continue
            if is_directory:
                place.append(name)
                above.append(here)
            yield _Entry(fd, name, relative, path, status)
    finally:
        os.close(fd)


def _step(paths: Paths, fd: int, name: str, path: str) -> int:
    with paths.mapped(path):
        following = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    os.close(fd)
    return following


def _names(paths: Paths, fd: int, path: str) -> Iterator[str]:
    with paths.mapped(path):
        return iter(sorted(os.listdir(fd)))


def _member(paths: Paths, entry: _Entry, on_data: Callable[[int], object]) -> Iterator[bytes]:
    kind = stat.S_IFMT(entry.status.st_mode)
    if kind == stat.S_IFDIR:
        yield _header(entry.relative, entry.status)
    elif kind == stat.S_IFREG:
        yield from _file(paths, entry, on_data)
    elif kind == stat.S_IFLNK:
        try:
            with paths.mapped(entry.path):
                target = os.readlink(entry.name, dir_fd=entry.directory)
        except FileNotFoundError:
            return
        yield _header(entry.relative, entry.status, target)
    else:
        raise _not_packable(entry.path, kind)


def _file(paths: Paths, entry: _Entry, on_data: Callable[[int], object]) -> Iterator[bytes]:
    # O_NONBLOCK: a FIFO may have taken the file's place since.
    try:
        with paths.mapped(entry.path):
            fd = os.open(entry.name, _READ_ONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=entry.directory)
    except FileNotFoundError:
        return
    try:
        yield from _content(paths, fd, entry.relative, entry.path, on_data)
    finally:
        os.close(fd)


def _content(paths: Paths, fd: int, name: str, path: str, on_data: Callable[[int], object]) -> Iterator[bytes]:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise _not_packable(path, stat.S_IFMT(status.st_mode))
    yield _header(name, status)
    missing = status.st_size
    while missing:
        with paths.mapped(path):
            data = os.read(fd, min(_PIECE, missing))
        if not data:
            text = f"{path!r} became shorter while it was read"
            raise FileError(text, errno=errno.EBUSY, filename=path, retryable=True)
        missing -= len(data)
        on_data(len(data))
        yield data
    yield padding(status.st_size)


def _header(name: str, status: os.stat_result, target: str = "") -> bytes:
    return header(name, status.st_mode, status.st_mtime_ns, size=status.st_size, target=target)


def header(name: str, mode: int, mtime_ns: int, *, size: int = 0, target: str = "") -> bytes:
    """Return the header of a regular file, a directory or a symlink: *mode* says which.

    *size* is told of a file, *target* of a symlink.
    """
    import tarfile

    info = tarfile.TarInfo(name)
    info.mode = stat.S_IMODE(mode) & 0o777
    info.mtime, nanoseconds = divmod(mtime_ns, 10**9)
    if nanoseconds and info.mtime >= 0:
        info.pax_headers = {"mtime": f"{info.mtime}.{nanoseconds:09d}"}
    if stat.S_ISLNK(mode):
        info.type, info.linkname = tarfile.SYMTYPE, target
    elif stat.S_ISDIR(mode):
        info.type = tarfile.DIRTYPE
    else:
        info.size = size
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    """Return what follows a file's content in a tar."""
    return bytes(-size % _BLOCK)


def _not_packable(path: str, kind: int) -> FileError:
    return FileError(
        f"{_KINDS.get(kind, 'a special file')} cannot be copied: {path!r}", errno=errno.EINVAL, filename=path
    )
