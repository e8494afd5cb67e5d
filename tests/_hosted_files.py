"""Hosted sessions and files over the plainest service there is: its route for files is as bad as such a route gets.

It sees only what is below the workspace, reads a missing file as an empty one, and text so that what is no UTF-8 is
lost, and writes in two steps, at most 11 MiB.
"""

from __future__ import annotations

import codecs
from collections.abc import Generator, Iterable, Iterator, Sequence

from sandboxsync import LocalTransport
from sandboxsync.errors import FileError, ProtocolError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import ByteStream, SessionRef
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host
from sandboxsync.transports.http.hosted._raw import RawFiles
from tests._hosted_transport import HostedTransport, LocalExec


class LocalRaw(RawFiles):
    """The route, over the files of an isolated local transport."""

    piece = 11 << 20
    staging = "/workspace"
    suffix = ".png"

    def __init__(self, transport: LocalTransport, sandbox_id: str) -> None:
        self._transport = transport
        self._ref = SessionRef(sandbox_id, None)

    def read(self, path: str) -> Generator[bytes, None, None]:
        self._check(path)
        try:
            stream = self._transport.read_file(self._ref, path, 1 << 16)
        except FileError:
            return
        text = codecs.getincrementaldecoder("utf-8")("replace")
        try:
            for chunk in stream:
                yield chunk if path.endswith(self.suffix) else text.decode(chunk).encode()
        finally:
            stream.close()

    def write(self, path: str, data: bytes) -> None:
        self._check(path)
        if len(data) > self.piece:
            raise ProtocolError("payload too large")
        for end in (len(data) // 2, len(data)):
            self._transport.write_file(self._ref, path, [data[:end]])

    @staticmethod
    def _check(path: str) -> None:
        if not path.startswith("/workspace/") or not path.isprintable() or set(path) & set("?#%"):
            raise ProtocolError(f"forbidden: {path!r}")


class HostedFilesTransport(HostedTransport):
    """A transport that is hosted in all."""

    name = "HostedFilesTransport"

    def files(self, ref: SessionRef) -> HostedFiles:
        """The files of a sandbox."""
        host = Host(LocalExec(self._inner, ref.sandbox_id))
        return HostedFiles(host, LocalRaw(self._inner, ref.sandbox_id))

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        return self.files(ref).read_file(ref, path, chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        return self.files(ref).write_file(ref, path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self.files(ref).stat(ref, path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return self.files(ref).list_files(ref, path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        return self.files(ref).make_directory(ref, path, recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self.files(ref).remove_file(ref, path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self.files(ref).rename(ref, old, new)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        return self.files(ref).read_tree(ref, path, exclude)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self.files(ref).write_tree(ref, path, chunks)
