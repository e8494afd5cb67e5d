"""The clock of the fake: real time, and jumps over sleep."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import partial

import pytest

from sandboxsync import CommandTimeoutError, FakeClock, FakeTransport, InvalidRequestError, Sandbox
from sandboxsync.errors import ProcessReadyTimeoutError, ProcessTimeoutError
from sandboxsync.testing._tools import eventually, in_threads, start, within
from sandboxsync.transports.fake._command import FakeCommand
from sandboxsync.transports.fake._shell import Ended

SOON = 2.0
"""Seconds of real time that something may take which takes none on the clock: the machine may be busy."""


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A transport of this test alone."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def sandbox(fake: FakeTransport) -> Iterator[Sandbox]:
    """A sandbox of that transport."""
    with Sandbox(fake) as sandbox:
        yield sandbox


def test_V1_sleep_takes_no_time(fake: FakeTransport, sandbox: Sandbox) -> None:
    """An hour is over at once, and is on the clock."""
    with within(SOON):
        result = sandbox.exec("sleep 1h 30; echo over")
    assert result.stdout == "over\n"
    assert 3630 <= result.duration < 3630 + SOON
    assert fake.clock.monotonic() >= 3630


def test_V1_a_timeout_comes_at_its_time(fake: FakeTransport, sandbox: Sandbox) -> None:
    """`exec("sleep 10", timeout=3)` raises at once with 3 s on the clock."""
    before = fake.clock.monotonic()
    with within(SOON), pytest.raises(CommandTimeoutError):
        sandbox.exec("sleep 10", timeout=3)
    assert 3 <= fake.clock.monotonic() - before < 3 + SOON


def test_V1_what_does_not_sleep_takes_real_time(sandbox: Sandbox) -> None:
    """A loop ends after `timeout` real seconds."""
    started = time.monotonic()
    with within(SOON), pytest.raises(CommandTimeoutError):
        sandbox.exec("while :; do :; done", timeout=0.3)
    assert time.monotonic() - started >= 0.3


def test_V1_the_clock_waits_for_who_runs(fake: FakeTransport, sandbox: Sandbox) -> None:
    """As long as one command runs, the sleep of another is not jumped over."""
    busy = start(lambda: sandbox.exec(": >begun; while [ ! -e go ]; do :; done", session_id="busy"))
    # Not only until its session is there, which is some time before it runs.
    eventually(lambda: sandbox.exists("begun"))
    asleep = start(lambda: sandbox.exec("sleep 60", session_id="asleep"))
    time.sleep(0.3)
    assert not asleep.done()
    sandbox.write_file("go", "")
    with within(SOON):
        assert busy.result(10).success
        assert asleep.result(10).success
    assert fake.clock.monotonic() >= 60


def test_V1_the_end_of_a_command_is_not_the_next_ones(
    fake: FakeTransport, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that starts while the thread of the one before still tidies up is in flight: no jump to its timeout."""
    ended = FakeCommand.ended

    def ended_slowly(command: FakeCommand, how: Ended) -> None:
        ended(command, how)
        time.sleep(0.05)

    monkeypatch.setattr(FakeCommand, "ended", ended_slowly)
    with sandbox.session() as session:
        for _ in range(3):
            session.exec("true")
            session.exec("for ((i = 0; i < 20000; i++)); do :; done", timeout=600)
    assert fake.clock.monotonic() < 600


