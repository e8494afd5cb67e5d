"""F4 and F5: paths."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError
from sandboxsync.transports.base import Capability, Transport

from ._tools import recorded, requires, unique


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

    def test_F4_names_that_are_not_utf_8_go_through_every_call(self, sandbox: Sandbox) -> None:
        """They are `surrogateescape` text, in and out."""
        sandbox.write_file("d\udcff/bad\udcff", "x")
        assert [info.name for info in sandbox.list_files("d\udcff")] == ["bad\udcff"]
        sandbox.rename_file("d\udcff/bad\udcff", "d\udcff/worse\udcfe")
        assert sandbox.read_text("d\udcff/worse\udcfe") == "x"
        assert sandbox.stat("d\udcff/worse\udcfe").name == "worse\udcfe"

    @requires(Capability.NATIVE_PROGRAMS)
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
        name = unique("f")
        sandbox.write_file(name, "x")
        for path in ("/workspace", "/workspace2/", "/", "/tmp/workspace/"):
            assert not sandbox.exists(path + name)
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
