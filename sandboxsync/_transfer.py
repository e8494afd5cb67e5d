"""Whole files and trees between this machine and a sandbox, composed from the primitives of the seam.

Everything goes through in pieces: memory stays constant whatever the size. What concerns the sandbox raises
the errors of the seam; what concerns the caller's own files raises the builtin :class:`OSError` that `open`
would raise, so that the two can be told apart.
"""

from __future__ import annotations

import errno
import os
import posixpath
import stat
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import BinaryIO, Protocol, TypeAlias

from ._archive import Exclude, check, measure, pack, pack_file, unpack
from ._atomic import AtomicFile
from ._tarstream import gunzip, gzipped
from .errors import FileError, InvalidRequestError, SandboxFileNotFoundError
from .models import FileInfo
from .transports.base import SessionRef, Transport

__all__ = ["download", "hydrate", "persist", "upload"]

Progress: TypeAlias = Callable[[int, "int | None"], object]
LocalPath: TypeAlias = "str | os.PathLike[str]"


class Readable(Protocol):
    """What has a binary ``read``."""

    def read(self, size: int, /) -> bytes | None:
        """Return at most *size* bytes, none at the end."""


_PIECE = 1 << 18
# What a new file gets anyway, or near enough: a umask is no property of the file.
_PLAIN_MODES = (0o644, 0o664)


