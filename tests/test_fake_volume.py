"""The file system of the fake: by itself, beside a real one, and under a shell."""

from __future__ import annotations

import errno
import gc
import importlib.machinery
import importlib.util
import os
import shutil
import stat
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sandboxsync.transports.fake import _mount
from sandboxsync.transports.fake._mount import mountable
from sandboxsync.transports.fake._volume import Volume

bashkit = pytest.importorskip("bashkit")


@pytest.fixture
def volume() -> Volume:
    """A new volume."""
    return Volume()


@contextmanager
def fails(number: int, *names: str) -> Iterator[None]:
    """Expect an error as the system raises it: class, number, text and names."""
    with pytest.raises(OSError) as caught:
        yield
    error = caught.value
    assert type(error) is type(OSError(number, ""))
    assert (error.errno, error.strerror) == (number, os.strerror(number))
    assert tuple(name for name in (error.filename, error.filename2) if name is not None) == names


class Shell:
    """A shell of bashkit on a volume."""

    def __init__(self, volume: Volume, module: ModuleType = bashkit) -> None:
        self._bash = module.Bash(profile=module.ExecutionProfile.Interactive)
        self._bash.mount("/", mountable(volume, module))
        self._bash.execute_sync("cd /workspace")

    def __call__(self, command: str) -> str:
        """Run a command and return what it printed, on either stream."""
        result = self._bash.execute_sync(command)
        return bytes(result.stdout_bytes + result.stderr_bytes).decode()


