"""Copy what a rename cannot move, because it would have to cross file systems."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sandboxsync._atomic import write_all
from sandboxsync._paths import Paths

__all__ = ["closing_fd", "copy_across"]

_PIECE = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def copy_across(paths: Paths, old: str, new: str) -> None:
    """Copy a file, a symlink or a tree to *new*, where nothing is yet.

    Modes, times and extended attributes are kept, owners where this process may give files away. No symlink is
    followed, also when one is put in the place of a directory meanwhile. Raises :class:`OSError`; ``EINVAL`` for
    FIFOs, sockets and devices. What was made by then stays.
    """
    with paths.acting(), _parent(paths, old) as (source, name), _parent(paths, new) as (target, new_name):
        _copy(source, name, target, new_name)


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


@contextmanager
def _parent(paths: Paths, path: str) -> Iterator[tuple[int, str]]:
    directory, name = posixpath.split(path.rstrip("/"))
    with closing_fd(paths.open(directory, os.O_RDONLY | os.O_DIRECTORY)) as fd:
        yield fd, name


def _copy(source: int, name: str, target: int, new_name: str) -> None:
    status = os.stat(name, dir_fd=source, follow_symlinks=False)
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=source), new_name, dir_fd=target)
        times = (status.st_atime_ns, status.st_mtime_ns)
        os.utime(new_name, ns=times, dir_fd=target, follow_symlinks=False)
    elif stat.S_ISDIR(status.st_mode):
        with closing_fd(os.open(name, _DIRECTORY, dir_fd=source)) as old:
            os.mkdir(new_name, 0o700, dir_fd=target)
            with closing_fd(os.open(new_name, _DIRECTORY, dir_fd=target)) as new:
                for entry in os.listdir(old):
                    _copy(old, entry, new, entry)
                _copy_attributes(old, new)
    elif stat.S_ISREG(status.st_mode):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        # O_NONBLOCK: a FIFO may have taken the file's place since.
        reading = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with closing_fd(os.open(name, reading, dir_fd=source)) as old:
            with closing_fd(os.open(new_name, flags, 0o600, dir_fd=target)) as new:
                while data := os.read(old, _PIECE):
                    write_all(new, data)
                _copy_attributes(old, new)
    else:
        raise OSError(errno.EINVAL, "a FIFO, socket or device cannot be copied to another file system", name)


def _copy_attributes(old: int, new: int) -> None:
    status = os.fstat(old)
    # Not every file system has them, and some names are the system's own.
    with suppress(OSError):
        for name in os.listxattr(old):
            with suppress(OSError):
                os.setxattr(new, name, os.getxattr(old, name))
    with suppress(PermissionError):
        os.fchown(new, status.st_uid, status.st_gid)
    os.fchmod(new, stat.S_IMODE(status.st_mode))
    os.utime(new, ns=(status.st_atime_ns, status.st_mtime_ns))
