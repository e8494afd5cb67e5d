"""Files, and what only some transports can do, of any session, for ``Sandbox``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, BinaryIO, NoReturn

from ._content import Content, Progress
from ._files import CHUNK
from ._stream import FileStream
from ._unset import UNSET, Timeout
from ._validate import Env, LocalPath, RemotePath
from .models import FileInfo, MkdirResult, ReadFileResult, WriteFileResult

if TYPE_CHECKING:
    from ._operations import Operations


class SandboxFiles(ABC):
    """The verbs of ``Session`` on files and the rest, with ``session_id`` to say which session is meant.

    Relative paths are resolved against the directory of that session. Else as ``SandboxCommands``.
    """

    @abstractmethod
    def _on(self, session_id: str | None) -> Operations:
        """Return the verbs bound to a session, to the default one for ``None``."""

    def write_file(
        self,
        path: RemotePath,
        content: Content,
        *,
        encoding: str = "utf-8",
        progress: Progress | None = None,
        session_id: str | None = None,
    ) -> WriteFileResult:
        """Write a file, whole or not at all, and make its parents. See ``Session.write_file``."""
        return self._on(session_id).write_file(path, content, encoding=encoding, progress=progress)

    def read_file(self, path: RemotePath, *, session_id: str | None = None) -> ReadFileResult:
        """Return the whole content with what is known of the file. See ``Session.read_file``."""
        return self._on(session_id).read_file(path)

    def read_bytes(self, path: RemotePath, *, session_id: str | None = None) -> bytes:
        """Return the whole content. See ``Session.read_bytes``."""
        return self._on(session_id).read_bytes(path)

    def read_text(self, path: RemotePath, encoding: str = "utf-8", *, session_id: str | None = None) -> str:
        """Return the whole content decoded with ``encoding``, line ends as they are.

        See ``Session.read_text``.
        """
        return self._on(session_id).read_text(path, encoding)

    def read_file_stream(
        self, path: RemotePath, *, chunk_size: int = CHUNK, session_id: str | None = None
    ) -> FileStream:
        """Open a file and return its content as a stream of chunks of ``chunk_size`` bytes.

        See ``Session.read_file_stream``.
        """
        return self._on(session_id).read_file_stream(path, chunk_size=chunk_size)

    def mkdir(self, path: RemotePath, *, recursive: bool = False, session_id: str | None = None) -> MkdirResult:
        """Make a directory; with ``recursive`` its parents too, and one that exists is fine.

        See ``Session.mkdir``.
        """
        return self._on(session_id).mkdir(path, recursive=recursive)

    def delete_file(self, path: RemotePath, *, session_id: str | None = None) -> None:
        """Delete a file or a symlink. See ``Session.delete_file``."""
        self._on(session_id).delete_file(path)

    def rename_file(self, old: RemotePath, new: RemotePath, *, session_id: str | None = None) -> None:
        """Give a file or directory another path; an existing file is replaced.

        See ``Session.rename_file``.
        """
        self._on(session_id).rename_file(old, new)

    def move_file(self, source: RemotePath, destination: RemotePath, *, session_id: str | None = None) -> None:
        """Move a file or directory to ``destination``, or into it under the same name if it is a directory.

        See ``Session.move_file``.
        """
        self._on(session_id).move_file(source, destination)

    def list_files(
        self,
        path: RemotePath = ".",
        *,
        recursive: bool = False,
        include_hidden: bool = False,
        session_id: str | None = None,
    ) -> list[FileInfo]:
        """Return the entries of a directory, with ``recursive`` all below it, sorted by path; symlinks not followed.

        See ``Session.list_files``.
        """
        return self._on(session_id).list_files(path, recursive=recursive, include_hidden=include_hidden)

    def exists(self, path: RemotePath, *, session_id: str | None = None) -> bool:
        """Return whether there is something at ``path``; a symlink is followed. See ``Session.exists``."""
        return self._on(session_id).exists(path)

    def stat(self, path: RemotePath, *, session_id: str | None = None) -> FileInfo:
        """Return what lies at ``path``; a symlink is followed. See ``Session.stat``."""
        return self._on(session_id).stat(path)

    def upload(
        self,
        local: LocalPath,
        remote: RemotePath,
        *,
        exclude: Iterable[str] = (),
        progress: Progress | None = None,
        session_id: str | None = None,
    ) -> None:
        """Copy a file or a directory tree of this machine into the sandbox: ``remote`` is the copy.

        See ``Session.upload``.
        """
        self._on(session_id).upload(local, remote, exclude=exclude, progress=progress)

    def download(
        self,
        remote: RemotePath,
        local: LocalPath,
        *,
        exclude: Iterable[str] = (),
        progress: Progress | None = None,
        session_id: str | None = None,
    ) -> None:
        """Copy a file or a directory tree of the sandbox to this machine: ``local`` is the copy.

        See ``Session.download``.
        """
        self._on(session_id).download(remote, local, exclude=exclude, progress=progress)

    def persist(
        self,
        archive: LocalPath | BinaryIO,
        *,
        dir: RemotePath | None = None,
        exclude: Iterable[str] = (),
        session_id: str | None = None,
    ) -> None:
        """Write the workspace, or the directory ``dir``, as a tar to a local path or a binary file object.

        See ``Session.persist``.
        """
        self._on(session_id).persist(archive, dir=dir, exclude=exclude)

    def hydrate(
        self, archive: LocalPath | BinaryIO, *, dir: RemotePath | None = None, session_id: str | None = None
    ) -> None:
        """Unpack a tar into the workspace, or into the directory ``dir``, merged with what is there.

        See ``Session.hydrate``.
        """
        self._on(session_id).hydrate(archive, dir=dir)

    def terminal(
        self, *, cols: int = 80, rows: int = 24, shell: str | None = None, session_id: str | None = None
    ) -> NoReturn:
        """Open an interactive terminal. See ``Session.terminal``."""
        self._on(session_id).terminal(cols=cols, rows=rows, shell=shell)

    def create_code_context(
        self,
        *,
        language: str = "python",
        cwd: RemotePath | None = None,
        env: Env | None = None,
        timeout: Timeout = UNSET,
        session_id: str | None = None,
    ) -> NoReturn:
        """Start an interpreter that keeps its state. See ``Session.create_code_context``."""
        self._on(session_id).create_code_context(language=language, cwd=cwd, env=env, timeout=timeout)

    def run_code(
        self,
        code: str,
        *,
        context: object = None,
        language: str | None = None,
        env: Env | None = None,
        timeout: Timeout = UNSET,
        on_stdout: object = None,
        on_stderr: object = None,
        on_result: object = None,
        on_error: object = None,
        session_id: str | None = None,
    ) -> NoReturn:
        """Run code in an interpreter. See ``Session.run_code``."""
        self._on(session_id).run_code(
            code,
            context=context,
            language=language,
            env=env,
            timeout=timeout,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
            on_error=on_error,
        )

    def list_code_contexts(self, *, session_id: str | None = None) -> NoReturn:
        """Return the interpreters that run. See ``Session.list_code_contexts``."""
        self._on(session_id).list_code_contexts()

    def delete_code_context(self, id: str, *, session_id: str | None = None) -> NoReturn:
        """End an interpreter. See ``Session.delete_code_context``."""
        self._on(session_id).delete_code_context(id)

    def watch(
        self,
        path: RemotePath,
        *,
        recursive: bool = True,
        include: object = None,
        exclude: object = None,
        session_id: str | None = None,
    ) -> NoReturn:
        """Watch files change. See ``Session.watch``."""
        self._on(session_id).watch(path, recursive=recursive, include=include, exclude=exclude)

    def tunnel(self, port: int, *, session_id: str | None = None) -> NoReturn:
        """Make a port of the sandbox reachable. See ``Session.tunnel``."""
        self._on(session_id).tunnel(port)

    def close_tunnel(self, port: int, *, session_id: str | None = None) -> NoReturn:
        """End a tunnel. See ``Session.close_tunnel``."""
        self._on(session_id).close_tunnel(port)

    def mount_bucket(self, bucket: str, path: RemotePath, *, session_id: str | None = None) -> NoReturn:
        """Mount a bucket as a directory. See ``Session.mount_bucket``."""
        self._on(session_id).mount_bucket(bucket, path)

    def unmount_bucket(self, path: RemotePath, *, session_id: str | None = None) -> NoReturn:
        """End a mount. See ``Session.unmount_bucket``."""
        self._on(session_id).unmount_bucket(path)
