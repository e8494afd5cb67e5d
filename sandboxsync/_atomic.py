"""Replace a file of this machine whole or not at all (F2). Used below the seam and for the caller's own
files.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from ._paths import HOST, Paths
from ._temporary import temporary_name

_COPY = 1 << 20
_MAX_LINKS = 40
# A directory that may not be written, a file that is a mount point of its own or another user's in a sticky
# directory: such a file can be written, but not replaced.
_NOT_REPLACEABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})


class AtomicFile:
    """A file being written: nothing is seen at its path before :meth:`commit`, and nothing ever after
    :meth:`discard`.

    A symlink is followed, a missing target and missing parents are made. Owner and mode of an existing file
    are kept; a new one gets *new_mode*, or 0o666 as the umask leaves it. Of hard links only the name that is
    written changes.

    Two kinds of targets are written in place. What is no regular file (a device, a FIFO with a reader) takes
    each piece at once. A regular file that cannot be replaced, though it can be written, takes the whole
    content in :meth:`commit`, for which space is reserved first; only a failing disk can leave a mixture
    there.

    Every method blocks on the file system alone and raises the builtin :class:`OSError` as it comes. Not for
    two threads at once.
    """

    def __init__(self, path: str, *, new_mode: int | None = None, paths: Paths = HOST) -> None:
        """Check the target and open what is needed; nothing is changed but for missing parents.

        *paths* is where *path* is one. Raises :class:`IsADirectoryError`, :class:`PermissionError`, ``ENXIO`` for a
        FIFO that nobody reads, and whatever else the system says.
        """
        self._paths = paths
        self._target = _follow(paths, path)
        self._old = _stat(paths, self._target)
        self._temporary = ""
        self._fd = -1
        self._direct = False
        try:
            self._open(new_mode)
        except BaseException:
            self.discard()
            raise

    def _open(self, new_mode: int | None) -> None:
        old, target = self._old, self._target
        if old is None:
            self._open_beside(0o666)
            if new_mode is not None:
                os.fchmod(self._fd, new_mode)
        elif stat.S_ISDIR(old.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        elif not stat.S_ISREG(old.st_mode):
            # Without O_NONBLOCK a FIFO that nobody reads would block for ever.
            self._fd = self._paths.open(target, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
            os.set_blocking(self._fd, True)
            self._direct = True
        elif not self._paths.is_writable(target):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), target)
        else:
            try:
                self._open_beside(0o600)
                made = os.fstat(self._fd)
                if (old.st_uid, old.st_gid) != (made.st_uid, made.st_gid):
                    os.fchown(self._fd, old.st_uid, old.st_gid)
            except OSError as exc:
                if exc.errno not in _NOT_REPLACEABLE:
                    raise
                self.discard()
                self._open_spool()

    def _open_beside(self, mode: int) -> None:
        self._temporary = os.path.join(os.path.dirname(self._target), temporary_name())
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        self._fd = self._paths.open(self._temporary, flags, mode)

    def _open_spool(self) -> None:
        import tempfile

        with tempfile.TemporaryFile() as spool:
            self._fd = os.dup(spool.fileno())

    def write(self, data: bytes) -> None:
        """Take the next piece."""
        write_all(self._fd, data)

    def commit(self) -> None:
        """Put the content in its place. The object is used up, also when this raises."""
        try:
            if not self._direct:
                self._replace()
        finally:
            self.discard()

    def _replace(self) -> None:
        if self._temporary:
            try:
                if self._old is not None:
                    # Not earlier: a write takes the setuid bit away.
                    os.fchmod(self._fd, stat.S_IMODE(self._old.st_mode))
                self._paths.replace(self._temporary, self._target)
                self._temporary = ""
                return
            except OSError as exc:
                if self._old is None or exc.errno not in _NOT_REPLACEABLE:
                    raise
        _copy_into(self._paths, self._fd, self._target)

    def discard(self) -> None:
        """Forget what was written. Idempotent; the target stays as it was, unless it takes pieces at once."""
        fd, self._fd = self._fd, -1
        temporary, self._temporary = self._temporary, ""
        try:
            if fd >= 0:
                os.close(fd)
        finally:
            if temporary:
                # A read-only file system says that it is, also of a file that could not be made there.
                with suppress(OSError):
                    self._paths.unlink(temporary)


def write_all(fd: int, data: bytes) -> None:
    """Write all of *data*, however little the system takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _stat(paths: Paths, path: str) -> os.stat_result | None:
    try:
        return paths.stat(path)
    except FileNotFoundError:
        return None


def _follow(paths: Paths, path: str) -> str:
    """Return where *path* leads once no symlink is left in its last part, and make the parents of that.

    Not realpath, which makes up a path where symlinks go in circles.
    """
    for _ in range(_MAX_LINKS):
        parent = os.path.dirname(path) or "."
        if path.endswith("/"):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        try:
            path = os.path.join(parent, paths.readlink(path))
        except FileNotFoundError:
            if paths.is_dir(parent):
                return path
            _make_directories(paths, parent)
        except OSError as exc:
            if exc.errno != errno.EINVAL:
                raise
            return path
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _make_directories(paths: Paths, path: str) -> None:
    try:
        paths.makedirs(path)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None


def _copy_into(paths: Paths, source: int, target: str) -> None:
    size = os.fstat(source).st_size
    fd = paths.open(target, os.O_WRONLY | os.O_NOFOLLOW)
    try:
        _reserve(fd, size)
        offset = 0
        while data := os.pread(source, _COPY, offset):
            write_all(fd, data)
            offset += len(data)
        os.ftruncate(fd, size)
    finally:
        os.close(fd)


def _reserve(fd: int, size: int) -> None:
    # The old content must survive a full disk.
    before = os.fstat(fd).st_size
    if size <= before:
        return
    try:
        os.posix_fallocate(fd, before, size - before)
    except OSError as exc:
        os.ftruncate(fd, before)
        if exc.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
