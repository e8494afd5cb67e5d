"""E7, E8: env and cwd of one command, names and values of the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import Sandbox, Session
from sandboxsync.errors import (
    CommandTimeoutError,
    InvalidRequestError,
    SandboxFileNotFoundError,
    SessionTerminatedError,
)
from sandboxsync.transports.base import Capability, Transport

from ._commands import PROPERTY
from ._tools import recorded, requires

VALUES = {
    "spaces": "hello  world ",
    "single quote": "it's",
    "double quote": 'a"b',
    "dollar": "$HOME ${HOME} $(id) `id`",
    "newlines": "a\nb\n",
    "leading newline": "\n\n",
    "separators": "x=y;z & | > < ( ) { } # !",
    "emoji": "é😀\u202e",
    "empty": "",
    "blank": " ",
    "option": "-n",
    "bang": "!x",
    "backslashes": "\\n\\\\",
    "glob": "* ? [a-z] ~",
    "control": "\x01\x07\x1b\x7f\r\t",
    "function": "() { :; }; echo no",
    "100 kB": "0123456789" * 10_000,
}
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=300)
BAD_NAMES = ["", "1A", "A B", "A-B", "A;touch pwned", "A=B", "é", "A\n", "A\0", "A[0]", "$A"]
READ_ONLY_NAMES = ["UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS"]
BAD_VALUES: list[Any] = ["a\0b", 1, b"x", 1.5, True, ["x"]]
SHOW = 'echo "${A-unset} ${B-unset} ${PWD##*/}"'


class EnvironmentRules:
    """Rules E7 and E8."""

    @pytest.fixture
    def placed(self, sandbox: Sandbox) -> Session:
        """A session in the directory `home` that has another one, `work`, and an exported A."""
        sandbox.mkdir("home/work/deep", recursive=True)
        session = sandbox.create_session(cwd="home")
        session.exec("export A=old")
        return session

    @pytest.mark.parametrize(
        ("command", "exit_code"),
        [
            ("true", 0),
            ("false", 1),
            ("cd deep; A=mine; export A", 0),
            ("cd /; unset A B", 0),
            ("export A=mine B=mine", 0),
            ("unset -v A; A=local", 0),
            ("pushd deep > /dev/null", 0),
            ("no-such-program-x", 127),
            ("if then", 2),
            ("readonly C=1; C=2", 1),
        ],
    )
    def test_E7_env_and_cwd_hold_for_one_command(self, placed: Session, command: str, exit_code: int) -> None:
        """They are as before when the command has ended, however it did and whatever it changed."""
        options: dict[str, Any] = {"env": {"A": "new", "B": "new"}, "cwd": "work"}
        assert placed.exec(SHOW + "; env | grep -c '^[AB]=new'", **options).stdout == "new new work\n2\n"
        assert placed.exec(command, **options).exit_code == exit_code
        assert placed.exec(SHOW).stdout == "old unset home\n"
        assert placed.exec("env | grep '^A='").stdout == "A=old\n"

    def test_E7_they_hold_for_one_command_that_is_stopped(self, placed: Session) -> None:
        """So it is after a timeout, with the shell kept or replaced."""
        for command in ("sleep 30", "while :; do :; done"):
            with pytest.raises(CommandTimeoutError):
                placed.exec(f"cd deep; export B=3; {command}", env={"A": "new", "B": "1"}, cwd="work", timeout=0.3)
            assert placed.exec(SHOW).stdout == "old unset home\n"

    def test_E7_they_hold_for_one_command_that_ends_the_shell(self, placed: Session) -> None:
        """And the shell that is made again has nothing of them."""
        with pytest.raises(SessionTerminatedError):
            placed.exec("exit 1", env={"A": "new", "B": "new"}, cwd="work")
        assert placed.exec(SHOW).stdout == "unset unset home\n"

    def test_E7_other_changes_of_the_command_stay(self, placed: Session) -> None:
        """Only the given names and the directory go back."""
        placed.exec("export B=kept; C=kept; f() { echo f; }; umask 077", env={"A": "new"}, cwd="work")
        assert placed.exec('f; umask; echo "$B $C"').stdout == "f\n0077\nkept kept\n"

    def test_E7_kinds_of_variables_come_back(self, session: Session) -> None:
        """A variable that was not exported, an array or an integer is that again."""
        session.exec("A=plain; B=(x 'y z'); declare -i C=4; declare -r D=fixed; E=")
        look = session.exec('env | grep -c "^[A-E]="; declare -p A B C D E').stdout
        names = {"A": "1", "B": "2", "C": "3", "E": "5"}
        result = session.exec('echo "$A$B$C$D$E"; env | grep -c "^[ABCE]="', env=names)
        assert result.stdout == "123fixed5\n4\n"
        assert session.exec('env | grep -c "^[A-E]="; declare -p A B C D E').stdout == look

    def test_E7_env_reaches_every_kind_of_call(self, placed: Session) -> None:
        """`exec`, `exec_stream`, `start_process` and commands without a session take both."""
        options: dict[str, Any] = {"env": {"A": "new"}, "cwd": "work"}
        command = 'echo "$A ${PWD##*/}"'
        with placed.exec_stream(command, **options) as stream:
            assert stream.result().stdout == "new work\n"
        process = placed.start_process(command, **options)
        process.wait_for_exit(20)
        assert process.logs().stdout == "new work\n"
        plain = Sandbox(placed.sandbox.transport, id=placed.sandbox.id, enable_default_session=False)
        assert plain.exec(command, env={"A": "new"}, cwd="home/work").stdout == "new work\n"

    def test_E7_cwd_is_relative_to_the_sessions_directory(self, placed: Session) -> None:
        """Relative to where the last command left it; absolute ones are what they are."""
        placed.exec("cd work")
        for cwd, expected in (("deep", "deep"), ("..", "home"), (".", "work"), ("./deep/../../work", "work")):
            assert placed.exec("echo ${PWD##*/}", cwd=cwd).stdout == f"{expected}\n"
        assert placed.exec("pwd", cwd="/").stdout == "/\n"
        assert placed.exec("pwd", cwd=f"{placed.sandbox.workspace}/home").stdout.endswith("/home\n")

    def test_E7_odd_directories(self, sandbox: Sandbox, session: Session) -> None:
        """A directory's name is never read as an option, a pattern or `cd -`."""
        for name in ("-", "-P", "--", "a b", "it's", "*", "$HOME", "~", "é", "+1"):
            sandbox.mkdir(f"{sandbox.workspace}/{name}")
            assert session.exec("pwd; echo .", cwd=name).stdout == f"{sandbox.workspace}/{name}\n.\n"
        session.exec("export CDPATH=/:/usr; mkdir bin")
        assert session.exec("pwd", cwd="bin").stdout == f"{sandbox.workspace}/bin\n"

    @requires(Capability.NATIVE_PROGRAMS)
    def test_E7_a_directory_with_a_line_end(self, sandbox: Sandbox, session: Session) -> None:
        """Nor does a line end at the end of its name get lost."""
        sandbox.mkdir(f"{sandbox.workspace}/é\n")
        assert session.exec("pwd; echo .", cwd="é\n").stdout == f"{sandbox.workspace}/é\n\n.\n"

    @pytest.mark.parametrize("cwd", ["no/such", "/no/such dir", "file", "file/x"])
    def test_E7_a_missing_cwd_is_exit_code_1(self, sandbox: Sandbox, session: Session, cwd: str) -> None:
        """The command does not run, stderr names the path, the session is intact."""
        session.exec("echo x > file; V=kept")
        plain = Sandbox(sandbox.transport, id=sandbox.id, enable_default_session=False)
        for caller in (session, plain):
            result = caller.exec("touch ran; echo ran", cwd=cwd)
            assert (result.exit_code, result.stdout) == (1, "")
            assert cwd in result.stderr
        assert session.exec('echo "$V $A"; ls; pwd').stdout == f"kept \nfile\n{sandbox.workspace}\n"
        with pytest.raises((SandboxFileNotFoundError, NotADirectoryError)):
            session.start_process("touch ran", cwd=cwd)
        assert session.list_processes() == []

    @pytest.mark.parametrize("kind", VALUES)
    def test_E8_values_keep_every_character(self, sandbox: Sandbox, kind: str) -> None:
        """On the call, the session and the sandbox, when it is made and when it is changed."""
        value = VALUES[kind]
        look = 'printf %s "$V"; sh -c \'printf %s "$V"\''
        with sandbox.session(env={"V": value}) as session:
            assert session.exec(look).stdout_bytes == value.encode() * 2
            assert session.exec(look, env={"V": f"{value}."}).stdout_bytes == f"{value}.".encode() * 2
            session.set_env_vars({"V": f"{value}!"})
            assert session.exec(look).stdout_bytes == f"{value}!".encode() * 2
            process = session.start_process(look, env={"V": value})
            process.wait_for_exit(20)
            assert process.logs().stdout == value * 2
        with Sandbox(sandbox.transport, id=sandbox.id, env={"V": value}) as other:
            assert other.exec(look, session_id="late").stdout_bytes == value.encode() * 2

    @PROPERTY
    @given(value=TEXT)
    def test_E8_any_text_is_a_value(self, sandbox: Sandbox, value: str) -> None:
        """Whatever text without NUL."""
        result = sandbox.exec('printf %s "$V"', env={"V": value})
        assert result.stdout_bytes == value.encode()

    @pytest.mark.parametrize(
        "env",
        [{name: "x"} for name in (*BAD_NAMES, *READ_ONLY_NAMES)] + [{"A": value} for value in BAD_VALUES],
        ids=repr,
    )
    def test_E8_bad_names_and_values_are_refused_before_any_io(
        self, transport: Transport, env: Mapping[str, str]
    ) -> None:
        """`InvalidRequestError` wherever an environment is given; the transport is not asked."""
        watched, calls = recorded(transport)
        with pytest.raises(InvalidRequestError):
            Sandbox(watched, env=env)
        with Sandbox(watched) as sandbox:
            session = sandbox.get_session("s")
            attempts: list[Callable[[], object]] = [
                lambda: sandbox.exec("true", env=env),
                lambda: session.exec("true", env=env),
                lambda: session.exec_stream("true", env=env),
                lambda: session.start_process("true", env=env),
                lambda: sandbox.create_session(env=env),
                lambda: sandbox.set_env_vars(env),
                lambda: session.set_env_vars(env),
            ]
            for attempt in attempts:
                with pytest.raises(InvalidRequestError):
                    attempt()
            assert calls == []

    def test_E8_none_is_skipped(self, transport: Transport) -> None:
        """A value of `None` leaves what an outer layer had set."""
        none = cast("dict[str, str]", {"A": None, "B": "2"})
        with Sandbox(transport, env={"A": "1"}) as sandbox:
            assert sandbox.exec('echo "$A $B"', env=none).stdout == "1 2\n"
            with sandbox.session(env=none) as session:
                assert session.exec('echo "$A $B"').stdout == "1 2\n"

    def test_E8_set_env_vars_unsets_with_none(self, sandbox: Sandbox, session: Session) -> None:
        """There `None` takes the variable away, and other sessions keep theirs."""
        sandbox.exec("export A=1 B=1")
        session.set_env_vars({"A": "2", "B": "2"})
        session.set_env_vars({"A": None})
        assert session.exec('echo "${A-unset} $B"').stdout == "unset 2\n"
        assert sandbox.exec('echo "$A $B"').stdout == "1 1\n"
        sandbox.set_env_vars({"A": None, "B": "3"})
        assert sandbox.exec('echo "${A-unset} $B"').stdout == "unset 3\n"
        assert session.exec('echo "${A-unset} $B"').stdout == "unset 2\n"
        assert sandbox.exec('echo "${A-unset} $B"', session_id="late").stdout == "unset 3\n"
