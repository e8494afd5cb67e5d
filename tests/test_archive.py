"""Trees as tar streams: packing, unpacking, leaving out."""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import os
import resource
import socket
import stat
import subprocess
import sys
import tarfile
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandboxsync import _archive
from sandboxsync._archive import Exclude, check, measure, pack, pack_file, unpack
from sandboxsync._tarstream import gunzip
from sandboxsync._temporary import temporary_name
from sandboxsync.errors import (
    FileError,
    InvalidRequestError,
    NoSpaceError,
    SandboxFileNotFoundError,
    SandboxIsADirectoryError,
    SandboxNotADirectoryError,
)

Tree = dict[str, object]


def look(root: Path | str) -> Tree:
    """What lies below a directory: mode, and content or target, by relative path."""
    found: Tree = {}
    for directory, directories, files in os.walk(root):
        for name in directories + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            relative = os.path.relpath(path, root)
            if stat.S_ISLNK(status.st_mode):
                found[relative] = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                found[relative] = (stat.S_IMODE(status.st_mode), Path(path).read_bytes())
            else:
                found[relative] = stat.S_IMODE(status.st_mode)
    return found


def member(
    name: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"", **more: object
) -> tuple[tarfile.TarInfo, bytes]:
    """A member for `tar_of`."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(data), 0o755 if kind == tarfile.DIRTYPE else 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def tar_of(*members: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar with any members, harmless or not."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def symlink(name: str, target: str) -> tuple[tarfile.TarInfo, bytes]:
    """A symlink for `tar_of`."""
    return member(name, tarfile.SYMTYPE, linkname=target)


def leads_to(path: str) -> str:
    """Where a path ends that may be, or lead through, a symlink; itself for one that goes in circles."""
    try:
        os.stat(path)
    except OSError as exc:
        if exc.errno == errno.ELOOP:
            return path
    return os.path.realpath(path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with some of everything."""
    root = tmp_path / "tree"
    (root / "empty/er").mkdir(parents=True)
    (root / "sub").mkdir()
    (root / "sub/script").write_bytes(b"#!/bin/sh\n")
    (root / "sub/script").chmod(0o755)
    (root / "sub/secret").write_bytes(b"x" * 1000)
    (root / "sub/secret").chmod(0o600)
    (root / "zero").touch(0o644)
    (root / "in").symlink_to("sub/script")
    (root / "sub/up").symlink_to("../zero")
    (root / "dangling").symlink_to("not/there")
    (root / ("n" * 200)).write_bytes(b"long")
    (root / "a 'b' \n\U0001f600").write_bytes(b"odd")
    (root / os.fsdecode(b"\xff\xfe")).write_bytes(b"not UTF-8")
    (root / "ro").mkdir()
    (root / "ro/f").write_bytes(b"ro")
    (root / "ro").chmod(0o555)
    return root


