"""Hosted files where the way to them fails: answers that break off, calls that come twice, clients that die."""

from __future__ import annotations

import errno
import io
import tarfile
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Literal

import pytest

from sandboxsync import LocalTransport
from sandboxsync.errors import (
    FileError,
    SandboxError,
    SandboxFileExistsError,
    SandboxFileNotFoundError,
    SandboxUnavailableError,
    StreamInterruptedError,
)
from sandboxsync.testing import skip_unless_able
from sandboxsync.transports.base import CommandRequest, Exited, SessionRef
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host, PlainAnswer, PlainExec
from tests._hosted_files import LocalRaw
from tests._hosted_transport import LocalExec

LARGE = bytes(range(256)) * 4000
"""More than one answer that is read at once, and no text."""


class CutAnswer(PlainAnswer):
    """An answer that breaks off after some bytes."""

    def __init__(self, answer: PlainAnswer, length: int) -> None:
        self._answer = answer
        self._left = length

    def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | int:
        item = self._answer.read()
        if isinstance(item, int):
            return item
        stream, data = item
        data, self._left = data[: max(0, self._left)], self._left - len(data)
        if self._left < 0 and not data:
            raise StreamInterruptedError("cut", retryable=True)
        return stream, data

    def close(self) -> None:
        self._answer.close()


class FaultyExec(PlainExec):
    """Runs programs, and does what a bad way to them does."""

    def __init__(self, plain: PlainExec) -> None:
        self._plain = plain
        self.calls = 0
        self.cuts: list[int] = []
        """After how many bytes the next answers break off."""
        self.twice: Literal["", "late", "at once"] = ""
        self.dead = False
        self.threads: list[threading.Thread] = []

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        self.calls += 1
        if self.dead:
            raise SandboxUnavailableError("dead", retryable=False)
        if self.twice == "at once":
            self.threads.append(threading.Thread(target=drain, args=(self._plain.exec(argv),)))
            self.threads[-1].start()
        answer = self._plain.exec(argv)
        if self.twice == "late":
            drain(answer)
            answer = self._plain.exec(argv)
        return CutAnswer(answer, self.cuts.pop(0)) if self.cuts else answer


class FaultyRaw(LocalRaw):
    """A route that gives less than there is."""

    broken: SandboxError | None = None
    most: int | None = None

    def read(self, path: str) -> Generator[bytes, None, None]:
        left = self.most
        for chunk in super().read(path):
            yield chunk if left is None else chunk[:left]
            left = None if left is None else left - len(chunk)
            if left is not None and left <= 0:
                if self.broken is not None:
                    raise self.broken
                return

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data if self.most is None else data[: self.most])
        if self.broken is not None:
            raise self.broken


def drain(answer: PlainAnswer) -> None:
    """Read an answer that nobody wants."""
    while not isinstance(answer.read(), int):
        pass


class Place:
    """A sandbox with a bad way to it, and a good one."""

    def __init__(self, inner: LocalTransport) -> None:
        self.ref = SessionRef("files", None)
        self.inner = inner
        self.plain = FaultyExec(LocalExec(inner, "files"))
        self.raw = FaultyRaw(inner, "files")
        self.files = HostedFiles(Host(self.plain), self.raw)
        self.files.list_files(self.ref, ".", False)

    def shell(self, script: str) -> str:
        """What a script prints."""
        printed = b""
        with closing(self.inner.run(SessionRef("files", None), CommandRequest(script))) as stream:
            while not isinstance(item := stream.read(), Exited):
                printed += item.data
        return printed.decode()

    def read(self, path: str) -> bytes:
        """The content of a file, by the bad way."""
        with closing(self.files.read_file(self.ref, path, 1 << 16)) as stream:
            return b"".join(stream)

    def write(self, path: str, data: bytes) -> None:
        """Make a file, by the good way."""
        self.inner.write_file(SessionRef("files", None), path, [data])

    def left(self) -> str:
        """All of ours that lies about."""
        return self.shell(
            "find / -xdev -name '.sandboxsync-*' 2>/dev/null; find /run/sandboxsync-host/files -name '*.left' -o"
            " -name '*.alive' -o -name '*.data' -o -name '*.state'"
        )

    def sweep(self) -> None:
        """An hour later."""
        self.shell(
            "cd /run/sandboxsync-host/files; touch -d @5 *; rm swept;"
            ' for f in *.alive; do echo $(($(cat "$f") - 3660)) >"$f"; done'
        )
        self.files.stat(self.ref, ".", True)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """A sandbox of its own."""
    with closing(LocalTransport(isolation="bubblewrap")) as inner:
        skip_unless_able(request, inner)
        place = Place(inner)
        yield place
        for thread in place.plain.threads:
            thread.join()


