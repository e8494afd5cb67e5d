"""E1 to E6: output, its end, standard input and exit codes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxsync import Sandbox, Session
from sandboxsync.errors import OutputDecodeError
from sandboxsync.models import Completed, Started, Stderr, Stdout
from sandboxsync.transports.base import Capability

from ._tools import eventually, file_exists, requires, stays, within

# One sandbox serves all examples of a property: they do not depend on what others left. Each transport has a class of
# its own that inherits the test.
PROPERTY = settings(
    max_examples=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.differing_executors],
)

OUTPUTS = {
    "no line end": ("printf a", b"a"),
    "nothing": ("true", b""),
    "line ends": ("printf 'a\\r\\nb\\n\\n'", b"a\r\nb\n\n"),
    "only line ends": ("printf '\\n\\n\\n'", b"\n\n\n"),
    "NUL": ("printf 'a\\0b\\0'", b"a\0b\0"),
    "invalid UTF-8": ("printf '\\xff\\xfe\\xc3(\\xe2\\x82'", b"\xff\xfe\xc3(\xe2\x82"),
    "control bytes": ("printf '\\033[2J\\004\\003\\032\\b\\f\\v'", b"\x1b[2J\x04\x03\x1a\b\f\v"),
    "exit event": (
        "printf 'event: exit\\ndata: {\"exit_code\": 0}\\n\\n'",
        b'event: exit\ndata: {"exit_code": 0}\n\n',
    ),
    "markers": (
        "printf '__EXIT__0\\n__END__ 0\\n0\\n\\0000\\0\\nexit 0\\nDONE\\nEOF\\n'",
        b"__EXIT__0\n__END__ 0\n0\n\x000\0\nexit 0\nDONE\nEOF\n",
    ),
    "long line": ("head -c 20000 /dev/zero | tr '\\0' a", b"a" * 20000),
    "many lines": ("seq 1000000", "".join(f"{number}\n" for number in range(1, 1_000_001)).encode()),
}


class OutputRules:
    """Rules E1 to E6."""

    @pytest.mark.parametrize("kind", OUTPUTS)
    def test_E1_output_is_exact(self, session: Session, kind: str) -> None:
        """Every byte comes out once, in order, on its own stream, and nothing else does."""
        command, expected = OUTPUTS[kind]
        for redirect, streams in (("", (expected, b"")), (" >&2", (b"", expected))):
            result = session.exec(command + redirect)
            # Not compared in one assert: the difference of megabytes would take minutes to print.
            same = (result.stdout_bytes, result.stderr_bytes) == streams
            assert same, (result, len(result.stdout_bytes), len(result.stderr_bytes))
            assert result.exit_code == 0

    @PROPERTY
    @given(out=st.binary(max_size=5000), err=st.binary(max_size=5000))
    def test_E1_any_bytes_are_exact(self, sandbox: Sandbox, out: bytes, err: bytes) -> None:
        """Whatever the bytes, both streams keep theirs."""
        sandbox.write_file("out", out)
        sandbox.write_file("err", err)
        result = sandbox.exec("cat out; cat err >&2")
        assert (result.stdout_bytes, result.stderr_bytes) == (out, err)
        assert result.stdout == out.decode(errors="replace")

    def test_E1_streams_are_not_mixed(self, session: Session) -> None:
        """Output that alternates between the streams stays where it was written."""
        result = session.exec("for i in {1..2000}; do echo o$i; echo e$i >&2; done")
        assert result.stdout == "".join(f"o{i}\n" for i in range(1, 2001))
        assert result.stderr == "".join(f"e{i}\n" for i in range(1, 2001))

    def test_E1_what_the_shell_knows_of_us_can_be_printed(self, session: Session) -> None:
        """A command that prints all variables, functions and traps of its shell ends as any other."""
        for _ in range(2):
            result = session.exec("set; declare -f; alias; trap -p; env; shopt -p; jobs; echo END")
            assert result.stdout.endswith("\nEND\n")
            assert (result.stderr, result.exit_code) == ("", 0)
        assert session.exec("echo ok").stdout == "ok\n"

    @requires(Capability.BULK)
    def test_E1_one_line_of_50_megabytes(self, session: Session) -> None:
        """Size alone changes nothing."""
        result = session.exec("head -c 50000000 /dev/zero | tr '\\0' a")
        assert len(result.stdout_bytes) == 50_000_000
        assert result.stdout_bytes.count(b"a") == 50_000_000

    def test_E2_a_character_in_two_reads_is_whole(self, session: Session) -> None:
        """A pause inside a character does not break it, in results, streams and callbacks."""
        command = "printf 'x\\303'; sleep 0.15; printf '\\251\\360\\237'; sleep 0.15; printf '\\230\\200'"
        texts: list[str] = []
        result = session.exec(command, on_output=lambda stream, text: texts.append(text))
        assert result.stdout == "".join(texts) == "xé😀"
        with session.exec_stream(command) as stream:
            pieces = [event for event in stream if isinstance(event, Stdout)]
        assert "".join(piece.text for piece in pieces) == "xé😀"
        assert b"".join(piece.data for piece in pieces) == "xé😀".encode()

    def test_E2_long_text_is_whole(self, session: Session) -> None:
        """So it is wherever a buffer happens to end."""
        result = session.exec("for ((i = 0; i < 20000; i++)); do printf 'é€😀'; done")
        assert result.stdout == "é€😀" * 20000

    def test_E2_encoding_and_errors(self, session: Session) -> None:
        """`encoding` and `errors` are those of `bytes.decode`; the bytes are kept either way."""
        result = session.exec("printf '\\351'", encoding="latin-1")
        assert (result.stdout, result.stdout_bytes) == ("é", b"\xe9")
        assert session.exec("printf '\\351'").stdout == "\ufffd"
        assert session.exec("printf '\\351'", errors="surrogateescape").stdout == "\udce9"
        with pytest.raises(OutputDecodeError) as caught:
            session.exec("printf 'a\\351'", errors="strict")
        assert isinstance(caught.value, UnicodeError)
        assert caught.value.stdout_bytes == b"a\xe9"

    @pytest.mark.parametrize(
        "command",
        [
            "seq 3000; seq 3000 >&2; (exit 7)",
            "sh -c 'seq 3000; seq 3000 >&2; exit 7'",
            "(seq 3000 | cat); (seq 3000 | cat) >&2; (exit 7)",
            "{ sleep 0.01; seq 3000; seq 3000 >&2; } & wait; (exit 7)",
        ],
    )
    def test_E3_output_and_exit_code_never_race(self, session: Session, command: str) -> None:
        """Whatever wrote it, all output from before the end is in the result, and the code is that of this command."""
        numbers = "".join(f"{number}\n" for number in range(1, 3001))
        for code in range(7, 17):
            result = session.exec(command.replace("exit 7", f"exit {code}"))
            assert (result.stdout, result.stderr, result.exit_code) == (numbers, numbers, code)

    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            ("sleep 20 & echo done", "done\n"),
            ("(sleep 20; echo late) & echo done", "done\n"),
            ("sh -c 'sleep 20 &'; echo done", "done\n"),
            ("echo done > >(cat; sleep 20)", "done\n"),
            ("exec 7> >(sleep 20); echo done", "done\n"),
            ("sleep 20 | sleep 20 & echo done", "done\n"),
        ],
    )
    def test_E4_background_jobs_do_not_hold_a_command(self, session: Session, command: str, expected: str) -> None:
        """A command ends when its foreground part ends."""
        with within(1):
            result = session.exec(command)
        assert result.exit_code == 0
        # A process substitution may be slower than the command it belongs to.
        assert result.stdout in ((expected, "") if ">(" in command else (expected,))
        with within(1):
            assert session.exec("echo ok").stdout == "ok\n"

    def test_E4_late_output_of_jobs_goes_nowhere(self, sandbox: Sandbox, session: Session) -> None:
        """It is in no other command's output, and the job is neither stopped nor killed by writing."""
        result = session.exec("(sleep 0.3; echo LATE; echo LATE >&2; seq 200000; touch finished) & echo now")
        assert result.stdout == "now\n"
        for _ in range(8):
            clean = session.exec("sleep 0.1; echo clean")
            assert (clean.stdout, clean.stderr) == ("clean\n", "")
        eventually(lambda: file_exists(sandbox, "finished"))

    def test_E4_a_job_that_never_stops_writing(self, sandbox: Sandbox) -> None:
        """It cannot make its own command endless, nor the next ones."""
        with sandbox.session() as session:
            with within(2):
                result = session.exec("yes >&2 & (while :; do echo noise; done) >&2 & echo done")
            assert result.stdout == "done\n"
            for _ in range(3):
                with within(2):
                    clean = session.exec("echo clean")
                assert (clean.stdout, clean.stderr) == ("clean\n", "")

    def test_E4_the_end_of_a_job_is_not_announced(self, session: Session) -> None:
        """The shell's notices about jobs that ended are in no command's output."""
        session.exec("set -b; sleep 0.1 & (exit 3) & sleep 20 & kill $!")
        for _ in range(3):
            result = session.exec("sleep 0.1; echo clean")
            assert (result.stdout, result.stderr) == ("clean\n", "")

    @pytest.mark.parametrize(
        ("command", "expected"),
        [
            ("cat; echo end", "end\n"),
            ('read x; echo "$? [$x]"', "1 []\n"),
            ("wc -c", "0\n"),
            ("while read -r line; do echo no; done; echo end", "end\n"),
            ("(cat; echo job) & wait", "job\n"),
            ("sh -c cat | wc -c", "0\n"),
        ],
    )
    def test_E5_without_stdin_there_is_end_of_file(self, session: Session, command: str, expected: str) -> None:
        """What reads standard input sees its end at once and takes nothing from the next command."""
        for _ in range(2):
            with within(2):
                assert session.exec(command).stdout.replace(" ", "") == expected.replace(" ", "")
            assert session.exec("echo ok").stdout == "ok\n"

    @pytest.mark.parametrize("data", ["", "abc", "é\n", b"\0\xff\n", "exit 3\n", b"a" * 70_000])
    def test_E5_stdin_arrives_as_it_is(self, session: Session, data: str | bytes) -> None:
        """`stdin`, text or bytes, is what the command reads, to its end."""
        expected = data if isinstance(data, bytes) else data.encode()
        assert session.exec("cat", stdin=data).stdout_bytes == expected
        with session.exec_stream("cat", stdin=data) as stream:
            assert stream.result().stdout_bytes == expected
        assert session.exec("cat").stdout == ""

    def test_E5_stdin_may_be_large_and_need_not_be_read(self, session: Session) -> None:
        """More than any pipe holds, read whole, in part or not at all."""
        data = b"0123456789abcde\n" * 200_000
        with within(10):
            assert session.exec("cat", stdin=data).stdout_bytes == data
            assert session.exec("head -c 3", stdin=data).stdout == "012"
            assert session.exec("exec 0<&-; echo ok", stdin=data).stdout == "ok\n"
            assert session.exec("true", stdin=data).exit_code == 0
            assert session.exec("read x; read y; cat | wc -c", stdin=data).stdout.strip() == str(len(data) - 32)
            assert session.exec("cat").stdout == ""

    @pytest.mark.parametrize(
        ("command", "exit_code"),
        [
            ("true", 0),
            ("false", 1),
            ("(exit 255)", 255),
            ("no-such-program-x", 127),
            ("./no-such-file", 127),
            ("./not-executable", 126),
            ("/", 126),
            ("printf no-line-end; (exit 5)", 5),
            ("false | true", 0),
            ("! true", 1),
            ("(exit 130)", 130),
            ("echo a &", 0),
            (["no-such-program-x"], 127),
            (["./not-executable"], 126),
            (["sh", "-c", "exit 9"], 9),
        ],
    )
    def test_E6_exit_codes_are_the_shells(
        self, sandbox: Sandbox, session: Session, command: str | list[str], exit_code: int
    ) -> None:
        """127 not found, 126 not executable, otherwise what the last command said."""
        session.write_file("not-executable", "echo no\n")
        for caller in (session, Sandbox(sandbox.transport, id=sandbox.id, enable_default_session=False)):
            result = caller.exec(command)
            assert type(result.exit_code) is int
            assert (result.exit_code, result.success) == (exit_code, exit_code == 0)
            assert bool(result.stderr) == (exit_code in (126, 127))
            with caller.exec_stream(command) as stream:
                events = list(stream)
            assert isinstance(events[0], Started)
            assert isinstance(events[-1], Completed)
            assert events[-1].exit_code == exit_code
            assert any(isinstance(event, Stderr) for event in events) == (exit_code in (126, 127))

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize(("name", "number"), [("KILL", 9), ("TERM", 15), ("SEGV", 11), ("PIPE", 13)])
    def test_E6_a_signal_is_128_and_its_number(self, session: Session, name: str, number: int) -> None:
        """A command that a signal ended has the exit code that shells give it."""
        assert session.exec(f"ulimit -c 0; sh -c 'kill -{name} $$'").exit_code == 128 + number
        assert session.exec("echo $?").stdout == f"{128 + number}\n"

    def test_E6_the_exit_code_is_that_of_this_command(self, session: Session) -> None:
        """Neither an earlier one nor a job's."""
        for code in (3, 0, 200, 1, 0):
            assert session.exec(f"(exit 9) & (exit {code})").exit_code == code
        stays(lambda: session.exec("true").exit_code == 0, 0.3)
