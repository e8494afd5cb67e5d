"""Whole files and trees between this machine and a sandbox."""

from __future__ import annotations

import errno
import gzip
import io
import os
import subprocess
import sys
import tarfile
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from sandboxsync import _archive, _transfer
from sandboxsync._paths import HOST
from sandboxsync.errors import (
    FileError,
    InvalidRequestError,
    SandboxFileNotFoundError,
    SandboxIsADirectoryError,
    TransportError,
)
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import SessionRef, Transport
from sandboxsync.transports.local.files import FileReader, Files

REF = SessionRef("s", None)


class BrokenStream(FileReader):
    """Breaks after its first chunk."""

    started = False

    def __next__(self) -> bytes:
        if self.started:
            raise TransportError("broke")
        self.started = True
        return super().__next__()


class TreeTransport:
    """The file half of a transport over a directory, with faults to order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = Files()
        self.asked: list[str] = []
        self.break_after: int | None = None
        self.tree: Iterator[bytes] | None = None

    def _path(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _broken(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for number, chunk in enumerate(chunks):
            if self.break_after == number:
                raise TransportError("broke")
            yield chunk

    def workspace(self, sandbox_id: str) -> str:
        return str(self.root)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self.files.stat(self._path(path), follow_symlinks)

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> FileReader:
        kind = FileReader if self.break_after is None else BrokenStream
        return kind(HOST, self._path(path), chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        self.asked.append("write_file")
        return self.files.write(self._path(path), self._broken(chunks))

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return self.files.list(self._path(path), recursive)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        self.tree = self._broken(_archive.pack(self._path(path), exclude))
        return self.tree

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self.asked.append("write_tree")
        _archive.unpack(self._broken(chunks), self._path(path))


class Both:
    """A sandbox and a local directory, and the four verbs between them."""

    def __init__(self, base: Path) -> None:
        self.box, self.here = base / "box", base / "here"
        self.box.mkdir()
        self.here.mkdir()
        self.stub = TreeTransport(self.box)
        self.transport = cast("Transport", self.stub)
        self.told: list[tuple[int, int | None]] = []

    def tell(self, done: int, total: int | None) -> None:
        self.told.append((done, total))

    def upload(self, local: str, remote: str, exclude: Sequence[str] = ()) -> None:
        self.told.clear()
        _transfer.upload(self.transport, REF, self.here / local, remote, exclude=exclude, progress=self.tell)

    def download(self, remote: str, local: str, exclude: Sequence[str] = ()) -> None:
        self.told.clear()
        _transfer.download(self.transport, REF, remote, self.here / local, exclude=exclude, progress=self.tell)

    def persist(self, archive: Path | BinaryIO, dir: str | None = None, exclude: Sequence[str] = ()) -> None:
        _transfer.persist(self.transport, REF, archive, dir=dir, exclude=exclude)

    def hydrate(self, archive: Path | BinaryIO, dir: str | None = None) -> None:
        _transfer.hydrate(self.transport, REF, archive, dir=dir)


@pytest.fixture
def both(tmp_path: Path) -> Both:
    """An empty sandbox and an empty local directory."""
    return Both(tmp_path)


def fill(root: Path) -> None:
    """Make a small tree."""
    (root / "sub/empty").mkdir(parents=True)
    (root / "sub/script").write_bytes(b"#!/bin/sh\n")
    (root / "sub/script").chmod(0o750)
    (root / "a.log").write_bytes(b"log")
    (root / "link").symlink_to("sub/script")


def names(root: Path) -> list[str]:
    """All below a directory."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


TREE = ["a.log", "link", "sub", "sub/empty", "sub/script"]


