"""Files of the fake: the seam's operations on a volume, trees in and out, and the mapping for tests."""

from __future__ import annotations

import errno
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandboxsync._archive import pack, unpack
from sandboxsync._temporary import temporary_name
from sandboxsync.errors import (
    FileError,
    InvalidRequestError,
    NoSpaceError,
    SandboxError,
    SandboxFileExistsError,
    SandboxFileNotFoundError,
    SandboxIsADirectoryError,
    SandboxNotADirectoryError,
)
from sandboxsync.transports.fake._files import VolumeFiles
from sandboxsync.transports.fake._mapping import VolumeMapping
from sandboxsync.transports.fake._volume import Volume

W = "/workspace"


@pytest.fixture
def volume() -> Volume:
    """A new volume."""
    return Volume()


@pytest.fixture
def files(volume: Volume) -> VolumeFiles:
    """The operations under test."""
    return VolumeFiles(volume)


class TestReadAndWrite:
    def test_bytes_come_back(self, files: VolumeFiles) -> None:
        """F1: the bytes that were written are read, in chunks that are full but for the last."""
        info = files.write(f"{W}/f", iter([b"abc", b"", b"defg"]))
        assert (info.name, info.path, info.relative_path, info.type, info.size) == ("f", f"{W}/f", "f", "file", 7)
        stream = files.open_read(f"{W}/./f", 3)
        assert (stream.path, stream.size, list(stream)) == (f"{W}/f", 7, [b"abc", b"def", b"g"])
        stream = files.open_read(f"{W}/f", 3)
        next(stream)
        stream.close()
        stream.close()
        assert list(stream) == []

    def test_a_stream_holds_what_was_opened(self, files: VolumeFiles) -> None:
        """F2: who reads sees the file as it was opened, whole, whatever is written meanwhile."""
        files.write(f"{W}/f", [b"old" * 10])
        stream = files.open_read(f"{W}/f", 5)
        first = next(stream)
        files.write(f"{W}/f", [b"new"])
        files.remove(f"{W}/f")
        assert first + b"".join(stream) == b"old" * 10

    def test_a_failing_source_changes_nothing(self, files: VolumeFiles, volume: Volume) -> None:
        """F2: what the source raises is passed on, and the file is as it was or is not there."""

        def broken() -> Iterator[bytes]:
            yield b"new"
            raise LookupError("the source broke")

        files.write(f"{W}/old", [b"old"])
        for name in ("old", "new", "deep/new"):
            with pytest.raises(LookupError):
                files.write(f"{W}/{name}", broken())
        assert volume.read(f"{W}/old") == b"old"
        assert volume.listdir(W) == ["deep", "old"]
        volume.capacity = volume.used + 10
        with pytest.raises(NoSpaceError):
            files.write(f"{W}/old", [bytes(8), bytes(8)])
        assert volume.read(f"{W}/old") == b"old"

    def test_what_is_kept(self, files: VolumeFiles, volume: Volume) -> None:
        """F2: symlinks are followed, also into what is missing; modes stay; other hard links keep the old content."""
        files.write(f"{W}/d/f", [b"old"])
        volume.chmod(f"{W}/d/f", 0o751)
        volume.link(f"{W}/d/f", f"{W}/hard")
        volume.symlink("d/f", f"{W}/link")
        volume.symlink("new/deep/f", f"{W}/dangling")
        files.write(f"{W}/link", [b"new"])
        files.write(f"{W}/dangling", [b"made"])
        assert (volume.read(f"{W}/d/f"), volume.stat(f"{W}/d/f").mode) == (b"new", 0o751)
        assert (volume.read(f"{W}/hard"), volume.readlink(f"{W}/link")) == (b"old", "d/f")
        assert volume.read(f"{W}/new/deep/f") == b"made"

    def test_special_files_are_written_in_place(self, files: VolumeFiles, volume: Volume) -> None:
        """F2: a FIFO and a device stay what they are; a FIFO is not read as a file."""
        volume.mkfifo(f"{W}/fifo")
        assert files.write(f"{W}/fifo", [b"through"]).type == "other"
        files.write("/dev/null", [b"away"])
        assert (volume.read(f"{W}/fifo"), volume.stat("/dev/null").kind) == (b"through", "device")
        with pytest.raises(NoSpaceError):
            files.write("/dev/full", [b"x"])
        with pytest.raises(FileError) as caught:
            files.open_read(f"{W}/fifo", 10)
        assert caught.value.errno == errno.ENXIO

    def test_errors_have_their_names(self, files: VolumeFiles, volume: Volume) -> None:
        """F3: each failure is the error of its name, with the path as it was given."""
        files.write(f"{W}/f", [b"x"])
        files.mkdir(f"{W}/d/sub", recursive=True)
        volume.symlink("loop", f"{W}/loop")
        never: Iterator[bytes] = iter(lambda: pytest.fail("the source was read"), b"")
        expected: list[tuple[Callable[[str], object], str, type[FileError]]] = [
            (lambda path: files.open_read(path, 1), "no", SandboxFileNotFoundError),
            (lambda path: files.open_read(path, 1), "f/x", SandboxNotADirectoryError),
            (lambda path: files.open_read(path, 1), "d", SandboxIsADirectoryError),
            (lambda path: files.open_read(path, 1), "loop", FileError),
            (lambda path: files.write(path, never), "d", SandboxIsADirectoryError),
            (lambda path: files.write(path, never), "new/", SandboxIsADirectoryError),
            (lambda path: files.write(path, never), "f/x", SandboxNotADirectoryError),
            (lambda path: files.write(path, never), "f/x/y", SandboxNotADirectoryError),
            (lambda path: files.write(path, never), "loop", FileError),
            (lambda path: files.stat(path, follow=True), "no", SandboxFileNotFoundError),
            (lambda path: files.list(path, recursive=False), "f", SandboxNotADirectoryError),
            (lambda path: files.list(path, recursive=True), "no", SandboxFileNotFoundError),
            (lambda path: files.mkdir(path, recursive=False), "d", SandboxFileExistsError),
            (lambda path: files.mkdir(path, recursive=False), "no/x", SandboxFileNotFoundError),
            (lambda path: files.mkdir(path, recursive=True), "f", SandboxFileExistsError),
            (lambda path: files.remove(path), "d", SandboxIsADirectoryError),
            (lambda path: files.remove(path), "no", SandboxFileNotFoundError),
            (lambda path: files.rename(path, f"{W}/x"), "no", SandboxFileNotFoundError),
            (lambda path: files.rename(f"{W}/f", path), "d", SandboxIsADirectoryError),
            (lambda path: files.rename(f"{W}/f", path), "no/x", SandboxFileNotFoundError),
        ]
        for call, name, kind in expected:
            with pytest.raises(FileError) as caught:
                call(f"{W}/{name}")
            assert type(caught.value) is kind, name
            assert caught.value.filename == f"{W}/{name}"

    def test_facts(self, volume: Volume, files: VolumeFiles) -> None:
        """`stat` and `list` tell type, size, mode and time; paths in results are plain."""
        files.write(f"{W}/d/f", [b"xy"])
        volume.utime(f"{W}/d/f", 1_500_000_000_000_000_000)
        volume.symlink("d", f"{W}/l")
        volume.mkfifo(f"{W}/d/.p")
        volume.write(f"{W}/d/{temporary_name()}", b"half")
        info = files.stat(f"{W}//l/../d/./f", follow=True)
        assert (info.path, info.mode, info.size) == (f"{W}/d/f", 0o644, 2)
        assert info.modified_at == datetime.fromtimestamp(1_500_000_000, tz=timezone.utc)
        assert (files.stat(f"{W}/l", follow=False).type, files.stat(f"{W}/l", follow=True).type) == (
            "symlink",
            "directory",
        )
        assert (files.stat("/", follow=True).name, files.stat(f"{W}/l/..", follow=True).path) == ("/", W)
        found = {info.relative_path: (info.path, info.type) for info in files.list(f"{W}/", recursive=True)}
        assert found == {
            "d": (f"{W}/d", "directory"),
            "d/f": (f"{W}/d/f", "file"),
            "d/.p": (f"{W}/d/.p", "other"),
            "l": (f"{W}/l", "symlink"),
        }
        assert [info.path for info in files.list(f"{W}/l", recursive=False)] == [f"{W}/l/.p", f"{W}/l/f"]
        volume.utime(f"{W}/d/f", 10**21)
        assert files.stat(f"{W}/d/f", follow=True).modified_at.year == 9999

    def test_directories_and_names(self, volume: Volume, files: VolumeFiles) -> None:
        """Directories are made with parents, files and links removed, names replaced."""
        assert files.mkdir(f"{W}/a/b/../c", recursive=True) == f"{W}/a/c"
        assert files.mkdir(f"{W}/a", recursive=True) == f"{W}/a"
        files.write(f"{W}/f", [b"x"])
        files.rename(f"{W}/f", f"{W}/a/f")
        volume.symlink("a", f"{W}/l")
        files.remove(f"{W}/l")
        files.remove(f"{W}/a/f")
        assert (volume.listdir(W), volume.listdir(f"{W}/a")) == (["a"], ["b", "c"])


