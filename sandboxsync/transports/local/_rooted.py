"""Paths as an isolated sandbox sees them, used from outside of it.

Each path is resolved by the system itself below the sandbox's root (`openat2` with `RESOLVE_IN_ROOT`), so that neither
`..`, nor an absolute symlink, nor `/proc/1/root`, nor what is swapped for a symlink meanwhile can lead to a path of
this machine. What takes a directory and a name follows nothing at the name.
"""

from __future__ import annotations

import ctypes
import errno
import os
import posixpath
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sandboxsync._paths import Paths

__all__ = ["RootedPaths"]

_OPENAT2 = 437
"""The same number on every architecture, as of all calls since Linux 5.1."""
_RESOLVE_NO_MAGICLINKS, _RESOLVE_IN_ROOT = 0x02, 0x10
_PARENT = os.O_PATH | os.O_DIRECTORY
_ATTEMPTS = 1000
"""How often a lookup is tried again that the system gave up because something was renamed at that moment."""


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _open_in_root(root: int, path: str, flags: int, mode: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode if flags & os.O_CREAT else 0, _RESOLVE_NO_MAGICLINKS | _RESOLVE_IN_ROOT)
    arguments = (ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how)))
    for _ in range(_ATTEMPTS):
        fd: int = _libc.syscall(ctypes.c_long(_OPENAT2), *arguments)
        if fd >= 0:
            return fd
        number = ctypes.get_errno()
        if number not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(number, os.strerror(number), path)


class RootedPaths(Paths):
    """The paths below a root that is open as a descriptor. Safe for threads.

    With `user`, new files belong to it, and what it may not do is refused: for this process being the system's
    administrator. The change of identity is one of the calling thread alone, for the time of a call.
    """

    def __init__(self, root: int, user: int | None) -> None:
        self._root = root
        self._user = user
        self._here = threading.local()

    @contextmanager
    def acting(self) -> Iterator[None]:
        if self._user is None or getattr(self._here, "acting", False):
            yield
            return
        # Linux keeps these two for each thread, and the C library leaves it at that.
        _libc.setfsgid(self._user)
        _libc.setfsuid(self._user)
        self._here.acting = True
        try:
            yield
        finally:
            self._here.acting = False
            _libc.setfsuid(os.geteuid())
            _libc.setfsgid(os.getegid())

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        with self.acting():
            return _open_in_root(self._root, path, flags, mode)

    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        fd = self.open(path, os.O_PATH | (0 if follow else os.O_NOFOLLOW))
        try:
            return os.fstat(fd)
        finally:
            os.close(fd)

    def readlink(self, path: str) -> str:
        fd = self.open(path, os.O_PATH | os.O_NOFOLLOW)
        try:
            if not stat.S_ISLNK(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
            return os.readlink("", dir_fd=fd)
        finally:
            os.close(fd)

    def realpath(self, path: str) -> str:
        try:
            fd = self.open(path, os.O_PATH)
        except OSError:
            directory, name = posixpath.split(path.rstrip("/"))
            return posixpath.join(self.realpath(directory), name) if name else "/"
        try:
            return os.readlink(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def is_writable(self, path: str) -> bool:
        with self.acting():
            fd = self.open(path, os.O_PATH)
            try:
                return os.access(f"/proc/self/fd/{fd}", os.W_OK, effective_ids=True)
            finally:
                os.close(fd)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        with self._at(path) as (directory, name):
            os.mkdir(name, mode, dir_fd=directory)

    def symlink(self, target: str, path: str) -> None:
        with self._at(path) as (directory, name):
            os.symlink(target, name, dir_fd=directory)

    def unlink(self, path: str) -> None:
        with self._at(path) as (directory, name):
            os.unlink(name, dir_fd=directory)

    def rmtree(self, path: str) -> None:
        import shutil

        with self._at(path) as (directory, name):
            # It follows no symlink below this, and none here either.
            shutil.rmtree(f"/proc/self/fd/{directory}/{name}")

    def replace(self, old: str, new: str) -> None:
        with self._at(old) as (source, name), self._at(new) as (target, new_name):
            os.replace(name, new_name, src_dir_fd=source, dst_dir_fd=target)

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[int, str]]:
        """The directory of a path, and the name in it; what is done with them follows no symlink there."""
        directory, name = posixpath.split(path.rstrip("/"))
        with self.acting():
            if name and path.endswith("/"):
                # As the system has it: a slash at the end of what is no directory, or is a symlink, is an error.
                self._no_file(path.rstrip("/"))
            fd = self.open(directory or "/", _PARENT)
            try:
                yield fd, name or "."
            finally:
                os.close(fd)

    def _no_file(self, path: str) -> None:
        try:
            status = self.stat(path, follow=False)
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