class TestUpload:
    @pytest.mark.parametrize("size", [0, 1, 1 << 20])
    def test_file(self, both: Both, size: int) -> None:
        """F1: a file arrives, with missing parents, and progress goes from 0 to its size."""
        data = os.urandom(size)
        (both.here / "f").write_bytes(data)
        both.upload("f", "a/b/g")
        assert (both.box / "a/b/g").read_bytes() == data
        assert (both.told[0], both.told[-1]) == ((0, size), (size, size))
        assert both.told == sorted(both.told)

    @pytest.mark.parametrize("mode", [0o755, 0o600, 0o644])
    def test_new_file_keeps_its_mode(self, both: Both, mode: int) -> None:
        """F6: a new file has the mode of the local one, in a directory or beside others."""
        (both.here / "f").write_bytes(b"x" * 1000)
        (both.here / "f").chmod(mode)
        for remote in ("g", "a/b/g"):
            both.upload("f", remote)
            assert (both.box / remote).read_bytes() == b"x" * 1000
            assert (both.box / remote).stat().st_mode & 0o777 == mode
            assert both.told[-1] == (1000, 1000)

    def test_existing_file(self, both: Both) -> None:
        """F2: an existing file keeps its mode, a symlink is followed, a directory is an error."""
        (both.here / "f").write_bytes(b"new")
        (both.here / "f").chmod(0o755)
        (both.box / "g").write_bytes(b"old")
        (both.box / "g").chmod(0o600)
        (both.box / "l").symlink_to("g")
        (both.box / "d").mkdir()
        both.upload("f", "l")
        assert os.readlink(both.box / "l") == "g"
        assert (both.box / "g").read_bytes() == b"new"
        assert (both.box / "g").stat().st_mode & 0o777 == 0o600
        for remote in ("d", "d/", "d/..", "new/"):
            with pytest.raises(SandboxIsADirectoryError):
                both.upload("f", remote)

    def test_tree(self, both: Both) -> None:
        """F6: a tree arrives as the remote directory itself, merged with what is there, and twice is as once."""
        fill(both.here)
        (both.box / "t/sub").mkdir(parents=True)
        (both.box / "t/sub/other").touch()
        for _ in range(2):
            both.upload("", "t")
            assert names(both.box / "t") == sorted([*TREE, "sub/other"])
        assert (both.box / "t/sub/script").stat().st_mode & 0o777 == 0o750
        assert os.readlink(both.box / "t/link") == "sub/script"
        assert (both.told[0], both.told[-1]) == ((0, 13), (13, 13))
        both.upload("", "u", ["*.log", "sub/empty/"])
        assert names(both.box / "u") == ["link", "sub", "sub/script"]
        assert both.told[-1] == (10, 10)

    def test_local_errors_are_the_builtins(self, both: Both) -> None:
        """F3: what is wrong with the caller's own files is told as Python tells it."""
        with pytest.raises(FileNotFoundError) as caught:
            both.upload("no", "x")
        assert not isinstance(caught.value, FileError)
        assert caught.value.filename == str(both.here / "no")
        (both.here / "d").mkdir()
        os.mkfifo(both.here / "d/fifo")
        with pytest.raises(OSError, match="FIFO") as other:
            both.upload("d", "x")
        assert not isinstance(other.value, FileError)
        assert (other.value.errno, other.value.filename) == (errno.EINVAL, str(both.here / "d/fifo"))

    def test_what_progress_raises(self, both: Both) -> None:
        """F2: what progress raises reaches the caller, and no half file is left."""
        (both.here / "f").write_bytes(bytes(1 << 20))
        (both.box / "f").write_bytes(b"old")

        def progress(done: int, total: int | None) -> None:
            if done:
                raise KeyboardInterrupt

        for local in (both.here / "f", both.here):
            with pytest.raises(KeyboardInterrupt):
                _transfer.upload(both.transport, REF, local, "f" if local.is_file() else "t", progress=progress)
        assert (both.box / "f").read_bytes() == b"old"
        assert names(both.box) == ["f", "t"]

    def test_bad_patterns_come_first(self, both: Both) -> None:
        """F6: a bad pattern raises before anything is looked at, also for a single file."""
        (both.here / "f").touch()
        for local in ("f", "no"):
            with pytest.raises(InvalidRequestError):
                both.upload(local, "x", ["/a"])
            with pytest.raises(InvalidRequestError):
                both.download(local, "x", ["/a"])
        assert names(both.box) == []


