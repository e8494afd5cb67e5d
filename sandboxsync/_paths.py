"""Paths as they are seen from some root. :data:`HOST` sees those of this machine."""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ._mapped import mapped

__all__ = ["HOST", "HostPaths", "Paths"]


class Paths(ABC):
    """What takes a path, so that the same code works on any root; paths are absolute there.

    Every method blocks on the file system alone and raises the builtin :class:`OSError` as it comes. Safe for
    threads.
    """

    @abstractmethod
    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        """Return a descriptor, as :func:`os.open` does; never inheritable."""

    @abstractmethod
    def readlink(self, path: str) -> str:
        """Return the text of a symlink."""

    @abstractmethod
    def realpath(self, path: str) -> str:
        """Return *path* without symlinks, as it is seen from the root; what does not exist is left as it is."""

    @abstractmethod
    def is_writable(self, path: str) -> bool:
        """Whether what is at *path*, a symlink followed, may be written by its user."""

    @abstractmethod
    def mkdir(self, path: str, mode: int = 0o777) -> None:
        """Make a directory."""

    @abstractmethod
    def symlink(self, target: str, path: str) -> None:
        """Make a symlink at *path*."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file or a symlink."""

    @abstractmethod
    def rmtree(self, path: str) -> None:
        """Remove a directory with all that is below it, following no symlink."""

    @abstractmethod
    def replace(self, old: str, new: str) -> None:
        """Rename, as :func:`os.replace` does."""

    @abstractmethod
    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        """Return the status of what is at *path*, or of what a symlink there leads to."""

    def acting(self) -> AbstractContextManager[None]:
        """Make what the block does through descriptors be done as the user of this root, in this thread alone."""
        return nullcontext()

    @contextmanager
    def mapped(self, path: str) -> Iterator[None]:
        """As :meth:`acting`, and an :class:`OSError` of the block becomes the :class:`FileError` with *path* as its
        ``filename``.
        """
        with mapped(path), self.acting():
            yield

    def is_dir(self, path: str) -> bool:
        """Whether *path* leads to a directory."""
        try:
            return stat.S_ISDIR(self.stat(path).st_mode)
        except OSError:
            return False

    def lexists(self, path: str) -> bool:
        """Whether something is at *path*, be it a symlink that leads nowhere."""
        try:
            self.stat(path, follow=False)
        except OSError:
            return False
        return True

    def check_directory(self, path: str) -> None:
        """Raise the :class:`FileError` for a directory that is missing, is none, or may not be read."""
        with self.mapped(path):
            os.close(self.open(path, os.O_RDONLY | os.O_DIRECTORY))

    def makedirs(self, path: str) -> None:
        """Make a directory and its parents; one that exists is fine."""
        try:
            self.mkdir(path)
        except FileExistsError:
            if not self.is_dir(path):
                raise
        except FileNotFoundError:
            parent = os.path.dirname(path.rstrip("/"))
            if parent == path or self.is_dir(parent):
                raise
            self.makedirs(parent)
            self.makedirs(path)


class HostPaths(Paths):
    """Paths of this machine, used as its user."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def stat(self, path: str, follow: bool = True) -> os.stat_result:
        return os.stat(path, follow_symlinks=follow)

    def readlink(self, path: str) -> str:
        return os.readlink(path)

    def realpath(self, path: str) -> str:
        return os.path.realpath(path)

    def is_writable(self, path: str) -> bool:
        return os.access(path, os.W_OK, effective_ids=True)

    def mkdir(self, path: str, mode: int = 0o777) -> None:
        os.mkdir(path, mode)

    def symlink(self, target: str, path: str) -> None:
        os.symlink(target, path)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        import shutil

        shutil.rmtree(path)

    def replace(self, old: str, new: str) -> None:
        os.replace(old, new)


HOST = HostPaths()
