"""T1 to T3: what a timeout ends, when, and what stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError
from sandboxsync.transports.base import Capability

from ._tools import (
    eventually,
    file_exists,
    has_process,
    long_sleep,
    requires,
    run_program,
    running,
    side_by_side,
    start,
    stays,
    within,
)

STUCK = [
    "sleep 60",
    "sleep 60 | cat",
    "(sleep 60; true); true",
    "sleep 60 & wait",
    "while :; do :; done",
    "while true; do sleep 0.01; done",
    "f() { while :; do n=$((n + 1)); done; }; f",
    "while :; do echo noise; done >/dev/null",
    'x=$(sleep 60); echo "$x"',
    "for ((i = 0; ; i++)); do :; done",
]
STUCK_ON_THE_SYSTEM = ["mkfifo fifo; read x < fifo"]
IGNORANT = [
    "trap '' TERM INT HUP; while :; do sleep 0.05; done",
    "sh -c 'trap \"\" TERM INT HUP; while :; do sleep 0.05; done'",
    "trap '' TERM INT HUP QUIT USR1 USR2; while :; do :; done",
    "trap : TERM INT HUP QUIT USR1 USR2; while :; do :; done",
]
# Between the end of the time and `touch late` there is more of it than a stop may take.
LATE = [
    "sleep 2; touch late",
    "(sleep 2; touch late) & wait",
    "(sleep 2; touch late) | cat",
    "sh -c 'sleep 2; touch late'",
    "f() { sleep 2; touch late; }; f",
]
ESCAPES = [
    "(setsid sh -c 'sleep 4; touch late' &) ; sleep 60",
    "(trap '' TERM HUP; sleep 4; touch late) & wait",
    "(trap 'touch late' TERM; sleep 60) & trap '' TERM; sleep 60",
    "nohup sh -c 'sleep 4; touch late' >/dev/null 2>&1 & disown -a; sleep 60",
]
LEFT = (
    "mkdir d; cd d; export A=1; B='x y'; C=(p 'q r'); declare -A D=([k]=v); f() { echo f$A; };"
    " alias g='echo g'; set -f; shopt -s nullglob; umask 027; set -- a 'b c';"
    " trap 'true usr' USR1; trap 'true exit' EXIT"
)
LOOK = (
    'f; g; echo "${PWD##*/} $A $B ${C[1]} ${D[k]}" *; umask; echo "$#$2"; env | grep "^[AB]=";'
    " shopt -q nullglob; echo $?; trap -p USR1 EXIT"
)
SEEN = "f1\ng\nd 1 x y q r v *\n0027\n2b c\nA=1\n0\ntrap -- 'true usr' SIGUSR1\ntrap -- 'true exit' EXIT\n"


def stopped(session: Session, command: str, timeout: float = 0.4, grace: float = 1.0) -> CommandTimeoutError:
    """Run a command into its timeout and return the error, which came in time."""
    with within(timeout + grace), pytest.raises(CommandTimeoutError) as caught:
        session.exec(command, timeout=timeout)
    assert caught.value.timeout == timeout
    return caught.value


class TimeoutRules:
    """Rules T1 to T3."""

    def test_T1_a_timeout_bounds_the_call(self, sandbox: Sandbox) -> None:
        """It raises within a second more, whatever the command is stuck in, and the session goes on."""

        def try_one(command: str) -> None:
            with sandbox.session() as session:
                assert stopped(session, command, timeout=0.6).started
                assert session.exec("echo ok").stdout == "ok\n"

        # Not all at once: half of them keep a core busy.
        side_by_side(STUCK[::2], try_one)
        side_by_side(STUCK[1::2], try_one)

    @requires(Capability.OS_PROCESSES)
    def test_T1_a_timeout_bounds_a_wait_for_a_fifo(self, session: Session) -> None:
        """Nor does it matter that the shell itself waits for another process."""
        for command in STUCK_ON_THE_SYSTEM:
            assert stopped(session, command, timeout=0.6).started
            assert session.exec("echo ok").stdout == "ok\n"

    @requires(Capability.OS_PROCESSES)
    def test_T1_a_command_that_ignores_signals_ends_too(self, sandbox: Sandbox) -> None:
        """Within three seconds more."""

        def try_one(command: str) -> None:
            with sandbox.session() as session:
                stopped(session, command, grace=3.0)
                assert session.exec("echo ok").stdout == "ok\n"

        side_by_side(IGNORANT, try_one)

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

    def test_T2_nothing_writes_late(self, sandbox: Sandbox) -> None:
        """What the command would have done later is not done."""

        def try_one(command: str) -> None:
            with sandbox.session() as session:
                session.exec("mkdir $BASHPID; cd $BASHPID")
                stopped(session, command, timeout=0.3)
                stays(lambda: not session.exists("late"), 2.2)

        side_by_side(LATE, try_one)

    @requires(Capability.OS_PROCESSES)
    def test_T2_nobody_escapes(self, sandbox: Sandbox) -> None:
        """Neither by a session of its own, nor by ignoring signals; TERM may be answered before the call returns."""

        def try_one(command: str) -> None:
            with sandbox.session() as session:
                session.exec("mkdir $BASHPID; cd $BASHPID")
                stopped(session, command, timeout=0.3, grace=3.0)
                session.exec("rm -f late")
                stays(lambda: not session.exists("late"), 4.2)

        side_by_side(ESCAPES, try_one)

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
        """Thirty stopped commands leave the caller no child and no descriptor more."""
        report = run_program("stop_commands", transport_source, "30")
        assert report == {"children": 0, "descriptors": 0}

    def test_T3_the_session_lives_on_with_its_state(self, sandbox: Sandbox) -> None:
        """All that earlier commands left is there, whether or not the shell had to be replaced."""

        def try_one(command: str) -> None:
            with sandbox.session() as session:
                session.exec("mkdir $BASHPID; cd $BASHPID")
                assert session.exec(LEFT).exit_code == 0
                assert session.exec(LOOK).stdout == SEEN
                # Once is enough for the one that takes long to stop.
                for _ in range(1 if "trap" in command else 2):
                    stopped(session, command, timeout=0.3, grace=3.0)
                    assert session.exec("echo $?").stdout.strip().isdecimal()
                    assert session.exec(LOOK).stdout == SEEN

        side_by_side(["sleep 60", "while :; do :; done", "trap '' TERM; (sleep 60); sleep 60"], try_one)

    def test_T3_changes_of_the_stopped_command_are_whole_or_gone(self, session: Session) -> None:
        """What it had changed itself may remain or not; the rest does."""
        session.exec("A=1; B=1")
        stopped(session, "A=2; while :; do :; done")
        assert session.exec('echo "$A $B"').stdout in ("1 1\n", "2 1\n")
