"""S9, S12, S14, S16, S17: how the shell of a session ends, and what the next call finds."""

from __future__ import annotations

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import (
    ProcessNotFoundError,
    SandboxFileNotFoundError,
    SandboxNotADirectoryError,
    SessionDestroyedError,
    SessionTerminatedError,
)
from sandboxsync.models import Completed
from sandboxsync.transports.base import Capability

from ._tools import (
    SLACK,
    eventually,
    file_exists,
    has_process,
    in_real_time,
    long_sleep,
    requires,
    requires_for,
    running,
    start,
    within,
)

# Which of them bash says depends on where it reads its commands from.
EITHER = (1, 127)
ENDS: list[tuple[str, int | tuple[int, ...]]] = [
    ("exit 3", 3),
    ("exit 42 || true", 42),
    ("false; exit", 1),
    ("exit -1", 255),
    ("f() { exit 6; }; f", 6),
    ("eval 'exit 7'", 7),
    ("true && { exit 8; }", 8),
    ("exec true", 0),
    ("exec ls", 0),
    ("exec sh -c 'exit 9'", 9),
    ("exec no-such-program-x", 127),
    ("set -e; false; echo no", 1),
    ("set -u; echo $nope; echo no", EITHER),
    ("echo ${nope:?gone}; echo no", EITHER),
    ("trap 'exit 5' ERR; false", 5),
]
SIGNALS = [
    ("kill -9 $$", 137),
    ("kill -TERM $$; sleep 5", 143),
    ("kill -HUP $$; sleep 5", 129),
    ("(kill -9 $$); sleep 5", 137),
    ("exec sh -c 'kill -9 $$'", 137),
]


def ends(session: Session, command: str) -> SessionTerminatedError:
    """Run a command that ends the shell; return the error it raised, in time."""
    with within(2), pytest.raises(SessionTerminatedError) as caught:
        session.exec(command)
    assert caught.value.session_id == session.id
    return caught.value