def member(name: str, kind: bytes, data: bytes, target: str, mode: int) -> tuple[tarfile.TarInfo, bytes]:
    """A member for `tar_of`."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode, info.mtime = kind, target, mode, 1_000_000_000
    info.size = len(data) if kind == tarfile.REGTYPE else 0
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    """A tar with any members, harmless or not."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def real_tree(root: str) -> dict[str, object]:
    """What lies below a directory of this machine: kind, mode, content or target, time, and its other names."""
    found: dict[str, object] = {}
    names: dict[int, str] = {}
    for directory, directories, plain in os.walk(root):
        for name in sorted(directories + plain):
            path = os.path.join(directory, name)
            status = os.lstat(path)
            relative = os.path.relpath(path, root)
            if stat.S_ISLNK(status.st_mode):
                found[relative] = os.readlink(path)
            elif stat.S_ISDIR(status.st_mode):
                found[relative] = oct(status.st_mode & 0o7777)
            else:
                first = names.setdefault(status.st_ino, relative)
                found[relative] = (oct(status.st_mode & 0o7777), Path(path).read_bytes(), first)
    return found


def volume_tree(volume: Volume, root: str) -> dict[str, object]:
    """The same of a volume."""
    found: dict[str, object] = {}
    names: dict[int, str] = {}
    waiting = [""]
    while waiting:
        below = waiting.pop(0)
        entries = volume.scandir(os.path.join(root, below))
        later = []
        for name, attributes in entries:
            relative = os.path.join(below, name)
            path = os.path.join(root, relative)
            if attributes.kind == "symlink":
                found[relative] = volume.readlink(path)
            elif attributes.kind == "directory":
                found[relative] = oct(attributes.mode)
                later.append(relative)
            else:
                first = names.setdefault(attributes.ino, relative)
                found[relative] = (oct(attributes.mode), volume.read(path), first)
        waiting = later + waiting
    return found


