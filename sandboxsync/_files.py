"""Files: read, write, list, move, and whole trees."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from errno import ELOOP
from typing import TYPE_CHECKING, BinaryIO

from ._client import Bound
from ._content import PIECE, Content, Progress, chunks_of, told
from ._decode import check_decoding
from ._stream import FileStream
from ._validate import (
    LocalPath,
    RemotePath,
    check_callback,
    check_int,
    check_local_path,
    check_path,
    check_patterns,
)
from .errors import (
    FileError,
    OutputDecodeError,
    SandboxFileNotFoundError,
    SandboxNotADirectoryError,
)
from .models import FileInfo, MkdirResult, ReadFileResult, WriteFileResult

if TYPE_CHECKING:
    from .transports.base import ByteStream

CHUNK = 65536


class FileVerbs(Bound):
    """Verbs on files. None waits for a running command; any thread may call them.

    A relative path is resolved against the session's directory as of its last finished command. Each raises
    ``InvalidRequestError`` for an empty path or a NUL, the ``FileError`` that fits,
    ``SessionDestroyedError``, ``SandboxDestroyedError``, and a ``TransportError`` when the sandbox cannot be
    reached.
    """

    def write_file(
        self, path: RemotePath, content: Content, *, encoding: str = "utf-8", progress: Progress | None = None
    ) -> WriteFileResult:
        """Write a file, whole or not at all, and make its parents. Blocks; memory stays constant for streams.

        ``content`` is ``str`` (written in ``encoding``), bytes, a binary file object that is read from where
        it stands, or an iterable of ``bytes``. What the content or ``progress(done, total)`` raises is raised
        here, and the file stays as it was. Raises ``SandboxIsADirectoryError``, ``SandboxPermissionError``,
        ``NoSpaceError`` ….
        """
        where = check_path(path)
        check_callback(progress, "progress")
        chunks, total = chunks_of(content, encoding, progress is not None)
        if progress is not None:
            chunks = told(chunks, total, progress)
        info = self._call(self._transport.write_file, self._ref, where, chunks)
        return WriteFileResult(info.path, info.size, self._transport.clock.now())

    def read_file(self, path: RemotePath) -> ReadFileResult:
        """Return the whole content with what is known of the file. ``mime_type`` is guessed from its name. Blocks.

        Raises ``SandboxFileNotFoundError``, ``SandboxIsADirectoryError``, ``SandboxPermissionError`` ….
        """
        stream, content = self._read(path)
        when = self._transport.clock.now()
        return ReadFileResult(stream.path, content, len(content), _mime_type(stream.path), when)

    def read_bytes(self, path: RemotePath) -> bytes:
        """Return the whole content. Blocks. Raises as ``read_file``."""
        return self._read(path)[1]

    def read_text(self, path: RemotePath, encoding: str = "utf-8") -> str:
        """Return the whole content decoded with ``encoding``, line ends as they are. Blocks.

        Raises ``OutputDecodeError`` (a ``UnicodeError``) when the content is no such text, and as
        ``read_file``.
        """
        check_decoding(encoding, "strict")
        content = self.read_bytes(path)
        try:
            return content.decode(encoding)
        except UnicodeError as exc:
            raise OutputDecodeError(f"{check_path(path)!r} is no text in {encoding!r}: {exc}") from exc

    def _read(self, path: RemotePath) -> tuple[ByteStream, bytes]:
        where = check_path(path)

        def read() -> tuple[ByteStream, bytes]:
            stream = self._transport.read_file(self._ref, where, PIECE)
            try:
                return stream, b"".join(stream)
            finally:
                stream.close()

        return self._call(read)

    def read_file_stream(self, path: RemotePath, *, chunk_size: int = CHUNK) -> FileStream:
        """Open a file and return its content as a stream of chunks of ``chunk_size`` bytes. Raises as ``read_file``."""
        where = check_path(path)
        check_int(chunk_size, "chunk_size", 1)
        stream = self._call(self._transport.read_file, self._ref, where, chunk_size)
        return FileStream(self._client, stream)

    def mkdir(self, path: RemotePath, *, recursive: bool = False) -> MkdirResult:
        """Make a directory; with ``recursive`` its parents too, and one that exists is fine.

        Raises ``SandboxFileExistsError``, ``SandboxFileNotFoundError`` (no parent) ….
        """
        made = self._call(self._transport.make_directory, self._ref, check_path(path), bool(recursive))
        return MkdirResult(made, bool(recursive), self._transport.clock.now())

    def delete_file(self, path: RemotePath) -> None:
        """Delete a file or a symlink. Raises ``SandboxFileNotFoundError``, ``SandboxIsADirectoryError`` ….

        A directory is deleted with ``exec(["rm", "-r", "--", path])``.
        """
        self._call(self._transport.remove_file, self._ref, check_path(path))

    def rename_file(self, old: RemotePath, new: RemotePath) -> None:
        """Give a file or directory another path; an existing file is replaced. Raises
        ``SandboxFileNotFoundError`` ….
        """
        self._call(self._transport.rename, self._ref, check_path(old, "old"), check_path(new, "new"))

    def move_file(self, source: RemotePath, destination: RemotePath) -> None:
        """Move a file or directory to ``destination``, or into it under the same name if it is a directory.

        An existing file is replaced. Raises ``SandboxFileNotFoundError`` ….
        """
        old, new = check_path(source, "source"), check_path(destination, "destination")
        name = posixpath.basename(old.rstrip("/"))
        target = self._look(new)
        if target is not None and target.type == "directory" and name not in ("", ".", ".."):
            new = posixpath.join(new, name)
        self._call(self._transport.rename, self._ref, old, new)

    def list_files(
        self, path: RemotePath = ".", *, recursive: bool = False, include_hidden: bool = False
    ) -> list[FileInfo]:
        """Return the entries of a directory, with ``recursive`` all below it, sorted by path; symlinks not followed.

        Without ``include_hidden``, no entry whose name, or that of a directory on the way to it, begins with
        a dot. Raises ``SandboxFileNotFoundError``, ``SandboxNotADirectoryError`` ….
        """
        entries = self._call(self._transport.list_files, self._ref, check_path(path), bool(recursive))
        if not include_hidden:
            entries = [e for e in entries if not _is_hidden(e.relative_path)]
        return sorted(entries, key=lambda entry: entry.path)

    def exists(self, path: RemotePath) -> bool:
        """Return whether there is something at ``path``; a symlink is followed. Raises ``SandboxPermissionError`` …."""
        return self._look(check_path(path)) is not None

    def _look(self, path: str) -> FileInfo | None:
        try:
            return self._call(self._transport.stat, self._ref, path, True)
        except (SandboxFileNotFoundError, SandboxNotADirectoryError):
            return None
        except FileError as exc:
            if exc.errno == ELOOP:
                return None
            raise

    def stat(self, path: RemotePath) -> FileInfo:
        """Return what lies at ``path``; a symlink is followed. Raises ``SandboxFileNotFoundError`` …."""
        return self._call(self._transport.stat, self._ref, check_path(path), True)

    def upload(
        self,
        local: LocalPath,
        remote: RemotePath,
        *,
        exclude: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """Copy a file or a directory tree of this machine into the sandbox: ``remote`` is the copy. Blocks.

        Directories are merged. ``exclude`` holds name patterns; ``progress(done, total)`` is told bytes.
        Memory stays constant. What goes wrong in the sandbox raises the ``FileError`` that fits, on this
        machine the builtin ``OSError``; what ``progress`` raises is raised here.
        """
        from . import _transfer

        source, target = check_local_path(local, "local"), check_path(remote, "remote")
        patterns = check_patterns(exclude, "exclude")
        check_callback(progress, "progress")
        self._call(_transfer.upload, self._transport, self._ref, source, target, exclude=patterns, progress=progress)

    def download(
        self,
        remote: RemotePath,
        local: LocalPath,
        *,
        exclude: Iterable[str] = (),
        progress: Progress | None = None,
    ) -> None:
        """Copy a file or a directory tree of the sandbox to this machine: ``local`` is the copy. Blocks.

        Nothing is made or followed outside ``local``. The options and errors are those of ``upload``.
        """
        from . import _transfer

        source, target = check_path(remote, "remote"), check_local_path(local, "local")
        patterns = check_patterns(exclude, "exclude")
        check_callback(progress, "progress")
        self._call(
            _transfer.download,
            self._transport,
            self._ref,
            source,
            target,
            exclude=patterns,
            progress=progress,
        )

    def persist(
        self, archive: LocalPath | BinaryIO, *, dir: RemotePath | None = None, exclude: Iterable[str] = ()
    ) -> None:
        """Write the workspace, or the directory ``dir``, as a tar to a local path or a binary file object. Blocks.

        ``exclude`` holds name patterns. Raises the ``FileError`` of the sandbox or the ``OSError`` of this
        machine.
        """
        from . import _transfer

        target = archive if hasattr(archive, "write") else check_local_path(archive, "archive")
        where = None if dir is None else check_path(dir, "dir")
        patterns = check_patterns(exclude, "exclude")
        self._call(_transfer.persist, self._transport, self._ref, target, dir=where, exclude=patterns)

    def hydrate(self, archive: LocalPath | BinaryIO, *, dir: RemotePath | None = None) -> None:
        """Unpack a tar into the workspace, or into the directory ``dir``, merged with what is there. Blocks.

        Nothing is made or followed outside of it. Raises the ``FileError`` of the sandbox or the ``OSError``
        of this machine.
        """
        from . import _transfer

        source = archive if hasattr(archive, "read") else check_local_path(archive, "archive")
        where = None if dir is None else check_path(dir, "dir")
        self._call(_transfer.hydrate, self._transport, self._ref, source, dir=where)


def _is_hidden(relative_path: str) -> bool:
    return relative_path.startswith(".") or "/." in relative_path


def _mime_type(path: str) -> str:
    from ._mime import guess

    return guess(path)
