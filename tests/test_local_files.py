"""The file operations of an unisolated local sandbox."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync._temporary import is_temporary, temporary_name
from sandboxsync.errors import (
    FileError,
    FileTooLargeError,
    NoSpaceError,
    SandboxFileExistsError,
    SandboxFileNotFoundError,
    SandboxIsADirectoryError,
    SandboxNotADirectoryError,
)
from sandboxsync.transports.local.files import Files, resolve

FILES = Files()


def read(path: object, chunk_size: int = 65536) -> bytes:
    """The content of a file, by the code under test."""
    return b"".join(FILES.open_read(str(path), chunk_size))


def write(path: object, *chunks: bytes) -> None:
    """Write a file by the code under test."""
    FILES.write(str(path), chunks)


def names(directory: Path) -> list[str]:
    """What lies in a directory, by name."""
    return sorted(os.listdir(directory))


def as_nobody(code: str, *arguments: str) -> str:
    """Run Python code as an unprivileged user, and return what it printed."""
    # Imported first: the interpreter itself may lie where that user cannot go.
    prologue = """
        import os, shutil, sys, tempfile
        from sandboxsync.errors import SandboxPermissionError
        from sandboxsync.transports.local.files import Files
        if os.geteuid() == 0:
            os.setgroups([]); os.setgid(65534); os.setuid(65534)
    """
    command = [sys.executable, "-c", textwrap.dedent(prologue) + textwrap.dedent(code), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=os.environ)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def open_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory that an unprivileged user can reach and write."""
    if os.geteuid() == 0:
        import tempfile

        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            os.chmod(name, 0o777)
            yield Path(name)
    else:
        yield tmp_path


class TestRead:
    @pytest.mark.parametrize("size", [0, 1, 98_304, 131_071, 131_072, 4 << 20])
    def test_bytes_come_back(self, tmp_path: Path, size: int) -> None:
        """F1: the bytes that were written are read, at each size around a limit of pipes and arguments."""
        data = os.urandom(size)
        write(tmp_path / "f", data)
        assert read(tmp_path / "f") == data

    def test_chunks_are_full(self, tmp_path: Path) -> None:
        """F1: each chunk but the last is as large as was asked for, and none is empty."""
        write(tmp_path / "f", bytes(10))
        stream = FILES.open_read(str(tmp_path / "f"), 4)
        assert [len(chunk) for chunk in stream] == [4, 4, 2]
        assert (stream.size, stream.path) == (10, str(tmp_path / "f"))
        assert list(stream) == []
        stream.close()

    def test_close_gives_up_the_rest(self, tmp_path: Path) -> None:
        """F1: a stream that was closed has no more chunks, and closing again does nothing."""
        write(tmp_path / "f", bytes(10))
        stream = FILES.open_read(str(tmp_path / "f"), 4)
        next(stream)
        stream.close()
        stream.close()
        assert list(stream) == []

    def test_files_whose_size_is_told_as_zero(self) -> None:
        """F1: a file of /proc is read to its end."""
        assert b"Name:" in read("/proc/self/status")

    def test_growing_file_is_read_to_its_end(self, tmp_path: Path) -> None:
        """F1: what is added while a file is read is read too; size is that of the opening."""
        write(tmp_path / "f", b"ab")
        stream = FILES.open_read(str(tmp_path / "f"), 2)
        next(stream)
        with open(tmp_path / "f", "ab") as file:
            file.write(b"cd")
        assert list(stream) == [b"cd"]
        assert stream.size == 2

    def test_special_files_never_block(self, tmp_path: Path) -> None:
        """F1: a FIFO that nobody writes raises instead of blocking; a device with an end is read."""
        os.mkfifo(tmp_path / "fifo")
        with pytest.raises(FileError) as caught:
            FILES.open_read(str(tmp_path / "fifo"), 10)
        assert caught.value.errno == errno.ENXIO
        assert read("/dev/null") == b""

    def test_errors_have_their_names(self, tmp_path: Path) -> None:
        """F3: missing, directory and a file in the way are the errors of that name, with errno and filename."""
        with pytest.raises(SandboxFileNotFoundError) as caught:
            FILES.open_read(str(tmp_path / "no"), 10)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(tmp_path / "no"))
        with pytest.raises(SandboxIsADirectoryError):
            FILES.open_read(str(tmp_path), 10)
        write(tmp_path / "f", b"")
        with pytest.raises(SandboxNotADirectoryError):
            FILES.open_read(str(tmp_path / "f" / "x"), 10)

    def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        """C5: reading to the end, closing early and failing leave no descriptor."""
        write(tmp_path / "f", bytes(100))
        before = os.listdir("/proc/self/fd")
        read(tmp_path / "f")
        stream = FILES.open_read(str(tmp_path / "f"), 4)
        stream.close()
        with pytest.raises(SandboxIsADirectoryError):
            FILES.open_read(str(tmp_path), 10)
        assert os.listdir("/proc/self/fd") == before


