"""Cases about output, streams and threads; the rows are in `docs/cases.md`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import OutputLimitError
from sandboxsync.models import Started, Stdout
from sandboxsync.testing import requires
from sandboxsync.testing._tools import in_threads, within
from sandboxsync.transports.base import Capability


@requires(Capability.BULK)
def test_OF04_output_of_15_megabytes(session: Session) -> None:
    """It comes whole."""
    result = session.exec("head -c 15000000 /dev/zero | tr '\\0' a")
    assert (len(result.stdout), result.exit_code) == (15_000_000, 0)


def test_OF05_much_output_is_quick(session: Session) -> None:
    """Half a million lines, and one line of 200 kB."""
    with within(10):
        lines = session.exec("seq 1 500000").stdout.splitlines()
    assert (len(lines), lines[-1]) == (500_000, "500000")
    assert session.exec("head -c 200000 /dev/zero | tr '\\0' a").stdout == "a" * 200_000


def test_OF07_fast_commands_keep_their_output(sandbox: Sandbox) -> None:
    """A hundred short commands of each kind."""
    plain = Sandbox(sandbox.transport, id=sandbox.id, enable_default_session=False)
    for caller in (sandbox, plain):
        assert {caller.exec("echo hi").stdout for _ in range(100)} == {"hi\n"}


def test_OF10_random_data_is_the_same_twice(session: Session) -> None:
    """What is printed and what is kept in a file have one checksum."""
    for _ in range(5):
        printed = session.exec("head -c 700000 /dev/urandom | tee r | base64 -w0").stdout
        checksum = session.exec("sha256sum r").stdout.split()[0]
        assert hashlib.sha256(base64.b64decode(printed, validate=True)).hexdigest() == checksum


@requires(Capability.BULK)
def test_OF14_a_limit_bounds_the_memory(session: Session) -> None:
    """An endless command is stopped at `max_output`, with what came before."""
    tracemalloc.start()
    try:
        with within(10), pytest.raises(OutputLimitError) as caught:
            session.exec("yes", max_output=1_000_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.stdout_bytes == b"y\n" * 500_000
    assert peak < 20_000_000
    assert session.exec("echo ok", max_output=3).stdout == "ok\n"


def test_OF16_stderr_is_whole_when_stdout_has_ended(session: Session) -> None:
    """Neither stream loses its end to the other."""
    expected = "".join(f"{number}\n" for number in range(1, 20_001))
    for _ in range(20):
        result = session.exec("seq 1 20000 >&2; echo out")
        assert (result.stdout, result.stderr == expected) == ("out\n", True)


def test_SM05_the_first_output_is_in_the_first_event(session: Session) -> None:
    """What came before the reader was ready is not dropped."""
    for _ in range(20):
        with session.exec_stream("echo first; sleep 0.01") as stream:
            assert isinstance(next(stream), Started)
            event = next(stream)
        assert isinstance(event, Stdout)
        assert event.text == "first\n"


def test_CO02_twenty_threads_on_the_default_session(sandbox: Sandbox) -> None:
    """Each gets its own output, and the session is as good as before."""
    results = in_threads(20, lambda number: sandbox.exec(f"echo {number}; sleep 0.01; echo {number}").stdout)
    assert results == [f"{number}\n{number}\n" for number in range(20)]
    assert sandbox.exec("echo ok").stdout == "ok\n"


@pytest.mark.parametrize("redirect", ["</dev/null", "<&-", "<&- >&2"])
def test_CO10_the_callers_input_is_left_alone(transport_source: str, redirect: str) -> None:
    """Without a terminal, without any standard input or output, and from a thread."""
    program = (
        "import json, sys, threading, sandboxsync\n"
        f"with {transport_source} as transport, sandboxsync.Sandbox(transport) as sandbox:\n"
        "    seen = [sandbox.exec('cat; echo ok').stdout]\n"
        "    thread = threading.Thread(target=lambda: seen.append(sandbox.exec('cat; echo ok').stdout))\n"
        "    thread.start(); thread.join()\n"
        "    seen.append(sandbox.exec('cat', stdin='given').stdout)\n"
        "print(json.dumps(seen), file=sys.stderr)\n"
    )
    result = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirect}', "sh", sys.executable, "-c", program],
        input="of the caller",
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    assert json.loads(result.stderr) == ["ok\n", "ok\n", "given"]
    assert (result.stdout, result.returncode) == ("", 0)
