"""Files over a scripted transport."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pytest

from sandboxsync import (
    FileError,
    FileInfo,
    InvalidRequestError,
    OutputDecodeError,
    Sandbox,
    SandboxFileNotFoundError,
    SandboxNotADirectoryError,
    SandboxPermissionError,
)
from sandboxsync._mime import guess
from tests._stub_transport import StubTransport, info


@pytest.fixture
def transport() -> StubTransport:
    """A transport that answers."""
    return StubTransport()


@pytest.fixture
def sandbox(transport: StubTransport) -> Sandbox:
    """A sandbox on it."""
    return Sandbox(transport)


def pieces() -> Iterator[bytes]:
    """Bytes in pieces, one of them empty."""
    yield b"ab"
    yield b""
    yield b"c"


@pytest.mark.parametrize(
    ("content", "written"),
    [
        ("é\r\n", b"\xc3\xa9\r\n"),
        ("", b""),
        (b"\0\xff", b"\0\xff"),
        (b"x" * 3_000_001, b"x" * 3_000_001),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"ab"), b"ab"),
        (io.BytesIO(b"ab"), b"ab"),
        (io.BytesIO(b"x" * 3_000_001), b"x" * 3_000_001),
        ([b"a", bytearray(b"b"), memoryview(b"c")], b"abc"),
        (pieces(), b"abc"),
    ],
    ids=range(10),
)
def test_f1_write_file(sandbox: Sandbox, transport: StubTransport, content: Any, written: bytes) -> None:
    """F1: text, bytes, files and iterables are written byte for byte."""
    result = sandbox.write_file("f", content)
    assert transport.written == written
    assert (result.path, result.size) == ("f", len(written))
    assert result.timestamp.tzinfo is not None


def test_write_file_encodes(sandbox: Sandbox, transport: StubTransport) -> None:
    """Text is written in the encoding asked for."""
    sandbox.write_file("f", "é", encoding="latin-1")
    assert transport.written == b"\xe9"


def test_write_file_reads_a_file_from_where_it_stands(sandbox: Sandbox, transport: StubTransport) -> None:
    """A file object is read from its position on, and progress knows what is left of it."""
    file = io.BytesIO(b"0123456789")
    file.seek(4)
    told: list[tuple[int, int | None]] = []
    sandbox.write_file("f", file, progress=lambda done, total: told.append((done, total)))
    assert transport.written == b"456789"
    assert told == [(0, 6), (6, 6)]


def test_write_file_tells_progress(sandbox: Sandbox) -> None:
    """Progress is told the bytes done, and the total where it is known."""
    told: list[tuple[int, int | None]] = []
    sandbox.write_file("f", b"x" * 1_500_000, progress=lambda done, total: told.append((done, total)))
    assert told == [(0, 1_500_000), (1_048_576, 1_500_000), (1_500_000, 1_500_000)]
    del told[:]
    sandbox.write_file("f", pieces(), progress=lambda done, total: told.append((done, total)))
    assert told == [(0, None), (2, None), (3, None)]


@pytest.mark.parametrize("bad", [["a"], [1], [None], (b"a" if i else "b" for i in range(2))])
def test_write_file_takes_only_bytes(sandbox: Sandbox, bad: Any) -> None:
    """An iterable that yields anything but bytes raises InvalidRequestError out of the write."""
    with pytest.raises(InvalidRequestError):
        sandbox.write_file("f", bad)


def test_write_file_refuses_a_file_that_reads_text(sandbox: Sandbox) -> None:
    """A file object whose read gives text raises InvalidRequestError out of the write."""

    class Text:
        def read(self, size: int) -> str:
            return "x"

    with pytest.raises(InvalidRequestError):
        sandbox.write_file("f", Text())  # type: ignore[arg-type]


def test_f2_what_the_source_raises_is_raised(sandbox: Sandbox) -> None:
    """F2: an error of the content, or of progress, reaches the caller as it is."""

    def source() -> Iterator[bytes]:
        yield b"a"
        raise KeyError("mine")

    with pytest.raises(KeyError):
        sandbox.write_file("f", source())

    def progress(done: int, total: int | None) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        sandbox.write_file("f", b"a", progress=progress)


def test_read_file(sandbox: Sandbox, transport: StubTransport) -> None:
    """read_file gives the content, its size, the absolute path and a type without parameters."""
    transport.content["/w/a.html"] = [b"<p>", b"\xc3\xa9"]
    result = sandbox.read_file("/w/a.html")
    assert (result.path, result.content, result.size) == ("/w/a.html", b"<p>\xc3\xa9", 5)
    assert (result.mime_type, result.text, result.is_binary) == ("text/html", "<p>é", False)
    assert sandbox.read_bytes("/w/a.html") == b"<p>\xc3\xa9"
    assert sandbox.read_text("/w/a.html") == "<p>é"
    assert sandbox.read_file("/empty").content == b""


def test_read_text_is_strict(sandbox: Sandbox, transport: StubTransport) -> None:
    """FI10: content that is no such text raises a UnicodeError of ours; line ends stay."""
    transport.content["f"] = [b"\xff\r\n"]
    with pytest.raises(OutputDecodeError, match="'f' is no text in 'utf-8'") as caught:
        sandbox.read_text("f")
    assert isinstance(caught.value, UnicodeError)
    assert sandbox.read_text("f", "latin-1") == "ÿ\r\n"


def test_read_errors_come_through(sandbox: Sandbox, transport: StubTransport) -> None:
    """F3: the FileError of the transport is raised, from the opening and from the middle of the file."""
    transport.fail["read_file"] = SandboxFileNotFoundError(filename="f")
    with pytest.raises(FileNotFoundError):
        sandbox.read_file("f")
    transport.fail.clear()
    transport.content["f"] = [b"a", SandboxPermissionError(filename="f")]
    with pytest.raises(PermissionError):
        sandbox.read_file("f")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", "text/plain"),
        ("/w/dir.d/a.JSON", "application/json"),
        ("a.py", "text/x-python"),
        ("a.xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"),
        ("a.tar.gz", "application/gzip"),
        ("a", "application/octet-stream"),
        ("a.nosuch", "application/octet-stream"),
        ("data:text/html,x", "application/octet-stream"),
        ("\udcff.txt", "text/plain"),
    ],
)
def test_mime_type_by_name(name: str, kind: str) -> None:
    """The type follows the name alone, the same on every machine."""
    assert guess(name) == kind


# FileStream


def test_file_stream(sandbox: Sandbox, transport: StubTransport) -> None:
    """read_file_stream gives chunks, the size, and StopIteration for ever at the end."""
    transport.content["f"] = [b"ab", b"c"]
    with sandbox.read_file_stream("f", chunk_size=2) as stream:
        assert (stream.size, stream.path) == (3, "f")
        assert list(stream) == [b"ab", b"c"]
        assert list(stream) == []
    assert list(stream) == []
    assert transport.last("read_file")[1:] == ("f", 2)


def test_file_stream_never_just_ends(sandbox: Sandbox, transport: StubTransport) -> None:
    """A stream that was closed before its end refuses to go on; an error of the far side is raised."""
    transport.content["f"] = [b"ab", b"c"]
    with sandbox.read_file_stream("f") as stream:
        next(stream)
    with pytest.raises(InvalidRequestError):
        next(stream)
    transport.content["f"] = [b"ab", FileError("gone")]
    with sandbox.read_file_stream("f") as stream, pytest.raises(FileError, match="gone"):
        list(stream)


def test_dropped_file_stream_warns(sandbox: Sandbox, transport: StubTransport) -> None:
    """A stream that is dropped before its end warns ResourceWarning; one that was read does not."""
    transport.content["f"] = [b"ab"]
    with pytest.warns(ResourceWarning, match="unclosed <FileStream 'f'"):
        sandbox.read_file_stream("f")
    assert list(sandbox.read_file_stream("f")) == [b"ab"]


# Names


def test_mkdir(sandbox: Sandbox, transport: StubTransport) -> None:
    """Mkdir returns the absolute path that was made."""
    result = sandbox.mkdir("d", recursive=True)
    assert (result.path, result.recursive) == ("/workspace/d", True)
    assert transport.last("make_directory")[1:] == ("d", True)


def test_delete_and_rename(sandbox: Sandbox, transport: StubTransport) -> None:
    """delete_file and rename_file go to the transport as they are."""
    sandbox.delete_file("-rf")
    assert transport.last("remove_file")[1] == "-rf"
    sandbox.rename_file("a", "b/")
    assert transport.last("rename")[1:] == ("a", "b/")


@pytest.mark.parametrize(
    ("source", "destination", "target"),
    [
        ("a", "new", "new"),
        ("x/a", "file", "file"),
        ("x/a", "dir", "dir/a"),
        ("x/a/", "dir", "dir/a"),
        ("a", "dir/", "dir/a"),
        ("..", "dir", "dir"),
        ("/", "dir", "dir"),
    ],
)
def test_move_file(sandbox: Sandbox, transport: StubTransport, source: str, destination: str, target: str) -> None:
    """A move into an existing directory keeps the name; else the destination is the new path."""
    for name in ("dir", "dir/"):
        transport.files[name] = info("/w/dir", "directory")
    transport.files["file"] = info("/w/file")
    sandbox.move_file(source, destination)
    assert transport.last("rename")[1:] == (source, target)


def test_list_files(sandbox: Sandbox, transport: StubTransport) -> None:
    """Entries come sorted by path, without hidden ones unless asked for."""
    relative = ["b", "a/.git/x", "a", ".env", "a/b.c", "a.d/..e", ".git", "...x/y"]
    transport.files = {name: info(f"/w/{name}", relative=name) for name in relative}

    def listed(**options: Any) -> list[str]:
        return [entry.relative_path for entry in sandbox.list_files("/w", **options)]

    assert listed() == ["a", "a/b.c", "b"]
    assert transport.last("list_files")[1:] == ("/w", False)
    assert listed(recursive=True, include_hidden=True) == sorted(relative, key=lambda name: f"/w/{name}")
    assert transport.last("list_files")[1:] == ("/w", True)
    sandbox.list_files()
    assert transport.last("list_files")[1] == "."


def test_exists_and_stat(sandbox: Sandbox, transport: StubTransport) -> None:
    """Exists is False for what cannot be there, and raises what is another matter; both follow symlinks."""
    there: FileInfo = info("/w/f")
    transport.files["f"] = there
    assert sandbox.exists("f") is True
    assert sandbox.stat("f") is there
    assert transport.last("stat")[1:] == ("f", True)
    assert sandbox.exists("g") is False
    with pytest.raises(SandboxFileNotFoundError):
        sandbox.stat("g")
    transport.fail["stat"] = SandboxNotADirectoryError(filename="f/x")
    assert sandbox.exists("f/x") is False
    transport.fail["stat"] = FileError(errno=40, filename="loop")
    assert sandbox.exists("loop") is False
    transport.fail["stat"] = SandboxPermissionError(filename="p")
    with pytest.raises(PermissionError):
        sandbox.exists("p")
