"""T1 to T8: what a timeout ends, when, and what stays."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, InvalidRequestError
from sandboxsync.transports.base import Capability, Transport

from ._tools import (
    eventually,
    file_exists,
    has_process,
    long_sleep,
    recorded,
    requires,
    run_program,
    running,
    start,
    stays,
    unique,
    within,
)

STUCK = {
    "sleep": "sleep 60",
    "pipe": "sleep 60 | cat",
    "subshell": "(sleep 60; true); true",
    "wait": "sleep 60 & wait",
    "loop": "while :; do :; done",
    "loop of commands": "while true; do sleep 0.01; done",
    "loop in a function": "f() { while :; do n=$((n + 1)); done; }; f",
    "loop of output": "while :; do echo noise; done >/dev/null",
    "substitution": 'x=$(sleep 60); echo "$x"',
    "fifo": "mkfifo fifo; read x < fifo",
    "arithmetic": "for ((i = 0; ; i++)); do :; done",
}
IGNORANT = {
    "loop": "trap '' TERM INT HUP; while :; do sleep 0.05; done",
    "child": "sh -c 'trap \"\" TERM INT HUP; while :; do sleep 0.05; done'",
    "builtins": "trap '' TERM INT HUP QUIT USR1 USR2; while :; do :; done",
    "handlers": "trap : TERM INT HUP QUIT USR1 USR2; while :; do :; done",
}
LEFT = (
    "mkdir d; cd d; export A=1; B='x y'; C=(p 'q r'); declare -A D=([k]=v); f() { echo f$A; };"
    " alias g='echo g'; set -f; shopt -s nullglob; umask 027; set -- a 'b c';"
    " trap 'true usr' USR1; trap 'true exit' EXIT"
)
LOOK = (
    'f; g; echo "${PWD##*/} $A $B ${C[1]} ${D[k]}" *; umask; echo "$#$2"; env | grep "^[AB]=";'
    " shopt -q nullglob; echo $?; trap -p USR1 EXIT"
)
SEEN = "f1\ng\nd 1 x y q r v *\n0027\n2b c\nA=1\n0\ntrap -- 'true exit' EXIT\ntrap -- 'true usr' SIGUSR1\n"
BAD_TIMEOUTS: list[Any] = [0, 0.0, -1, -0.5, math.nan, -math.inf, True, False, "1", b"1", [1], 1j]


def stopped(session: Session, command: str, timeout: float = 0.4, grace: float = 1.0) -> CommandTimeoutError:
    """Run a command into its timeout and return the error, which came in time."""
    with within(timeout + grace), pytest.raises(CommandTimeoutError) as caught:
        session.exec(command, timeout=timeout)
    assert caught.value.timeout == timeout
    return caught.value


class TimeoutRules:
    """Rules T1 to T8."""

    @pytest.mark.parametrize("kind", STUCK)
    def test_T1_a_timeout_bounds_the_call(self, session: Session, kind: str) -> None:
        """It raises within a second more, whatever the command is stuck in, and the session goes on."""
        assert stopped(session, STUCK[kind]).started
        assert session.exec("echo ok").stdout == "ok\n"

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize("kind", IGNORANT)
    def test_T1_a_command_that_ignores_signals_ends_too(self, session: Session, kind: str) -> None:
        """Within three seconds more."""
        stopped(session, IGNORANT[kind], grace=3.0)
        assert session.exec("echo ok").stdout == "ok\n"

    def test_T1_streams_are_bounded_too(self, session: Session) -> None:
        """Reading an `exec_stream` raises when the time is over, after the output so far."""
        events: list[object] = []
        with within(1.4), pytest.raises(CommandTimeoutError) as caught:
            with session.exec_stream("echo a; sleep 60", timeout=0.4) as stream:
                events.extend(iter(stream))
        assert caught.value.started
        assert session.exec("echo ok").stdout == "ok\n"

    def test_T1_waiting_for_the_session_counts(self, sandbox: Sandbox, session: Session) -> None:
        """A call whose turn never came raises in time, and its command never began."""
        busy = start(lambda: session.exec("touch begun; until test -e go; do sleep 0.02; done; echo done"))
        eventually(lambda: file_exists(sandbox, "begun"))
        attempts: list[Callable[[], object]] = [
            lambda: session.exec("touch ran", timeout=0.3),
            lambda: session.exec_stream("touch ran", timeout=0.3),
        ]
        for attempt in attempts:
            with within(1.3), pytest.raises(CommandTimeoutError) as caught:
                attempt()
            assert not caught.value.started
        sandbox.write_file("go", "")
        assert busy.result(20).stdout == "done\n"
        assert session.exec("test -e ran; echo $?").stdout == "1\n"

    def test_T1_again_and_again(self, session: Session) -> None:
        """Each of several timeouts in a row leaves the session free for the next call."""
        for number in range(5):
            stopped(session, f"echo old; sleep 60; echo {number}", timeout=0.15)
            result = session.exec(f"echo alive {number}")
            assert (result.stdout, result.stderr) == (f"alive {number}\n", "")

    @pytest.mark.parametrize(
        "command",
        [
            "sleep 0.8; touch late",
            "(sleep 0.8; touch late) & wait",
            "(sleep 0.8; touch late) | cat",
            "sh -c 'sleep 0.8; touch late'",
            "f() { sleep 0.8; touch late; }; f",
        ],
    )
    def test_T2_nothing_writes_late(self, sandbox: Sandbox, session: Session, command: str) -> None:
        """What the command would have done later is not done."""
        stopped(session, command, timeout=0.3)
        stays(lambda: not file_exists(sandbox, "late"), 1.0)

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize(
        "command",
        [
            "(setsid sh -c 'sleep 0.8; touch late' &) ; sleep 60",
            "(trap '' TERM HUP; sleep 0.8; touch late) & wait",
            "(trap 'touch late' TERM; sleep 60) & trap '' TERM; sleep 60",
            "nohup sh -c 'sleep 0.8; touch late' >/dev/null 2>&1 & disown -a; sleep 60",
        ],
    )
    def test_T2_nobody_escapes(self, sandbox: Sandbox, session: Session, command: str) -> None:
        """Neither by a session of its own, nor by ignoring signals; TERM may be answered before the call returns."""
        stopped(session, command, timeout=0.3, grace=3.0)
        session.exec("rm -f late")
        stays(lambda: not file_exists(sandbox, "late"), 1.0)

    @requires(Capability.OS_PROCESSES)
    def test_T2_the_tree_is_gone_when_the_call_raises(self, sandbox: Sandbox, session: Session) -> None:
        """Children, orphans, `setsid` children and those that ignore TERM; no zombie is left either."""
        jobs = [long_sleep() for _ in range(5)]
        command = (
            f"{jobs[0]} & echo $!; setsid {jobs[1]} & (setsid {jobs[2]} &); (trap '' TERM HUP INT; exec {jobs[3]}) &"
            f" echo $!; env -i setsid sh -c '{jobs[4]} & wait' & wait"
        )
        call = start(lambda: stopped(session, command, timeout=1.0, grace=3.0))
        eventually(lambda: len(running(sandbox, *jobs)) == 5, 1)
        error = call.result(20)
        assert running(sandbox, *jobs) == []
        for pid in error.stdout.split():
            eventually(lambda pid=pid: not has_process(sandbox, pid), 2)  # type: ignore[misc]

    @requires(Capability.OS_PROCESSES)
    def test_T2_term_comes_before_kill(self, session: Session) -> None:
        """A process that handles TERM has the time to do so, and its output is part of the error."""
        command = "sh -c 'trap \"echo bye; touch bye; exit\" TERM; echo up; while :; do sleep 0.05; done'"
        error = stopped(session, command, timeout=0.6, grace=3.0)
        assert error.stdout == "up\nbye\n"
        assert session.exists("bye")

    @requires(Capability.OS_PROCESSES)
    def test_T2_jobs_of_earlier_commands_live_on(self, sandbox: Sandbox, session: Session) -> None:
        """Only what this command started is ended."""
        job, own = long_sleep(), long_sleep()
        session.exec(f"{job} &")
        process = session.start_process("sleep 60")
        with sandbox.session() as other:
            other.exec("V=1")
            stopped(session, f"{own} & sleep 60")
            assert running(sandbox, job, own) == [job]
            assert process.refresh().status == "running"
            assert other.exec("echo $V").stdout == "1\n"

    @requires(Capability.OS_PROCESSES)
    def test_T2_no_zombie_stays_in_the_callers_process(self, transport_source: str) -> None:
        """Fifty stopped commands leave the caller no child and no descriptor more."""
        report = run_program("stop_commands", transport_source, "50")
        assert report == {"children": 0, "descriptors": 0}

    @pytest.mark.parametrize("command", ["sleep 60", "while :; do :; done", "trap '' TERM; (sleep 60); sleep 60"])
    def test_T3_the_session_lives_on_with_its_state(self, session: Session, command: str) -> None:
        """All that earlier commands left is there, whether or not the shell had to be replaced."""
        assert session.exec(LEFT).exit_code == 0
        assert session.exec(LOOK).stdout == SEEN
        for _ in range(2):
            stopped(session, command, timeout=0.3, grace=3.0)
            assert session.exec("echo $?").stdout.strip().isdecimal()
            assert session.exec(LOOK).stdout == SEEN

    def test_T3_changes_of_the_stopped_command_are_whole_or_gone(self, session: Session) -> None:
        """What it had changed itself may remain or not; the rest does."""
        session.exec("A=1; B=1")
        stopped(session, "A=2; while :; do :; done")
        assert session.exec('echo "$A $B"').stdout in ("1 1\n", "2 1\n")

    @pytest.mark.parametrize("call", ["exec", "exec_stream"])
    def test_T4_the_error_carries_the_output_so_far(self, session: Session, call: str) -> None:
        """Both streams, in bytes and text, with the command and the limit."""
        command = "echo out; printf 'err\\xff' >&2; sleep 60"
        with pytest.raises(CommandTimeoutError) as caught:
            if call == "exec":
                session.exec(command, timeout=0.5)
            else:
                session.exec_stream(command, timeout=0.5).result()
        error = caught.value
        assert isinstance(error, TimeoutError)
        assert (error.stdout, error.stdout_bytes) == ("out\n", b"out\n")
        assert (error.stderr, error.stderr_bytes) == ("err\ufffd", b"err\xff")
        assert (error.command, error.timeout, error.started) == (command, 0.5, True)

    def test_T4_the_inner_limit_wins(self, transport: Transport) -> None:
        """Per call beats session beats sandbox, and `None` means none on each layer."""
        with Sandbox(transport, command_timeout=0.4) as sandbox:
            sandbox.create_session("long", command_timeout=20)
            sandbox.create_session("free", command_timeout=None)
            sandbox.create_session("short", command_timeout=0.2)
            sandbox.create_session("plain")
            for session_id, limit in (("plain", 0.4), ("short", 0.2), ("default", 0.4)):
                with within(limit + 1), pytest.raises(CommandTimeoutError) as caught:
                    sandbox.exec("sleep 60", session_id=session_id)
                assert caught.value.timeout == limit
                assert sandbox.exec("sleep 0.8", session_id=session_id, timeout=20).success
                assert sandbox.exec("sleep 0.8", session_id=session_id, timeout=None).success
            for session_id in ("long", "free"):
                assert sandbox.exec("sleep 0.8", session_id=session_id).success
                stopped(sandbox.get_session(session_id), "sleep 60", timeout=0.2)

    def test_T4_the_sessions_limit_is_kept_with_the_session(self, sandbox: Sandbox) -> None:
        """Another object that finds the session by its id has the same limit."""
        sandbox.create_session("s", command_timeout=0.3)
        other = Sandbox(sandbox.transport, id=sandbox.id, command_timeout=20)
        with pytest.raises(CommandTimeoutError):
            other.exec("sleep 60", session_id="s")
        plain = Sandbox(sandbox.transport, id=sandbox.id, command_timeout=0.3, enable_default_session=False)
        with pytest.raises(CommandTimeoutError):
            plain.exec("sleep 60")

    def test_T5_a_quiet_command_is_not_ended(self, transport: Transport) -> None:
        """Without a limit nothing else stops a command that prints nothing."""
        for limit in (None, math.inf):
            with Sandbox(transport, command_timeout=limit) as sandbox:
                result = sandbox.exec("sleep 1.5; echo done", timeout=limit)
                assert (result.stdout, result.exit_code) == ("done\n", 0)
                assert result.duration > 1.4

    def test_T6_an_interrupt_ends_the_command(self, sandbox: Sandbox, session: Session) -> None:
        """`KeyboardInterrupt` reaches the caller when the command has ended on the far side."""

        def interrupt(stream: str, text: str) -> None:
            raise KeyboardInterrupt

        session.exec("V=kept")
        with within(3), pytest.raises(KeyboardInterrupt):
            session.exec("echo up; sleep 0.8; touch late", on_output=interrupt)
        assert session.exec("echo $V").stdout == "kept\n"
        stays(lambda: not file_exists(sandbox, "late"), 1.0)

    def test_T6_control_c_ends_the_command(self, transport_source: str) -> None:
        """So it is when the signal comes while `exec`, or a stream, waits; the session goes on."""
        report = run_program("interrupt", transport_source, unique("mark"))
        assert report == {"exec": "kept", "exec_stream": "kept", "result": "kept", "late": False}

    def test_T6_leaving_a_stream_ends_the_command(self, sandbox: Sandbox, session: Session) -> None:
        """Leaving the block, `close` and `kill` each stop the command before they return."""
        command = "echo up; sleep 0.8; touch late"
        with within(2), session.exec_stream(command):
            pass
        with within(2), session.exec_stream(command) as stream:
            next(stream)
        with within(2), pytest.raises(LookupError), session.exec_stream(command):
            raise LookupError
        for name in ("close", "kill"):
            with session.exec_stream(command) as stream:
                next(stream)
                with within(2):
                    start(getattr(stream, name)).result(20)
        assert session.exec("echo ok").stdout == "ok\n"
        stays(lambda: not file_exists(sandbox, "late"), 1.0)

    @pytest.mark.parametrize("timeout", BAD_TIMEOUTS, ids=repr)
    def test_T7_what_is_no_time_is_refused_before_any_io(self, transport: Transport, timeout: Any) -> None:
        """Zero, negatives, NaN, a `bool` or no number: `InvalidRequestError` wherever a limit is given."""
        watched, calls = recorded(transport)
        with pytest.raises(InvalidRequestError):
            Sandbox(watched, command_timeout=timeout)
        with Sandbox(watched) as sandbox:
            session = sandbox.get_session("s")
            attempts: list[Callable[[], object]] = [
                lambda: sandbox.exec("true", timeout=timeout),
                lambda: session.exec("true", timeout=timeout),
                lambda: session.exec_stream("true", timeout=timeout),
                lambda: session.start_process("true", timeout=timeout),
                lambda: session.git_checkout("https://git.invalid/x.git", timeout=timeout),
                lambda: sandbox.create_session(command_timeout=timeout),
                lambda: sandbox.ping(timeout=timeout),
            ]
            for attempt in attempts:
                with pytest.raises(InvalidRequestError):
                    attempt()
            assert calls == []

    def test_T7_infinity_is_no_limit(self, session: Session) -> None:
        """`math.inf` and large numbers are taken, by every kind of call."""
        for limit in (math.inf, 1e10, 10**12):
            assert session.exec("echo ok", timeout=limit).stdout == "ok\n"
            assert session.start_process("true", timeout=limit).wait_for_exit(timeout=limit) == 0

    def test_T8_a_timeout_acts_though_nobody_reads(self, sandbox: Sandbox, session: Session) -> None:
        """A stream that is left alone is stopped in time."""
        with session.exec_stream("echo up; sleep 0.8; touch late", timeout=0.3) as stream:
            stays(lambda: not file_exists(sandbox, "late"), 1.5)
            with pytest.raises(CommandTimeoutError) as caught:
                stream.result()
        assert caught.value.stdout == "up\n"
        with session.exec_stream("while :; do echo noise; done", timeout=0.3) as stream:
            # More than is kept for a reader: the command is made to wait, which must not stop the clock.
            eventually(lambda: start(lambda: session.exec("true", timeout=5)).result(20).success)
            with pytest.raises(CommandTimeoutError):
                list(stream)

    def test_T8_a_process_that_takes_too_long_is_killed(self, sandbox: Sandbox) -> None:
        """Its status is `killed`, its exit code 124, and what it would have done later is not done."""
        process = sandbox.start_process("echo up; sleep 0.8; touch late", timeout=0.3)
        with within(2):
            assert process.wait_for_exit() == 124
        assert (process.status, process.exit_code, process.logs().stdout) == ("killed", 124, "up\n")
        stays(lambda: not sandbox.exists("late"), 1.0)
        quick = sandbox.start_process("echo up", timeout=20)
        assert (quick.wait_for_exit(20), quick.status) == (0, "completed")
