"""F6: trees that go in and out."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from sandboxsync import Sandbox
from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import Capability

from ._tools import requires

DIRECTORY = tarfile.DIRTYPE
TREE = (
    "mkdir -p t/sub/empty t/.hidden; printf plain > t/a; printf run > t/sub/run; chmod 755 t/sub/run;"
    " chmod 640 t/a; chmod 700 t/sub/empty; printf h > t/.hidden/h; ln -s a t/link; ln -s ../a t/sub/up;"
    " ln -s sub t/dir; printf '' > t/nothing; printf '\\0\\377' > 't/b '; : > t/é😀"
)


def archive(*members: tuple[str, bytes, str | bytes, int]) -> io.BytesIO:
    """A tar of members: name, type, content or link target, mode."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, value, mode in members:
            info = tarfile.TarInfo(name)
            info.type, info.mode = kind, mode
            if isinstance(value, str):
                info.linkname = value
                tar.addfile(info)
            else:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    file.seek(0)
    return file


def shape(root: Path) -> dict[str, tuple[str, int, str]]:
    """What a local tree holds: type, mode and content (or target) by relative path."""
    found = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        if path.is_symlink():
            entry = ("link", 0, os.readlink(path))
        elif path.is_dir():
            entry = ("directory", stat.S_IMODE(status.st_mode), "")
        else:
            entry = ("file", stat.S_IMODE(status.st_mode), path.read_bytes().decode("latin-1"))
        found[str(path.relative_to(root))] = entry
    return found