class TestVolume:
    def test_what_a_new_one_has(self, volume: Volume) -> None:
        """The directories and files that programs count on."""
        assert volume.listdir("/") == ["bin", "dev", "etc", "home", "root", "tmp", "usr", "workspace"]
        assert volume.listdir("/etc") == ["group", "hostname", "passwd"]
        assert volume.stat("/tmp").mode == 0o1777
        assert b"root:" in volume.read("/etc/passwd")
        assert [volume.stat(f"/{name}").kind for name in ("usr/local/bin", "usr/bin", "dev/null")] == [
            "directory",
            "directory",
            "device",
        ]

    def test_times_are_of_the_clock(self) -> None:
        """Each change is dated by the given clock, that of a directory too."""
        now = [100.5]
        volume = Volume(lambda: now[0])
        volume.write("/workspace/f", b"x")
        now[0] = 200.25
        volume.append("/workspace/f", b"y")
        attributes = volume.stat("/workspace/f")
        assert (attributes.created, attributes.mtime, attributes.mtime_ns) == (100.5, 200.25, 200_250_000_000)
        assert volume.stat("/workspace").mtime == 100.5
        volume.remove("/workspace/f")
        assert volume.stat("/workspace").mtime == 200.25
        volume.utime("/workspace", 7)
        assert volume.stat("/workspace").mtime_ns == 7

    def test_modes_are_kept(self, volume: Volume) -> None:
        """A write and a rename keep the mode, as does a replacement that names none."""
        volume.write("/f", b"x")
        assert volume.stat("/f").mode == 0o644
        volume.chmod("/f", 0o4751)
        volume.write("/f", b"y")
        volume.rename("/f", "/g")
        volume.replace("/g", b"z")
        assert volume.stat("/g").mode == 0o4751
        volume.replace("/g", b"z", mode=0o600, mtime_ns=5)
        assert (volume.stat("/g").mode, volume.stat("/g").mtime_ns) == (0o600, 5)

    def test_devices(self, volume: Volume) -> None:
        """Devices swallow what is written, or are full, and give what they are known for."""
        volume.write("/dev/null", b"away")
        volume.append("/dev/zero", b"away")
        assert (volume.read("/dev/null"), set(volume.read("/dev/zero"))) == (b"", {0})
        assert volume.read("/dev/urandom") != volume.read("/dev/urandom")
        with fails(errno.ENOSPC, "/dev/full"):
            volume.write("/dev/full", b"x")
        volume.copy("/dev/null", "/empty")
        assert volume.stat("/empty").kind == "file"

    def test_fifos(self, volume: Volume) -> None:
        """A FIFO is told as one, and holds what was written last; it takes no space."""
        volume.mkfifo("/p", 0o600)
        volume.write("/p", b"through")
        assert (volume.read("/p"), volume.stat("/p").kind, volume.stat("/p").mode) == (b"through", "fifo", 0o600)
        assert volume.used == Volume().used
        with fails(errno.EEXIST, "/p"):
            volume.mkfifo("/p")

    def test_long_names(self, volume: Volume) -> None:
        """Names of 255 bytes and paths of 4,095 can be used, longer ones cannot; bytes count, not characters."""
        volume.write(f"/{'a' * 255}", b"")
        volume.write(f"/{'é' * 127}", b"")
        for name in ("a" * 256, "é" * 128, "/a" * 2048):
            with fails(errno.ENAMETOOLONG, f"/{name}"):
                volume.write(f"/{name}", b"")
        # Deeper than Python calls itself.
        deep = "/d" * 1100
        volume.mkdir(deep, parents=True)
        assert volume.stat(deep + "/").kind == "directory"
        assert volume.clone(time.time).exists(deep)
        volume.rmtree("/d")
        assert not volume.exists("/d")

    def test_odd_names(self, volume: Volume) -> None:
        """Names may hold newlines, and bytes that are not UTF-8."""
        odd = os.fsdecode(b"/workspace/\xff\n")
        volume.write(odd, b"x")
        volume.symlink(odd, "/l")
        assert (volume.read("/l"), volume.realpath("/l")) == (b"x", odd)
        assert volume.listdir("/workspace") == [odd[11:]]

    def test_capacity(self, volume: Volume) -> None:
        """What does not fit raises and changes nothing; what is removed makes room."""
        volume.capacity = volume.used + 100
        volume.write("/f", bytes(60))
        volume.link("/f", "/h")
        volume.mkdir("/d")
        volume.write("/d/f", bytes(30))
        changes: list[tuple[Callable[[], object], tuple[str, ...]]] = [
            (lambda: volume.append("/f", bytes(11)), ("/f",)),
            (lambda: volume.write("/f", bytes(71)), ("/f",)),
            (lambda: volume.write("/new", bytes(11)), ("/new",)),
            (lambda: volume.replace("/f", bytes(11)), ("/f",)),
            (lambda: volume.copy("/d", "/e"), ("/d", "/e")),
        ]
        for change, names in changes:
            with fails(errno.ENOSPC, *names):
                change()
        assert volume.capacity - volume.used == 10
        assert not volume.exists("/new")
        assert not volume.exists("/e")
        volume.replace("/d/f", bytes(40))
        volume.remove("/f")
        assert volume.capacity - volume.used == 0
        volume.rename("/d/f", "/h")
        assert volume.capacity - volume.used == 60
        volume.copy("/d", "/e")
        volume.rmtree("/d")
        volume.write("/h", b"")
        assert volume.capacity - volume.used == 100

    def test_copies_of_trees(self, volume: Volume) -> None:
        """A directory is copied whole and merged; links in it stay links, a file that is named by a link is copied."""
        volume.mkdir("/d/sub", parents=True)
        volume.write("/d/sub/f", b"new")
        volume.chmod("/d/sub/f", 0o755)
        volume.symlink("sub", "/d/l")
        volume.mkdir("/e/sub", parents=True)
        volume.write("/e/sub/f", b"old")
        volume.write("/e/stays", b"")
        volume.copy("/d", "/e")
        assert (volume.listdir("/e"), volume.read("/e/l/f"), volume.readlink("/e/l")) == (
            ["l", "stays", "sub"],
            b"new",
            "sub",
        )
        assert volume.stat("/e/sub/f").mode == 0o644
        volume.symlink("d/sub/f", "/file")
        volume.copy("/file", "/copy")
        assert (volume.stat("/copy", follow=False).kind, volume.stat("/copy").mode) == ("file", 0o755)
        volume.append("/copy", b"er")
        assert volume.read("/d/sub/f") == b"new"
        with fails(errno.EINVAL, "/d", "/d/sub/below"):
            volume.copy("/d", "/d/sub/below")
        with fails(errno.EINVAL, "/file", "/d/sub/f"):
            volume.copy("/file", "/d/sub/f")
        with fails(errno.ENOTDIR, "/d", "/copy"):
            volume.copy("/d", "/copy")
        with fails(errno.EISDIR, "/copy", "/d"):
            volume.copy("/copy", "/d")

    def test_clone(self, volume: Volume) -> None:
        """A copy has all that there was, and shares nothing that can change; hard links stay such."""
        volume.mkdir("/d")
        volume.append("/d/f", b"a")
        volume.link("/d/f", "/d/h")
        volume.symlink("f", "/d/l")
        volume.capacity = 10_000
        copy = volume.clone(lambda: 5.0)
        assert copy.scandir("/d") == volume.scandir("/d")
        assert (copy.used, copy.capacity) == (volume.used, 10_000)
        volume.append("/d/f", b"b")
        copy.append("/d/h", b"c")
        copy.write("/new", b"")
        assert (volume.read("/d/f"), copy.read("/d/f"), copy.stat("/new").mtime) == (b"ab", b"ac", 5.0)
        assert not volume.exists("/new")
        assert copy.stat("/new").ino not in {attributes.ino for _, attributes in copy.scandir("/d")}

    def test_appending_is_linear(self, volume: Volume) -> None:
        """A file that grows by many small pieces takes a moment, not minutes."""
        volume.write("/f", bytes(5_000_000))
        started = time.perf_counter()
        for _ in range(100_000):
            volume.append("/f", b"line\n")
        assert time.perf_counter() - started < 20
        assert volume.stat("/f").size == 5_500_000

    def test_freed_at_once(self) -> None:
        """A volume holds no cycle: it is gone with its last reference."""
        gc.disable()
        try:
            volume = Volume()
            volume.mkdir("/a/b/c", parents=True)
            gone = weakref.ref(volume)
            del volume
            assert gone() is None
        finally:
            gc.enable()

    def test_lock_after_fork(self, volume: Volume) -> None:
        """A lock that somebody holds who is gone is renewed."""
        volume._lock.acquire()
        volume.renew_lock()
        assert volume.exists("/tmp")

    def test_many_threads(self, volume: Volume) -> None:
        """Threads that change the same directory and file lose nothing."""

        def work(number: int) -> None:
            for step in range(200):
                volume.append("/all", b"x")
                volume.write(f"/workspace/{number}-{step}", b"")
                volume.rename(f"/workspace/{number}-{step}", f"/workspace/{number}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))
        assert volume.read("/all") == b"x" * 1600
        assert volume.listdir("/workspace") == [str(number) for number in range(8)]


NAMES = st.sampled_from(["a", "b", "c", ".", ".."])
PATHS = st.tuples(st.lists(NAMES, min_size=1, max_size=4).map("/".join), st.sampled_from(["", "", "", "/"])).map(
    "".join
)
TARGETS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)
DATA = st.binary(max_size=3)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["read", "remove", "rmdir", "listdir", "readlink", "stat", "lstat", "realpath"]), PATHS),
    st.tuples(st.sampled_from(["mkdir", "makedirs", "stat"]), PATHS),
    st.tuples(st.sampled_from(["write", "append"]), PATHS, DATA),
    st.tuples(st.sampled_from(["rename", "rename", "link"]), PATHS, PATHS),
    st.tuples(st.just("symlink"), TARGETS, PATHS),
    st.tuples(st.just("chmod"), PATHS, st.integers(0, 0o7777)),
)


