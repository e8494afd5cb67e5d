"""F2 and F3: whole writes, and the errors of files."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import (
    FileError,
    NoSpaceError,
    SandboxFileExistsError,
    SandboxFileNotFoundError,
    SandboxIsADirectoryError,
    SandboxNotADirectoryError,
    SandboxPermissionError,
)
from sandboxsync.transports.base import Capability

from ._tools import eventually, requires, start

NUMBERS: dict[type[FileError], int] = {
    SandboxFileNotFoundError: errno.ENOENT,
    SandboxFileExistsError: errno.EEXIST,
    SandboxIsADirectoryError: errno.EISDIR,
    SandboxNotADirectoryError: errno.ENOTDIR,
}


class WriteRules:
    """Rules F2 and F3."""

    def test_F2_a_failing_source_changes_nothing(self, sandbox: Sandbox) -> None:
        """When the content raises half-way, the file is as it was, or is not there, and nothing else is."""

        def broken() -> Iterator[bytes]:
            yield b"new" * 100_000
            raise LookupError("the source broke")

        sandbox.write_file("old", "old")
        for name in ("old", "new", "deep/new"):
            with pytest.raises(LookupError, match="the source broke"):
                sandbox.write_file(name, broken())
        assert sandbox.read_text("old") == "old"
        assert sandbox.exec("find . -type f").stdout == "./old\n"

    def test_F2_readers_never_see_half_a_file(self, sandbox: Sandbox) -> None:
        """While a file is replaced, who reads it sees the old or the new one, whole."""
        versions = [bytes([letter]) * 300_000 for letter in b"ab"]
        sandbox.write_file("f", versions[0])

        def replace() -> None:
            for number in range(30):
                sandbox.write_file("f", versions[number % 2])

        writing = start(replace)
        while not writing.done():
            assert sandbox.read_bytes("f") in versions
            assert sandbox.exec("cat f").stdout_bytes in versions
        writing.result(0)

    def test_F2_symlinks_are_followed(self, sandbox: Sandbox) -> None:
        """Writing to a link writes its target, also one that is not there yet; the link stays."""
        sandbox.exec("mkdir d; echo old > d/target; ln -s d/target link; ln -s d/new dangling; ln -s d dir")
        for name in ("link", "dangling", "dir/third"):
            sandbox.write_file(name, name)
        listing = sandbox.exec("readlink link dangling; cat d/target d/new d/third; rm link; ls d").stdout
        assert listing == "d/target\nd/new\nlinkdanglingdir/thirdnew\ntarget\nthird\n"

    @requires(Capability.OS_PROCESSES)
    def test_F2_what_is_no_regular_file_is_written_in_place(self, session: Session) -> None:
        """A FIFO and a device stay what they are."""
        session.exec("mkfifo fifo; (cat fifo > got) &")

        def write() -> bool:
            # Until the job has opened it, a FIFO without a reader may be refused.
            try:
                return session.write_file("fifo", "through").size >= 0
            except FileError:
                return False

        eventually(write)
        session.write_file("/dev/null", "away")
        result = session.exec("wait; cat got; test -p fifo && test -c /dev/null && echo ' ok'")
        assert result.stdout == "through ok\n"

    @requires(Capability.OS_PROCESSES)
    def test_F2_mode_and_owner_are_kept(self, sandbox: Sandbox) -> None:
        """An existing file keeps both; a new one is an ordinary file."""
        sandbox.exec("echo old > f; chmod 751 f; chown 12:34 f 2>/dev/null")
        before = sandbox.exec("stat -c '%a %u %g' f").stdout
        sandbox.write_file("f", "new")
        assert sandbox.exec("stat -c '%a %u %g' f; cat f").stdout == f"{before}new"
        sandbox.write_file("g", "new")
        assert sandbox.exec("stat -c %u g").stdout == sandbox.exec("id -u").stdout

    def test_F3_each_failure_has_its_error(self, sandbox: Sandbox) -> None:
        """It is the builtin of that name too, with `errno` and the path as `filename`."""
        sandbox.exec("mkdir -p d/sub; echo x > f")
        expected: list[tuple[Callable[[], object], type[FileError], type[OSError], str]] = [
            (lambda: sandbox.read_file("no"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.read_file_stream("no/x"), SandboxFileNotFoundError, FileNotFoundError, "no/x"),
            (lambda: sandbox.stat("no"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.delete_file("no"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.list_files("no"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.rename_file("no", "x"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.move_file("no", "x"), SandboxFileNotFoundError, FileNotFoundError, "no"),
            (lambda: sandbox.mkdir("no/x"), SandboxFileNotFoundError, FileNotFoundError, "no/x"),
            (lambda: sandbox.mkdir("d"), SandboxFileExistsError, FileExistsError, "d"),
            (lambda: sandbox.mkdir("f", recursive=True), SandboxFileExistsError, FileExistsError, "f"),
            (lambda: sandbox.read_file("d"), SandboxIsADirectoryError, IsADirectoryError, "d"),
            (lambda: sandbox.write_file("d", "x"), SandboxIsADirectoryError, IsADirectoryError, "d"),
            (lambda: sandbox.delete_file("d"), SandboxIsADirectoryError, IsADirectoryError, "d"),
            (lambda: sandbox.list_files("f"), SandboxNotADirectoryError, NotADirectoryError, "f"),
            (lambda: sandbox.read_file("f/x"), SandboxNotADirectoryError, NotADirectoryError, "f/x"),
            (lambda: sandbox.write_file("f/x", "x"), SandboxNotADirectoryError, NotADirectoryError, "f/x"),
            (lambda: sandbox.mkdir("f/x"), SandboxNotADirectoryError, NotADirectoryError, "f/x"),
        ]
        for call, kind, builtin, path in expected:
            with pytest.raises(builtin) as caught:
                call()
            assert type(caught.value) is kind
            assert caught.value.errno == NUMBERS[kind]
            assert str(caught.value.filename).endswith(path)
            assert path in str(caught.value)
        assert sandbox.exec("find . | sort").stdout == ".\n./d\n./d/sub\n./f\n"

    @requires(Capability.OS_PROCESSES)
    def test_F3_no_space(self, sandbox: Sandbox) -> None:
        """A device that is full."""
        with pytest.raises(NoSpaceError) as caught:
            sandbox.write_file("/dev/full", "x")
        assert caught.value.errno == errno.ENOSPC

    @requires(Capability.OS_PROCESSES)
    def test_F3_no_permission(self, sandbox: Sandbox) -> None:
        """Files and directories that are closed to their user; to one with all powers none is."""
        if sandbox.exec("echo x > probe; chmod 000 probe; cat probe; rm -f probe").stdout == "x\n":
            pytest.skip("this user may read and write everything")
        sandbox.exec("mkdir closed; echo x > closed/f; echo x > mine; chmod 000 closed mine")
        for call in (
            lambda: sandbox.read_file("mine"),
            lambda: sandbox.read_file("closed/f"),
            lambda: sandbox.write_file("closed/g", "x"),
            lambda: sandbox.list_files("closed"),
            lambda: sandbox.delete_file("closed/f"),
        ):
            with pytest.raises(SandboxPermissionError) as denied:
                call()
            assert isinstance(denied.value, PermissionError)
        sandbox.exec("chmod 700 closed mine")
