"""F1: content and names."""

from __future__ import annotations

import hashlib
import io
import tracemalloc
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import Sandbox
from sandboxsync.errors import (
    OutputDecodeError,
)
from sandboxsync.transports.base import Capability

from ._commands import PROPERTY
from ._tools import requires, requires_for

SIZES = [0, 1, 96 * 1024, 98_305, 131_071, 131_072, 131_073, 4 * 1024 * 1024]
NAMES = [
    "a b",
    "a'b",
    'a"b',
    "$(touch pwned)",
    "`touch pwned`",
    ";touch pwned",
    "-rf",
    "--",
    "-",
    "*",
    "a\nb",
    "\n",
    "é😀",
    "%41",
    "a?b#c",
    "..x",
    "...",
    "~",
    "$HOME",
    "back\\slash",
    "tab\t",
    " ",
    "a" * 255,
    "{a,b}",
    "!x",
    "=",
    "a:b",
    "\u202e",
]


def content(size: int) -> bytes:
    """Bytes of which no two places look alike."""
    block = b"".join(hashlib.sha256(str(number).encode()).digest() for number in range(2048))
    return (block * (size // len(block) + 1))[:size]


class FileRules:
    """Rule F1."""

    @pytest.mark.parametrize("size", SIZES)
    def test_F1_the_bytes_are_the_same(self, sandbox: Sandbox, size: int) -> None:
        """What is written is what is read, by call and by command."""
        data = content(size)
        written = sandbox.write_file("f", data)
        assert (written.path, written.size) == (f"{sandbox.workspace}/f", size)
        read = sandbox.read_file("f")
        assert (read.content == data, read.size, read.path) == (True, size, written.path)
        assert sandbox.read_bytes("f") == data
        with sandbox.read_file_stream("f") as stream:
            assert stream.size == size
            chunks = list(stream)
        assert b"".join(chunks) == data
        assert all(len(chunk) == 65536 for chunk in chunks[:-1])
        assert sandbox.exec("wc -c < f").stdout.strip() == str(size)
        assert sandbox.exec("cat f").stdout_bytes == data
        assert sandbox.stat("f").size == size

    @PROPERTY
    @given(data=st.binary(max_size=3000), chunk_size=st.integers(1, 700))
    def test_F1_any_bytes(self, sandbox: Sandbox, data: bytes, chunk_size: int) -> None:
        """Whatever they are and however they are cut."""
        pieces = [data[start : start + chunk_size] for start in range(0, len(data), chunk_size)]
        sandbox.write_file("f", iter(pieces))
        with sandbox.read_file_stream("f", chunk_size=chunk_size) as stream:
            assert list(stream) == pieces

    def test_F1_all_kinds_of_content(self, sandbox: Sandbox) -> None:
        """Text, bytes, binary files and iterables of bytes; text keeps its line ends."""
        for given_, expected in (
            ("é\r\n😀\n", "é\r\n😀\n".encode()),
            (b"\0\xff", b"\0\xff"),
            (bytearray(b"x"), b"x"),
            (io.BytesIO(b"file"), b"file"),
            ((piece for piece in (b"a", b"", b"b")), b"ab"),
            ([b"list"], b"list"),
        ):
            assert sandbox.write_file("f", given_).size == len(expected)
            assert sandbox.read_bytes("f") == expected
        sandbox.write_file("f", "é", encoding="utf-16-le")
        assert sandbox.read_bytes("f") == b"\xe9\0"
        assert sandbox.read_text("f", encoding="utf-16-le") == "é"
        sandbox.write_file("f", b"\xff")
        with pytest.raises(OutputDecodeError):
            sandbox.read_text("f")

    def test_F1_text_and_binary(self, sandbox: Sandbox) -> None:
        """`.text`, `.is_binary` and `.mime_type` say what a file is, by its whole content and its name."""
        sandbox.write_file("a.json", "x" + "日" * 1000)
        read = sandbox.read_file("a.json")
        assert (read.text, read.is_binary, read.mime_type) == ("x" + "日" * 1000, False, "application/json")
        sandbox.write_file("a.xlsx", b"PK\x03\x04\0\xff")
        assert (sandbox.read_file("a.xlsx").is_binary, sandbox.read_bytes("a.xlsx")) == (True, b"PK\x03\x04\0\xff")

    @pytest.mark.parametrize("name", NAMES)
    def test_F1_any_name(self, sandbox: Sandbox, name: str) -> None:
        """A name is a name to every call and never a pattern, an option or shell text."""
        sandbox.mkdir("d")
        path = f"d/{name}"
        assert sandbox.write_file(path, name).path == f"{sandbox.workspace}/d/{name}"
        assert sandbox.read_text(path) == name
        assert sandbox.exists(path)
        found = sandbox.list_files("d", include_hidden=True)
        assert [(info.name, info.path, info.type) for info in found] == [
            (name, f"{sandbox.workspace}/d/{name}", "file")
        ]
        sandbox.rename_file(path, "d/plain")
        sandbox.move_file("d/plain", path)
        sandbox.exec("cd d")
        sandbox.write_file(name, "again")
        assert sandbox.read_text(name) == "again"
        with sandbox.read_file_stream(name) as stream:
            assert b"".join(stream) == b"again"
        sandbox.delete_file(name)
        sandbox.mkdir(name)
        sandbox.write_file(f"{name}/x", "deep")
        assert sandbox.read_text(f"{name}/x") == "deep"
        assert [info.name for info in sandbox.list_files(".", include_hidden=True)] == [name]

    @pytest.mark.parametrize("name", NAMES)
    @requires_for([name for name in NAMES if not name.isprintable()], Capability.NATIVE_PROGRAMS)
    def test_F1_commands_see_any_name(self, sandbox: Sandbox, name: str) -> None:
        """What a call has written a command finds under the same name."""
        sandbox.write_file(f"d/{name}/x", "deep")
        assert sandbox.exec("cat x", cwd=f"d/{name}").stdout == "deep"

    @requires(Capability.BULK)
    @pytest.mark.parametrize("megabytes", [20, 200])
    def test_F1_large_files_in_constant_memory(self, sandbox: Sandbox, megabytes: int) -> None:
        """Streams of any size hold some pieces in memory, not the whole."""
        piece = content(1024 * 1024)
        expected, seen = hashlib.sha256(), hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            for _ in range(megabytes):
                expected.update(piece)
                yield piece

        tracemalloc.start()
        try:
            assert sandbox.write_file("f", pieces()).size == megabytes * 1024 * 1024
            with sandbox.read_file_stream("f", chunk_size=1024 * 1024) as stream:
                for chunk in stream:
                    seen.update(chunk)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert seen.digest() == expected.digest()
        assert peak < 16 * 1024 * 1024

    def test_F1_files_have_facts(self, sandbox: Sandbox) -> None:
        """`stat` and `list_files` say type, size, mode and time, sorted by path, hidden ones when asked."""
        sandbox.exec("mkdir -p b/c; echo x > a; echo xy > b/d; touch .h b/.h; ln -s a link; mkfifo fifo; chmod 640 a")
        found = {info.relative_path: info for info in sandbox.list_files(".", recursive=True)}
        assert list(found) == ["a", "b", "b/c", "b/d", "fifo", "link"]
        types = [info.type for info in found.values()]
        assert types == ["file", "directory", "directory", "file", "other", "symlink"]
        assert [info.name for info in sandbox.list_files(include_hidden=True)] == [".h", "a", "b", "fifo", "link"]
        info = sandbox.stat("a")
        assert (info.size, info.mode, info.permissions, info.path) == (2, 0o640, "rw-r-----", found["a"].path)
        assert abs(datetime.now(timezone.utc) - info.modified_at) < timedelta(minutes=5)
        assert (sandbox.stat("link").type, sandbox.exists("link"), sandbox.exists("b/no")) == ("file", True, False)