class Real:
    """The same operations on a directory of this machine."""

    def read(self, path: str) -> bytes:
        # A `Path` would lose a final slash or dot.
        with open(path, "rb") as file:
            return file.read()

    def write(self, path: str, data: bytes, flag: int = os.O_TRUNC) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | flag, 0o666)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def append(self, path: str, data: bytes) -> None:
        self.write(path, data, os.O_APPEND)

    def makedirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def link(self, old: str, new: str) -> None:
        os.link(old, new, follow_symlinks=False)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def stat(self, path: str) -> tuple[str, int, int]:
        return self._told(os.stat(path))

    def lstat(self, path: str) -> tuple[str, int, int]:
        return self._told(os.lstat(path))

    def _told(self, status: os.stat_result) -> tuple[str, int, int]:
        kind = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink"}[stat.S_IFMT(status.st_mode)]
        return kind, stat.S_IMODE(status.st_mode), status.st_size if kind == "file" else 0

    def realpath(self, path: str) -> str:
        os.stat(path)
        return os.path.realpath(path)

    mkdir, remove, rmdir, chmod = (staticmethod(call) for call in (os.mkdir, os.unlink, os.rmdir, os.chmod))
    rename, symlink, readlink = (staticmethod(call) for call in (os.replace, os.symlink, os.readlink))