class TestBothWays:
    def test_everything_comes_back(self, tree: Path, tmp_path: Path) -> None:
        """F6: files, modes, empty directories, symlinks, long and odd names come back as they were."""
        unpack(pack(str(tree)), str(tmp_path / "copy"))
        assert look(tmp_path / "copy") == look(tree)

    def test_times_come_back(self, tree: Path, tmp_path: Path) -> None:
        """F6: modification times come back to the nanosecond, those of directories too."""
        for name, when in (("zero", 1_234_567_890_123_456_789), ("sub", 5), ("ro/f", 0), ("sub/secret", -(10**9))):
            os.utime(tree / name, ns=(0, when))
        unpack(pack(str(tree)), str(tmp_path / "copy"))
        for name in ("zero", "sub", "ro/f", "sub/secret", "empty"):
            assert (tmp_path / "copy" / name).stat().st_mtime_ns == (tree / name).stat().st_mtime_ns

    def test_merge(self, tree: Path, tmp_path: Path) -> None:
        """F6: an existing tree is merged: files are replaced, others stay, and twice is as once."""
        copy = tmp_path / "copy"
        (copy / "sub").mkdir(parents=True)
        (copy / "sub/script").write_bytes(b"old")
        (copy / "sub/other").write_bytes(b"stays")
        for _ in range(2):
            unpack(pack(str(tree)), str(copy))
        expected = look(tree)
        expected["sub/other"] = (0o644, b"stays")
        assert look(copy) == expected

    def test_others_can_read_it(self, tree: Path) -> None:
        """F6: what is packed is a tar that others read, without owners, setuid bits and our own names."""
        (tree / "sub/script").chmod(0o6755)
        (tree / temporary_name()).write_bytes(b"half")
        os.link(tree / "zero", tree / "hard")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pack(str(tree))))) as tar:
            members = {info.name: info for info in tar.getmembers()}
            assert sorted(members) == sorted(name for name in look(tree) if not name.startswith(".sandboxsync"))
            assert all((info.uid, info.gid, info.uname, info.gname) == (0, 0, "", "") for info in members.values())
            assert members["sub/script"].mode == 0o755
            assert members["hard"].isreg()

    @settings(max_examples=60, deadline=None)
    @given(
        st.dictionaries(
            st.lists(
                st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1, max_size=12)
                | st.binary(min_size=1, max_size=8).map(os.fsdecode),
                min_size=1,
                max_size=4,
            ).map(tuple),
            st.none() | st.tuples(st.binary(max_size=2000), st.integers(0, 0o777)),
            max_size=12,
        ),
        st.integers(1, 2000),
    )
    def test_any_tree(self, plan: dict[tuple[str, ...], tuple[bytes, int] | None], cut: int) -> None:
        """F6: any tree of files and directories comes back, however the stream is cut into pieces."""
        with TemporaryDirectory() as directory:
            source, copy = os.path.join(directory, "source"), os.path.join(directory, "copy")
            os.mkdir(source)
            for parts, content in plan.items():
                if any("/" in part or "\0" in part or part in (".", "..") for part in parts):
                    continue
                path = os.path.join(source, *parts)
                try:
                    os.makedirs(os.path.dirname(path), exist_ok=True)
                    if content is None:
                        os.mkdir(path)
                    else:
                        with open(path, "xb") as file:
                            file.write(content[0])
                        os.chmod(path, content[1] | 0o400)
                except (FileExistsError, NotADirectoryError):
                    continue
            data = b"".join(pack(source))
            unpack((data[i : i + cut] for i in range(0, len(data), cut)), copy)
            assert look(copy) == look(source)

    def test_memory_is_constant(self, tmp_path: Path) -> None:
        """F1: packing and unpacking 64 MiB, in one piece or many, takes a few MiB of memory."""
        (tmp_path / "tree").mkdir()
        with open(tmp_path / "tree/big", "wb") as file:
            file.truncate(64 << 20)
        tracemalloc.start()
        try:
            unpack(pack(str(tmp_path / "tree")), str(tmp_path / "copy"))
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
        finally:
            tracemalloc.stop()
        assert (tmp_path / "copy/big").stat().st_size == 64 << 20

    def test_many_members_are_forgotten(self, tmp_path: Path) -> None:
        """F1: members that were unpacked are not kept in memory."""
        one = tar_of(member("f"))[:512]
        tracemalloc.start()
        try:
            check(iter([one] * 5_000 + [bytes(1024)]))
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()

    def test_depth_takes_no_descriptors(self, tmp_path: Path) -> None:
        """C1: a tree of any depth takes a few descriptors, and leaves none open."""
        fd = os.open(tmp_path, os.O_RDONLY)
        for name in ["tree"] + ["d"] * 800:
            os.mkdir(name, dir_fd=fd)
            deeper = os.open(name, os.O_RDONLY, dir_fd=fd)
            os.close(fd)
            fd = deeper
        os.close(fd)
        before = len(os.listdir("/proc/self/fd"))
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (before + 8, limits[1]))
        try:
            unpack(pack(str(tmp_path / "tree")), str(tmp_path / "copy"))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        assert len(os.listdir("/proc/self/fd")) == before
        assert b"".join(pack(str(tmp_path / "copy"))) == b"".join(pack(str(tmp_path / "tree")))
        # shutil.rmtree of older Pythons, which cleans up after tests, cannot go that deep.
        subprocess.run(["rm", "-rf", "--", str(tmp_path / "tree"), str(tmp_path / "copy")], check=True, timeout=60)