class TestDownload:
    @pytest.mark.parametrize("size", [0, 1, 1 << 20])
    def test_file(self, both: Both, size: int) -> None:
        """F1: a file arrives, with missing parents and its mode, and progress goes from 0 to its size."""
        data = os.urandom(size)
        (both.box / "f").write_bytes(data)
        (both.box / "f").chmod(0o4751)
        both.download("f", "a/g")
        assert (both.here / "a/g").read_bytes() == data
        assert (both.here / "a/g").stat().st_mode & 0o7777 == 0o751
        assert (both.told[0], both.told[-1]) == ((0, size), (size, size))

    def test_existing_file(self, both: Both) -> None:
        """F2: an existing local file keeps its mode and a symlink is followed; a directory is a builtin error."""
        (both.box / "f").write_bytes(b"new")
        (both.here / "g").write_bytes(b"old")
        (both.here / "g").chmod(0o600)
        (both.here / "l").symlink_to("g")
        both.download("f", "l")
        assert (both.here / "g").read_bytes() == b"new"
        assert (both.here / "g").stat().st_mode & 0o777 == 0o600
        with pytest.raises(IsADirectoryError) as caught:
            both.download("f", "")
        assert not isinstance(caught.value, FileError)

    def test_broken_file(self, both: Both) -> None:
        """F2: a file whose download breaks is not there, an old one stays."""
        (both.box / "f").write_bytes(bytes(1 << 20))
        (both.here / "old").write_bytes(b"old")
        both.stub.break_after = 1
        for local in ("new", "old"):
            with pytest.raises(TransportError):
                both.download("f", local)
        assert names(both.here) == ["old"]
        assert (both.here / "old").read_bytes() == b"old"

    def test_tree(self, both: Both) -> None:
        """F6: a tree arrives as the local directory itself, merged, without what is excluded."""
        fill(both.box)
        both.download("", "t")
        assert names(both.here / "t") == TREE
        assert (both.here / "t/sub/script").stat().st_mode & 0o777 == 0o750
        assert (both.told[0], both.told[-1]) == ((0, 13), (13, 13))
        both.download(".", "u", ["sub"])
        assert names(both.here / "u") == ["a.log", "link"]
        assert both.told[-1] == (3, 3)
        (both.here / "file").touch()
        with pytest.raises(NotADirectoryError) as caught:
            both.download("", "file")
        assert not isinstance(caught.value, FileError)

    def test_remote_errors(self, both: Both) -> None:
        """F3: what is wrong in the sandbox is a FileError, and nothing local is made."""
        with pytest.raises(SandboxFileNotFoundError):
            both.download("no", "x")
        (both.box / "d").mkdir()
        os.mkfifo(both.box / "d/fifo")
        with pytest.raises(FileError, match="FIFO"):
            both.download("d", "x")
        with pytest.raises(FileError):
            both.download("d/fifo", "x")
        assert names(both.here) == []

    def test_links_that_lead_outside(self, both: Both) -> None:
        """F6: symlinks that lead outside are not made; the rest is, and the call says what is missing."""
        fill(both.box)
        (both.box / "etc").symlink_to("/etc")
        with pytest.raises(FileError, match="'etc'") as caught:
            both.download("", "t")
        assert caught.value.context["refused"] == ["etc"]
        assert names(both.here / "t") == TREE

    @pytest.mark.parametrize("name", ["../evil", "/tmp/evil-download"])
    def test_lying_sandbox(self, both: Both, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """F6: an archive from the sandbox that leads outside is refused, and nothing is made outside."""
        info = tarfile.TarInfo(name)
        monkeypatch.setattr(both.stub, "read_tree", lambda *_: iter([info.tobuf() + bytes(1024)]))
        with pytest.raises(FileError):
            both.download("", "t")
        assert not os.path.lexists("/tmp/evil-download")
        assert names(both.here) == ["t"]

    def test_broken_tree(self, both: Both) -> None:
        """F2: a tree whose download breaks raises what broke it, its half file is not there, its source is closed."""
        (both.box / "f").write_bytes(bytes(1 << 20))
        both.stub.break_after = 2
        with pytest.raises(TransportError):
            both.download("", "t")
        assert names(both.here / "t") == []
        both.stub.break_after = None

        def progress(done: int, total: int | None) -> None:
            if done:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            _transfer.download(both.transport, REF, "", both.here / "t", progress=progress)
        assert both.stub.tree is not None
        assert list(both.stub.tree) == []
        assert names(both.here / "t") == []


class TestPersistAndHydrate:
    def test_round_trip(self, both: Both, tmp_path: Path) -> None:
        """F6: the workspace goes out to a path and comes back, without what was excluded."""
        fill(both.box)
        both.persist(tmp_path / "new/dir/w.tar", exclude=["*.log"])
        (both.box / "again").mkdir()
        both.hydrate(tmp_path / "new/dir/w.tar", "again")
        assert names(both.box / "again") == [name for name in TREE if name != "a.log"]
        (both.box / "sub/script").unlink()
        both.hydrate(tmp_path / "new/dir/w.tar")
        assert (both.box / "sub/script").read_bytes() == b"#!/bin/sh\n"

    def test_relative_local_paths(self, both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
        """F1: local paths may be relative to the current directory, with and without a directory in them."""
        fill(both.box)
        monkeypatch.chdir(both.here)
        for name in ("w.tar", "d/w.tar"):
            _transfer.persist(both.transport, REF, name, exclude=["t"])
            _transfer.hydrate(both.transport, REF, name, dir="t")
        for name in ("f", "e/f"):
            _transfer.download(both.transport, REF, "a.log", name)
            _transfer.upload(both.transport, REF, name, "again")
        _transfer.download(both.transport, REF, "t", "tree")
        _transfer.upload(both.transport, REF, ".", "all")
        assert names(both.box / "all/tree") == TREE
        assert (both.box / "all/e/f").read_bytes() == (both.box / "again").read_bytes() == b"log"

    def test_zipped(self, both: Both, tmp_path: Path) -> None:
        """F6: a path that ends in .gz or .tgz holds a gzip; both kinds are hydrated."""
        fill(both.box)
        for name in ("w.tar.gz", "w.tgz"):
            both.persist(tmp_path / name, "sub")
            assert (tmp_path / name).read_bytes()[:2] == b"\x1f\x8b"
            with tarfile.open(tmp_path / name, "r:gz") as tar:
                assert tar.getnames() == ["empty", "script"]
            both.hydrate(tmp_path / name, name)
            assert names(both.box / name) == ["empty", "script"]

    def test_file_objects(self, both: Both) -> None:
        """F6: a binary file object is written and read from where it stands, and left open."""
        fill(both.box)
        buffer = io.BytesIO(b"head")
        buffer.seek(4)
        both.persist(buffer)
        buffer.write(b"tail")
        buffer.seek(4)
        both.hydrate(buffer, "t")
        assert not buffer.closed
        assert names(both.box / "t") == TREE

    def test_pipes(self, both: Both, tmp_path: Path) -> None:
        """F6: file objects that take little at a time, or cannot seek, will do."""
        fill(both.box)
        (both.box / "big").write_bytes(bytes(1 << 20))

        class Slow(io.RawIOBase):
            taken = bytearray()

            def writable(self) -> bool:
                return True

            def write(self, data: object) -> int:
                piece = bytes(cast("bytes", data)[:1000])
                self.taken += piece
                return len(piece)

        both.persist(cast("BinaryIO", Slow()))
        (tmp_path / "w.tar").write_bytes(Slow.taken)
        with subprocess.Popen(["cat", str(tmp_path / "w.tar")], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            both.hydrate(cast("BinaryIO", process.stdout), "t")
        assert names(both.box / "t") == sorted(["big", *TREE])

    def test_writer_that_returns_nothing(self, both: Both) -> None:
        """F6: a write method that does not say how much it took has taken all."""
        fill(both.box)

        class Writer:
            def __init__(self) -> None:
                self.pieces: list[bytes] = []
                self.write: Callable[[bytes], None] = self.pieces.append

        writer = Writer()
        both.persist(cast("BinaryIO", writer))
        with tarfile.open(fileobj=io.BytesIO(b"".join(writer.pieces))) as tar:
            assert sorted(tar.getnames()) == TREE

    def test_whole_or_not_at_all(self, both: Both, tmp_path: Path) -> None:
        """F2: a persist that fails leaves no file, or the old one."""
        (both.box / "f").write_bytes(bytes(1 << 20))
        (tmp_path / "old.tar").write_bytes(b"old")
        both.stub.break_after = 2
        for name in ("old.tar", "new.tar", "new.tar.gz"):
            with pytest.raises(TransportError):
                both.persist(tmp_path / name)
        with pytest.raises(SandboxFileNotFoundError):
            both.persist(tmp_path / "new.tar", "no")
        assert (tmp_path / "old.tar").read_bytes() == b"old"
        assert not [name for name in os.listdir(tmp_path) if name.startswith((".", "new"))]

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"garbage" * 1000,
            gzip.compress(b"garbage" * 1000, mtime=0),
            tarfile.TarInfo("../evil").tobuf() + bytes(1024),
            tarfile.TarInfo("f").tobuf() * 3,
        ],
    )
    def test_bad_archives_reach_no_sandbox(self, both: Both, tmp_path: Path, data: bytes) -> None:
        """F6: garbage, a cut archive and one that leads outside are refused before the sandbox is touched."""
        (tmp_path / "bad").write_bytes(data)
        with pytest.raises(InvalidRequestError):
            both.hydrate(tmp_path / "bad")
        with pytest.raises(InvalidRequestError):
            both.hydrate(io.BytesIO(data))
        with pytest.raises(InvalidRequestError):
            both.hydrate(cast("BinaryIO", io.StringIO("text")))
        assert both.stub.asked == []

    def test_local_errors_are_the_builtins(self, both: Both, tmp_path: Path) -> None:
        """F3: an archive that is missing, or a directory, is told as Python tells it."""
        with pytest.raises(FileNotFoundError) as caught:
            both.hydrate(tmp_path / "no")
        with pytest.raises(IsADirectoryError) as other:
            both.hydrate(tmp_path)
        with pytest.raises(IsADirectoryError) as third:
            both.persist(tmp_path)
        assert not any(isinstance(error.value, FileError) for error in (caught, other, third))


class TestSize:
    def test_memory_is_constant(self, both: Both, tmp_path: Path) -> None:
        """F1: 64 MiB go through every verb in a few MiB of memory."""
        with open(both.here / "big", "wb") as file:
            file.truncate(64 << 20)
        tracemalloc.start()
        try:
            both.upload("big", "big")
            both.upload("", "tree")
            both.download("big", "again")
            both.download("tree", "copy")
            both.persist(tmp_path / "w.tar", "tree")
            both.persist(tmp_path / "w.tar.gz", "tree")
            both.hydrate(tmp_path / "w.tar.gz", "back")
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        for path in (both.box / "big", both.box / "back/big", both.here / "again", both.here / "copy/big"):
            assert path.stat().st_size == 64 << 20

    def test_importing_is_light(self) -> None:
        """Importing the module imports no archive code that is not needed yet."""
        code = f"import sys, {_transfer.__name__}; print(*sys.modules)"
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert not {"tarfile", "tempfile", "shutil", "bz2", "lzma"} & set(result.stdout.split())
