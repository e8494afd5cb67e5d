"""S1 to S8: what a session keeps, what it shares, how it comes and goes."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError, SessionNotFoundError, SessionTerminatedError
from sandboxsync.transports.base import Capability, Transport

from ._tools import eventually, file_exists, in_threads, long_sleep, recorded, requires, running, stays, within

STATE = {
    "directory": ("mkdir dir; cd dir", 'echo "${PWD##*/}"; pwd | grep -c "/dir$"', "dir\n1\n"),
    "export": ("export A='1  2'", "env | grep '^A='", "A=1  2\n"),
    "variable": ("B='x y'", "echo \"$B\"; env | grep -c '^B='", "x y\n0\n"),
    "array": ("C=(a 'b c')", 'echo "${#C[@]} ${C[1]}"', "2 b c\n"),
    "map": ("declare -A D=([k]='v w')", 'echo "${D[k]}"', "v w\n"),
    "function": ('greet() { echo "hi $1"; }', "greet you", "hi you\n"),
    "alias": ("alias greet='echo hi'", "greet you", "hi you\n"),
    "option": ("set -o noglob", "echo /*", "/*\n"),
    "pipefail": ("set -o pipefail", "false | true; echo $?", "1\n"),
    "shopt": ("shopt -s nullglob", "echo a no-such-file-*", "a\n"),
    "umask": ("umask 027", "umask", "0027\n"),
    "status": ("(exit 7)", "echo $?", "7\n"),
    "positional parameters": ("set -- a 'b c'", 'echo "$# $2"', "2 b c\n"),
    "exit trap": ("trap 'true exit' EXIT", "trap -p EXIT", "trap -- 'true exit' EXIT\n"),
    "signal trap": ("trap 'true usr' USR1", "trap -p USR1", "trap -- 'true usr' SIGUSR1\n"),
}

BAD_IDS = ["", "a" * 129, "a b", "a/b", "..", "a..b", "é", "a\n", "a\0", "__DISABLE_SESSION__"]


class SessionRules:
    """Rules S1 to S8."""

    @pytest.mark.parametrize("kind", STATE)
    def test_S1_state_stays_in_its_session(self, sandbox: Sandbox, session: Session, kind: str) -> None:
        """What one command leaves is there in the next of the session and in no other session."""
        leave, look, expected = STATE[kind]
        with sandbox.session() as other:
            other.exec("true")
            left = session.exec(leave)
            assert (left.stdout, left.stderr) == ("", "")
            assert session.exec(look).stdout == expected
            for stranger in (other, sandbox):
                assert stranger.exec(look).stdout != expected

    def test_S1_state_of_one_command_all_at_once(self, session: Session) -> None:
        """Directory, variables, function, option and parameters left by one command are there in the next."""
        session.exec('mkdir d; cd d; export A=1; B=2; f() { echo "f$A$B"; }; set -f; set -- p')
        result = session.exec('f; echo "$1" *; echo "${PWD##*/}"')
        assert result.stdout == "f12\np *\nd\n"

    def test_S1_an_exit_trap_runs_when_the_shell_ends(self, sandbox: Sandbox, session: Session) -> None:
        """An EXIT trap waits for the end of the shell, not for that of the command which set it."""
        session.exec("trap 'echo bye > bye.txt' EXIT")
        assert not file_exists(sandbox, "bye.txt")
        with pytest.raises(SessionTerminatedError):
            session.exec("exit 3")
        assert sandbox.read_text("bye.txt") == "bye\n"

    @requires(Capability.OS_PROCESSES)
    def test_S1_a_signal_trap_runs_in_later_commands(self, session: Session) -> None:
        """A trap for a signal is alive in the next command, and its output belongs to that command."""
        session.exec("trap 'echo got' USR1")
        assert session.exec("kill -USR1 $$; echo after").stdout == "got\nafter\n"

    @pytest.mark.parametrize(
        ("trap", "inside"),
        [
            ("trap 'echo TRAP' DEBUG\necho a", "TRAP\na\n"),
            ("trap 'echo TRAP' ERR; false; echo a", "TRAP\na\n"),
            ("trap 'echo TRAP' RETURN; . ./script", "script\nTRAP\n"),
            ("set -T; f() { trap 'echo TRAP' RETURN; }; f", "TRAP\n"),
        ],
        ids=["DEBUG", "ERR", "RETURN", "RETURN in a function"],
    )
    def test_S1_debug_err_and_return_traps_end_with_their_command(
        self, session: Session, trap: str, inside: str
    ) -> None:
        """They work inside the command that set them; later ones never see them."""
        session.write_file("script", "echo script\n")
        assert session.exec(trap).stdout == inside
        result = session.exec("false; . ./script; f() { :; }; f; echo ok")
        assert (result.stdout, result.stderr) == ("script\nok\n", "")

    def test_S1_trace_options_show_only_the_users_lines(self, session: Session) -> None:
        """`set -x` and `set -v` print the commands of the user, none of ours."""
        assert session.exec("set -x").stderr == ""
        traced = session.exec("echo a")
        assert traced.stdout == "a\n"
        assert traced.stderr.lstrip("+") == " echo a\n"
        assert session.exec("set +x; set -v").stderr.lstrip("+") == " set +x\n"
        assert session.exec("echo b").stderr in ("", "echo b\n")
        session.exec("set +v")
        assert session.exec("echo c").stderr == ""

    def test_S2_sessions_share_files(self, sandbox: Sandbox, session: Session) -> None:
        """What one session writes, by command or by file call, another reads either way."""
        with sandbox.session() as other:
            session.exec("echo one > one.txt")
            session.write_file("two.txt", "two\n")
            assert other.read_text("one.txt") == "one\n"
            assert other.exec("cat two.txt").stdout == "two\n"

    def test_S2_every_session_lists_all_processes(self, sandbox: Sandbox, session: Session) -> None:
        """`list_processes` shows what other sessions started."""
        process = session.start_process("sleep 30", process_id="web")
        with sandbox.session() as other:
            for viewer in (other, session, sandbox):
                assert [found.id for found in viewer.list_processes()] == ["web"]
            other.kill_process("web")
        assert process.refresh().status == "killed"

    def test_S3_the_default_session_keeps_state(self, sandbox: Sandbox) -> None:
        """Calls without a session id share the default session."""
        sandbox.exec("mkdir app; cd app; export V=hello")
        result = sandbox.exec('echo "$V ${PWD##*/}"')
        assert (result.stdout, result.session_id) == ("hello app\n", "default")
        assert sandbox.list_sessions() == ["default"]

    def test_S3_without_a_default_session_nothing_is_kept(self, transport: Transport) -> None:
        """With `enable_default_session=False` each command starts anew, and `exit` is an exit code."""
        with Sandbox(transport, enable_default_session=False) as sandbox:
            sandbox.exec("mkdir app; cd app; export V=hello; W=x")
            result = sandbox.exec('pwd; echo "[$V$W]"')
            assert (result.stdout, result.session_id) == (f"{sandbox.workspace}\n[]\n", None)
            assert sandbox.exec("exit 3").exit_code == 3
            sandbox.exec("cd app")
            assert sandbox.write_file("here", "x").path == f"{sandbox.workspace}/here"
            assert sandbox.list_sessions() == []

    def test_S3_commands_without_a_session_run_in_parallel(self, transport: Transport) -> None:
        """Each of two commands waits for what the other does."""
        with Sandbox(transport, enable_default_session=False) as sandbox:
            script = 'touch "seen$ME"; until test -e "seen$OTHER"; do sleep 0.02; done; echo "$ME"'
            results = in_threads(2, lambda i: sandbox.exec(script, env={"ME": str(i), "OTHER": str(1 - i)}, timeout=20))
            assert [result.stdout for result in results] == ["0\n", "1\n"]

    def test_S3_jobs_of_commands_without_a_session_live_on(self, transport: Transport) -> None:
        """What such a command started with `&` outlives it."""
        with Sandbox(transport, enable_default_session=False) as sandbox:
            with within(2):
                sandbox.exec("(sleep 0.3; echo late > late.txt) &")
            eventually(lambda: sandbox.exists("late.txt"))

    @requires(Capability.OS_PROCESSES)
    def test_S3_jobs_of_commands_without_a_session_end_with_the_sandbox(self, transport: Transport) -> None:
        """They end when the sandbox is destroyed."""
        job = long_sleep()
        with Sandbox(transport, enable_default_session=False) as sandbox:
            sandbox.exec(f"{job} & setsid {job} &")
            assert eventually(lambda: running(sandbox, job))
        with Sandbox(transport) as later:
            eventually(lambda: not running(later, job), 2)

    def test_S4_a_session_id_makes_its_session(self, sandbox: Sandbox) -> None:
        """An unknown id is a new session: in the workspace, with no session's env."""
        with sandbox.session(env={"V": "other"}, cwd="/"):
            result = sandbox.exec('pwd; echo "[$V]"', session_id="new")
            assert (result.stdout, result.session_id) == (f"{sandbox.workspace}\n[]\n", "new")
            assert "new" in sandbox.list_sessions()
            got = sandbox.get_session("newer")
            assert "newer" not in sandbox.list_sessions()
            assert got.exec('pwd; echo "[$V]"').stdout == f"{sandbox.workspace}\n[]\n"
            assert "newer" in sandbox.list_sessions()

    def test_S5_a_deleted_id_is_new_again(self, sandbox: Sandbox) -> None:
        """After its deletion a session's id works again, without the old env, cwd and time limit."""
        temp = sandbox.create_session("temp", env={"V": "value"}, cwd="/", command_timeout=0.5)
        temp.exec("W=left")
        assert sandbox.delete_session("temp").session_id == "temp"
        result = sandbox.exec('echo "[$V$W]"; pwd; sleep 0.8', session_id="temp")
        assert (result.stdout, result.exit_code) == (f"[]\n{sandbox.workspace}\n", 0)

    @pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt, GeneratorExit])
    def test_S6_a_block_ends_its_session(self, sandbox: Sandbox, error: type[BaseException] | None) -> None:
        """The session is gone after the block, however that ended, and the block's exception comes out."""
        for make in (sandbox.session, sandbox.create_session):
            seen: BaseException | None = None
            try:
                with make("mine") as session:
                    session.exec("true")
                    if error is not None:
                        raise error()
            except BaseException as caught:
                seen = caught
            assert type(seen) is (error or type(None))
            assert "mine" not in sandbox.list_sessions()

    def test_S6_a_closed_generator_ends_its_session(self, sandbox: Sandbox) -> None:
        """A generator that is closed inside the block deletes the session."""

        def lines() -> Generator[str, None, None]:
            with sandbox.session("mine") as session:
                yield session.exec("echo a").stdout
                yield session.exec("echo b").stdout

        generator = lines()
        assert next(generator) == "a\n"
        assert sandbox.list_sessions() == ["mine"]
        generator.close()
        assert sandbox.list_sessions() == []

    def test_S6_a_block_leaves_what_it_did_not_make(self, sandbox: Sandbox) -> None:
        """`with` on a session from `get_session` deletes nothing; a session gone early is no error."""
        sandbox.create_session("kept")
        with sandbox.get_session("kept") as kept:
            kept.exec("V=1")
        assert sandbox.exec("echo $V", session_id="kept").stdout == "1\n"
        with sandbox.session("gone"):
            sandbox.delete_session("gone")
        with pytest.raises(SessionNotFoundError):
            sandbox.delete_session("gone")

    def test_S7_jobs_end_with_their_session(self, sandbox: Sandbox) -> None:
        """A background job of a session is ended with it, before it does anything more."""
        with sandbox.session() as session:
            session.exec("(sleep 0.7; echo late > late.txt) &")
        stays(lambda: not file_exists(sandbox, "late.txt"), 1.2)

    @requires(Capability.OS_PROCESSES)
    def test_S7_whole_trees_of_jobs_end_with_their_session(self, sandbox: Sandbox) -> None:
        """So are its children, those that left the process group and those that ignore signals."""
        jobs = [long_sleep() for _ in range(4)]
        with sandbox.session() as session:
            session.exec(
                f"{jobs[0]} & (setsid {jobs[1]} &) ; sh -c '{jobs[2]} & wait' &"
                f" (trap '' TERM HUP INT; exec {jobs[3]}) & disown -a"
            )
            eventually(lambda: len(running(sandbox, *jobs)) == 4)
        eventually(lambda: not running(sandbox, *jobs), 3)

    def test_S7_processes_outlive_their_session(self, sandbox: Sandbox) -> None:
        """What `start_process` started belongs to the sandbox."""
        with sandbox.session() as session:
            process = session.start_process("sleep 0.5; echo survived")
        assert process.wait_for_exit(timeout=20) == 0
        assert process.logs().stdout == "survived\n"

    @pytest.mark.parametrize("session_id", BAD_IDS)
    def test_S8_other_ids_are_refused_before_any_io(self, transport: Transport, session_id: str) -> None:
        """A bad id is an `InvalidRequestError`, and the transport is not asked."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            for attempt in (
                lambda: sandbox.create_session(session_id),
                lambda: sandbox.get_session(session_id),
                lambda: sandbox.delete_session(session_id),
                lambda: sandbox.exec("true", session_id=session_id),
                lambda: sandbox.read_file("f", session_id=session_id),
            ):
                with pytest.raises(InvalidRequestError):
                    attempt()
            assert calls == []

    @pytest.mark.parametrize("session_id", [".", "-", "--help", "-rf", "_", "A.b_9-", "0", "a" * 128, "NUL"])
    def test_S8_odd_ids_are_harmless(self, sandbox: Sandbox, session_id: str) -> None:
        """Any id of that form is a session like another."""
        sandbox.create_session(session_id, env={"V": "1"})
        assert sandbox.exec("echo $V; pwd", session_id=session_id).stdout == f"1\n{sandbox.workspace}\n"
        assert session_id in sandbox.list_sessions()
        sandbox.delete_session(session_id)
        assert sandbox.list_sessions() == []