# Answers that break off


@pytest.mark.parametrize("path", ["small", "/tmp/elsewhere/f"])
def test_F1_a_small_file_is_read_though_its_answer_breaks_off_anywhere(place: Place, path: str) -> None:
    """After any number of bytes: it is asked again."""
    place.shell("mkdir -p /tmp/elsewhere")
    place.write("/workspace/small" if path == "small" else path, b"\0\xffsome content")
    for length in range(0, 110, 9):
        place.plain.cuts = [length]
        assert place.read(path) == b"\0\xffsome content"


@pytest.mark.parametrize("length", [100, 70_000, 700_001, 1_300_000])
def test_F1_a_large_file_goes_on_where_its_answer_broke_off(place: Place, length: int) -> None:
    """Byte for byte, also when every answer breaks."""
    place.raw.most = 0
    place.write("/workspace/f", LARGE)
    with closing(place.files.read_file(place.ref, "f", 1 << 16)) as stream:
        place.plain.cuts = [length] * 3
        assert b"".join(stream) == LARGE


def test_F1_a_way_that_stays_broken_ends_in_an_error(place: Place) -> None:
    """After some attempts, and without a byte that is wrong."""
    place.raw.most = 0
    place.write("/workspace/f", LARGE)
    with closing(place.files.read_file(place.ref, "f", 1 << 16)) as stream:
        place.plain.cuts = [30] * 20
        with pytest.raises(StreamInterruptedError):
            b"".join(stream)
    assert len(place.plain.cuts) > 10


@pytest.mark.parametrize("broken", [None, StreamInterruptedError("cut", retryable=True)])
@pytest.mark.parametrize("most", [0, 1, 65_536, 1_000_000])
def test_F1_what_the_route_does_not_give_the_host_does(place: Place, most: int, broken: SandboxError | None) -> None:
    """Whether it breaks or ends early as if that were all."""
    place.write("/workspace/f", LARGE)
    place.raw.most, place.raw.broken = most, broken
    assert place.read("f") == LARGE


@pytest.mark.parametrize("name", ["caf\udce9", "a?b#c%d", "new\nline", "/tmp/f", "plain.txt"])
def test_F1_large_files_of_any_name_and_text_are_exact(place: Place, name: str) -> None:
    """Also where the route cannot reach the name, or would take the content for text in another encoding."""
    place.raw.most = None
    data = b"\xef\xbb\xbfcaf\xe9\n" * 60_000
    calls = place.plain.calls
    assert place.files.write_file(place.ref, name, [data]).size == len(data)
    assert place.read(name) == data
    assert place.plain.calls - calls == 4
    assert place.left() == ""


def test_F1_files_of_the_system_are_read_whole(place: Place) -> None:
    """Though they say that they are empty."""
    assert b"Linux" in place.read("/proc/version")
    with closing(place.files.read_file(place.ref, "/dev/zero", 100_000)) as stream:
        assert [next(stream) for _ in range(5)] == [bytes(100_000)] * 5


def test_F1_a_file_that_is_replaced_while_it_is_read_is_no_mixture(place: Place) -> None:
    """What was read so far is of another file than what comes now: that is an error."""
    place.raw.most = 65_536
    place.write("/workspace/f", LARGE)
    with closing(place.files.read_file(place.ref, "f", 65_536)) as stream:
        assert next(stream) == LARGE[:65_536]
        place.write("/workspace/f", LARGE[::-1])
        with pytest.raises(FileError) as caught:
            b"".join(stream)
    assert (caught.value.errno, caught.value.retryable) == (errno.EBUSY, True)


# Calls that come twice


