"""T4 to T8: which limit holds, and what else ends a command."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, InvalidRequestError
from sandboxsync.transports.base import Capability, Transport

from ._timeouts import stopped
from ._tools import (
    eventually,
    file_exists,
    in_real_time,
    long_sleep,
    recorded,
    requires,
    run_program,
    running,
    side_by_side,
    start,
    stays,
    unique,
    within,
)

BAD_TIMEOUTS: list[Any] = [0, 0.0, -1, -0.5, math.nan, -math.inf, True, False, "1", b"1", [1], 1j]


class LimitRules:
    """Rules T4 to T8."""

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
        limits: dict[str, float | None] = {"plain": 0.4, "short": 0.2, "default": 0.4, "long": None, "free": None}
        with Sandbox(transport, command_timeout=0.4) as sandbox:
            sandbox.create_session("long", command_timeout=20)
            sandbox.create_session("free", command_timeout=None)
            sandbox.create_session("short", command_timeout=0.2)
            sandbox.create_session("plain")

            def try_one(session_id: str) -> None:
                limit = limits[session_id]
                if limit is None:
                    assert sandbox.exec("sleep 0.8", session_id=session_id).success
                else:
                    with within(limit + 1), pytest.raises(CommandTimeoutError) as caught:
                        sandbox.exec("sleep 60", session_id=session_id)
                    assert caught.value.timeout == limit
                assert sandbox.exec("sleep 0.8", session_id=session_id, timeout=20).success
                assert sandbox.exec("sleep 0.8", session_id=session_id, timeout=None).success
                stopped(sandbox.get_session(session_id), "sleep 60", timeout=0.3)

            side_by_side(limits, try_one)

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
                result = sandbox.exec("sleep 1; echo done", timeout=limit)
                assert (result.stdout, result.exit_code) == ("done\n", 0)
                assert result.duration > 0.9

    @in_real_time
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

    @in_real_time
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
        with session.exec_stream("echo up; sleep 2; touch late", timeout=0.3) as stream:
            stays(lambda: not file_exists(sandbox, "late"), 2.4)
            with pytest.raises(CommandTimeoutError) as caught:
                stream.result()
        assert caught.value.stdout == "up\n"

    @requires(Capability.OS_PROCESSES)
    def test_T8_a_timeout_acts_though_nothing_more_can_be_kept(self, sandbox: Sandbox, session: Session) -> None:
        """A command that prints more than is kept for its reader is made to wait, and stopped in time."""
        job = long_sleep()
        with session.exec_stream(f"{job} & while :; do echo noise; done", timeout=0.6) as stream:
            eventually(lambda: running(sandbox, job))
            eventually(lambda: not running(sandbox, job), 2)
            with pytest.raises(CommandTimeoutError):
                list(stream)
        assert session.exec("echo ok").stdout == "ok\n"

    def test_T8_a_process_that_takes_too_long_is_killed(self, sandbox: Sandbox) -> None:
        """Its status is `killed`, its exit code 124, and what it would have done later is not done."""
        process = sandbox.start_process("echo up; sleep 2; touch late", timeout=0.3)
        with within(2):
            assert process.wait_for_exit() == 124
        assert (process.status, process.exit_code, process.logs().stdout) == ("killed", 124, "up\n")
        stays(lambda: not sandbox.exists("late"), 2.0)
        quick = sandbox.start_process("echo up", timeout=20)
        assert (quick.wait_for_exit(20), quick.status) == (0, "completed")