class TestWrite:
    @pytest.mark.parametrize(
        "name",
        [
            "a b",
            "a'b",
            'a"b',
            "$(touch pwn)",
            ";id",
            "-rf",
            "-n",
            "*",
            "a\nb",
            "é😀",
            "%41",
            "a?b#c",
            "..x",
            "\udcff\udcfe",
        ],
    )
    def test_any_name(self, tmp_path: Path, name: str) -> None:
        """F1: names with spaces, quotes, newlines, dashes, emoji and bytes that are not UTF-8 are names."""
        info = FILES.write(posixpath.join(str(tmp_path), name), [b"x"])
        assert (info.name, info.size, info.type) == (name, 1, "file")
        assert read(tmp_path / name) == b"x"
        assert [entry.name for entry in FILES.list(str(tmp_path), False)] == [name]
        FILES.remove(posixpath.join(str(tmp_path), name))
        assert names(tmp_path) == []

    def test_long_names(self, tmp_path: Path) -> None:
        """F1: a name as long as the file system takes can be written, and rewritten."""
        write(tmp_path / ("n" * 255), b"1")
        write(tmp_path / ("n" * 255), b"2")
        assert read(tmp_path / ("n" * 255)) == b"2"
        with pytest.raises(FileError) as caught:
            write(tmp_path / ("n" * 256), b"1")
        assert caught.value.errno == errno.ENAMETOOLONG
        assert names(tmp_path) == ["n" * 255]

    def test_parents_are_made(self, tmp_path: Path) -> None:
        """F2: missing parents are made."""
        write(tmp_path / "a/b/c", b"x")
        assert read(tmp_path / "a/b/c") == b"x"

    @pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt, OSError, GeneratorExit])
    @pytest.mark.parametrize("old", [b"old", None])
    def test_source_that_raises(self, tmp_path: Path, failure: type[BaseException], old: bytes | None) -> None:
        """F2: when the source raises half-way, that reaches the caller as it is and the file stays as it was."""
        if old is not None:
            write(tmp_path / "f", old)
        raised = failure("mine")

        def source() -> Iterator[bytes]:
            yield bytes(1 << 20)
            raise raised

        with pytest.raises(failure) as caught:
            FILES.write(str(tmp_path / "f"), source())
        assert caught.value is raised
        assert names(tmp_path) == ([] if old is None else ["f"])
        if old is not None:
            assert read(tmp_path / "f") == old

    def test_readers_see_old_or_new(self, tmp_path: Path) -> None:
        """F2: while a file is written again and again, a reader sees one whole content or another."""
        path = tmp_path / "f"
        contents = [bytes([n]) * 50_000 for n in range(10)]
        write(path, contents[0])
        done = threading.Event()

        def writer() -> None:
            for n in range(200):
                write(path, contents[n % 10][:25_000], contents[n % 10][25_000:])
            done.set()

        thread = threading.Thread(target=writer)
        thread.start()
        while not done.is_set():
            assert read(path) in contents
        thread.join()
        assert names(tmp_path) == ["f"]

    def test_mode_and_owner_are_kept(self, tmp_path: Path) -> None:
        """F2: an existing file keeps its mode, and its owner where the system lets us."""
        path = tmp_path / "f"
        write(path, b"old")
        path.chmod(0o4751)
        if os.geteuid() == 0:
            os.chown(path, 1234, 4321)
        path.chmod(0o4751)
        before = path.stat()
        write(path, b"new")
        after = path.stat()
        assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
        assert read(path) == b"new"

    def test_new_file_gets_the_umask(self, tmp_path: Path) -> None:
        """F2, C4: a new file has mode 0666 without the umask, which is not touched."""
        code = """
            from sandboxsync.transports.local.files import Files
            os.umask(0o027)
            Files().write(sys.argv[1], [b"x"])
            assert os.umask(0o022) == 0o027
        """
        subprocess.run(
            [sys.executable, "-c", "import os, sys\n" + textwrap.dedent(code), str(tmp_path / "f")],
            check=True,
            timeout=60,
        )
        assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o640

    def test_symlinks_are_followed(self, tmp_path: Path) -> None:
        """F2: writing to a symlink writes its target, be it there or not, and the link stays."""
        (tmp_path / "there").mkdir()
        write(tmp_path / "there/f", b"old")
        (tmp_path / "l").symlink_to("there/f")
        (tmp_path / "l2").symlink_to("l")
        (tmp_path / "dangling").symlink_to("there/new")
        write(tmp_path / "l2", b"new")
        write(tmp_path / "dangling", b"made")
        assert os.readlink(tmp_path / "l2") == "l"
        assert (read(tmp_path / "there/f"), read(tmp_path / "there/new")) == (b"new", b"made")
        assert names(tmp_path / "there") == ["f", "new"]

    def test_symlink_loops(self, tmp_path: Path) -> None:
        """F3: symlinks that go in circles are an error and stay, and what follows them is not taken for a path."""
        (tmp_path / "a").symlink_to("b")
        (tmp_path / "b").symlink_to("a")
        (tmp_path / "c").symlink_to("d/../c")
        for path in ("a", "a/x", "c", f"c/{tmp_path}/x", "c//x"):
            with pytest.raises(FileError):
                FILES.write(f"{tmp_path}/{path}", [b"x"])
        assert [name for name in names(tmp_path) if name != "d"] == ["a", "b", "c"]
        assert os.readlink(tmp_path / "c") == "d/../c"

    def test_dangling_symlinks(self, tmp_path: Path) -> None:
        """F2: the target of a dangling symlink is made with its parents, through any number of symlinks."""
        (tmp_path / "real").mkdir()
        (tmp_path / "dir").symlink_to("real")
        (tmp_path / "l1").symlink_to("dir/l2")
        (tmp_path / "real/l2").symlink_to("../new/er/f")
        write(tmp_path / "l1", b"x")
        assert (tmp_path / "new/er/f").read_bytes() == b"x"
        assert os.readlink(tmp_path / "real/l2") == "../new/er/f"
        (tmp_path / "l3").symlink_to("dir/")
        (tmp_path / "l4").symlink_to("no/")
        for name in ("l3", "l4"):
            with pytest.raises(SandboxIsADirectoryError):
                write(tmp_path / name, b"x")

    def test_directories_are_refused_before_the_source_is_read(self, tmp_path: Path) -> None:
        """F3: a directory, or a name that ends in a slash, raises, and nothing was taken from the source."""
        source = iter([b"x"])
        for path in (str(tmp_path), f"{tmp_path}/new/"):
            with pytest.raises(SandboxIsADirectoryError):
                FILES.write(path, source)
        (tmp_path / "f").touch()
        with pytest.raises(SandboxNotADirectoryError):
            FILES.write(str(tmp_path / "f/x"), source)
        assert list(source) == [b"x"]
        assert names(tmp_path) == ["f"]

    def test_special_files_are_written_in_place(self, tmp_path: Path) -> None:
        """F2: a device is written, not replaced; a FIFO that nobody reads raises, one that is read gets the bytes."""
        write("/dev/null", b"x")
        assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        with pytest.raises(FileError) as caught:
            write(fifo, b"x")
        assert caught.value.errno == errno.ENXIO
        got: list[bytes] = []
        reader = threading.Thread(target=lambda: got.append(fifo.read_bytes()))
        reader.start()
        for _ in range(500):
            try:
                write(fifo, bytes(200_000))
                break
            except FileError:
                threading.Event().wait(0.01)
        reader.join(10)
        assert got == [bytes(200_000)]
        assert names(tmp_path) == ["fifo"]

    def test_no_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F2, F3: a full disk is NoSpaceError, and the file stays as it was."""
        with pytest.raises(NoSpaceError) as caught:
            write("/dev/full", bytes(100_000))
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "/dev/full")
        write(tmp_path / "f", b"old")
        calls = 0

        def full(fd: int, data: bytes) -> int:
            nonlocal calls
            calls += 1
            if calls > 1:
                raise OSError(errno.ENOSPC, "full")
            return 10

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(NoSpaceError):
                write(tmp_path / "f", bytes(100))
        assert read(tmp_path / "f") == b"old"
        assert names(tmp_path) == ["f"]

    @pytest.mark.parametrize(
        ("number", "error"),
        [(errno.EFBIG, FileTooLargeError), (errno.EDQUOT, NoSpaceError), (errno.EIO, FileError)],
    )
    def test_failing_rename(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, error: type[FileError]
    ) -> None:
        """F2: when the last step fails, nothing is left of the new content."""
        write(tmp_path / "f", b"old")

        def failing(*_: object) -> None:
            raise OSError(number, "no")

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", failing)
            with pytest.raises(error):
                write(tmp_path / "f", b"new")
        assert read(tmp_path / "f") == b"old"
        assert names(tmp_path) == ["f"]

    def test_mount_point_is_written_in_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F2: a file that can be written but not replaced, such as a mount point, is written in place."""
        write(tmp_path / "f", b"a longer old content")
        inode = (tmp_path / "f").stat().st_ino

        def busy(*_: object) -> None:
            raise OSError(errno.EBUSY, "busy")

        for content in (b"new", bytes(3 << 20)):
            with monkeypatch.context() as patch:
                patch.setattr(os, "replace", busy)
                write(tmp_path / "f", content)
            assert read(tmp_path / "f") == content
        assert (tmp_path / "f").stat().st_ino == inode
        assert names(tmp_path) == ["f"]

    def test_space_is_reserved_before_writing_in_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F2: a file that is written in place keeps its content when the disk is full."""
        write(tmp_path / "f", b"old")

        def busy(*_: object) -> None:
            raise OSError(errno.EBUSY, "busy")

        def full(*_: object) -> None:
            raise OSError(errno.ENOSPC, "full")

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", busy)
            patch.setattr(os, "posix_fallocate", full)
            with pytest.raises(NoSpaceError):
                write(tmp_path / "f", bytes(100))
        assert read(tmp_path / "f") == b"old"

    def test_permissions(self, open_dir: Path) -> None:
        """F3: a file that the user may not write, or a directory, is SandboxPermissionError, with nothing changed."""
        (open_dir / "d").mkdir()
        (open_dir / "d/f").write_bytes(b"old")
        (open_dir / "d/f").chmod(0o444)
        (open_dir / "d").chmod(0o755)
        (open_dir / "locked").mkdir(0o700)
        (open_dir / "locked/f").write_bytes(b"old")
        if os.geteuid() != 0:
            (open_dir / "d").chmod(0o555)
            (open_dir / "locked").chmod(0)
        code = """
            files = Files()
            at = lambda name: os.path.join(sys.argv[1], name)
            paths = ("d/f", "d/new", "locked/f", "d/sub/new")
            attempts = [lambda p=p: files.write(at(p), [b"x"]) for p in paths]
            attempts += [lambda: files.open_read(at("locked/f"), 1), lambda: files.stat(at("locked/f"), True)]
            attempts += [lambda: files.mkdir(at("d/x"), False), lambda: files.remove(at("d/f"))]
            attempts += [lambda: files.rename(at("d/f"), at("g")), lambda: files.list(at("locked"), True)]
            attempts += [lambda: files.list(sys.argv[1], True)]
            for number, attempt in enumerate(attempts):
                try:
                    attempt()
                except SandboxPermissionError as exc:
                    assert isinstance(exc, PermissionError) and exc.filename, exc
                else:
                    raise AssertionError(number)
            print("all refused")
        """
        try:
            assert as_nobody(code, str(open_dir)) == "all refused\n"
            assert names(open_dir / "d") == ["f"]
        finally:
            (open_dir / "d").chmod(0o755)
            (open_dir / "locked").chmod(0o755)

    def test_writable_file_in_a_directory_that_is_not(self, open_dir: Path) -> None:
        """F2: a file that may be written is, also where no file may be made beside it, whole or not at all."""
        (open_dir / "d").mkdir()
        (open_dir / "d/f").write_bytes(b"old content")
        (open_dir / "d/f").chmod(0o666)
        (open_dir / "d").chmod(0o755 if os.geteuid() == 0 else 0o555)
        before = (open_dir / "d/f").stat()
        code = """
            def source():
                yield b"half"
                raise ValueError
            files, path = Files(), sys.argv[1]
            try:
                files.write(path, source())
            except ValueError:
                pass
            assert open(path).read() == "old content"
            files.write(path, [b"new"])
            print(open(path).read())
        """
        try:
            assert as_nobody(code, str(open_dir / "d/f")) == "new\n"
            after = (open_dir / "d/f").stat()
            assert (after.st_ino, after.st_uid, after.st_mode) == (before.st_ino, before.st_uid, before.st_mode)
        finally:
            (open_dir / "d").chmod(0o755)

    @pytest.mark.skipif(os.geteuid() != 0, reason="a file of another user is needed")
    def test_another_users_file_keeps_its_owner(self, open_dir: Path) -> None:
        """F2: the owner stays also where only root could give a new file to that owner."""
        (open_dir / "f").write_bytes(b"old")
        (open_dir / "f").chmod(0o666)
        code = """
            Files().write(sys.argv[1], [b"new"])
        """
        as_nobody(code, str(open_dir / "f"))
        assert ((open_dir / "f").read_bytes(), (open_dir / "f").stat().st_uid) == (b"new", 0)
        assert names(open_dir) == ["f"]

    def test_hypothetical_leftover_is_not_listed(self, tmp_path: Path) -> None:
        """F2: half-written files of ours are no entries; a name that only looks alike is."""
        (tmp_path / temporary_name()).touch()
        (tmp_path / ".sandboxsync-notes").touch()
        assert [entry.name for entry in FILES.list(str(tmp_path), True)] == [".sandboxsync-notes"]
        assert is_temporary(temporary_name())
        assert len(temporary_name()) < 64


class TestOther:
    def test_stat(self, tmp_path: Path) -> None:
        """F3: stat tells type, size, mode, time and an absolute path; symlinks are followed if asked."""
        write(tmp_path / "f", b"abc")
        (tmp_path / "f").chmod(0o640)
        os.utime(tmp_path / "f", (1000, 1000.5))
        (tmp_path / "l").symlink_to("f")
        os.mkfifo(tmp_path / "fifo")
        info = FILES.stat(str(tmp_path / "l"), True)
        assert (info.name, info.path, info.type, info.size) == ("l", str(tmp_path / "l"), "file", 3)
        assert (info.mode, info.permissions) == (0o640, "rw-r-----")
        assert info.modified_at == datetime(1970, 1, 1, 0, 16, 40, 500000, tzinfo=timezone.utc)
        assert FILES.stat(str(tmp_path / "l"), False).type == "symlink"
        assert FILES.stat(str(tmp_path / "fifo"), False).type == "other"
        assert FILES.stat("/", True).path == FILES.stat("/", True).name == "/"
        with pytest.raises(SandboxFileNotFoundError):
            FILES.stat(str(tmp_path / "no"), True)

    def test_paths_in_results_are_plain(self, tmp_path: Path) -> None:
        """F5: a path in a result has no dots and spare slashes, and means what was asked for, symlinks included."""
        (tmp_path / "a/b").mkdir(parents=True)
        (tmp_path / "l").symlink_to("a/b")
        (tmp_path / "a/f").touch()
        assert FILES.stat(f"{tmp_path}//a/./b/", True).path == str(tmp_path / "a/b")
        assert FILES.stat(f"{tmp_path}/l/../f", True).path == str(tmp_path / "a/f")
        assert FILES.stat(f"{tmp_path}/l/..", True).path == str(tmp_path / "a")
        assert FILES.stat(f"{tmp_path}/l", True).path == str(tmp_path / "l")

    def test_dates_beyond_datetime(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F1: a file with an impossible date can be listed."""
        write(tmp_path / "f", b"")
        os.utime(tmp_path / "f", (0, -(1 << 33)))
        assert FILES.list(str(tmp_path), False)[0].modified_at.year < 1970

    def test_list(self, tmp_path: Path) -> None:
        """F6: a list has hidden entries and does not follow symlinks; recursive, it has all below."""
        write(tmp_path / "a/b/.hidden", b"1")
        (tmp_path / "a/up").symlink_to("..")
        found = {entry.relative_path: entry for entry in FILES.list(str(tmp_path), True)}
        assert sorted(found) == ["a", "a/b", "a/b/.hidden", "a/up"]
        assert found["a/b/.hidden"].path == str(tmp_path / "a/b/.hidden")
        assert found["a/up"].type == "symlink"
        assert [entry.relative_path for entry in FILES.list(str(tmp_path), False)] == ["a"]
        (tmp_path / "l").symlink_to("a")
        assert {entry.relative_path for entry in FILES.list(str(tmp_path / "l"), False)} == {"b", "up"}

    def test_list_errors(self, tmp_path: Path) -> None:
        """F3: a list of nothing, or of a file, is the error of that name."""
        write(tmp_path / "f", b"")
        with pytest.raises(SandboxFileNotFoundError):
            FILES.list(str(tmp_path / "no"), True)
        with pytest.raises(SandboxNotADirectoryError):
            FILES.list(str(tmp_path / "f"), True)

    def test_list_beside_changes(self, tmp_path: Path) -> None:
        """F3: what vanishes while a tree is listed is left out and raises nothing."""
        stop = threading.Event()

        def churn() -> None:
            while not stop.is_set():
                (tmp_path / "d/e").mkdir(parents=True, exist_ok=True)
                (tmp_path / "d/e/f").touch()
                (tmp_path / "d/e/f").unlink()
                (tmp_path / "d/e").rmdir()
                (tmp_path / "d").rmdir()

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(2000):
                FILES.list(str(tmp_path), True)
        finally:
            stop.set()
            thread.join()

    def test_mkdir(self, tmp_path: Path) -> None:
        """F3: a directory is made once; with recursive its parents too, and again is fine."""
        assert FILES.mkdir(f"{tmp_path}/a/", False) == str(tmp_path / "a")
        with pytest.raises(SandboxFileExistsError):
            FILES.mkdir(str(tmp_path / "a"), False)
        with pytest.raises(SandboxFileNotFoundError):
            FILES.mkdir(str(tmp_path / "x/y"), False)
        for _ in range(2):
            assert FILES.mkdir(str(tmp_path / "x/y"), True) == str(tmp_path / "x/y")
        write(tmp_path / "f", b"")
        with pytest.raises(SandboxFileExistsError):
            FILES.mkdir(str(tmp_path / "f"), True)
        with pytest.raises(SandboxNotADirectoryError):
            FILES.mkdir(str(tmp_path / "f/x/y"), True)

    def test_remove(self, tmp_path: Path) -> None:
        """F3: a symlink is removed, not its target; a directory raises SandboxIsADirectoryError."""
        (tmp_path / "d").mkdir()
        (tmp_path / "l").symlink_to("d")
        FILES.remove(str(tmp_path / "l"))
        with pytest.raises(SandboxIsADirectoryError):
            FILES.remove(str(tmp_path / "d"))
        with pytest.raises(SandboxFileNotFoundError) as caught:
            FILES.remove(str(tmp_path / "l"))
        assert caught.value.filename == str(tmp_path / "l")
        assert names(tmp_path) == ["d"]

    def test_rename(self, tmp_path: Path) -> None:
        """F3: a rename replaces an existing file, and its errors name the path they are about."""
        write(tmp_path / "a", b"a")
        write(tmp_path / "b", b"b")
        FILES.rename(str(tmp_path / "a"), str(tmp_path / "b"))
        assert read(tmp_path / "b") == b"a"
        with pytest.raises(SandboxFileNotFoundError) as caught:
            FILES.rename(str(tmp_path / "a"), str(tmp_path / "c"))
        assert caught.value.filename == str(tmp_path / "a")
        with pytest.raises(SandboxFileNotFoundError) as caught:
            FILES.rename(str(tmp_path / "b"), str(tmp_path / "no/c"))
        assert caught.value.filename == str(tmp_path / "no/c")
        (tmp_path / "d").mkdir()
        with pytest.raises(SandboxIsADirectoryError) as other:
            FILES.rename(str(tmp_path / "b"), str(tmp_path / "d"))
        assert other.value.filename == str(tmp_path / "d")


