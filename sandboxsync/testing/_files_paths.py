"""F4 to F6: paths, and trees that go in and out."""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError, SandboxError
from sandboxsync.transports.base import Capability, Transport

from ._tools import recorded, requires

DIRECTORY = tarfile.DIRTYPE
TREE = (
    "mkdir -p t/sub/empty t/.hidden; printf plain > t/a; printf run > t/sub/run; chmod 755 t/sub/run;"
    " chmod 640 t/a; chmod 700 t/sub/empty; printf h > t/.hidden/h; ln -s a t/link; ln -s ../a t/sub/up;"
    " ln -s sub t/dir; printf '' > t/nothing; printf '\\0\\377' > 't/b '; printf n > $'t/new\\nline'; : > t/é😀"
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


class PathRules:
    """Rules F4 and F5."""

    def test_F4_relative_paths_follow_cd(self, sandbox: Sandbox, session: Session) -> None:
        """They start where the session's last command left it, and other sessions have their own place."""
        session.exec("mkdir -p a/b; cd a/b")
        assert session.write_file("f", "x").path == f"{sandbox.workspace}/a/b/f"
        assert session.mkdir("d").path == f"{sandbox.workspace}/a/b/d"
        assert [info.path for info in session.list_files()] == [
            f"{sandbox.workspace}/a/b/{name}" for name in ("d", "f")
        ]
        assert session.read_text("../b/./f") == "x"
        assert session.read_text(PurePosixPath("..", "b", "f")) == "x"
        assert session.stat("f").path == f"{sandbox.workspace}/a/b/f"
        session.rename_file("f", "../g")
        assert sandbox.exists("a/g")
        session.exec("cd ..; false")
        assert session.read_text("g") == "x"
        assert not sandbox.exists("g")

    def test_F4_tilde_and_dollar_are_not_expanded(self, sandbox: Sandbox) -> None:
        """They are names."""
        for path in ("~", "$HOME", "~root", "*"):
            assert sandbox.write_file(f"{path}/x", "x").path == f"{sandbox.workspace}/{path}/x"
        assert sandbox.exec("ls -d '~/x'").stdout == "~/x\n"

    @pytest.mark.parametrize("path", ["", "\0", "a\0b", b"a", None, 5], ids=repr)
    def test_F4_what_is_no_path_is_refused_before_any_io(self, transport: Transport, path: str) -> None:
        """Empty, with a NUL, or no text: `InvalidRequestError` from every call that takes a path."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            attempts: list[Callable[[], object]] = [
                lambda: sandbox.write_file(path, "x"),
                lambda: sandbox.read_file(path),
                lambda: sandbox.read_text(path),
                lambda: sandbox.read_file_stream(path),
                lambda: sandbox.mkdir(path),
                lambda: sandbox.delete_file(path),
                lambda: sandbox.rename_file(path, "x"),
                lambda: sandbox.rename_file("x", path),
                lambda: sandbox.move_file(path, "x"),
                lambda: sandbox.move_file("x", path),
                lambda: sandbox.list_files(path),
                lambda: sandbox.exists(path),
                lambda: sandbox.stat(path),
                lambda: sandbox.upload("x", path),
                lambda: sandbox.download(path, "x"),
            ]
            if path is not None:
                attempts += [
                    lambda: sandbox.exec("true", cwd=path),
                    lambda: sandbox.start_process("true", cwd=path),
                    lambda: sandbox.create_session(cwd=path),
                    lambda: sandbox.persist(io.BytesIO(), dir=path),
                    lambda: sandbox.hydrate(io.BytesIO(), dir=path),
                ]
            for attempt in attempts:
                with pytest.raises(InvalidRequestError):
                    attempt()
            assert calls == []

    def test_F4_names_that_are_not_utf_8(self, sandbox: Sandbox) -> None:
        """They come as `surrogateescape` and go back so, in every kind of call."""
        sandbox.exec("mkdir d; printf x > $'d/bad\\xff'")
        assert [info.name for info in sandbox.list_files("d")] == ["bad\udcff"]
        assert sandbox.read_text("d/bad\udcff") == "x"
        assert sandbox.exec(["cat", "d/bad\udcff"]).stdout == "x"
        sandbox.rename_file("d/bad\udcff", "d/worse\udcfe")
        assert sandbox.exec("printf '%s' d/*").stdout_bytes == b"d/worse\xfe"
        sandbox.write_file("d\udcff/f", "deep")
        assert sandbox.exec("cat f", cwd="d\udcff").stdout == "deep"

    def test_F5_workspace_means_the_workspace(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Every path under `/workspace` is one below it, and results hold paths that commands can use."""
        here = sandbox.workspace
        if here != "/workspace" and sandbox.exec("test -e /workspace").success:
            pytest.skip("this machine has a /workspace of its own")
        assert sandbox.write_file("/workspace/a/f", "x").path == f"{here}/a/f"
        assert sandbox.exec(["cat", sandbox.read_file("/workspace/a/f").path]).stdout == "x"
        assert sandbox.exec("pwd", cwd="/workspace/a").stdout == f"{here}/a\n"
        assert sandbox.exec("pwd", cwd="/workspace").stdout == f"{here}\n"
        assert [info.path for info in sandbox.list_files("/workspace")] == [f"{here}/a"]
        assert sandbox.mkdir("/workspace/b").path == f"{here}/b"
        with sandbox.session(cwd="/workspace/a") as session:
            assert session.exec("pwd").stdout == f"{here}/a\n"
            process = session.start_process("pwd", cwd="/workspace/b")
            process.wait_for_exit(20)
            assert process.logs().stdout == f"{here}/b\n"
        sandbox.move_file("/workspace/a/f", "/workspace/b")
        assert sandbox.stat("/workspace/b/../b/f").size == 1
        sandbox.upload(__file__, "/workspace/up")
        sandbox.download("/workspace/b", tmp_path / "down")
        assert (tmp_path / "down/f").read_text() == "x"
        sandbox.delete_file("/workspace/up")
        saved = io.BytesIO()
        sandbox.persist(saved, dir="/workspace/b")
        sandbox.hydrate(io.BytesIO(saved.getvalue()), dir="/workspace/c")
        assert sandbox.exec("find . -type f | sort").stdout == "./b/f\n./c/f\n"

    def test_F5_nothing_else_is_remapped(self, sandbox: Sandbox) -> None:
        """Neither names that only begin so, nor the text of commands."""
        sandbox.write_file("f", "x")
        for path in ("/workspacef", "/workspace2/f", "/f", "/tmp/workspace/f"):
            assert not sandbox.exists(path)
        sandbox.write_file("workspace/f", "y")
        assert sandbox.read_text("workspace/f") == "y"
        assert sandbox.exec("echo /workspace/f").stdout == "/workspace/f\n"
        assert sandbox.exec(["echo", "/workspace/f"]).stdout == "/workspace/f\n"
        assert sandbox.exec("echo $V", env={"V": "/workspace"}).stdout == "/workspace\n"
        assert sandbox.exec("pwd", cwd="/").stdout == "/\n"

    @requires(Capability.NATIVE_PROGRAMS)
    def test_F5_git_checkout_too(self, sandbox: Sandbox) -> None:
        """`target_dir` under `/workspace` is in the workspace, and the result says where."""
        if sandbox.workspace != "/workspace" and sandbox.exec("test -e /workspace").success:
            pytest.skip("this machine has a /workspace of its own")
        made = sandbox.exec(
            "git init -q -b main origin && cd origin && echo x > f && git add f &&"
            " git -c user.name=a -c user.email=a@b commit -q -m one; cd .."
        )
        assert made.success, made.stderr
        result = sandbox.git_checkout(f"file://{sandbox.workspace}/origin", target_dir="/workspace/copy")
        assert (result.target_dir, result.branch) == (f"{sandbox.workspace}/copy", "main")
        assert sandbox.exec(f"cat {result.target_dir}/f").stdout == "x\n"


class TreeRules:
    """Rule F6."""

    def test_F6_trees_go_out_and_in_as_they_are(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """Modes of regular files, empty directories and links are kept both ways."""
        sandbox.exec(TREE)
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
        look = "find . -name evil; cat victim outside/victim; find outside -links +1 -type f; find . -type p -o -type c"
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