def test_V1_jobs_do_not_move_the_clock(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A job sleeps in the background; only who waits for it lets its time pass."""
    assert sandbox.exec("sleep 100 & echo done").duration < SOON
    assert sandbox.exec("sleep 5").duration < 5 + SOON
    assert fake.clock.monotonic() < 10 + SOON
    assert 90 < sandbox.exec("wait").duration < 100


def test_V1_pipelines_sleep_together(sandbox: Sandbox) -> None:
    """The parts of a pipeline sleep at the same time."""
    assert 3 <= sandbox.exec("sleep 2 | sleep 3").duration < 3 + SOON


def test_V2_threads_sleep_together(fake: FakeTransport, sandbox: Sandbox) -> None:
    """What several threads start while the clock is paused sleeps together, and takes as long as the longest."""
    before = fake.clock.monotonic()
    with fake.clock.paused():
        calls = [start(partial(sandbox.exec, f"sleep {n}", session_id=f"s{n}")) for n in (10, 20, 30)]
        while len(fake.calls) < len(calls):
            time.sleep(0.01)
        time.sleep(0.3)
        assert not any(call.done() for call in calls)
    with within(SOON):
        durations = [call.result(10).duration for call in calls]
    assert [round(duration, -1) for duration in durations] == [10, 20, 30]
    assert 30 <= fake.clock.monotonic() - before < 30 + SOON


def test_processes_move_it_only_for_who_waits(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A background process goes on when somebody waits for it, and for as long."""
    process = sandbox.start_process("sleep 5; echo half; sleep 5; exit 3")
    time.sleep(0.1)
    assert (process.refresh().status, fake.clock.monotonic() < SOON) == ("running", True)
    with within(SOON):
        with pytest.raises(ProcessTimeoutError):
            process.wait_for_exit(2)
        assert process.refresh().status == "running"
        with pytest.raises(ProcessReadyTimeoutError):
            process.wait_for_log("half", timeout=1)
        process.wait_for_log("half", timeout=5)
        assert process.refresh().status == "running"
        assert process.wait_for_exit(60) == 3
    assert process.end_time is not None
    assert process.start_time is not None
    assert 10 <= (process.end_time - process.start_time).total_seconds() < 10 + SOON


def test_dates_are_the_clocks(sandbox: Sandbox) -> None:
    """File times, timestamps and `date` show what the clock shows."""
    start_at = datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone.utc)
    with FakeTransport(clock=FakeClock(start_at)) as fake, Sandbox(fake) as sandbox:
        sandbox.exec("sleep 1d")
        expected = start_at + timedelta(days=1)
        seen = [
            sandbox.write_file("f", "x").timestamp,
            sandbox.stat("f").modified_at,
            sandbox.exec("touch g").started_at,
            sandbox.stat("g").modified_at,
            datetime.fromisoformat(sandbox.exec("date +%Y-%m-%dT%H:%M:%S+00:00").stdout.strip()),
            fake.clock.now(),
        ]
    assert all(timedelta(seconds=-1) <= moment - expected < timedelta(seconds=30) for moment in seen), seen


def test_advance_moves_it_at_once(fake: FakeTransport, sandbox: Sandbox) -> None:
    """What is due in between happens, also while the clock is paused."""
    sandbox.start_process("sleep 5; touch five; sleep 5; touch ten")
    with fake.clock.paused(), within(SOON):
        fake.clock.advance(7)
        deadline = time.monotonic() + SOON
        while not sandbox.exists("five"):
            assert time.monotonic() < deadline
    assert not sandbox.exists("ten")
    assert fake.clock.monotonic() >= 7


def test_sleep_of_the_caller(fake: FakeTransport) -> None:
    """`clock.sleep` is a wait like any other."""
    with within(SOON):
        fake.clock.sleep(1000)
    assert fake.clock.monotonic() >= 1000


def test_many_threads_wait(fake: FakeTransport, sandbox: Sandbox) -> None:
    """Twenty threads, each with its own sleep, all wake up at their time."""

    def nap(number: int) -> float:
        with sandbox.session() as session:
            return session.exec(f"sleep {number}").duration

    with within(10):
        durations = in_threads(20, nap, 30)
    assert all(duration >= number for number, duration in enumerate(durations))


def test_a_clock_may_be_shared(sandbox: Sandbox) -> None:
    """Two transports on one clock see the same time."""
    clock = FakeClock()
    with FakeTransport(clock=clock) as one, FakeTransport(clock=clock) as two, Sandbox(one) as a, Sandbox(two) as b:
        a.exec("sleep 50")
        assert b.exec("true").started_at >= clock.now() - timedelta(seconds=SOON)
        assert clock.monotonic() >= 50
        assert one.clock is two.clock


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_bad_numbers_are_refused(seconds: float) -> None:
    """Time neither goes back nor to its end."""
    with pytest.raises(InvalidRequestError):
        FakeClock().advance(seconds)


def test_a_naive_start_is_refused() -> None:
    """A date without a zone could mean any time."""
    with pytest.raises(InvalidRequestError):
        FakeClock(datetime(2030, 1, 1))


def test_no_thread_stays(fake: FakeTransport) -> None:
    """`close` ends the threads of the transport."""
    before = threading.active_count()
    with FakeTransport() as other, Sandbox(other) as sandbox:
        sandbox.exec("sleep 1 & sleep 2")
        sandbox.exec("echo x", timeout=5)
    deadline = time.monotonic() + 5
    while threading.active_count() > before:
        assert time.monotonic() < deadline
        time.sleep(0.01)