class TestAcrossFileSystems:
    @pytest.fixture
    def other(self, tmp_path: Path) -> Iterator[Path]:
        """A directory on another file system than tmp_path."""
        import tempfile

        if not os.path.isdir("/dev/shm") or os.stat("/dev/shm").st_dev == tmp_path.stat().st_dev:
            pytest.skip("there is one file system only")
        with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
            yield Path(name)

    def test_file(self, tmp_path: Path, other: Path) -> None:
        """F3: a file moves to another file system with its mode, time and owner, and replaces what is there."""
        write(tmp_path / "f", b"x" * 100_000)
        (tmp_path / "f").chmod(0o4750)
        if os.geteuid() == 0:
            os.chown(tmp_path / "f", 1234, 4321)
            (tmp_path / "f").chmod(0o4750)
        os.utime(tmp_path / "f", (1000, 1000))
        before = (tmp_path / "f").stat()
        write(other / "g", b"old")
        FILES.rename(str(tmp_path / "f"), str(other / "g"))
        after = (other / "g").stat()
        assert (after.st_mode, after.st_mtime, after.st_uid) == (before.st_mode, before.st_mtime, before.st_uid)
        assert (names(tmp_path), names(other)) == ([], ["g"])

    def test_tree_and_symlink(self, tmp_path: Path, other: Path) -> None:
        """F3: a tree, and a symlink as itself, move to another file system."""
        write(tmp_path / "d/e/f", b"x")
        (tmp_path / "d/l").symlink_to("/nowhere")
        (tmp_path / "l").symlink_to("d")
        FILES.rename(str(tmp_path / "l"), str(other / "l"))
        FILES.rename(str(tmp_path / "d"), str(other / "d"))
        assert os.readlink(other / "l") == "d"
        assert os.readlink(other / "d/l") == "/nowhere"
        assert read(other / "d/e/f") == b"x"
        assert (names(tmp_path), names(other)) == ([], ["d", "l"])

    def test_failures_leave_both_sides(self, tmp_path: Path, other: Path) -> None:
        """F2: a move to another file system that fails leaves the source, and nothing half-made."""
        write(tmp_path / "d/f", b"x")
        write(other / "d/g", b"y")
        with pytest.raises(FileError) as caught:
            FILES.rename(str(tmp_path / "d"), str(other / "d"))
        assert caught.value.errno == errno.ENOTEMPTY
        with pytest.raises(SandboxIsADirectoryError):
            FILES.rename(str(tmp_path / "d/f"), str(other / "d"))
        with pytest.raises(SandboxFileNotFoundError):
            FILES.rename(str(tmp_path / "d"), str(other / "no/d"))
        assert (read(tmp_path / "d/f"), names(other), names(other / "d")) == (b"x", ["d"], ["g"])