def packed(pieces: Iterator[bytes]) -> list[tuple[object, ...]]:
    """The members of a tar, in order, without their times."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(pieces))) as tar:
        return [
            (info.name, info.type, info.mode, info.linkname, file.read() if (file := tar.extractfile(info)) else b"")
            for info in tar
            if not info.issym()
        ] + [(info.name, info.linkname) for info in tar.getmembers() if info.issym()]


def refusal(call: Callable[[], object]) -> str:
    """What an operation says when it refuses."""
    try:
        call()
    except SandboxError as exc:
        return f"{type(exc).__name__}: {exc} {exc.context}"
    return ""


SHORT = st.lists(st.sampled_from(["a", "b", "c", ".", ".."]), min_size=1, max_size=3).map("/".join)
NAMES = st.one_of(
    st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join),
    st.sampled_from([".", "./a/", "../a", "/a", "a/../b"]),
)
TARGETS = st.one_of(SHORT, st.sampled_from(["/tree/a", "/tree", "/etc", "/tree/a/../../b"]))
KINDS = (
    [tarfile.REGTYPE] * 4 + [tarfile.DIRTYPE] * 2 + [tarfile.SYMTYPE] * 4 + [tarfile.LNKTYPE] * 2 + [tarfile.FIFOTYPE]
)
MEMBERS = st.builds(
    member,
    NAMES,
    st.sampled_from(KINDS),
    st.binary(max_size=3),
    TARGETS,
    st.sampled_from([0o644, 0o755, 0o6711, 0o3700]),
)


class TestTrees:
    @settings(max_examples=150, deadline=None)
    @given(st.lists(st.lists(MEMBERS, max_size=8), min_size=1, max_size=3))
    @example([[member("a", tarfile.SYMTYPE, b"", "c/..", 0), member("c", tarfile.SYMTYPE, b"", "b", 0)]])
    @example([[member("a", tarfile.REGTYPE, b"x", "", 0), member("b", tarfile.LNKTYPE, b"", "a", 0)]] * 2)
    @example([[member("a", tarfile.SYMTYPE, b"", "/tree/a", 0), member("b", tarfile.LNKTYPE, b"", "a/a", 0)]])
    def test_archives_as_on_a_real_disk(self, archives: list[list[tuple[tarfile.TarInfo, bytes]]]) -> None:
        """F6: archives of any members, one over the other, make and refuse what they do on a real file system."""
        volume = Volume()
        files = VolumeFiles(volume)
        umask = os.umask(0o022)
        try:
            with TemporaryDirectory() as top:
                root = os.path.join(top, "tree")
                for members in archives:
                    data = tar_of(*members)
                    real = refusal(partial(unpack, [data], root, seen_as="/tree"))
                    assert refusal(partial(files.write_tree, "/tree", [data])) == real.replace(root, "/tree")
                    assert volume_tree(volume, "/tree") == real_tree(root)
                    assert sorted(os.listdir(top)) == ["tree"]
                assert volume.listdir("/") == sorted([*Volume().listdir("/"), "tree"])
                assert packed(files.read_tree("/tree", [])) == packed(pack(root))
        finally:
            os.umask(umask)

    def test_everything_comes_back(self, volume: Volume, files: VolumeFiles, tmp_path: Path) -> None:
        """F6: what a volume packs unpacks on a disk and in a volume, with modes, times, links and odd names."""
        files.write(f"{W}/sub/run", [b"#!/bin/sh\n"])
        volume.chmod(f"{W}/sub/run", 0o4755)
        volume.mkdir(f"{W}/empty")
        volume.chmod(f"{W}/empty", 0o700)
        volume.symlink("sub/run", f"{W}/in")
        volume.symlink("not/there", f"{W}/dangling")
        files.write(os.fsdecode(b"/workspace/\xff\n"), [b"odd"])
        files.write(f"{W}/big", [bytes(600_000)])
        files.write(f"{W}/{temporary_name()}", [b"half"])
        volume.utime(f"{W}/sub/run", 1_234_567_890_123_456_789)
        volume.utime(f"{W}/sub", 5)
        pieces = list(files.read_tree(W, []))
        assert max(map(len, pieces)) < 1 << 19
        unpack(pieces, str(tmp_path / "copy"))
        files.write_tree("/copy", pieces)
        assert volume_tree(volume, "/copy") == real_tree(str(tmp_path / "copy"))
        assert volume_tree(volume, "/copy")["sub/run"] == ("0o755", b"#!/bin/sh\n", "sub/run")
        for name, when in (("sub/run", 1_234_567_890_123_456_789), ("sub", 5)):
            assert volume.stat(f"/copy/{name}").mtime_ns == when == (tmp_path / "copy" / name).stat().st_mtime_ns
        assert packed(files.read_tree("/copy", [])) == packed(pack(str(tmp_path / "copy")))

    def test_what_is_left_out(self, volume: Volume, files: VolumeFiles) -> None:
        """F6: patterns leave out names and directories; FIFOs and devices raise unless they are left out."""
        files.write(f"{W}/keep", [b""])
        files.write(f"{W}/a.log", [b""])
        files.write(f"{W}/build/x", [b""])
        volume.mkfifo(f"{W}/fifo")
        with tarfile.open(fileobj=io.BytesIO(b"".join(files.read_tree(W, ["*.log", "build/", "fifo"])))) as tar:
            assert tar.getnames() == ["keep"]
        with pytest.raises(FileError, match="a FIFO cannot be copied") as caught:
            list(files.read_tree(W, []))
        assert (caught.value.errno, caught.value.filename) == (errno.EINVAL, f"{W}/fifo")
        with pytest.raises(FileError, match="a device cannot be copied"):
            list(files.read_tree("/dev", []))
        with pytest.raises(InvalidRequestError):
            files.read_tree(W, ["!x"])
        with pytest.raises(SandboxFileNotFoundError):
            list(files.read_tree(f"{W}/no", []))
        with pytest.raises(SandboxNotADirectoryError):
            list(files.read_tree(f"{W}/keep", []))

    def test_closing_gives_up(self, files: VolumeFiles) -> None:
        """F6: a stream may be dropped half-way, and what vanishes meanwhile is left out."""
        for name in "abc":
            files.write(f"{W}/{name}", [bytes(400_000)])
        pieces = files.read_tree(W, [])
        first = next(pieces)
        files.remove(f"{W}/b")
        with tarfile.open(fileobj=io.BytesIO(first + b"".join(pieces))) as tar:
            assert tar.getnames() == ["a", "c"]
        pieces = files.read_tree(W, [])
        next(pieces)
        assert isinstance(pieces, type(_ for _ in ()))
        pieces.close()
        assert list(pieces) == []

    def test_failures(self, volume: Volume, files: VolumeFiles) -> None:
        """F6: what the source raises is passed on, what does not fit raises, and what was unpacked stays."""
        data = tar_of(
            member("d", tarfile.DIRTYPE, b"", "", 0o700),
            member("d/f", tarfile.REGTYPE, b"x", "", 0o600),
            member("g", tarfile.REGTYPE, bytes(5000), "", 0o644),
        )

        def broken() -> Iterator[bytes]:
            yield data[:2500]
            raise LookupError("the source broke")

        with pytest.raises(LookupError):
            files.write_tree("/t", broken())
        assert volume_tree(volume, "/t") == {"d": "0o700", "d/f": ("0o600", b"x", "d/f")}
        volume.capacity = volume.used + 1000
        with pytest.raises(NoSpaceError) as caught:
            files.write_tree("/t", [data])
        assert caught.value.filename == "/t/g"
        with pytest.raises(InvalidRequestError):
            files.write_tree("/t", [b"no tar" * 200])
        with pytest.raises(SandboxNotADirectoryError):
            files.write_tree("/t/d/f", [data])


class TestMapping:
    def test_as_a_mapping(self, volume: Volume) -> None:
        """Keys are paths, values bytes; parents are made, text is encoded, what is missing is a KeyError."""
        files = VolumeMapping(volume)
        files["b/c.txt"] = "é"
        files["/tmp/a"] = b"x"
        assert list(files) == ["/tmp/a", "/workspace/b/c.txt"]
        assert (files["b/c.txt"], files["/workspace/b/c.txt"], len(files)) == ("é".encode(), "é".encode(), 2)
        assert "b/c.txt" in files
        for missing in ("no", "b", "b/c.txt/x", "/dev/null", 7):
            assert missing not in files
        with pytest.raises(KeyError, match="no"):
            files["no"]
        with pytest.raises(KeyError, match="no"):
            del files["no"]
        with pytest.raises(TypeError):
            files["x"] = 5  # type: ignore[assignment]
        with pytest.raises(SandboxIsADirectoryError):
            files["b"] = b""
        assert repr(files) == "<VolumeMapping: /tmp/a, /workspace/b/c.txt>"
        del files["b/c.txt"]
        assert files.pop("/tmp/a") == b"x"
        assert repr(files) == "<VolumeMapping: no files>"
        assert not files

    def test_equality(self, volume: Volume) -> None:
        """A plain dict is equal when it holds the same, with relative keys and text too."""
        files = VolumeMapping(volume)
        files.update({"a": b"1", "/tmp/b": b"2"})
        assert files == {"a": "1", "/tmp/b": b"2"}
        assert files == VolumeMapping(volume.clone(lambda: 0.0))
        assert files != {"a": b"1"}
        assert files != {"a": 1, "/tmp/b": b"2"}
        assert files != ["a"]

    def test_what_is_not_shown(self, volume: Volume) -> None:
        """System files are not shown as long as they are unchanged, nor are links; both can be read by their key."""
        files = VolumeMapping(volume)
        assert list(files) == []
        assert b"root" in files["/etc/passwd"]
        files["/etc/passwd"] += b"user:x:1:1::/home/user:/bin/bash\n"
        files["f"] = b"x"
        volume.symlink("f", f"{W}/link")
        volume.mkfifo(f"{W}/fifo")
        assert list(files) == ["/etc/passwd", "/workspace/f"]
        assert files["link"] == b"x"
        del files["link"]
        assert files["f"] == b"x"
        files.clear()
        assert list(files) == []
