"""S13, S15, S18: what a session starts from, who else can use it, and how sandboxes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError
from sandboxsync.transports.base import Transport

from ._tools import recorded, run_program, start, unique

NOISE = "echo NOISE; echo NOISE >&2; export NOISE=1; alias echo='echo NOISE'; PS1=NOISE\n"


class SharedSessionRules:
    """Rules S13, S15 and S18."""

    def test_S13_startup_files_and_the_callers_environment_leak_nothing(
        self, transport_source: str, tmp_path: Path
    ) -> None:
        """Neither files that shells read at their start nor variables of the caller are seen in a session."""
        home = tmp_path / "home"
        home.mkdir()
        for name in (".bashrc", ".bash_profile", ".bash_login", ".profile", ".bash_aliases", ".inputrc", "env"):
            (home / name).write_text(NOISE)
        hostile = {
            "HOME": str(home),
            "BASH_ENV": str(home / "env"),
            "ENV": str(home / "env"),
            "NOISE": "1",
            "PROMPT_COMMAND": "echo NOISE",
            "PS1": "NOISE",
            "PS4": "$(echo NOISE)",
            "SHELLOPTS": "braceexpand:hashall:noglob:nounset:xtrace",
            "BASHOPTS": "extdebug:nullglob",
            "BASH_FUNC_echo%%": "() {  printf NOISE; }",
            "BASH_FUNC_cd%%": "() {  printf NOISE; }",
            "CDPATH": "/:/tmp",
            "GLOBIGNORE": "*",
            "IFS": "o",
            "POSIXLY_CORRECT": "1",
            "TMOUT": "1",
            "XDG_RUNTIME_DIR": str(home),
            "SANDBOX_API_KEY": "NOISE",
        }
        report = run_program("look_around", transport_source, env=hostile)
        for kind, (out, err, environment) in report.items():
            assert (out, err) == ("ok a b * 0\nd\n", ""), kind
            assert "NOISE" not in environment, kind
            assert str(home) not in environment, kind

    def test_S13_what_was_passed_is_there(self, transport: Transport) -> None:
        """The sandbox's env, the session's and the call's are seen, the inner ones first."""
        with Sandbox(transport, env={"A": "1", "B": "1", "C": "1"}) as sandbox:
            look = 'echo "$A $B $C"'
            with sandbox.session(env={"B": "2", "C": "2"}) as session:
                assert session.exec(look, env={"C": "3"}).stdout == "1 2 3\n"
                assert session.exec(look).stdout == "1 2 2\n"
            assert sandbox.exec(look, env={"C": "3"}).stdout == "1 1 3\n"
            assert sandbox.exec(look, session_id="late").stdout == "1 1 1\n"
        with Sandbox(transport, env={"A": "1"}, enable_default_session=False) as sandbox:
            assert sandbox.exec(look, env={"C": "3"}).stdout == "1  3\n"

    def test_S13_no_prompt_and_no_escape_is_printed(self, session: Session) -> None:
        """From the first command on the output is the command's alone."""
        for _ in range(2):
            result = session.exec("cd / && echo ok")
            assert (result.stdout_bytes, result.stderr_bytes) == (b"ok\n", b"")

    def test_S15_another_object_finds_the_session(self, sandbox: Sandbox, transport: Transport) -> None:
        """By its id from another `Sandbox` object, as it was left."""
        with sandbox.session("s", env={"A": "1"}) as session:
            session.exec("B=2; f() { echo f; }; mkdir d; cd d")
            with Sandbox(transport, id=sandbox.id) as other:
                assert other.list_sessions() == ["s"]
                for found in (other.get_session("s"), sandbox.get_session("s")):
                    assert found.exec('f; echo "$A $B ${PWD##*/}"').stdout == "f\n1 2 d\n"
                other.exec("C=3", session_id="s")
            assert session.exec("echo $C").stdout == "3\n"

    def test_S15_another_thread_finds_the_session(self, sandbox: Sandbox, session: Session) -> None:
        """So it is from another thread, with any of these objects."""
        session.exec("B=2")
        assert start(lambda: session.exec("echo $B; B=3")).result(20).stdout == "2\n"
        found = start(lambda: sandbox.get_session(session.id).exec("echo $B"))
        assert found.result(20).stdout == "3\n"

    @pytest.mark.parametrize("sandbox_id", ["", "a" * 129, "a b", "a/b", "../a", "é", "a\n", "a\0", "a,b", "a;b"])
    def test_S18_other_sandbox_ids_are_refused(self, transport: Transport, sandbox_id: str) -> None:
        """A bad id is an `InvalidRequestError` before any I/O."""
        watched, calls = recorded(transport)
        with pytest.raises(InvalidRequestError):
            Sandbox(watched, id=sandbox_id)
        assert calls == []

    @pytest.mark.parametrize("sandbox_id", ["user-123", "Team@x:y", ".", "..", "-", "--help", "zz", "_", "A" * 128])
    def test_S18_a_sandbox_id_is_a_name_and_never_a_path(self, transport: Transport, sandbox_id: str) -> None:
        """Any id of that form is a sandbox like another, and `sandbox.id` is the given name."""
        with Sandbox(transport, id=sandbox_id, on_exit="destroy") as sandbox:
            assert sandbox.id == sandbox_id
            sandbox.write_file("f", "x")
            assert sandbox.exec("pwd; ls").stdout == f"{sandbox.workspace}\nf\n"
            assert Sandbox(transport, id=sandbox_id).read_text("f") == "x"

    def test_S18_a_sandbox_without_id_gets_one(self, transport: Transport) -> None:
        """A random one that fits the rule."""
        names = {Sandbox(transport).id, Sandbox(transport).id}
        assert len(names) == 2
        for name in names:
            assert Sandbox(transport, id=name).id == name

    def test_S18_sandbox_objects_with_one_id_are_one_sandbox(self, transport: Transport) -> None:
        """The name decides which sandbox is meant, not the object."""
        name = unique("shared")
        with Sandbox(transport, id=name, on_exit="destroy") as first:
            first.exec("V=1")
            assert Sandbox(transport, id=name).exec("echo $V").stdout == "1\n"