class TestPack:
    def test_nothing_is_followed(self, tmp_path: Path) -> None:
        """F6: a symlink to a directory outside is packed as a symlink; the root alone may be one."""
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/secret").write_bytes(b"secret")
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/l").symlink_to("../outside")
        (tmp_path / "root").symlink_to("tree")
        data = b"".join(pack(str(tmp_path / "root")))
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            assert [(info.name, info.linkname) for info in tar] == [("l", "../outside")]
        assert b"secret" not in data

    def test_swapped_directory_is_not_followed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F6: a directory that becomes a symlink between two looks at it is not followed."""
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/secret").write_bytes(b"secret")
        (tmp_path / "tree/d").mkdir(parents=True)
        real = os.open

        def swapping(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            if path == "d":
                (tmp_path / "tree/d").rename(tmp_path / "tree/e")
                (tmp_path / "tree/d").symlink_to("../outside")
            return real(path, flags, mode, dir_fd=dir_fd)

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", swapping)
            with pytest.raises(FileError):
                list(pack(str(tmp_path / "tree")))

    def test_moved_directory_is_noticed(self, tmp_path: Path) -> None:
        """F6: a directory that is moved out while it is read does not lead out of the tree."""
        (tmp_path / "tree/d/e").mkdir(parents=True)
        (tmp_path / "tree/d/e/f").write_bytes(bytes(1 << 20))
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/secret").write_bytes(b"secret")
        pieces = pack(str(tmp_path / "tree"))
        next(pieces)
        (tmp_path / "tree/d/e").rename(tmp_path / "outside/e")
        with pytest.raises(FileError) as caught:
            list(pieces)
        assert caught.value.errno == errno.ESTALE

    def test_special_files_raise(self, tmp_path: Path) -> None:
        """F6: FIFOs, sockets and devices raise, naming them, unless they are excluded."""
        (tmp_path / "tree").mkdir()
        os.mkfifo(tmp_path / "tree/fifo")
        with pytest.raises(FileError) as caught:
            list(pack(str(tmp_path / "tree")))
        assert caught.value.filename == str(tmp_path / "tree/fifo")
        assert "FIFO" in str(caught.value)
        (tmp_path / "tree/fifo").unlink()
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(tmp_path / "tree/s"))
            with pytest.raises(FileError, match="a socket"):
                list(pack(str(tmp_path / "tree")))
            assert list(pack(str(tmp_path / "tree"), ["s"])) == [bytes(1024)]
        with pytest.raises(FileError, match="a device"):
            list(pack("/dev", ["[!n]*", "n[!u]*", "pts/"]))

    def test_file_that_shrinks(self, tmp_path: Path) -> None:
        """F6: a file that becomes shorter while it is read raises; nothing is passed off as its content."""
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/f").write_bytes(bytes(1 << 20))
        pieces = pack(str(tmp_path / "tree"))
        next(pieces)
        os.truncate(tmp_path / "tree/f", 10)
        with pytest.raises(FileError) as caught:
            list(pieces)
        assert (caught.value.errno, caught.value.retryable) == (errno.EBUSY, True)

    def test_file_that_grows(self, tmp_path: Path) -> None:
        """F6: of a file that becomes longer while it is read, what it held at first is packed."""
        (tmp_path / "tree").mkdir()
        (tmp_path / "tree/f").write_bytes(bytes(1 << 20))
        pieces = pack(str(tmp_path / "tree"))
        data = next(pieces)
        with open(tmp_path / "tree/f", "ab") as file:
            file.write(b"more")
        unpack(iter([data, *pieces]), str(tmp_path / "copy"))
        assert (tmp_path / "copy/f").read_bytes() == bytes(1 << 20)

    def test_beside_changes(self, tmp_path: Path) -> None:
        """F6: what vanishes before it is read is left out and raises nothing."""
        stop = threading.Event()
        (tmp_path / "stays").touch()

        def churn() -> None:
            while not stop.is_set():
                (tmp_path / "f").touch()
                (tmp_path / "l").symlink_to("f")
                (tmp_path / "f").unlink()
                (tmp_path / "l").unlink()

        thread = threading.Thread(target=churn)
        thread.start()
        try:
            for _ in range(1000):
                assert b"stays" in b"".join(pack(str(tmp_path)))
        finally:
            stop.set()
            thread.join()

    def test_errors(self, tmp_path: Path) -> None:
        """F3: a root that is missing, or a file, is the error of that name."""
        with pytest.raises(SandboxFileNotFoundError):
            list(pack(str(tmp_path / "no")))
        (tmp_path / "f").touch()
        with pytest.raises(SandboxNotADirectoryError):
            list(pack(str(tmp_path / "f")))

    def test_giving_up_leaves_no_descriptor(self, tree: Path) -> None:
        """C5: closing the iterator half-way, or before its first piece, leaves no descriptor."""
        (tree / "sub/big").write_bytes(bytes(3 << 20))
        before = os.listdir("/proc/self/fd")
        pieces = pack(str(tree))
        del pieces
        pieces = pack(str(tree))
        next(pieces)
        assert isinstance(pieces, type(_ for _ in ()))
        pieces.close()
        assert os.listdir("/proc/self/fd") == before

    def test_measure(self, tree: Path) -> None:
        """F1: the bytes told while packing are those measured before."""
        told: list[int] = []
        list(pack(str(tree), ["secret"], on_data=told.append))
        assert sum(told) == measure(str(tree), ["secret"]) > 0
        assert measure(str(tree)) == sum(told) + 1000

    def test_pack_file(self, tree: Path, tmp_path: Path) -> None:
        """F6: a single file is packed under any name with its mode; what is no file raises."""
        with open(tree / "sub/script", "rb") as file:
            unpack(pack_file(file.fileno(), "new", on_data=lambda n: None), str(tmp_path / "copy"))
        assert look(tmp_path / "copy") == {"new": (0o755, b"#!/bin/sh\n")}
        with pytest.raises(FileError), open("/dev/null", "rb") as file:
            list(pack_file(file.fileno(), "x", on_data=lambda n: None))


HARMFUL: dict[str, tuple[tuple[tarfile.TarInfo, bytes], ...]] = {
    "absolute": (member("/tmp/evil-absolute", data=b"x"),),
    "dots": (member("../evil", data=b"x"),),
    "dots inside": (member("a/../../evil", data=b"x"),),
    "dots that stay": (member("a/../evil", data=b"x"),),
    "directory": (member("../evil", tarfile.DIRTYPE),),
    "absolute directory": (member("/tmp/evil-absolute", tarfile.DIRTYPE),),
    "symlink absolute": (symlink("l", "/etc"),),
    "symlink up": (symlink("l", ".."),),
    "symlink up from below": (symlink("a/l", "../../outside"),),
    "write through symlink": (symlink("l", "../outside"), member("l/evil", data=b"x")),
    "write through file symlink": (symlink("l", "../outside/victim"), member("l", data=b"x")),
    "link made of links": (symlink("a", "d1"), symlink("b", "a/../../outside"), member("b/evil", data=b"x")),
    "link that changes": (symlink("x", "d1/d2/../../outside"), symlink("d1/d2", "..")),
    "hard link absolute": (member("h", tarfile.LNKTYPE, linkname="/etc/passwd"),),
    "hard link up": (member("h", tarfile.LNKTYPE, linkname="../outside/victim"),),
    "hard link through symlink": (symlink("l", "../outside"), member("h", tarfile.LNKTYPE, linkname="l/victim")),
    "hard link to older symlink": (member("h", tarfile.LNKTYPE, linkname="older/victim"),),
    "hard link to a directory": (member("d", tarfile.DIRTYPE), member("h", tarfile.LNKTYPE, linkname="d")),
    "hard link to nothing": (member("h", tarfile.LNKTYPE, linkname="no"),),
    "device": (member("dev", tarfile.CHRTYPE, devmajor=1, devminor=3),),
    "block device": (member("dev", tarfile.BLKTYPE),),
    "FIFO": (member("fifo", tarfile.FIFOTYPE),),
    "file as root": (member(".", data=b"x"),),
    "symlink as root": (symlink("./", ".."),),
    "link to nothing": (symlink("l", ""),),
}


class TestUnpackIsSafe:
    @pytest.fixture
    def place(self, tmp_path: Path) -> Path:
        """A destination with a victim beside it and an older symlink that leads to it."""
        (tmp_path / "outside").mkdir()
        (tmp_path / "outside/victim").write_bytes(b"victim")
        (tmp_path / "place").mkdir()
        (tmp_path / "place/older").symlink_to("../outside")
        return tmp_path / "place"

    def unharmed(self, place: Path) -> None:
        assert look(place.parent / "outside") == {"victim": (0o644, b"victim")}
        assert (place.parent / "outside/victim").stat().st_nlink == 1
        assert sorted(os.listdir(place.parent)) == ["outside", "place"]
        assert not os.path.lexists("/tmp/evil-absolute")
        for directory, directories, files in os.walk(place):
            for name in directories + files:
                path = os.path.join(directory, name)
                if path != str(place / "older"):
                    assert leads_to(path).startswith(f"{place}"), path
                assert not name.startswith(".sandboxsync")

    @pytest.mark.parametrize("case", sorted(HARMFUL))
    def test_harmful_archives_are_refused(self, place: Path, case: str) -> None:
        """F6: names, links and kinds that lead outside, or to no file, raise, and nothing outside is touched."""
        with pytest.raises(InvalidRequestError):
            unpack([tar_of(*HARMFUL[case])], str(place))
        self.unharmed(place)

    def test_rest_of_a_tree_with_links_outside(self, place: Path) -> None:
        """F6: symlinks that lead outside are left out and named at the end, all the rest is made."""
        links = [symlink(f"l{n}", "/usr/bin/python3") for n in range(7)]
        with pytest.raises(InvalidRequestError, match=r"'l0', .* and 2 more") as caught:
            unpack([tar_of(*links, member("d", tarfile.DIRTYPE, mode=0o700), member("f", data=b"x"))], str(place))
        assert caught.value.context["refused"] == [f"l{n}" for n in range(7)]
        assert look(place) == {"older": "../outside", "d": 0o700, "f": (0o644, b"x")}

    def test_links_that_stay_inside(self, place: Path) -> None:
        """F6: a symlink is made when its target stays inside, also an absolute one, a loop and one to nothing."""
        data = tar_of(
            symlink("d/up", "../f"),
            symlink("absolute", f"{place}/d/../f"),
            symlink("loop", "loop"),
            symlink("later", "d/e/../x"),
            symlink("root", "."),
            symlink("deep/er/root", "../.."),
        )
        unpack([data], str(place))
        assert os.readlink(place / "absolute") == f"{place}/d/../f"
        assert os.readlink(place / "deep/er/root") == "../.."
        assert sorted(look(place)) == sorted(
            ["older", "d", "d/up", "absolute", "loop", "later", "root", "deep", "deep/er", "deep/er/root"]
        )

    def test_absolute_links_as_the_sandbox_sees_them(self, place: Path) -> None:
        """F6: absolute targets are judged by the name that the tree has for its users."""
        data = tar_of(symlink("l", "/workspace/f"), symlink("x", f"{place}/f"))
        with pytest.raises(InvalidRequestError) as caught:
            unpack([data], str(place), seen_as="/workspace/")
        assert caught.value.context["refused"] == ["x"]
        assert os.readlink(place / "l") == "/workspace/f"

    def test_link_through_an_older_link(self, place: Path) -> None:
        """F6: a link that leads outside only through a symlink that was there before is not made."""
        with pytest.raises(InvalidRequestError):
            unpack([tar_of(symlink("l", "older/victim"))], str(place))
        self.unharmed(place)
        assert not os.path.lexists(place / "l")

    def test_older_links_are_replaced(self, place: Path) -> None:
        """F6: a symlink in the place of a file or a directory is replaced, never written through."""
        (place / "f").symlink_to("../outside/victim")
        mine = (symlink("mine", "."), member("mine/x", data=b"z"))
        unpack([tar_of(member("older/new", data=b"x"), member("f", data=b"y"), *mine)], str(place))
        expected = {"older": 0o755, "older/new": (0o644, b"x"), "f": (0o644, b"y")}
        assert look(place) == {**expected, "mine": 0o755, "mine/x": (0o644, b"z")}
        self.unharmed(place)

    def test_hard_links(self, place: Path) -> None:
        """F6: a hard link to a file of the archive is made, also over another name of it."""
        data = tar_of(member("d/f", data=b"x"), *[member("h", tarfile.LNKTYPE, linkname="d/f")] * 2)
        unpack([data], str(place))
        assert (place / "h").stat().st_ino == (place / "d/f").stat().st_ino
        self.unharmed(place)

    def test_setuid_bits_are_dropped(self, place: Path) -> None:
        """F6: setuid, setgid and sticky bits are dropped, for files and directories."""
        unpack([tar_of(member("f", mode=0o7755), member("d", tarfile.DIRTYPE, mode=0o7711))], str(place))
        assert (place / "f").stat().st_mode & 0o7777 == 0o755
        assert (place / "d").stat().st_mode & 0o7777 == 0o711

    def test_special_bits_of_older_directories_stay(self, place: Path) -> None:
        """F6: merging does not take the sticky or setgid bit from a directory that was there."""
        (place / "d").mkdir()
        (place / "d").chmod(0o3777)
        unpack([tar_of(member("d", tarfile.DIRTYPE, mode=0o755), member("d/f"))], str(place))
        assert (place / "d").stat().st_mode & 0o7777 == 0o3755

    def test_kinds_are_not_mixed(self, place: Path) -> None:
        """F3: a directory is not replaced by a file or link, nor a file by a directory."""
        unpack([tar_of(member("d/f"))], str(place))
        for harmful in (member("d"), symlink("d", "older"), member("d", tarfile.LNKTYPE, linkname="d/f")):
            with pytest.raises(SandboxIsADirectoryError):
                unpack([tar_of(harmful)], str(place))
        for harmful in (member("d/f", tarfile.DIRTYPE), member("d/f/x")):
            with pytest.raises(SandboxNotADirectoryError) as caught:
                unpack([tar_of(harmful)], str(place))
            assert caught.value.filename is not None
            assert caught.value.filename.startswith(str(place / "d/f"))
        (place.parent / "file").touch()
        with pytest.raises(SandboxNotADirectoryError):
            unpack([tar_of()], str(place.parent / "file"))

    NAMES = st.sampled_from(["a", "b", "c", "older", "..", ".", "a/b", "b/../c", "outside", "../outside"])

    @settings(max_examples=400, deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.lists(NAMES, min_size=1, max_size=3).map("/".join),
                st.sampled_from([tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE]),
                st.tuples(st.sampled_from(["", "", "/"]), st.lists(NAMES, min_size=1, max_size=4).map("/".join)).map(
                    "".join
                ),
            ),
            max_size=8,
        )
    )
    @example(
        [("x", tarfile.SYMTYPE, "a/b/../../outside"), ("a/b", tarfile.SYMTYPE, ".."), ("x/e", tarfile.REGTYPE, "")]
    )
    def test_no_archive_reaches_outside(self, plan: list[tuple[str, bytes, str]]) -> None:
        """F6: no sequence of files, directories and links makes, changes or leads to anything outside."""
        with TemporaryDirectory() as directory:
            top = Path(directory).resolve()
            (top / "outside").mkdir()
            (top / "outside/victim").write_bytes(b"victim")
            (top / "place").mkdir()
            (top / "place/older").symlink_to("../outside")
            for name, kind, target in plan:
                # One archive each: a refused member must not hide what the next would do.
                made = member(name, kind, b"x" if kind == tarfile.REGTYPE else b"", linkname=target)
                with contextlib.suppress(InvalidRequestError, FileError):
                    unpack([tar_of(made)], str(top / "place"))
            with contextlib.suppress(InvalidRequestError, FileError):
                unpack([tar_of(*[member(n, k, b"", linkname=t) for n, k, t in plan])], str(top / "place"))
            self.unharmed(top / "place")


class TestUnpackFailures:
    def test_every_cut_is_noticed(self, tree: Path, tmp_path: Path) -> None:
        """F6: an archive that ends anywhere before its end mark raises InvalidRequestError."""
        data = b"".join(pack(str(tree)))
        for end in [*range(0, len(data) - 1024, 100), len(data) - 1024]:
            with pytest.raises(InvalidRequestError):
                check([data[:end]])
        zipped = gzip.compress(data)
        for end in [*range(2, len(zipped) - 1, 37), len(zipped) - 1]:
            with pytest.raises(InvalidRequestError):
                check([zipped[:end]])

    @pytest.mark.parametrize(
        "data", [b"", b"x", b"hello world" * 1000, b"\x1f\x8b", b"PK\x03\x04" + bytes(2000), b"\0\1" * 600]
    )
    def test_garbage_is_refused(self, data: bytes, tmp_path: Path) -> None:
        """F6: what is no tar raises InvalidRequestError and makes no file."""
        with pytest.raises(InvalidRequestError):
            unpack([data], str(tmp_path / "copy"))
        assert look(tmp_path / "copy") == {}

    @settings(max_examples=300, deadline=None)
    @given(st.integers(0, 4095), st.integers(0, 255), st.integers(1, 600))
    def test_damage_never_escapes(self, place: int, value: int, cut: int) -> None:
        """F6: any damaged byte gives a tree or an InvalidRequestError, no other exception."""
        data = bytearray(
            tar_of(member("a" * 120, data=b"x" * 700), symlink("l", "b" * 120), format=tarfile.PAX_FORMAT)
            + tar_of(member("g" * 120, data=b"y"), format=tarfile.GNU_FORMAT)
        )
        data[place % len(data)] = value
        pieces = [bytes(data[i : i + cut]) for i in range(0, len(data), cut)]
        with contextlib.suppress(InvalidRequestError):
            check(pieces)

    def test_damage_after_the_first_member(self) -> None:
        """F6: a damaged header is not taken for the end of the archive."""
        data = bytearray(tar_of(member("a", data=b"x"), member("b", data=b"y")))
        data[1024 + 150] ^= 0xFF
        with pytest.raises(InvalidRequestError):
            check([bytes(data)])

    def test_wrong_checksum(self) -> None:
        """F6: a gzip whose content does not fit its checksum raises."""
        data = bytearray(gzip.compress(tar_of(member("a", data=b"x"))))
        data[-5] ^= 1
        with pytest.raises(InvalidRequestError, match="gzip"):
            check([bytes(data)])

    @pytest.mark.parametrize(
        ("kind", "size"), [(tarfile.XHDTYPE, 1 << 33), (tarfile.GNUTYPE_LONGNAME, 1 << 33), (tarfile.XGLTYPE, 2 << 20)]
    )
    def test_giant_headers_are_refused(self, kind: bytes, size: int) -> None:
        """F1: an extended header of absurd size is refused, not read into memory."""
        info = tarfile.TarInfo("x")
        info.type, info.size = kind, size
        header = info.tobuf(tarfile.GNU_FORMAT)
        served = 0

        def source() -> Iterator[bytes]:
            nonlocal served
            yield header
            while True:
                served += 1 << 16
                yield bytes(1 << 16)

        with pytest.raises(InvalidRequestError):
            check(source())
        assert served < 4 << 20

    def test_chained_headers_are_refused(self) -> None:
        """F6: ten thousand extended headers in a row are garbage, not a crash."""
        info = tarfile.TarInfo("x")
        info.type, info.size = tarfile.GNUTYPE_LONGNAME, 2
        piece = info.tobuf(tarfile.GNU_FORMAT) + b"x\0".ljust(512, b"\0")
        with pytest.raises(InvalidRequestError):
            check([piece] * 10_000)

    @pytest.mark.parametrize(
        "failure", [ValueError("mine"), OSError(5, "mine"), KeyboardInterrupt(), tarfile.ReadError("mine")]
    )
    @pytest.mark.parametrize("zipped", [False, True])
    def test_what_the_source_raises_is_passed_on(self, tmp_path: Path, failure: BaseException, zipped: bool) -> None:
        """F2: what the source raises reaches the caller as it is; whole files stay, the one under way is gone."""
        data = tar_of(member("a", data=b"x"), member("b", data=os.urandom(1 << 20)))
        data = gzip.compress(data, mtime=0) if zipped else data

        def source() -> Iterator[bytes]:
            yield data[:600_000]
            raise failure

        with pytest.raises(type(failure)) as caught:
            unpack(source(), str(tmp_path))
        assert caught.value is failure
        assert look(tmp_path) == {"a": (0o644, b"x")}

    def test_no_space(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """F3: a full disk is NoSpaceError with the path, the old file stays and no half one is left."""
        (tmp_path / "b").write_bytes(b"old")
        real = os.write

        def full(fd: int, data: bytes) -> int:
            if bytes(data[:1]) == b"y":
                raise OSError(errno.ENOSPC, "full")
            return real(fd, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", full)
            with pytest.raises(NoSpaceError) as caught:
                unpack([tar_of(member("a", data=b"x"), member("b", data=b"y"))], str(tmp_path))
        assert caught.value.filename == str(tmp_path / "b")
        assert look(tmp_path) == {"a": (0o644, b"x"), "b": (0o644, b"old")}

    def test_directories_get_their_modes_also_after_a_failure(self, tmp_path: Path) -> None:
        """F6: a directory that was made has its mode, whatever came after it."""
        with pytest.raises(InvalidRequestError):
            unpack([tar_of(member("d", tarfile.DIRTYPE, mode=0o755), member("/x"))], str(tmp_path))
        assert look(tmp_path) == {"d": 0o755}

    def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        """C5: unpacking leaves no descriptor, whether it succeeds or fails."""
        before = os.listdir("/proc/self/fd")
        for archive in ([tar_of(member("a/b/c"), member("h", tarfile.LNKTYPE, linkname="a/b/c"))], [b"x"]):
            with contextlib.suppress(InvalidRequestError):
                unpack(archive, str(tmp_path / "copy"))
        for name, case in HARMFUL.items():
            with pytest.raises(InvalidRequestError):
                unpack([tar_of(*case)], str(tmp_path / name))
        assert os.listdir("/proc/self/fd") == before

    def test_the_source_is_read_to_its_end(self) -> None:
        """F6: what follows the end mark is read too, so that who writes the archive can finish."""
        read: list[bool] = []

        def source() -> Iterator[bytes]:
            yield tar_of(member("a"))
            yield bytes(100_000)
            read.append(True)

        check(source())
        assert read == [True]


class TestForeignArchives:
    @pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    @pytest.mark.parametrize(
        "pack_it", [bytes, gzip.compress, lambda data: gzip.compress(data[:700]) + gzip.compress(data[700:])]
    )
    def test_formats(self, tmp_path: Path, format: int, pack_it: Callable[[bytes], bytes]) -> None:
        """F6: all kinds of tar are unpacked, gzipped ones too, in pieces of any size."""
        long = "/".join(["d" * 40] * 5)
        members = [member("./", tarfile.DIRTYPE, mode=0o700), member("./a", data=b"x" * 3000), member(long, data=b"y")]
        data = pack_it(tar_of(*members, format=format)) + bytes(512)
        for number, cut in enumerate((1, 511, 10_240)):
            target = tmp_path / str(number)
            unpack((data[i : i + cut] for i in range(0, len(data), cut)), str(target))
            assert look(target)["a"] == (0o644, b"x" * 3000)
            assert look(target)[long] == (0o644, b"y")
            assert target.stat().st_mode & 0o777 != 0o700

    def test_sparse_files(self, tmp_path: Path) -> None:
        """F6: a sparse file of GNU tar gets its whole content."""
        with open(tmp_path / "sparse", "wb") as file:
            file.seek(1 << 20)
            file.write(b"end")
        for form in ("gnu", "pax"):
            command = ["tar", "-cSf", "-", f"--format={form}", "-C", str(tmp_path), "sparse"]
            data = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
            unpack([data], str(tmp_path / form))
            assert (tmp_path / form / "sparse").read_bytes() == bytes(1 << 20) + b"end"

    @given(st.binary(max_size=5000), st.integers(1, 300))
    def test_gunzip(self, data: bytes, cut: int) -> None:
        """F6: gunzip gives the content back for every cut, and leaves alone what is not zipped."""
        zipped = gzip.compress(data)
        assert b"".join(gunzip(zipped[i : i + cut] for i in range(0, len(zipped), cut))) == data
        if not data.startswith(b"\x1f\x8b"):
            assert b"".join(gunzip([data])) == data

    def test_bomb_takes_no_memory(self) -> None:
        """F1: a gzip that unzips to a thousand times its size is unzipped in pieces."""
        zipped = gzip.compress(bytes(64 << 20))
        assert max(map(len, gunzip([zipped]))) <= 1 << 18

    def test_strange_times(self, tmp_path: Path) -> None:
        """F6: a time that is none, or too far away, does not stop the file from being made."""
        times = ["nan", "1e400", "-7", "99999999999999999999", "12.5", "x"]
        data = tar_of(*[member(str(n), pax_headers={"mtime": text}) for n, text in enumerate(times)])
        unpack([data], str(tmp_path))
        assert (tmp_path / "4").stat().st_mtime == 12.5
        assert len(look(tmp_path)) == len(times)


class TestExclude:
    @pytest.mark.parametrize(
        "pattern", ["**/node_modules", "node_modules/**", "node_modules", "node_modules/", "*.log", "**/.cache/**"]
    )
    @pytest.mark.parametrize("depth", [0, 1, 3])
    def test_at_any_depth(self, tmp_path: Path, pattern: str, depth: int) -> None:
        """F6: these patterns leave out what they name at each depth, and nothing else."""
        base = tmp_path.joinpath(*["d"] * depth)
        for name in ("node_modules/x/y.js", "a.log", ".cache/z", "keep/log", "node_modules2/x"):
            (base / name).parent.mkdir(parents=True, exist_ok=True)
            (base / name).touch()
        prefix = "d/" * depth
        gone = {"*.log": "a.log", "**/.cache/**": ".cache"}.get(pattern, "node_modules")
        with tarfile.open(fileobj=io.BytesIO(b"".join(pack(str(tmp_path), [pattern])))) as tar:
            names = set(tar.getnames())
        everything = set(look(tmp_path))
        assert names == {n for n in everything if n != prefix + gone and not n.startswith(prefix + gone + "/")}

    @pytest.mark.parametrize(
        ("pattern", "path", "is_directory", "out"),
        [
            ("a", "a", False, True),
            ("a", "x/a/y", False, True),
            ("a", "ab", False, False),
            ("a/b", "a/b", False, True),
            ("a/b", "a/b/c", False, True),
            ("a/b", "x/a/b", False, False),
            ("./a", "a", False, True),
            ("./a", "x/a", False, False),
            ("**/a/b", "x/y/a/b", False, True),
            ("**/a/b", "a/b", False, True),
            ("a/**/b", "a/b", False, True),
            ("a/**/b", "a/x/y/b", False, True),
            ("a/**/b", "b", False, False),
            ("a/**", "a", True, True),
            ("a/**", "a", False, False),
            ("a/**", "x/a/y", False, True),
            ("a/b/**", "a/b/c", False, True),
            ("a/b/**", "x/a/b/c", False, False),
            ("a/", "a", False, False),
            ("a/", "a", True, True),
            ("a/", "a/x", False, True),
            ("**", "anything/at/all", False, True),
            ("**/**", "x", False, True),
            ("*", "x", False, True),
            ("*.log", ".log", False, True),
            ("*.log", "a.log.txt", False, False),
            ("*.log", "a\nb.log", False, True),
            ("a?c", "abc", False, True),
            ("a?c", "a/c", False, False),
            ("a*c", "a/c", False, False),
            ("[a-c]x", "bx", False, True),
            ("[!a-c]x", "bx", False, False),
            ("[^a-c]x", "dx", False, True),
            ("[]x]", "]", False, True),
            ("[a", "[a", False, True),
            ("[z-a]", "z", False, False),
            ("[a-]", "-", False, True),
            ("\\*", "*", False, True),
            ("\\*", "x", False, False),
            ("\\!a", "!a", False, True),
            ("a.b", "axb", False, False),
            ("é*", "école", False, True),
            ("a//b", "a/b", False, True),
            ("a**b", "axxb", False, True),
            ("#x", "#x", False, True),
        ],
    )
    def test_patterns(self, pattern: str, path: str, is_directory: bool, out: bool) -> None:
        """F6: each part of the pattern language means what it means to git, where git has it."""
        assert Exclude([pattern]).matches(path, is_directory) is out

    @pytest.mark.parametrize(
        "pattern", ["", "/", ".", "./", "/a", "../a", "a/..", "a/../b", "a\0", 7, None, b"a", "!a"]
    )
    def test_bad_patterns(self, pattern: str) -> None:
        """F6: a pattern that is empty, absolute, leads up, holds NUL or is no text raises before anything is done."""
        with pytest.raises(InvalidRequestError):
            Exclude([pattern])
        with pytest.raises(InvalidRequestError):
            pack("/nowhere", [pattern])

    @pytest.mark.parametrize("patterns", ["*.log", b"x"])
    def test_a_single_string(self, patterns: Iterable[str]) -> None:
        """F6: one string in place of a sequence is refused, not taken letter by letter."""
        with pytest.raises(InvalidRequestError):
            Exclude(patterns)

    NAME = st.text(st.characters(exclude_characters="/\0", codec="utf-8"), min_size=1).filter(
        lambda n: n not in (".", "..")
    )

    @given(NAME, st.lists(NAME, max_size=4), st.lists(NAME, max_size=3))
    def test_a_name_matches_itself(self, name: str, above: list[str], below: list[str]) -> None:
        """F6: a name, escaped, matches itself at any depth and takes along all below."""
        pattern = "".join("\\" + char for char in name)
        assert Exclude([pattern]).matches("/".join([*above, name, *below]), False)

    @given(st.text("ab*?[]!-\\.", min_size=1), st.text("ab*?[]!-\\.", min_size=1))
    def test_like_fnmatch(self, pattern: str, name: str) -> None:
        """F6: within a name, patterns mean what fnmatch says, but for escapes."""
        import fnmatch

        if "\\" in pattern or "**" in pattern or "[^" in pattern or pattern[0] in "!." or name in (".", ".."):
            return
        assert Exclude([pattern]).matches(name, False) is fnmatch.fnmatchcase(name, pattern)

    @pytest.mark.timeout(10)
    def test_no_pattern_is_slow(self) -> None:
        """F6: a pattern with many stars takes no exponential time."""
        assert not Exclude(["*a" * 60 + "b"]).matches("a" * 255, False)
        assert not Exclude(["**/a/" * 60 + "b"]).matches("/".join(["a"] * 255), False)

    def test_nothing_is_excluded_by_default(self) -> None:
        """F6: no patterns leave nothing out."""
        assert not Exclude()
        assert not Exclude().matches("a", False)


def test_importing_is_light() -> None:
    """The module does not import tarfile before it is needed."""
    code = f"import sys, {_archive.__name__}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"tarfile", "tempfile", "shutil", "bz2", "lzma", "gzip"} & set(result.stdout.split())