def upload(
    transport: Transport,
    ref: SessionRef,
    local: LocalPath,
    remote: str,
    *,
    exclude: Sequence[str] = (),
    progress: Progress | None = None,
) -> None:
    """Copy a local file or directory tree to *remote*, which is the copy: a directory is merged if it exists.

    A new file gets the mode of the local one, an existing one keeps its own and is replaced as `write_file`
    does it; a tree is packed and unpacked as :mod:`sandboxsync._archive` says. A symlink *local* is followed.
    *exclude* counts for trees. *progress* is told the bytes of content sent and their total, first with 0;
    what it raises is passed on.

    Blocks until all is there. Raises :class:`InvalidRequestError` for *exclude*, :class:`OSError` for local
    files, and what `write_file` and `write_tree` raise.
    """
    Exclude(exclude)
    source = os.fspath(local)
    status = os.stat(source)
    if stat.S_ISDIR(status.st_mode):
        told = _Told(progress)
        if progress is not None:
            with _own_files():
                told.begin(measure(source, exclude))
        transport.write_tree(ref, remote, _own(pack(source, exclude, on_data=told.more)))
        return
    with open(source, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        told = _Told(progress)
        told.begin(status.st_size if regular else None)
        mode = stat.S_IMODE(status.st_mode) & 0o777
        if regular and mode not in _PLAIN_MODES and _is_free(transport, ref, remote):
            # Only a tree carries modes.
            parent, name = posixpath.split(remote)
            transport.write_tree(ref, parent or ".", _own(pack_file(file.fileno(), name, on_data=told.more)))
        else:
            transport.write_file(ref, remote, told.counted(_pieces(file)))


def _is_free(transport: Transport, ref: SessionRef, remote: str) -> bool:
    if posixpath.basename(remote) in ("", ".", ".."):
        return False
    try:
        transport.stat(ref, remote, False)
    except SandboxFileNotFoundError:
        return True
    return False


def download(
    transport: Transport,
    ref: SessionRef,
    remote: str,
    local: LocalPath,
    *,
    exclude: Sequence[str] = (),
    progress: Progress | None = None,
) -> None:
    """Copy a file or directory tree of the sandbox to *local*, which is the copy: a directory is merged if it
    exists.

    A file is written whole or not at all; a new one gets the mode of the remote one, an existing one keeps
    its own. A tree is unpacked as :mod:`sandboxsync._archive` says: nothing is made or followed outside
    *local* (F6). Missing parents of *local* are made. *exclude* and *progress* are as for :func:`upload`.

    Blocks until all is there. Raises what `stat`, `read_file` and `read_tree` raise, :class:`OSError` for
    local files, and a :class:`FileError` (``EINVAL``) for a tree that holds what must not be made; of
    symlinks that lead outside, only after all the rest was made.
    """
    matcher = Exclude(exclude)
    target = os.fspath(local)
    info = transport.stat(ref, remote, True)
    told = _Told(progress)
    if info.type != "directory":
        _download_file(transport, ref, remote, target, info, told)
        return
    if progress is not None:
        entries = transport.list_files(ref, remote, True)
        told.begin(sum(e.size for e in entries if e.type == "file" and not matcher.matches(e.relative_path, False)))
    with _Tree(transport.read_tree(ref, remote, exclude)) as tree:
        try:
            unpack(tree, target, on_data=told.more)
        except (FileError, InvalidRequestError) as exc:
            if exc is tree.failure:
                raise
            if isinstance(exc, FileError):
                raise _builtin(exc) from exc
            text = f"not all of {remote!r} was copied: {exc}"
            raise FileError(text, errno=errno.EINVAL, filename=remote, context=exc.context) from exc


def _download_file(
    transport: Transport, ref: SessionRef, remote: str, target: str, info: FileInfo, told: _Told
) -> None:
    stream = transport.read_file(ref, remote, _PIECE)
    try:
        told.begin(stream.size)
        _write(target, told.counted(stream), info.mode & 0o777)
    finally:
        stream.close()


def persist(
    transport: Transport,
    ref: SessionRef,
    archive: LocalPath | BinaryIO,
    *,
    dir: str | None = None,
    exclude: Sequence[str] = (),
) -> None:
    """Write the workspace, or the directory *dir*, as a tar to *archive*.

    A path is written whole or not at all, gzipped when its name ends in ``.gz`` or ``.tgz``; its missing
    parents are made. To a binary file object the tar is written as it comes, and it is left open where the
    tar ends.

    Blocks until all is written. Raises what `read_tree` raises, and what the local file raises.
    """
    where = transport.workspace(ref.sandbox_id) if dir is None else dir
    with _Tree(transport.read_tree(ref, where, exclude)) as tree:
        if isinstance(archive, (str, os.PathLike)):
            path = os.fspath(archive)
            _write(path, gzipped(tree) if path.endswith((".gz", ".tgz")) else tree, None)
            return
        for chunk in tree:
            rest = chunk
            while rest:
                # An unbuffered file may take less, others take all and need not say so.
                taken = archive.write(rest) or len(rest)
                rest = rest[taken:]


def hydrate(transport: Transport, ref: SessionRef, archive: LocalPath | BinaryIO, *, dir: str | None = None) -> None:
    """Unpack a tar, or gzipped tar, into the workspace or the directory *dir*, merged with what is there.

    The archive is read twice, first to check it whole: one that is damaged, cut or holds what is never
    unpacked raises :class:`InvalidRequestError` before the sandbox is touched. A file object is read from
    where it stands; one that cannot seek is first copied to a temporary file on disk.

    Blocks until all is there. Raises what `write_tree` raises, and what the local file raises.
    """
    if isinstance(archive, (str, os.PathLike)):
        with open(archive, "rb") as file:
            _hydrate(transport, ref, file, dir)
    else:
        _hydrate(transport, ref, archive, dir)


def _hydrate(transport: Transport, ref: SessionRef, file: BinaryIO, dir: str | None) -> None:
    if not file.seekable():
        import tempfile

        with tempfile.TemporaryFile() as spool:
            for piece in _pieces(file):
                spool.write(piece)
            spool.seek(0)
            _hydrate(transport, ref, spool, dir)
        return
    start = file.tell()
    check(_pieces(file))
    file.seek(start)
    where = transport.workspace(ref.sandbox_id) if dir is None else dir
    transport.write_tree(ref, where, gunzip(_pieces(file)))


class _Told:
    """Counts bytes and tells the user's callback, if there is one."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self._done = 0
        self._total: int | None = None

    def begin(self, total: int | None) -> None:
        self._total = total
        self.more(0)

    def more(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            # What is read may have grown since it was measured.
            total = None if self._total is None else max(self._total, self._done)
            self._progress(self._done, total)

    def counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self.more(len(chunk))


class _Tree:
    """A tree on its way from the sandbox. Its first piece is asked for at once: before that nothing local
    changes.
    """

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._first = next(chunks, b"")
        self.failure: BaseException | None = None

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        try:
            yield from self._chunks
        except BaseException as exc:
            self.failure = exc
            raise

    def __enter__(self) -> _Tree:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._chunks, Generator):
            self._chunks.close()


def _write(path: str, chunks: Iterable[bytes], mode: int | None) -> None:
    file = AtomicFile(path, new_mode=mode)
    try:
        for chunk in chunks:
            file.write(chunk)
        file.commit()
    finally:
        file.discard()


def _pieces(file: Readable) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        if not isinstance(piece, (bytes, bytearray, memoryview)):
            raise InvalidRequestError("a binary file object is needed, and this one reads text")
        yield bytes(piece)


def _own(chunks: Iterable[bytes]) -> Iterator[bytes]:
    with _own_files():
        yield from chunks


@contextmanager
def _own_files() -> Iterator[None]:
    try:
        yield
    except FileError as exc:
        raise _builtin(exc) from exc


def _builtin(exc: FileError) -> OSError:
    # The constructor chooses the subclass by the number.
    reason = str(exc) if type(exc) is FileError else exc.strerror
    return OSError(exc.errno, reason, exc.filename)
