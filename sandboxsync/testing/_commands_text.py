"""E9 to E11: the text of a command, and argument lists."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError
from sandboxsync.transports.base import Capability, Transport

from ._commands import PROPERTY
from ._commands_env import TEXT
from ._tools import recorded, requires_for, within

TEXTS = {
    "two lines": ("echo a\necho b", "a\nb\n"),
    "comment": ("echo a # b", "a\n"),
    "comment lines": ("# a\necho b\n# c", "b\n"),
    "only a comment": ("# nothing", ""),
    "blank": (" \t ", ""),
    "blank lines": ("\n\n", ""),
    "backslash at the end": ("echo a \\\n", "a\n"),
    "double backslash": ("echo a\\\\", "a\\\n"),
    "continued": ("echo a \\\n  b", "a b\n"),
    "semicolon": ("echo a;", "a\n"),
    "line end": ("echo a\n\n\n", "a\n"),
    "heredoc": ("cat <<'EOF'\nit's `ok` \"q\" \\\\ $x !\nEOF", 'it\'s `ok` "q" \\\\ $x !\n'),
    "heredoc and line end": ("cat <<EOF\na\nEOF\n", "a\n"),
    "heredoc with tabs": ("cat <<-EOF\n\ta\n\tEOF", "a\n"),
    "two heredocs": ("cat <<A; cat <<B\na\nA\nb\nB", "a\nb\n"),
    "heredoc and comment": ("cat <<EOF\na\nEOF\n# comment", "a\n"),
    "heredoc and command": ("cat > f <<'EOF'\none\ntwo\nEOF\ncat f; rm f", "one\ntwo\n"),
    "list and heredoc": ("echo a && cat <<'EOF'\nb\nEOF", "a\nb\n"),
    "heredoc in a pipe": ("cat <<EOF | tr a b\naa\nEOF", "bb\n"),
    "unterminated heredoc": ("cat <<EOF\nx", "x\n"),
    "here string": ("cat <<< 'a b'", "a b\n"),
    "bang": ("printf '%s' ' != ' 'x! ' \"a ! b\"", " != x! a ! b"),
    "quotes": ("""printf '%s|' "a'b" 'c"d' $'e\\tf' \\$""", "a'b|c\"d|e\tf|$|"),
    "loop": ("for i in 1 2\ndo\n  echo $i\ndone", "1\n2\n"),
    "function": ("f() {\n  echo $1\n}\nf a", "a\n"),
    "case": ("case x in\n(x) echo a;;\nesac", "a\n"),
    "brace at the end": ("{ echo a; }", "a\n"),
    "parenthesis at the end": ("(echo a)", "a\n"),
    "background at the end": ("sleep 0 & wait; echo a", "a\n"),
    "carriage return": ("echo 'a\r'", "a\r\n"),
    "form feed": ("printf 'a\f'", "a\f"),
    "bracketed paste": ("printf '\x1b[200~'", "\x1b[200~"),
    "unicode": ("echo é😀", "é😀\n"),
    "long line": ("echo " + "a" * 200_000, "a" * 200_000 + "\n"),
    "long heredoc": ("cat <<'EOF'\n" + "0123456789 $x\n" * 15_000 + "EOF", "0123456789 $x\n" * 15_000),
    "many commands": ("echo a\n" * 2_000, "a\n" * 2_000),
}

OVERRIDES = [
    "alias {0}='false {0}'",
    "{0}() {{ echo OURS; return 9; }}",
    "function {0} {{ exit 9; }}",
]
NAMES = (
    *("eval", "command", "cd", "pwd", "read", "printf", "trap", "exit", "return", "source", ".", "test"),
    *("[", "exec", "set", "shopt", "unset", "unalias", "alias", "export", "declare", "typeset", "local", "readonly"),
    *("mapfile", "readarray", "wait", "kill", "jobs", "ulimit", "umask", "true", "false", ":", "let", "times", "cat"),
    *("mkdir", "rm", "env", "mkfifo", "sleep", "compgen", "type", "hash", "enable"),
)
SETTINGS = [
    "IFS=x",
    "IFS=",
    "set -f",
    "PATH=",
    "PATH=/no/such",
    "unset PATH",
    "set -eu",
    "set -o posix",
    "shopt -s nocasematch nocaseglob failglob dotglob",
    "shopt -s xpg_echo extglob lastpipe",
    "TMPDIR=/no/such HOME=/no/such",
    "LC_ALL=C",
]


class CommandTextRules:
    """Rules E9 to E11."""

    @pytest.mark.parametrize("kind", TEXTS)
    @requires_for(["unterminated heredoc"], Capability.NATIVE_PROGRAMS)
    def test_E9_a_command_is_any_shell_text(self, session: Session, kind: str) -> None:
        """Of any length, over many lines, with comments, quotes or heredocs wherever the shell takes them."""
        command, expected = TEXTS[kind]
        for _ in range(2):
            with within(5):
                result = session.exec(command)
            assert (result.stdout == expected, result.exit_code) == (True, 0), repr(result)
            assert bool(result.stderr) == (kind == "unterminated heredoc")
        assert session.exec("echo ok").stdout == "ok\n"
        process = session.start_process(command)
        assert process.wait_for_exit(20) == 0
        assert process.logs().stdout == expected

    def test_E9_a_backslash_at_the_end_joins_nothing(self, session: Session) -> None:
        """It ends with the command; the next one is whole."""
        assert session.exec("echo a \\").stdout in ("a\n", "a \\\n")
        assert session.exec("echo b").stdout == "b\n"
        assert session.exec("true; echo 'a' #\\").stdout == "a\n"

    @pytest.mark.parametrize(
        "command", ["", [], (), "a\0b", ["a", "b\0"], ["a", 5], ["a", None], [b"a"], b"true"], ids=repr
    )
    def test_E9_what_is_no_command_is_refused_before_any_io(self, transport: Transport, command: Any) -> None:
        """NUL, nothing at all, or items that are no text: `InvalidRequestError`."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            session = sandbox.get_session("s")
            for attempt in (sandbox.exec, session.exec, session.exec_stream, session.start_process):
                with pytest.raises(InvalidRequestError):
                    attempt(command)
            assert calls == []

    @pytest.mark.parametrize("name", NAMES)
    @requires_for(["["], Capability.NATIVE_PROGRAMS)
    def test_E10_definitions_of_the_user_do_not_reach_our_helpers(self, sandbox: Sandbox, name: str) -> None:
        """Whatever is an alias or a function, calls of every kind work as before."""
        for override in OVERRIDES:
            with sandbox.session() as session:
                assert session.exec(override.format(name)).exit_code == 0
                self.check_calls(session)

    @pytest.mark.parametrize("setting", SETTINGS)
    def test_E10_settings_of_the_user_do_not_reach_our_helpers(self, session: Session, setting: str) -> None:
        """So it is with what changes how the shell splits, expands and finds."""
        session.exec(setting)
        self.check_calls(session)

    def check_calls(self, session: Session) -> None:
        """Use the session in each way there is; none of the words here is among `NAMES`."""
        for _ in range(2):
            result = session.exec('echo "$V ${PWD##*/}"; echo err >&2', env={"V": "a  b x"}, cwd="/")
            assert (result.stdout, result.stderr, result.exit_code) == ("a  b x \n", "err\n", 0)
        session.set_env_vars({"W": "c  d x"})
        assert session.exec("echo ok").stdout == "ok\n"
        session.write_file("f", "x")
        assert session.read_text("f") == "x"
        process = session.start_process('echo "$W"')
        assert process.wait_for_exit(20) == 0
        assert process.logs().stdout == "c  d x\n"
        assert session.exec(["echo", "a  b", "*"]).stdout == "a  b *\n"

    def test_E10_the_text_is_not_edited(self, session: Session) -> None:
        """The shell reads it as it was given: aliases from before expand, words are not quoted again."""
        session.exec("alias say='echo said'")
        assert session.exec("say  'a  b'   c").stdout == "said a  b c\n"
        assert session.exec("echo 'x'\"$((1+1))\"`echo y`").stdout == "x2y\n"
        assert session.exec('echo "$0|$#|$*"').stdout.endswith("|0|\n")

    def test_E11_an_argument_list_arrives_as_it_is(self, session: Session) -> None:
        """Nothing in it is split, expanded or taken for an option of the shell."""
        command = ["printf", "%s|", "a b", "it's", "$HOME", "*", "é\n", "", "-n", "$(id)", "`id`", "~", "{a,b}", "\\"]
        expected = "a b|it's|$HOME|*|é\n||-n|$(id)|`id`|~|{a,b}|\\|"
        assert session.exec(command).stdout == expected
        assert session.exec(tuple(command)).stdout == expected
        with session.exec_stream(command) as stream:
            assert stream.result().stdout == expected
        process = session.start_process(command)
        process.wait_for_exit(20)
        assert process.logs().stdout == expected

    @PROPERTY
    @given(arguments=st.lists(TEXT, min_size=1, max_size=12))
    def test_E11_any_texts_are_arguments(self, sandbox: Sandbox, arguments: list[str]) -> None:
        """Whatever texts without NUL."""
        if Capability.NATIVE_PROGRAMS not in sandbox.transport.capabilities:
            # A shell that is none of the system's may have marks of its own among the control characters.
            arguments = [argument.translate({0x1E: None, 0x1F: None}) for argument in arguments]
        result = sandbox.exec(["printf", "%s\\0", *arguments])
        assert result.stdout_bytes == b"".join(argument.encode() + b"\0" for argument in arguments)

    @pytest.mark.parametrize("word", ["if", "A=1", "!", "{", "say", "no such", "$HOME", "[["])
    def test_E11_the_first_word_is_a_program(self, session: Session, word: str) -> None:
        """It is no keyword, assignment or alias, as quoted words are none."""
        session.exec("alias say='echo said'")
        result = session.exec([word, "x"])
        assert (result.exit_code, result.stdout) == (127, "")

    def test_E11_a_long_argument_list(self, session: Session) -> None:
        """One of 200 kB, and one with thousands of items."""
        assert session.exec(["printf", "%s", "a" * 200_000]).stdout == "a" * 200_000
        many = [str(number) for number in range(5_000)]
        assert session.exec(["echo", *many]).stdout == " ".join(many) + "\n"