class TestResolve:
    @pytest.mark.parametrize(
        ("path", "meant"),
        [
            ("a", "/ws/sub/a"),
            ("../a", "/ws/sub/../a"),
            (".", "/ws/sub/."),
            ("/workspace", "/ws"),
            ("/workspace/", "/ws/"),
            ("/workspace/.", "/ws/"),
            ("//workspace///a", "/ws/a"),
            ("/workspace/a/../b", "/ws/a/../b"),
            ("/workspace/a/", "/ws/a/"),
            ("/./workspace/a", "/ws/a"),
            ("/tmp/../workspace/a", "/ws/a"),
            ("/workspace/../etc/passwd", "/etc/passwd"),
            ("/workspace/..", "/"),
            ("/workspace/../workspace/a", "/ws/a"),
            ("/workspaces/a", "/workspaces/a"),
            ("/workspace2", "/workspace2"),
            ("/etc/../x", "/etc/../x"),
            ("/", "/"),
            ("/workspace\n", "/workspace\n"),
            ("~/a", "/ws/sub/~/a"),
            ("workspace", "/ws/sub/workspace"),
        ],
    )
    def test_remapped(self, path: str, meant: str) -> None:
        """F4, F5: only what lies under /workspace is remapped; relative paths follow the directory, ~ is a name."""
        assert resolve(path, "/ws/sub", "/ws", True) == meant

    def test_real_workspace(self) -> None:
        """F5: on a machine with a /workspace of its own nothing is remapped."""
        assert resolve("/workspace/a/../b", "/ws", "/ws", False) == "/workspace/a/../b"
        assert resolve("a", "/ws", "/ws", False) == "/ws/a"

    @given(st.lists(st.sampled_from(["workspace", "a", "..", ".", ""]), max_size=8))
    def test_same_place_as_with_a_real_one(self, parts: list[str]) -> None:
        """F5: a path means the place that it would mean with a real /workspace, moved to the workspace."""
        path = "/" + "/".join(parts)
        plain = posixpath.normpath("/" + path.lstrip("/"))
        inside = plain == "/workspace" or plain.startswith("/workspace/")
        expected = "/else/where" + plain[len("/workspace") :] if inside else plain
        assert posixpath.normpath("/" + resolve(path, "/cwd", "/else/where", True).lstrip("/")) == expected