class InMemory:
    """The operations of a volume, with the names and results of `Real`."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def __getattr__(self, name: str) -> object:
        return getattr(self._volume, name)

    def makedirs(self, path: str) -> None:
        self._volume.mkdir(path, parents=True)

    def stat(self, path: str, follow: bool = True) -> tuple[str, int, int]:
        found = self._volume.stat(path, follow)
        return found.kind, found.mode, found.size if found.kind == "file" else 0

    def lstat(self, path: str) -> tuple[str, int, int]:
        return self.stat(path, follow=False)


# Deep enough that no ".." leads out of it.
BASE = "/" + "/".join(["base"] * 16)


def outcome(system: object, top: str, step: tuple[object, ...]) -> object:
    """What an operation below `top` returns or raises."""
    operation, *arguments = step
    paths = [
        value if operation == "symlink" and index == 0 else f"{top}{BASE}/{value}"
        for index, value in enumerate(arguments)
    ]
    given_ = [path if isinstance(value, str) else value for path, value in zip(paths, arguments, strict=True)]
    try:
        result = getattr(system, str(operation))(*given_)
    except OSError as exc:
        return errno.errorcode[exc.errno or 0]
    return result.removeprefix(top) if isinstance(result, str) else result


def tree(system: object, top: str, below: str = "") -> dict[str, object]:
    """All that lies in a directory, at any depth, with mode, size and content or target."""
    found: dict[str, object] = {}
    for name in outcome(system, top, ("listdir", below or ".")):  # type: ignore[attr-defined]
        path = f"{below}{name}"
        look = outcome(system, top, ("lstat", path))
        found[path] = (look, outcome(system, top, ("readlink", path)), outcome(system, top, ("read", path)))
        if look[0] == "directory":  # type: ignore[index]
            found |= tree(system, top, f"{path}/")
    return found


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
@example(
    [("symlink", "a", "a"), ("stat", "a"), ("write", "a", b""), ("write", "a/", b""), ("mkdir", "a"), ("lstat", "a/")]
)
@example([("mkdir", "a"), ("mkdir", "a/b"), ("rename", "a/b", "a"), ("rename", "a", "a/b/c"), ("rename", "a", "a/.")])
@example([("chmod", ".", 0o2755), ("makedirs", "a/b")])
def test_like_a_real_file_system(steps: list[tuple[object, ...]]) -> None:
    """Any sequence of operations has the results and errors that it has on the file system of this machine."""
    volume = Volume()
    volume.mkdir(BASE, parents=True)
    umask = os.umask(0o022)
    try:
        with TemporaryDirectory() as top:
            top = os.path.realpath(top)
            os.makedirs(top + BASE)
            for step in steps:
                assert outcome(InMemory(volume), "", step) == outcome(Real(), top, step), step
            assert tree(InMemory(volume), "") == tree(Real(), top)
    finally:
        os.umask(umask)


class TestMount:
    def test_reading_and_writing(self, volume: Volume) -> None:
        """What a command writes is in the volume, and the reverse; any bytes, names and sizes."""
        shell = Shell(volume)
        volume.write("/workspace/f", b"text\n")
        assert shell("cat f; printf 'a\\0\\377' > out; echo more >> f; cat f") == "text\ntext\nmore\n"
        assert volume.read("/workspace/out") == b"a\0\xff"
        assert shell("echo é > 'é 😀'; cat é*; ls") == "é\nf\nout\né 😀\n"
        volume.write("/workspace/big", bytes(3_000_000))
        assert shell("wc -c < big; cat big > copy; wc -c < copy; : > big; wc -c < big") == "3000000\n3000000\n0\n"
        assert shell("head -c 3 /dev/zero | wc -c; cat /dev/null; echo x > /dev/null; cat <(echo hi)") == "3\nhi\n"

    def test_errors_read_as_those_of_bash(self, volume: Volume) -> None:
        """Messages of commands are those of the system."""
        shell = Shell(volume)
        shell("mkdir d; echo x > d/f; ln -s l l")
        volume.capacity = volume.used
        for command, text in {
            "cat no": "cat: no: No such file or directory\n",
            "cat d": "cat: d: Is a directory\n",
            "cat d/f/x": "cat: d/f/x: Not a directory\n",
            "cat l": "cat: l: Too many levels of symbolic links\n",
            "mkdir d": "mkdir: cannot create directory 'd': File exists\n",
            "rmdir d": "rmdir: failed to remove 'd': Directory not empty\n",
            "rm d": "rm: cannot remove 'd': Is a directory\n",
            "rm no": "rm: cannot remove 'no': No such file or directory\n",
            "ls no": "ls: cannot access 'no': No such file or directory\n",
            "> no/x": "bash: line 1: no/x: No such file or directory\n",
            "echo x > d": "bash: line 1: d: Is a directory\n",
            "echo x > new": "bash: line 1: new: No space left on device\n",
            "echo x > /dev/full": "bash: line 1: /dev/full: No space left on device\n",
        }.items():
            assert shell(command) == text

    def test_symlinks(self, volume: Volume) -> None:
        """Links are followed by what reads, writes and tests, in the middle of a path too."""
        shell = Shell(volume)
        shell("echo one > f; mkdir d; echo two > d/g; ln -s f lf; ln -s d ld; ln -s new dangling")
        assert shell("readlink lf; cat lf ld/g; test -f lf && test -d ld && test -L dangling && echo ok") == (
            "f\none\ntwo\nok\n"
        )
        assert shell("cd ld && pwd && cat g && cd ..; pwd") == "/workspace/ld\ntwo\n/workspace\n"
        shell("echo changed > lf; echo made > dangling; echo below > ld/h; cp f ld; mv f ld/moved")
        assert shell("ls d; cat new d/moved") == "f\ng\nh\nmoved\nmade\nchanged\n"
        assert "ld -> d\n" in shell("ls -l")
        shell("rm lf dangling; rm -r ld")
        assert shell("ls; ls d") == "d\nnew\nf\ng\nh\nmoved\n"

    def test_links_in_circles_end(self, volume: Volume) -> None:
        """What walks down a tree comes to an end where links lead back up."""
        shell = Shell(volume)
        shell("mkdir -p a/b c; ln -s ../.. a/b/up; ln -s . self; ln -s ../c a/other; ln -s ../a c/back")
        assert len(shell("find .").split()) < 20
        assert shell("find . -name self -type l") == "./self\n"

    def test_modes_and_scripts(self, volume: Volume) -> None:
        """A script runs by its path when its mode says so."""
        shell = Shell(volume)
        volume.write("/workspace/s", b"#!/bin/bash\necho ran $1\n")
        assert shell("./s") == "bash: line 1: ./s: Permission denied\n"
        assert shell("chmod 750 s; ./s x; stat -c %a s") == "ran x\n750\n"
        assert volume.stat("/workspace/s").mode == 0o750
        volume.mkfifo("/workspace/p")
        assert shell("test -p p && ls -F") == "p|\ns*\n"

    def test_names_that_are_no_text(self, volume: Volume) -> None:
        """Names that are not UTF-8 are left out of listings, and harm nothing."""
        volume.write(os.fsdecode(b"/workspace/\xff"), b"")
        volume.write("/workspace/seen", b"")
        assert Shell(volume)("ls") == "seen\n"

    def test_times_of_files(self) -> None:
        """Times come from the volume, those before 1970 too."""
        volume = Volume(lambda: 86_400.5)
        shell = Shell(volume)
        volume.write("/workspace/f", b"")
        assert shell("stat -c %Y f") == "86400\n"
        volume.utime("/workspace/f", -1_500_000_000)
        assert shell("test f -ot /tmp && echo older; ls") == "older\nf\n"

    def test_any_exception_is_told(self, volume: Volume, monkeypatch: pytest.MonkeyPatch) -> None:
        """An exception that is none of the system's becomes the message of the command."""

        def broken(*arguments: object) -> bytes:
            raise LookupError("the volume broke")

        volume.write("/workspace/f", b"")
        shell = Shell(volume)
        monkeypatch.setattr(volume, "read", broken)
        assert "LookupError: the volume broke" in shell("cat f")

    def test_held_by_nobody(self) -> None:
        """A mount keeps no volume alive; without it, operations fail."""
        volume = Volume()
        shell = Shell(volume)
        gone = weakref.ref(volume)
        del volume
        assert gone() is None
        assert "tale file handle" in shell("cat /etc/passwd")

    def test_one_volume_in_many_shells(self, volume: Volume) -> None:
        """Shells in several threads see the same files, and lose nothing."""

        def work(number: int) -> None:
            Shell(volume)(f"for n in {{1..50}}; do echo {number} >> all; cat all > /dev/null; done; echo x > {number}")

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert _mount._lent == {}
        assert sorted(volume.read("/workspace/all").split()) == [
            b"%d" % number for number in range(4) for _ in range(50)
        ]

    def test_second_copy_of_the_module(self, volume: Volume, tmp_path: Path) -> None:
        """Another copy of the extension, loaded from another file, can mount the same volume."""
        source = sys.modules["bashkit._bashkit"].__file__
        assert source is not None
        path = shutil.copy(source, tmp_path / "copy.so")
        loader = importlib.machinery.ExtensionFileLoader("bashkit._bashkit", str(path))
        spec = importlib.util.spec_from_file_location("bashkit._bashkit", path, loader=loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        Shell(volume, module)("echo second > f")
        assert Shell(volume)("cat f") == "second\n"

    def test_process_ends_in_peace(self) -> None:
        """A process with mounted volumes, shells and half-used files ends without a crash."""
        script = """
            import threading, bashkit
            from sandboxsync.transports.fake._mount import mountable
            from sandboxsync.transports.fake._volume import Volume
            kept = []
            for _ in range(3):
                volume, bash = Volume(), bashkit.Bash()
                bash.mount("/", mountable(volume, bashkit))
                thread = threading.Thread(target=bash.execute_sync, args=("echo x > /tmp/f; cat /tmp/f",))
                thread.start()
                thread.join()
                kept.append((volume, bash, bash.fs()))
        """
        for _ in range(3):
            command = [sys.executable, "-c", textwrap.dedent(script)]
            result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            assert (result.returncode, result.stderr) == (0, "")
