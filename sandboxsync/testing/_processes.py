"""P1 to P4: background processes, their ends and their names."""

from __future__ import annotations

import signal
from datetime import datetime, timezone

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import (
    InvalidRequestError,
    ProcessNotFoundError,
    ProcessTimeoutError,
    SandboxFileNotFoundError,
)
from sandboxsync.transports.base import Capability, Transport

from ._sessions import BAD_IDS
from ._tools import eventually, in_threads, long_sleep, recorded, requires, running, stays, within


class ProcessRules:
    """Rules P1 to P4."""

    def test_P1_a_process_outlives_its_call(self, sandbox: Sandbox, session: Session) -> None:
        """It is running when `start_process` returns, and every session sees it at once."""
        with within(1):
            process = session.start_process("echo up; sleep 60", process_id="web")
        with sandbox.session() as other:
            for viewer in (session, other, sandbox, Sandbox(sandbox.transport, id=sandbox.id)):
                seen = viewer.get_process("web")
                assert seen is not None
                assert (seen.id, seen.pid, seen.command) == ("web", process.pid, "echo up; sleep 60")
                assert (seen.status, seen.exit_code, seen.end_time) == ("running", None, None)
                assert seen.session_id == session.id
                assert [found.id for found in viewer.list_processes()] == ["web"]
        process.kill()

    def test_P1_logs_are_kept_after_the_end(self, sandbox: Sandbox) -> None:
        """Output and exit code are there for everybody until they are forgotten."""
        with sandbox.session() as session:
            process = session.start_process("echo out; echo err >&2; printf é; exit 3", process_id="p")
            assert process.wait_for_exit(20) == 3
        for _ in range(2):
            logs = sandbox.get_process_logs("p")
            assert (logs.stdout, logs.stderr, logs.process_id) == ("out\né", "err\n", "p")
        seen = sandbox.get_process("p")
        assert seen is not None
        assert (seen.status, seen.exit_code) == ("failed", 3)
        assert seen.end_time is not None
        assert seen.start_time <= seen.end_time <= datetime.now(timezone.utc)
        assert sandbox.cleanup_completed_processes() == 1
        assert sandbox.get_process("p") is None
        for call in (process.refresh, process.logs, process.kill, process.wait_for_exit):
            with pytest.raises(ProcessNotFoundError):
                call()

    def test_P1_processes_are_listed_oldest_first(self, sandbox: Sandbox) -> None:
        """Ended ones too; cleaning up forgets those and leaves the others alone."""
        names = ["c", "a", "b"]
        for name in names:
            sandbox.start_process("sleep 60" if name == "a" else "true", process_id=name)
        for name in ("c", "b"):
            process = sandbox.get_process(name)
            assert process is not None
            process.wait_for_exit(20)
        assert [process.id for process in sandbox.list_processes()] == names
        assert sandbox.cleanup_completed_processes() == 2
        assert [process.id for process in sandbox.list_processes()] == ["a"]
        assert sandbox.kill_all_processes() == 1
        assert sandbox.kill_all_processes() == 0

    def test_P1_a_process_is_separate_from_its_session(self, session: Session) -> None:
        """It starts with the session's env and cwd, reads no input, and what it does to its shell stays there."""
        session.exec("mkdir d; cd d; export A=1; B=plain; f() { :; }")
        process = session.start_process("pwd | grep -c '/d$'; echo $A$B; cat; cd /; A=2; exit 4")
        assert process.wait_for_exit(20) == 4
        assert process.logs().stdout == "1\n1\n"
        assert session.exec('echo $A; echo "${PWD##*/}"').stdout == "1\nd\n"

    def test_P1_auto_cleanup_forgets(self, sandbox: Sandbox) -> None:
        """A process started so is gone from the list once it has ended."""
        process = sandbox.start_process("sleep 0.2", auto_cleanup=True)
        assert sandbox.get_process(process.id) is not None
        eventually(lambda: sandbox.list_processes() == [])

    def test_P2_the_end_and_the_logs_come_together(self, sandbox: Sandbox) -> None:
        """When `wait_for_exit` returns, exit code and all output are there, fast or slow, many at once."""
        numbers = "".join(f"{number}\n" for number in range(1, 2001))

        def run(number: int) -> None:
            for round_ in range(4):
                process = sandbox.start_process(f"seq 2000; seq 2000 >&2; exit {number}")
                assert int(process.pid or 0) > 0
                assert process.wait_for_exit(20) == number
                logs = process.logs()
                assert (logs.stdout, logs.stderr) == (numbers, numbers), round_
                assert process.status == ("failed" if number else "completed")

        in_threads(6, run)

    @pytest.mark.parametrize(
        ("command", "exit_code", "status"),
        [
            ("true", 0, "completed"),
            ("exit 5", 5, "failed"),
            ("exit 5 || true", 5, "failed"),
            ("no-such-program-x", 127, "failed"),
            ("exec sh -c 'exit 6'", 6, "failed"),
            ("set -e; false; true", 1, "failed"),
            ("if then", 2, "failed"),
            ("echo 'unclosed", 2, "failed"),
            ("# nothing", 0, "completed"),
            ("false; sleep 0 &", 0, "completed"),
        ],
    )
    def test_P2_exit_codes_are_the_shells(self, sandbox: Sandbox, command: str, exit_code: int, status: str) -> None:
        """Whatever way the command ends, and asking again gives the same."""
        process = sandbox.start_process(command)
        for _ in range(2):
            assert process.wait_for_exit(20) == exit_code
            assert (process.exit_code, process.status) == (exit_code, status)

    def test_P2_waiting_has_a_limit_of_its_own(self, sandbox: Sandbox) -> None:
        """`wait_for_exit` raises after its timeout, and the process runs on."""
        process = sandbox.start_process("sleep 60")
        for timeout in (0, 0.2):
            with within(timeout), pytest.raises(ProcessTimeoutError) as caught:
                process.wait_for_exit(timeout)
            assert isinstance(caught.value, TimeoutError)
        assert process.refresh().status == "running"
        process.kill()
        assert process.wait_for_exit(0) == 143

    def test_P3_kill_ends_the_process(self, sandbox: Sandbox) -> None:
        """Its status is `killed`, its exit code 128 + the signal, and its output stays."""
        for name, number in (("SIGTERM", 15), ("SIGKILL", 9), (signal.SIGINT, 2)):
            process = sandbox.start_process("echo up; sleep 60; echo late")
            assert process.wait_for_log("up", timeout=20).line == "up"
            with within(2.5):
                process.kill(name)
            assert (process.status, process.exit_code) == ("killed", 128 + number)
            assert process.wait_for_exit(0) == 128 + number
            assert process.logs().stdout == "up\n"

    def test_P3_killing_twice_does_nothing(self, sandbox: Sandbox) -> None:
        """Nor does killing a process that ended by itself; an unknown one raises."""
        process = sandbox.start_process("exit 7", process_id="p")
        process.wait_for_exit(20)
        for signal_ in ("SIGTERM", "SIGKILL", signal.SIGUSR1):
            process.kill(signal_)
            sandbox.kill_process("p", signal_)
        assert (process.status, process.exit_code) == ("failed", 7)
        with pytest.raises(ProcessNotFoundError):
            sandbox.kill_process("unknown")
        with pytest.raises(ProcessNotFoundError):
            sandbox.get_process_logs("unknown")
        assert sandbox.get_process("unknown") is None

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize("name", ["SIGTERM", "SIGKILL"])
    def test_P3_kill_ends_the_whole_tree(self, sandbox: Sandbox, name: str) -> None:
        """Children, orphans, `setsid` children and those that ignore TERM are gone when it returns."""
        jobs = [long_sleep() for _ in range(4)]
        process = sandbox.start_process(
            f"{jobs[0]} & (setsid {jobs[1]} &); (trap '' TERM; exec {jobs[2]}) & bash -c '{jobs[3]} & wait'; wait"
        )
        eventually(lambda: len(running(sandbox, *jobs)) == 4)
        with within(3):
            process.kill(name)
        assert running(sandbox, *jobs) == []
        assert process.status == "killed"

    @requires(Capability.OS_PROCESSES)
    def test_P3_term_is_answered_before_kill(self, sandbox: Sandbox) -> None:
        """A handler of TERM has the time to run; who ignores TERM is killed after 2 s."""
        polite = sandbox.start_process("trap 'echo bye; exit' TERM; echo up; while :; do sleep 0.05; done")
        deaf = sandbox.start_process("trap '' TERM; echo up; while :; do sleep 0.05; done")
        for process in (polite, deaf):
            process.wait_for_log("up", timeout=20)
        with within(3):
            assert sandbox.kill_all_processes() == 2
        assert polite.logs().stdout == "up\nbye\n"
        assert (deaf.refresh().status, deaf.exit_code) == ("killed", 137)

    @requires(Capability.OS_PROCESSES)
    def test_P3_other_signals_are_only_sent(self, sandbox: Sandbox) -> None:
        """The process may handle them and live on."""
        process = sandbox.start_process("trap 'echo got' USR1; echo up; while :; do sleep 0.05; done")
        process.wait_for_log("up", timeout=20)
        process.kill(signal.SIGUSR1)
        assert process.wait_for_log("got", timeout=20).line == "got"
        assert process.status == "running"
        process.kill()

    @requires(Capability.OS_PROCESSES)
    def test_P3_killed_from_inside_is_killed(self, sandbox: Sandbox) -> None:
        """A signal from elsewhere is no success: 128 + its number; `pid` is the one that commands see."""
        process = sandbox.start_process("exec sleep 60")
        assert sandbox.exec(f"kill -9 {process.pid}").exit_code == 0
        assert process.wait_for_exit(20) == 137
        assert process.status == "killed"

    @pytest.mark.parametrize("name", ["SIGNOPE", "", 0, -1, 999, None, 1.5], ids=repr)
    def test_P3_what_is_no_signal_is_refused_before_any_io(self, transport: Transport, name: str) -> None:
        """`InvalidRequestError`."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            with pytest.raises(InvalidRequestError):
                sandbox.kill_process("p", name)
            assert calls == []

    def test_P4_the_id_of_a_running_process_is_taken(self, sandbox: Sandbox) -> None:
        """Another cannot have it before that has ended."""
        first = sandbox.start_process("echo one; sleep 60", process_id="p")
        with sandbox.session() as other, pytest.raises(InvalidRequestError):
            other.start_process("touch ran", process_id="p")
        first.wait_for_log("one", timeout=20)
        first.kill()
        second = sandbox.start_process("echo two", process_id="p")
        assert second.wait_for_exit(20) == 0
        assert sandbox.get_process_logs("p").stdout == "two\n"
        assert [process.id for process in sandbox.list_processes()] == ["p"]
        assert not sandbox.exists("ran")

    @pytest.mark.parametrize("process_id", BAD_IDS)
    def test_P4_other_ids_are_refused_before_any_io(self, transport: Transport, process_id: str) -> None:
        """Process ids have the form of session ids."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            for attempt in (
                lambda: sandbox.start_process("true", process_id=process_id),
                lambda: sandbox.get_process(process_id),
                lambda: sandbox.kill_process(process_id),
                lambda: sandbox.get_process_logs(process_id),
                lambda: sandbox.stream_process_logs(process_id),
            ):
                with pytest.raises(InvalidRequestError):
                    attempt()
            assert calls == []

    @pytest.mark.parametrize("process_id", [".", "-", "--help", "-9", "a" * 128])
    def test_P4_odd_ids_are_harmless(self, sandbox: Sandbox, process_id: str) -> None:
        """Any id of that form is a process like another."""
        process = sandbox.start_process("echo up; sleep 60", process_id=process_id)
        assert process.wait_for_log("up", timeout=20).line == "up"
        sandbox.kill_process(process_id)
        assert process.refresh().status == "killed"

    def test_P4_a_failed_start_leaves_nothing(self, sandbox: Sandbox) -> None:
        """A process that could not be started is not listed, and its id is free."""
        with pytest.raises(SandboxFileNotFoundError):
            sandbox.start_process("touch ran", process_id="p", cwd="no/such")
        assert sandbox.list_processes() == []
        stays(lambda: not sandbox.exists("ran"), 0.1)
        assert sandbox.start_process("true", process_id="p").wait_for_exit(20) == 0