class SessionEndRules:
    """Rules S9, S12, S14, S16 and S17."""

    @pytest.mark.parametrize(("command", "exit_code"), ENDS)
    @requires_for(["trap 'exit 5' ERR; false"], Capability.NATIVE_PROGRAMS)
    def test_S9_exit_ends_the_session(self, session: Session, command: str, exit_code: int | tuple[int, ...]) -> None:
        """The call that saw the shell end says so, with its exit code; the next one has a fresh shell."""
        session.exec("V=1")
        assert ends(session, command).exit_code in (exit_code if isinstance(exit_code, tuple) else (exit_code,))
        result = session.exec('echo "fresh$V"')
        assert (result.stdout, result.stderr, result.exit_code) == ("fresh\n", "", 0)

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize(("command", "exit_code"), SIGNALS)
    def test_S9_a_signal_ends_the_session(self, session: Session, command: str, exit_code: int) -> None:
        """A shell that a signal ended is reported with 128 + its number."""
        assert ends(session, command).exit_code == exit_code
        assert session.exec("echo fresh").stdout == "fresh\n"

    def test_S9_the_error_carries_the_output(self, session: Session) -> None:
        """All that was written before the shell ended comes with the error, and so does the command."""
        error = ends(session, "seq 3000; printf 'err\\xff' >&2; exit 3")
        assert error.stdout == "".join(f"{number}\n" for number in range(1, 3001))
        assert (error.stderr, error.stderr_bytes) == ("err\ufffd", b"err\xff")
        assert error.command == "seq 3000; printf 'err\\xff' >&2; exit 3"

    @pytest.mark.parametrize("job", ["sleep 8 &", "(sleep 8; echo late) 2>&1 | cat &", "cat < <(sleep 8) &"])
    @requires_for(["(sleep 8; echo late) 2>&1 | cat &"], Capability.OS_PROCESSES)
    def test_S9_jobs_that_hold_the_pipes_do_not_matter(self, session: Session, job: str) -> None:
        """The end of the shell is seen though a job of its still holds the output."""
        error = ends(session, f"{job} echo out; exit 1")
        assert (error.exit_code, error.stdout) == (1, "out\n")

    @requires(Capability.OS_PROCESSES)
    def test_S9_jobs_end_with_the_shell(self, sandbox: Sandbox, session: Session) -> None:
        """What the ended shell had in the background is ended too."""
        job = long_sleep()
        session.exec(f"{job} &")
        ends(session, "exit 1")
        eventually(lambda: not running(sandbox, job), 2)

    def test_S9_streams_say_so_too(self, session: Session) -> None:
        """An `exec_stream` whose shell ends raises after the output, and never completes."""
        events: list[object] = []
        with within(2), pytest.raises(SessionTerminatedError) as caught:
            with session.exec_stream("echo out; exit 4") as stream:
                events.extend(stream)
        assert caught.value.exit_code == 4
        assert not any(isinstance(event, Completed) for event in events)
        assert session.exec("echo fresh").stdout == "fresh\n"

    @requires(Capability.OS_PROCESSES)
    def test_S9_killed_from_outside_during_a_command(self, sandbox: Sandbox, session: Session) -> None:
        """The waiting call raises within 2 s, with 137 and the output so far."""
        pid = session.exec("echo $$").stdout.strip()
        call = start(lambda: session.exec("echo out; touch begun; sleep 60"))
        eventually(lambda: file_exists(sandbox, "begun"))
        sandbox.exec(f"kill -9 {pid}")
        with within(2):
            error = call.exception(2 + SLACK)
        assert isinstance(error, SessionTerminatedError)
        assert (error.exit_code, error.stdout) == (137, "out\n")
        assert session.exec("echo fresh").stdout == "fresh\n"

    @requires(Capability.OS_PROCESSES)
    def test_S9_died_between_calls(self, sandbox: Sandbox, session: Session) -> None:
        """The next call raises once and runs nothing; the one after it has a fresh shell."""
        pid = session.exec("echo $$").stdout.strip()
        sandbox.exec(f"kill -9 {pid}")
        eventually(lambda: not has_process(sandbox, pid))
        error = ends(session, "touch ran")
        assert (error.exit_code, error.stdout) == (137, "")
        assert session.exec("test -e ran; echo $?").stdout == "1\n"

    @requires(Capability.OS_PROCESSES)
    def test_S9_a_trap_that_ends_the_shell_later(self, sandbox: Sandbox, session: Session) -> None:
        """A shell that a signal makes exit between two commands is reported as one that exited."""
        session.exec("trap 'exit 6' USR1; (sleep 0.2; kill -USR1 $$; touch sent) &")
        eventually(lambda: file_exists(sandbox, "sent"))
        assert ends(session, "sleep 0.1").exit_code == 6
        assert session.exec("echo fresh").stdout == "fresh\n"

    def test_S9_the_fresh_shell_is_made_as_the_first_was(self, sandbox: Sandbox) -> None:
        """It has the session's env, cwd and command timeout; exports are lost, files stay."""
        sandbox.mkdir("sub")
        with sandbox.session(env={"A": "1", "B": "2"}, cwd="sub", command_timeout=0.5) as session:
            session.set_env_vars({"B": "3", "C": "4"})
            session.exec('export A=changed D=5; cd /; echo kept > "$OLDPWD"/file')
            ends(session, "exit 1")
            result = session.exec('echo "$A $B $C [$D]"; pwd; cat file')
            assert result.stdout == f"1 3 4 []\n{sandbox.workspace}/sub\nkept\n"
            with pytest.raises(TimeoutError), within(1.5):
                session.exec("sleep 30")

    def test_S9_other_calls_work_after_the_end(self, sandbox: Sandbox, session: Session) -> None:
        """Files, processes and env of the session work at once after its shell has ended."""
        ends(session, "exit 1")
        assert session.write_file("f", "x").path == f"{sandbox.workspace}/f"
        ends(session, "exit 1")
        session.set_env_vars({"V": "1"})
        assert session.exec("echo $V").stdout == "1\n"
        ends(session, "exit 1")
        assert session.start_process("pwd").wait_for_exit(20) == 0

    def test_S9_an_ended_session_can_be_replaced(self, sandbox: Sandbox) -> None:
        """`create_session` takes an id whose shell died."""
        first = sandbox.create_session("s", env={"V": "1"})
        ends(first, "exit 1")
        sandbox.create_session("s", env={"V": "2"})
        assert sandbox.exec("echo $V", session_id="s").stdout == "2\n"

    def test_S12_a_deleted_directory_leaves_the_session_usable(self, session: Session) -> None:
        """Commands run on in a directory that is gone, and `cd` recovers."""
        session.exec("mkdir -p d/e; cd d/e; rm -r ../../d")
        for _ in range(2):
            result = session.exec("echo hi")
            assert (result.stdout, result.exit_code) == ("hi\n", 0)
        assert session.exec("ls / > /dev/null", cwd="/").exit_code == 0
        result = session.exec("cd / && pwd")
        assert (result.stdout, result.stderr, result.exit_code) == ("/\n", "", 0)

    def test_S12_somebody_else_may_delete_it(self, sandbox: Sandbox, session: Session) -> None:
        """So it is when another session deletes the directory, or makes a file of it."""
        session.exec("mkdir d; cd d")
        sandbox.exec("rmdir d; touch d")
        assert session.exec("echo hi").stdout == "hi\n"
        assert session.exec("cd /; pwd").stdout == "/\n"

    @pytest.mark.parametrize("stream", [False, True], ids=["exec", "exec_stream"])
    @in_real_time
    def test_S14_deleting_ends_the_running_command(self, sandbox: Sandbox, stream: bool) -> None:
        """The call that waited raises `SessionDestroyedError` within 2 s, with the output so far."""
        session = sandbox.create_session("s")
        command = "echo out; touch begun; sleep 60; touch late"
        run = (lambda: session.exec_stream(command).result()) if stream else (lambda: session.exec(command))
        call = start(run)
        eventually(lambda: file_exists(sandbox, "begun"))
        with within(4):
            sandbox.delete_session("s")
            error = call.exception(2 + SLACK)
        assert isinstance(error, SessionDestroyedError)
        assert error.stdout == "out\n"
        with pytest.raises(SessionDestroyedError):
            session.exec("true")

    @in_real_time
    def test_S14_those_who_wait_for_their_turn_are_told(self, sandbox: Sandbox) -> None:
        """So do the calls that had not begun."""
        session = sandbox.create_session("s")
        first = start(lambda: session.exec("touch begun; sleep 60"))
        eventually(lambda: file_exists(sandbox, "begun"))
        waiting = [start(lambda: session.exec("touch ran")) for _ in range(3)]
        sandbox.delete_session("s")
        for call in (first, *waiting):
            assert isinstance(call.exception(2 + SLACK), SessionDestroyedError)
        assert not file_exists(sandbox, "ran")

    @requires(Capability.OS_PROCESSES)
    def test_S14_the_tree_of_the_command_is_gone(self, sandbox: Sandbox) -> None:
        """Nothing of the ended command is left, and its pids are free."""
        jobs = [long_sleep() for _ in range(3)]
        session = sandbox.create_session("s")
        call = start(lambda: session.exec(f"trap '' TERM; {jobs[0]} & setsid {jobs[1]} & {jobs[2]}"))
        eventually(lambda: len(running(sandbox, *jobs)) == 3)
        sandbox.delete_session("s")
        assert isinstance(call.exception(2 + SLACK), SessionDestroyedError)
        eventually(lambda: not running(sandbox, *jobs), 2)

    def test_S16_a_missing_cwd_makes_no_session(self, sandbox: Sandbox) -> None:
        """`create_session` raises the error that fits, with the path, and the id stays free."""
        sandbox.write_file("file", "x")
        with pytest.raises(SandboxFileNotFoundError) as missing:
            sandbox.create_session("s", cwd="no/such")
        with pytest.raises(SandboxNotADirectoryError) as no_directory:
            sandbox.create_session("s", cwd="file")
        assert ("no/such" in str(missing.value), "file" in str(no_directory.value)) == (True, True)
        assert sandbox.list_sessions() == []
        assert sandbox.create_session("s", cwd=".").exec("pwd").stdout == f"{sandbox.workspace}\n"

    def test_S16_a_vanished_cwd_becomes_the_workspace(self, sandbox: Sandbox) -> None:
        """A shell that is made again when the session's directory is gone starts in the workspace."""
        sandbox.mkdir("d")
        with sandbox.session(cwd="d") as session:
            assert session.exec("pwd; rmdir ../d").stdout == f"{sandbox.workspace}/d\n"
            ends(session, "exit 1")
            assert session.exec("pwd").stdout == f"{sandbox.workspace}\n"

    def test_S17_a_restart_is_told_once(self, sandbox: Sandbox) -> None:
        """The next call of an object that knew the old sandbox raises and runs nothing; the one after it works."""
        session = sandbox.create_session("s")
        session.exec("V=1")
        sandbox.exec("V=1")
        process = sandbox.start_process("sleep 60")
        Sandbox(sandbox.transport, id=sandbox.id).destroy()
        for caller in (session, sandbox):
            with pytest.raises(SessionTerminatedError) as caught:
                caller.exec("touch ran")
            assert (caught.value.code, caught.value.exit_code) == ("SANDBOX_RESTARTED", None)
            assert caller.exec('echo "[$V]"; test -e ran; echo $?').stdout == "[]\n1\n"
        for call in (process.refresh, process.kill, process.logs):
            with pytest.raises(ProcessNotFoundError):
                call()

    @pytest.mark.parametrize("stream", [False, True], ids=["exec", "exec_stream"])
    @in_real_time
    def test_S17_a_restart_ends_commands_in_flight(self, sandbox: Sandbox, stream: bool) -> None:
        """A running command raises the same, with its output so far, and is never started again."""
        session = sandbox.create_session("s")
        other = Sandbox(sandbox.transport, id=sandbox.id)
        command = "echo out; echo begun >> begun; sleep 60"
        run = (lambda: session.exec_stream(command).result()) if stream else (lambda: session.exec(command))
        call = start(run)
        eventually(lambda: other.exists("begun"))
        other.destroy()
        error = call.exception(3 + SLACK)
        assert isinstance(error, SessionTerminatedError)
        assert (error.code, error.exit_code, error.stdout) == ("SANDBOX_RESTARTED", None, "out\n")
        assert session.exec("cat begun 2>/dev/null").stdout in ("", "begun\n")
