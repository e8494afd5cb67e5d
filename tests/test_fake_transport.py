"""What is the fake's alone: its ends, its forks, its limits, its two ways to run a command."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from sandboxsync import (
    CommandTimeoutError,
    ConfigurationError,
    FakeTransport,
    Sandbox,
    Session,
    SessionTerminatedError,
    UnsupportedOperationError,
    connect,
)
from sandboxsync.testing._machine import descriptors
from sandboxsync.testing._tools import in_threads, within


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A transport of this test alone."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def session(fake: FakeTransport) -> Iterator[Session]:
    """A session that nobody has used yet."""
    with Sandbox(fake) as sandbox, sandbox.session() as session:
        yield session


def test_without_bashkit_it_says_what_to_install() -> None:
    """An `ImportError` that names the extra; `connect` says the same as a matter of configuration."""
    code = (
        "import sys; sys.modules['bashkit'] = None\n"
        "import sandboxsync\n"
        "try: sandboxsync.FakeTransport()\n"
        "except ImportError as exc: print(exc)\n"
        "try: sandboxsync.connect('fake:')\n"
        "except sandboxsync.ConfigurationError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.count("pip install 'sandboxsync[fake]'") == 2, done.stderr


def test_connect_makes_one() -> None:
    """`fake:` is a sandbox in memory that owns its transport."""
    with connect("fake:") as sandbox:
        assert sandbox.exec("echo hi; pwd").stdout == "hi\n/workspace\n"
        transport = sandbox.transport
    with pytest.raises(ConfigurationError):
        transport.ping("x", None)


def test_it_loads_nothing_heavy() -> None:
    """Making one imports neither `requests` nor the local transport."""
    code = (
        "import sandboxsync, sys, json; sandboxsync.FakeTransport(); "
        "print(json.dumps([n for n in sys.modules if n in ('requests', 'websocket', 'sandboxsync.transports.local')]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(done.stdout) == []


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("echo {1..20000}", "{1..20000}"),
        ("for n in {0..-99999..2}; do :; done", "{0..-99999}"),
        ("head -c 2000000 /dev/zero", "2000000"),
        ("head -c2M f | wc -c", "2M"),
    ],
)
def test_what_would_be_cut_is_refused(session: Session, command: str, names: str) -> None:
    """What bashkit would leave out without a word raises before anything runs, in every kind of call."""
    for call in (session.exec, session.exec_stream, session.start_process):
        with pytest.raises(UnsupportedOperationError, match="FakeTransport") as caught:
            call(command)
        assert names in str(caught.value)
    assert session.exec("echo ok {1..3}; head -c 3 /dev/zero | wc -c").stdout == "ok 1 2 3\n3\n"


@pytest.mark.parametrize("first", ["true", "true & true"], ids=["quick", "careful"])
def test_both_ways_keep_the_state(session: Session, first: str) -> None:
    """Variables, functions, aliases, arguments, options, directory and status go over from one way to the other."""
    session.exec(first)
    session.exec("mkdir d; cd d; A=1; B=(x y); f() { echo f$A; }; set -- a b")
    session.exec("alias g='echo aliased'")
    session.exec("(exit 7)")
    assert session.exec("echo $?").stdout == "7\n"
    session.exec("set -f")
    look = 'f; g; echo "$A ${B[1]} $# ${PWD##*/}" *'
    assert session.exec(look).stdout == "f1\naliased\n1 y 2 d *\n"
    with pytest.raises(CommandTimeoutError):
        session.exec("sleep 60", timeout=1)
    assert session.exec(look).stdout == "f1\naliased\n1 y 2 d *\n"


@pytest.mark.parametrize("prefix", ["", "set +f; "], ids=["quick", "careful"])
def test_output_before_a_timeout_is_there(session: Session, prefix: str) -> None:
    """Twenty times in a row: what was printed before the command slept is in the error."""
    for number in range(20):
        with pytest.raises(CommandTimeoutError) as caught:
            session.exec(f"{prefix}echo begun {number}; sleep 60", timeout=1)
        assert caught.value.stdout == f"begun {number}\n"


def test_stopped_output_that_is_no_text(session: Session) -> None:
    """Bytes are as they were, also in the error of a timeout."""
    with pytest.raises(CommandTimeoutError) as caught:
        session.exec(r"printf 'a\xff\0b'; sleep 60", timeout=1)
    assert caught.value.stdout_bytes == b"a\xff\0b"


def test_output_that_is_cut_is_no_result(session: Session) -> None:
    """More than the interpreter keeps raises, in every kind of call, and the session lives on."""
    much = "for ((i = 0; i < 1100; i++)); do printf '%09999d' 0; done"
    for call in (session.exec, lambda command: session.exec_stream(command).result()):
        with pytest.raises(UnsupportedOperationError, match="10 MiB"):
            call(much)
    process = session.start_process(much)
    assert (process.wait_for_exit(60), process.status) == (1, "error")
    assert session.exec("echo ok").stdout == "ok\n"


def test_a_loop_over_lines_may_sleep(session: Session) -> None:
    """What sleeps in it takes none of the lines."""
    result = session.exec("seq 3 | while read -r line; do sleep 1; echo $line; done")
    assert (result.stdout, round(result.duration)) == ("1\n2\n3\n", 3)


def test_jobs_of_earlier_commands_say_nothing(session: Session) -> None:
    """Not even to a command that waits for them."""
    assert session.exec("(sleep 3; echo LATE) & echo now").stdout == "now\n"
    assert session.exec("wait; echo waited").stdout == "waited\n"
    assert session.exec("(sleep 3; echo mine) & wait").stdout == "mine\n"


def test_break_and_continue_reach_nothing_of_ours(session: Session) -> None:
    """A command outside of any loop that leaves one leaves none, however often."""
    session.exec("true & true; V=kept")
    for command in ["break", "continue", "break 9"] * 5:
        session.exec(command)
    assert session.exec("echo $V").stdout == "kept\n"


def test_a_shell_gives_its_descriptors_back(fake: FakeTransport) -> None:
    """A session that ended, was deleted or died holds none."""
    with Sandbox(fake) as sandbox:
        sandbox.exec("true & true")
        before = descriptors()
        for number in range(20):
            with sandbox.session() as session:
                session.exec("true" if number % 2 else "true & true")
                if number % 3 == 0:
                    with pytest.raises(SessionTerminatedError):
                        session.exec("exit 1")
        with within(5):
            while descriptors() > before:
                threading.Event().wait(0.02)


def test_many_shells_at_once(fake: FakeTransport) -> None:
    """Forty threads, each with a sandbox of its own, in both ways."""

    def work(number: int) -> str:
        with Sandbox(fake) as sandbox:
            sandbox.write_file("n", str(number))
            return sandbox.exec("cat n" if number % 2 else "cat n & wait").stdout

    assert in_threads(40, work) == [str(number) for number in range(40)]


def test_a_closed_transport_says_so(fake: FakeTransport) -> None:
    """Each call after `close` raises, and `close` may be called again."""
    sandbox = Sandbox(fake)
    sandbox.exec("sleep 60 & echo x")
    fake.close()
    with pytest.raises(ConfigurationError, match="closed"):
        sandbox.exec("true")
    fake.close()


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "os._exit(0)"])
def test_the_interpreter_ends_whatever_runs(end: str) -> None:
    """Sleeping jobs, loops and processes keep nobody from ending, and nothing is complained of."""
    code = f"""
import os, sys
from sandboxsync import FakeTransport, Sandbox
fake = FakeTransport()
sandbox = Sandbox(fake)
sandbox.exec("(while :; do sleep 0.01; done) & sleep 60 & echo x")
sandbox.start_process("while :; do :; done")
sandbox.exec_stream("while :; do :; done", session_id="busy")
sys.stdout.flush()
{end}
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("mark", ["\x1e", "\x1f"])
def test_marks_that_quoting_would_lose_are_refused(mark: str) -> None:
    """E11: what the interpreter would drop without a word is an error before it runs; a variable keeps it."""
    with Sandbox(FakeTransport()) as sandbox:
        with pytest.raises(UnsupportedOperationError, match="U\\+001E or U\\+001F"):
            sandbox.exec(["printf", "%s", f"'{mark}"])
        assert sandbox.exec('printf %s "\'$A"', env={"A": mark}).stdout == f"'{mark}"
