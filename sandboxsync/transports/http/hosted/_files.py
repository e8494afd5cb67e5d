"""Files of one sandbox, as the seam wants them, by its host and the service's own route."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence

from sandboxsync.models import FileInfo
from sandboxsync.transports.base import ByteStream, SessionRef
from sandboxsync.transports.http.hosted import _file_lists, _file_writes, _trees
from sandboxsync.transports.http.hosted._file_host import FileHost, info_of, path_argument, told
from sandboxsync.transports.http.hosted._file_reads import HostedReader
from sandboxsync.transports.http.hosted._host import Host
from sandboxsync.transports.http.hosted._raw import RawFiles

__all__ = ["HostedFiles"]

_PIECE = 1 << 20


class HostedFiles:
    """The file methods of `Transport`, for one sandbox. Any thread may use it."""

    def __init__(self, host: Host, raw: RawFiles) -> None:
        self._host = FileHost(host, raw)
        self._home = ""

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        """See `Transport.read_file`."""
        return HostedReader(self._host, ref, path, chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        """See `Transport.write_file`."""
        return _file_writes.write_file(self._host, ref, path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        """See `Transport.stat`."""
        return info_of(self._host.ask_at(ref, "file_stat", path, "follow" if follow_symlinks else ""))

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        """See `Transport.list_files`."""
        return _file_lists.list_files(self._host, ref, path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        """See `Transport.make_directory`."""
        lines = self._host.ask_at(ref, "file_mkdir", path, "parents" if recursive else "", secrets.token_hex(12))
        return told(lines, "at")

    def remove_file(self, ref: SessionRef, path: str) -> None:
        """See `Transport.remove_file`."""
        self._host.ask_at(ref, "file_remove", path, secrets.token_hex(12))

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        """See `Transport.rename`."""
        self._host.ask_at(ref, "file_rename", old, path_argument(new), secrets.token_hex(12))

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        """See `Transport.read_tree`."""
        return _trees.read_tree(self._host, ref, path, exclude)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        """See `Transport.write_tree`."""
        _trees.write_tree(self._host, ref, path, chunks)

    def lend(self, ref: SessionRef, data: bytes) -> str:
        """Put data where the host keeps long arguments; return its name there. Raises what `write_file` does."""
        name = secrets.token_hex(8)
        if not self._home:
            self._home = told(self._host.ask(ref, "file_home"), "home")
        view = memoryview(data)
        pieces = (bytes(view[at : at + _PIECE]) for at in range(0, len(data), _PIECE))
        self.write_file(ref, f"{self._home}/parts/{name}.000000", pieces)
        return name
