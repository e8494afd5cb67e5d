"""Hosted files under a user who may not do everything, and on a machine that lacks a program."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from sandboxsync.errors import (
    FileError,
    SandboxPermissionError,
    UnsupportedOperationError,
)
from sandboxsync.transports.base import SessionRef
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host, PlainAnswer, PlainExec
from sandboxsync.transports.http.hosted._raw import RawFiles


class DirectExec(PlainExec):
    """Runs programs of this machine, as nobody where this user may do everything."""

    def __init__(self, home: Path, path: str = os.defpath) -> None:
        self._environment = {"HOME": str(home), "PATH": path}
        self._user: dict[str, Any] = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        done = subprocess.run(argv, capture_output=True, env=self._environment, timeout=20, cwd="/", **self._user)
        return DirectAnswer(done)


class DirectAnswer(PlainAnswer):
    """What a program has printed."""

    def __init__(self, done: subprocess.CompletedProcess[bytes]) -> None:
        self._items: list[tuple[Literal["stdout", "stderr"], bytes] | int] = [
            ("stderr", done.stderr),
            ("stdout", done.stdout),
            done.returncode,
        ]

    def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | int:
        return self._items.pop(0)

    def close(self) -> None:
        pass


class DirectRaw(RawFiles):
    """A route to all files of this machine."""

    piece = 1 << 20
    staging = None
    suffix = ".png"

    def read(self, path: str) -> Generator[bytes, None, None]:
        yield Path(path).read_bytes()

    def write(self, path: str, data: bytes) -> None:
        Path(path).write_bytes(data)


@pytest.fixture
def top() -> Iterator[Path]:
    """A directory that everybody reaches, with a home and a workspace."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        for directory in (path / "home", path / "workspace"):
            directory.mkdir()
            directory.chmod(0o777)
        yield path


@pytest.fixture
def poor(top: Path) -> Iterator[tuple[HostedFiles, Path]]:
    """Files of a workspace whose user is not root."""
    workspace = top / "workspace"
    yield HostedFiles(Host(DirectExec(top / "home"), str(workspace)), DirectRaw()), workspace
    assert list(top.rglob(".sandboxsync-*")) == []


def ref() -> SessionRef:
    """A client that comes for the first time."""
    return SessionRef("poor", None)


@pytest.mark.parametrize("data", [b"", b"short", bytes(range(256)) * 10_000])
def test_F2_what_can_be_written_but_not_replaced_is_written_in_place(
    poor: tuple[HostedFiles, Path], data: bytes
) -> None:
    """A file in a directory where nothing may be made keeps its inode, its owner and its mode."""
    files, workspace = poor
    file = workspace / "closed" / "file"
    file.parent.mkdir()
    file.write_bytes(b"old content" * 100)
    file.chmod(0o666)
    file.parent.chmod(0o555)
    before = file.stat()
    info = files.write_file(ref(), "closed/file", [data])
    after = file.stat()
    assert (info.size, file.read_bytes() == data) == (len(data), True)
    assert (after.st_ino, after.st_mode, after.st_uid) == (before.st_ino, before.st_mode, before.st_uid)
    assert os.listdir(file.parent) == ["file"]


def test_F3_each_thing_that_is_not_permitted_says_so(poor: tuple[HostedFiles, Path]) -> None:
    """With the path it is about, and nothing is changed."""
    files, workspace = poor
    (workspace / "closed").mkdir()
    (workspace / "closed/f").write_bytes(b"x")
    (workspace / "mine").write_bytes(b"x")
    (workspace / "closed").chmod(0)
    (workspace / "mine").chmod(0o444)
    if os.geteuid() != 0:
        pytest.skip("the files have to be another user's")
    calls: dict[str, Callable[[], object]] = {
        "mine": lambda: files.write_file(ref(), "mine", [b"y"]),
        "closed/g": lambda: files.write_file(ref(), "closed/g", [b"y" * 200_000]),
        "closed/f": lambda: files.read_file(ref(), "closed/f", 10),
        "closed/f/": lambda: files.stat(ref(), "closed/f/", True),
        "closed": lambda: files.list_files(ref(), "closed", False),
        "./closed": lambda: list(files.read_tree(ref(), "./closed", [])),
        "closed/in": lambda: files.write_tree(ref(), "closed/in", [bytes(10_240)]),
        "closed/./f": lambda: files.remove_file(ref(), "closed/./f"),
        "closed/h": lambda: files.make_directory(ref(), "closed/h", False),
    }
    for path, call in calls.items():
        with pytest.raises(SandboxPermissionError) as caught:
            call()
        assert (caught.value.errno, caught.value.filename) == (13, f"{workspace}/{path}")
    (workspace / "closed").chmod(0o755)
    assert sorted(path.name for path in workspace.rglob("*")) == ["closed", "f", "mine"]
    assert (workspace / "mine").read_bytes() == b"x"


def test_F6_without_tar_trees_are_not_offered(top: Path) -> None:
    """The error says what is missing; files are read and written all the same."""
    programs = top / "programs"
    programs.mkdir()
    for directory in ("/usr/bin", "/bin"):
        for name in os.listdir(directory):
            if name != "tar" and not (programs / name).is_symlink():
                (programs / name).symlink_to(f"{directory}/{name}")
    files = HostedFiles(Host(DirectExec(top / "home", str(programs)), str(top / "workspace")), DirectRaw())
    assert files.write_file(ref(), "f", [b"x"]).size == 1
    with pytest.raises(UnsupportedOperationError, match="tar"):
        list(files.read_tree(ref(), ".", []))
    with pytest.raises(UnsupportedOperationError, match="tar"):
        files.write_tree(ref(), ".", [bytes(10_240)])


def test_F3_names_that_no_system_takes(poor: tuple[HostedFiles, Path]) -> None:
    """Too long as a whole, or in a part."""
    files, _ = poor
    for path in ("x" * 300, "/".join(["x" * 200] * 30)):
        with pytest.raises(FileError) as caught:
            files.write_file(ref(), path, [b"x"])
        assert caught.value.errno == 36