class TreeRules:
    """Rule F6."""

    def test_F6_trees_go_out_and_in_as_they_are(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Modes of regular files, empty directories and links are kept both ways."""
        sandbox.exec(TREE)
        sandbox.write_file("t/new\nline", "n")
        sandbox.download("t", tmp_path / "down")
        first = shape(tmp_path / "down")
        assert first["sub/run"] == ("file", 0o755, "run")
        assert first["a"] == ("file", 0o640, "plain")
        assert first["sub/empty"] == ("directory", 0o700, "")
        assert first["sub/up"] == ("link", 0, "../a")
        assert first["new\nline"][2] == "n"
        assert len(first) == 13
        sandbox.upload(tmp_path / "down", "up")
        sandbox.download("up", tmp_path / "again")
        assert shape(tmp_path / "again") == first
        saved = tmp_path / "saved.tar"
        sandbox.persist(saved, dir="up")
        sandbox.hydrate(saved, dir="back")
        sandbox.download("back", tmp_path / "back")
        assert shape(tmp_path / "back") == first

    def test_F6_a_whole_workspace(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """`persist` holds the workspace and nothing of ours; `hydrate` merges it into another."""
        sandbox.exec("echo a > a; mkdir d; echo b > d/b; V=1")
        sandbox.start_process("true").wait_for_exit(20)
        with (tmp_path / "saved.tar").open("wb") as file:
            sandbox.persist(file)
        with tarfile.open(tmp_path / "saved.tar") as tar:
            assert sorted(name.removeprefix("./") for name in tar.getnames() if name != ".") == ["a", "d", "d/b"]
        sandbox.exec("rm -r d; echo c > c; echo changed > a")
        with (tmp_path / "saved.tar").open("rb") as file:
            sandbox.hydrate(file)
        assert sandbox.exec("cat a c d/b; echo $V").stdout == "a\nc\nb\n1\n"

    def test_F6_exclude(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """What `exclude` names goes neither out nor in."""
        sandbox.exec("mkdir -p t/keep/.git t/node_modules/x; touch t/keep/f t/keep/.git/x t/node_modules/x/y")
        sandbox.download("t", tmp_path / "down", exclude=["node_modules", ".git"])
        assert list(shape(tmp_path / "down")) == ["keep", "keep/f"]
        sandbox.upload(tmp_path / "down", "up", exclude=["f"])
        assert sandbox.exec("find up | sort").stdout == "up\nup/keep\n"

    @pytest.mark.parametrize(
        "members",
        [
            [("../evil", tarfile.REGTYPE, b"x", 0o644)],
            [("a/../../evil", tarfile.REGTYPE, b"x", 0o644)],
            [("{outside}/evil", tarfile.REGTYPE, b"x", 0o644)],
            [("a", tarfile.SYMTYPE, "{outside}", 0o777), ("a/evil", tarfile.REGTYPE, b"x", 0o644)],
            [("a", tarfile.SYMTYPE, "..", 0o777), ("a/evil", tarfile.REGTYPE, b"x", 0o644)],
            [("a", tarfile.SYMTYPE, "../../victim", 0o777), ("a", tarfile.REGTYPE, b"x", 0o644)],
            [("d", DIRECTORY, b"", 0o755), ("d/a", tarfile.SYMTYPE, "../../../victim", 0o777)],
            [("a", tarfile.LNKTYPE, "../victim", 0o644)],
            [("a", tarfile.LNKTYPE, "{outside}/victim", 0o644)],
            [("a", tarfile.FIFOTYPE, b"", 0o644)],
            [("a", tarfile.CHRTYPE, b"", 0o644)],
            [("a", tarfile.BLKTYPE, b"", 0o644)],
        ],
    )
    def test_F6_hostile_archives(self, sandbox: Sandbox, members: list[tuple[str, bytes, str | bytes, int]]) -> None:
        """What would be made, or followed, outside of the destination is not; devices and FIFOs are refused."""
        outside = f"{sandbox.workspace}/outside"
        sandbox.exec("mkdir -p outside/in; echo victim > outside/victim; echo victim > victim")
        prepared = [
            (name.format(outside=outside), kind, v.format(outside=outside) if isinstance(v, str) else v, mode)
            for name, kind, v, mode in members
        ]
        try:
            sandbox.hydrate(archive(*prepared), dir="outside/in")
        except SandboxError:
            pass
        else:
            # A link that leads outside may be replaced by what the archive has under its name later.
            assert sandbox.exec("cat outside/in/a").stdout == "x"
        look = (
            "find . -name evil -not -path './outside/in/*'; cat victim outside/victim;"
            " find outside -links +1 -type f; find . -type p -o -type c"
        )
        assert sandbox.exec(look).stdout == "victim\nvictim\n"
        links = sandbox.exec("find outside/in -type l").stdout.split()
        assert links == []

    def test_F6_setuid_bits_are_dropped(self, sandbox: Sandbox) -> None:
        """The other bits of the mode are kept."""
        sandbox.hydrate(archive(("a", tarfile.REGTYPE, b"x", 0o6755), ("d", DIRECTORY, b"", 0o3750)), dir="in")
        assert (sandbox.stat("in/a").mode, sandbox.stat("in/d").mode) == (0o755, 0o750)

    def test_F6_older_links_are_not_followed(self, sandbox: Sandbox) -> None:
        """Nor is a link that was there before: what the archive has under its name is not written through it."""
        sandbox.exec("mkdir out in; ln -s ../out in/a; ln -s ../victim in/b; echo victim > victim")
        for members in ([("a/evil", tarfile.REGTYPE, b"x", 0o644)], [("b", tarfile.REGTYPE, b"x", 0o644)]):
            try:
                sandbox.hydrate(archive(*members), dir="in")
            except SandboxError:
                continue
        assert sandbox.exec("ls out; cat victim").stdout == "victim\n"

    @requires(Capability.OS_PROCESSES)
    def test_F6_downloads_stay_inside(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Links that lead outside are not made, FIFOs and sockets raise, setuid bits are dropped."""
        sandbox.exec("mkdir t p s; ln -s /etc t/abs; ln -s ../../x t/up; echo f > t/f; mkfifo p/fifo")
        with pytest.raises(SandboxError):
            sandbox.download("t", tmp_path / "t")
        assert not any(path.is_symlink() for path in (tmp_path / "t").rglob("*"))
        with pytest.raises(SandboxError):
            sandbox.download("p", tmp_path / "p")
        with pytest.raises(SandboxError):
            sandbox.persist(io.BytesIO(), dir="p")
        sandbox.exec("touch s/f; chmod 4755 s/f")
        sandbox.download("s", tmp_path / "s")
        assert stat.S_IMODE((tmp_path / "s/f").stat().st_mode) == 0o755

    def test_F6_a_damaged_archive_changes_nothing(self, sandbox: Sandbox) -> None:
        """It is refused before the sandbox is touched."""
        whole = archive(("a", tarfile.REGTYPE, b"x" * 5000, 0o644)).getvalue()
        for data in (whole[:3000], b"no archive at all" * 100, b"x" + whole[1:]):
            with pytest.raises(SandboxError):
                sandbox.hydrate(io.BytesIO(data))
        assert sandbox.exec("ls -A").stdout == ""
