"""Cases about the state of shells, their exit codes and their ends; the rows are in `docs/cases.md`."""

from __future__ import annotations

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandFailedError, SessionTerminatedError
from sandboxsync.models import Completed, Started, Stdout
from sandboxsync.testing import requires
from sandboxsync.transports.base import Capability, Transport


def test_ST05_errexit_of_an_earlier_command(session: Session) -> None:
    """After `set -e`, a command that fails is a result or the end of the shell, and never a hang."""
    assert session.exec("set -e; true").exit_code == 0
    try:
        exit_code = session.exec("false", timeout=10).exit_code
    except SessionTerminatedError as error:
        exit_code = error.exit_code or 0
    assert exit_code == 1
    assert session.exec("echo ok").stdout == "ok\n"


def test_ST07_onecmd_gives_output_or_says_that_the_shell_ended(session: Session) -> None:
    """After `set -o onecmd` no command ends with nothing but an exit code."""
    outputs = []
    for command in ("set -o onecmd", "echo a", "echo b", "echo c"):
        try:
            outputs.append(session.exec(command, timeout=10).stdout)
        except SessionTerminatedError as error:
            outputs.append("ended" + error.stdout)
    assert outputs[0] in ("", "ended")
    assert set(outputs[1:]) <= {"a\n", "b\n", "c\n", "ended", "endeda\n", "endedb\n"}
    assert sum(output.startswith("ended") for output in outputs) <= 1
    assert outputs[3] == "c\n"


@requires(Capability.NATIVE_PROGRAMS)
def test_ST08_odd_names_of_aliases(session: Session) -> None:
    """An alias called `-` breaks nothing and prints nothing."""
    session.exec("alias -- -='cd -'; alias ..='cd ..'; alias 2='echo two'")
    result = session.exec("echo ok")
    assert (result.stdout, result.stderr) == ("ok\n", "")
    with pytest.raises(TimeoutError):
        session.exec("while :; do :; done", timeout=0.2)
    result = session.exec("2; cd /; ..; alias -- -")
    assert (result.stdout, result.stderr) == ("two\nalias -- -='cd -'\n", "")


def test_ST13_prompts_are_not_printed(session: Session) -> None:
    """A prompt command of the user runs nowhere."""
    session.exec("PROMPT_COMMAND='PS1=xx; echo noise'; PS1='$ '")
    for _ in range(2):
        result = session.exec("echo ok")
        assert (result.stdout, result.stderr) == ("ok\n", "")


@requires(Capability.NATIVE_PROGRAMS, Capability.OS_PROCESSES)
def test_EX02_every_call_works_after_the_shell_was_killed(sandbox: Sandbox, session: Session) -> None:
    """Files, env and git find a fresh shell."""
    origin = "git init -q -b main o; git -C o -c user.name=a -c user.email=a@b commit -q --allow-empty -m one"
    assert sandbox.exec(origin).success

    def kill() -> None:
        with pytest.raises(SessionTerminatedError) as caught:
            session.exec("kill -9 $$")
        assert caught.value.exit_code == 137
        assert "137" in str(caught.value)

    kill()
    assert session.write_file("f", "x").size == 1
    kill()
    session.set_env_vars({"A": "1"})
    assert session.exec("echo $A").stdout == "1\n"
    kill()
    result = session.git_checkout(f"file://{sandbox.workspace}/o", target_dir="copy")
    assert result.branch == "main"


def test_EX08_a_running_process_has_no_exit_code_yet(sandbox: Sandbox) -> None:
    """Asking at once is no error, and asking at the end gives 0."""
    process = sandbox.start_process("sleep 0.4")
    seen = sandbox.get_process(process.id)
    assert seen is not None
    assert (seen.status, seen.exit_code) == ("running", None)
    assert process.wait_for_exit(20) == 0
    assert (process.status, process.exit_code) == ("completed", 0)


def test_EX10_output_without_a_line_end(session: Session) -> None:
    """The exit code is found whatever the output ends with, and nothing of ours is in it."""
    for end in ("", "0", "exit 0", "\\0"):
        result = session.exec(f"printf 'no-newline{end}'; (exit 5)")
        assert result.stdout_bytes == b"no-newline" + end.replace("\\0", "\0").encode()
        assert (result.stderr, result.exit_code) == ("", 5)


def test_EX11_a_failure_is_seen(transport: Transport) -> None:
    """The result says it, and `check` raises with all of it."""
    with Sandbox(transport, enable_default_session=False) as sandbox:
        result = sandbox.exec("echo out; echo err >&2; exit 3")
        assert (result.exit_code, result.success) == (3, False)
        with pytest.raises(CommandFailedError) as caught:
            sandbox.exec("echo out; echo err >&2; exit 3", check=True)
        failed = caught.value.result
        assert (failed.exit_code, failed.stdout, failed.stderr) == (3, "out\n", "err\n")
        with pytest.raises(CommandFailedError):
            result.check()
        assert sandbox.exec("true").check().success


def test_EX13_a_stream_ends_with_its_foreground(session: Session) -> None:
    """A job in the background does not hold the `Completed` event back."""
    with session.exec_stream("echo a; sleep 600 &", timeout=10) as stream:
        events = list(stream)
    assert [type(event) for event in events] == [Started, Stdout, Completed]


def test_EX20_a_program_that_cannot_be_started_names_itself(session: Session) -> None:
    """It is exit code 127 with a message; a command that says 127 itself has none."""
    result = session.exec(["/no/such/bin", "x"])
    assert result.exit_code == 127
    assert "/no/such/bin" in result.stderr
    result = session.exec("(exit 127)")
    assert (result.exit_code, result.stderr) == (127, "")