@pytest.mark.parametrize("twice", ["late", "at once"])
def test_H3_calls_that_come_twice_do_what_they_do_once(place: Place, twice: Literal["late", "at once"]) -> None:
    """Every call, delivered again after its end or at the same time."""
    files, ref = place.files, place.ref
    place.plain.twice = twice
    assert files.make_directory(ref, "d", False) == "/workspace/d"
    for size in (0, 10, 200_000, 30_000_000):
        data = (LARGE * 30)[:size]
        assert files.write_file(ref, "d/f", iter([data[: size // 2], data[size // 2 :]])).size == size
        assert place.read("d/f") == data
    files.rename(ref, "d/f", "d/g")
    files.rename(ref, "d/g", "/dev/shm/g")
    assert [info.name for info in files.list_files(ref, "/dev/shm", False)] == ["g"]
    files.remove_file(ref, "/dev/shm/g")
    tree = b"".join(files.read_tree(ref, ".", []))
    files.write_tree(ref, "copy", [tree])
    assert place.shell("find . | sort; ls /dev/shm") == ".\n./copy\n./copy/d\n./d\n"
    with pytest.raises(SandboxFileExistsError):
        files.make_directory(ref, "d", False)
    with pytest.raises(SandboxFileNotFoundError):
        files.remove_file(ref, "d/f")


def test_H3_a_lost_answer_is_asked_for_again(place: Place) -> None:
    """What was done is not done again, and not taken for a failure."""
    files, ref = place.files, place.ref
    calls: list[Callable[[], object]] = [
        lambda: files.make_directory(ref, "d", False),
        lambda: files.write_file(ref, "d/f", [b"content"]),
        lambda: files.rename(ref, "d/f", "d/g"),
        lambda: files.remove_file(ref, "d/g"),
    ]
    for call in calls:
        place.plain.cuts = [5]
        call()
        assert place.plain.cuts == []
    for length in (0, 20, 40):
        place.plain.cuts = [length] * 3
        files.write_file(ref, "large", [LARGE])
        assert place.read("large") == LARGE


# Writes that end half-way


def test_F2_a_source_that_raises_leaves_nothing(place: Place) -> None:
    """After no piece, some pieces, and pieces that were taken already."""

    def broken(size: int) -> Iterator[bytes]:
        for _ in range(size):
            yield bytes(1 << 20)
        raise LookupError("the source broke")

    for size in (0, 1, 5, 30):
        with pytest.raises(LookupError, match="the source broke"):
            place.files.write_file(place.ref, "new", broken(size))
        assert (place.left(), place.shell("ls -A")) == ("", "")


def test_H7_what_a_dead_client_leaves_is_swept(place: Place) -> None:
    """It is in no list and no archive, and whoever comes an hour later removes it."""
    place.write("/workspace/d/f", b"old")
    place.write("/workspace/large", LARGE)

    def dying() -> Iterator[bytes]:
        for number in range(40):
            yield bytes(1 << 20)
            place.plain.dead |= number == 30

    with pytest.raises(SandboxUnavailableError):
        place.files.write_file(place.ref, "d/f", dying())
    place.plain.dead = False
    stream = place.files.read_file(place.ref, "large", 1000)
    next(stream)
    place.plain.dead = True
    stream.close()
    place.plain.dead = False
    assert len(place.left().split()) > 3
    assert {info.relative_path for info in place.files.list_files(place.ref, ".", True)} == {"d", "d/f", "large"}
    tree = io.BytesIO(b"".join(place.files.read_tree(place.ref, ".", [])))
    with tarfile.open(fileobj=tree) as tar:
        assert tar.getnames() == ["d", "d/f", "large"]
    place.sweep()
    assert (place.left(), place.shell("cd /run/sandboxsync-host/files; echo *")) == ("", "swept\n")
    assert place.shell("cat d/f; ls -A . d") == "old.:\nd\nlarge\n\nd:\nf\n"


def test_F2_a_piece_that_does_not_arrive_whole_changes_nothing(place: Place) -> None:
    """The route says that it wrote, or that it broke; the file is as it was."""
    place.write("/workspace/f", b"old")
    place.raw.most = 1000
    for place.raw.broken in (None, StreamInterruptedError("cut")):
        with pytest.raises(StreamInterruptedError):
            place.files.write_file(place.ref, "f", [LARGE])
    assert (place.shell("cat f; ls -A"), place.left()) == ("oldf\n", "")


def test_F3_what_cannot_be_moved_stays(place: Place) -> None:
    """Across file systems too: the error is about the destination, and nothing of ours is left there."""
    place.shell("mkdir -p d/sub /dev/shm/full; echo x > d/f; echo y > /dev/shm/full/y; ln -s f d/link; chmod 640 d/f")
    with pytest.raises(FileError) as caught:
        place.files.rename(place.ref, "d", "/dev/shm/full")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOTEMPTY, "/dev/shm/full")
    assert (
        place.shell("cd d; ls; ls -A /dev/shm /dev/shm/full") == "f\nlink\nsub\n/dev/shm:\nfull\n\n/dev/shm/full:\ny\n"
    )
    place.files.rename(place.ref, "d", "/dev/shm/d")
    assert (
        place.shell("ls; cd /dev/shm/d; ls; readlink link; stat -c %a f; rm -r /dev/shm/*") == "f\nlink\nsub\nf\n640\n"
    )
