"""`FakeTransport` next to `LocalTransport`: ``python -m benchmarks.fake [--quick] [NAME ...]``.

Comparisons run both sides in turns (a b a b ...) in one run, so that noise hits both, and take medians. Exit code 1
when a bar is missed. A shell in memory holds three descriptors, so the soft limit on them is raised to the hard one.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks._table import Row, bounded, compared, machine, options_of, print_table
from benchmarks.local import MEGABYTE, in_turns, timed
from sandboxsync import FakeTransport, LocalTransport, Sandbox
from sandboxsync.transports.base import Transport

COUNT = 1_000


def one_command(quick: bool) -> Iterator[Row]:
    """A command that does nothing in a session that exists: the median of medians of twenty."""
    with FakeTransport() as fake, LocalTransport() as local:
        sessions = [Sandbox(transport).create_session("main") for transport in (fake, local)]

        def repeated(function: Callable[[], object]) -> Callable[[], float]:
            measure = timed(function)
            return lambda: median(measure() for _ in range(20))

        ours, theirs = in_turns(
            10 if quick else 50,
            repeated(lambda: sessions[0].exec("true")),
            repeated(lambda: sessions[1].exec("true")),
        )
        yield compared('exec("true")', ours, theirs, 1.5)
        (slept,) = in_turns(10 if quick else 50, timed(lambda: sessions[0].exec("sleep 3600")))
        yield bounded('exec("sleep 3600")', slept * 1e3, 50, "ms", "1 h")
        ours, theirs = in_turns(
            10 if quick else 50,
            repeated(lambda: sessions[0].exec("true & wait")),
            repeated(lambda: sessions[1].exec("true & wait")),
        )
        yield versus('exec("true & wait")', ours, theirs)
        (slept,) = in_turns(10 if quick else 50, timed(lambda: sessions[0].exec("sleep 3600 | cat")))
        yield bounded('exec("sleep 3600 | cat")', slept * 1e3, 100, "ms", "1 h")


def one_test(quick: bool) -> Iterator[Row]:
    """What a test of its own costs: everything is made, one command is run, everything is closed."""

    def use(make: Callable[[], Transport]) -> Callable[[], float]:
        def test() -> None:
            transport = make()
            with Sandbox(transport) as sandbox, sandbox.session() as session:
                session.exec("true")
            transport.close()

        return timed(test)

    ours, theirs = in_turns(10 if quick else 40, use(FakeTransport), use(LocalTransport))
    yield compared("transport, sandbox, session, exec, close", ours, theirs, 0.5)


def many(quick: bool) -> Iterator[Row]:
    """A thousand sandboxes at once, each with a session that has run a command, in an interpreter of their own."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = COUNT if soft >= 3 * COUNT + 100 else max(1, (soft - 100) // 3)
    runs = []
    for _ in range(1 if quick else 5):
        argv = [sys.executable, "-m", "benchmarks._many", str(count)]
        result = subprocess.run(argv, capture_output=True, text=True, check=True)
        runs.append(json.loads(result.stdout))
    values = {name: median(run[name] for run in runs) for name in runs[0]}
    what = f"{count} sandboxes"
    yield bounded(f"{what} with a session, unused: time", values["made"], 1, "s")
    yield bounded(f"{what} with a session, unused: memory", values["made_memory"] / MEGABYTE, 32, "MiB")
    yield bounded(f"{what}, then a command in each: time", values["used"], 10, "s")
    yield bounded(f"{what}, then a command in each: memory", values["used_memory"] / MEGABYTE, 256, "MiB")
    yield bounded("per shell: descriptors", values["descriptors"] / count, 3)
    yield bounded(f"{what} closed: time", values["closed"], 2, "s")


def start_up(quick: bool) -> Iterator[Row]:
    """The CPU time of an import and of a first command, above that of a bare interpreter."""

    def side(code: str) -> Callable[[], float]:
        def measure() -> float:
            pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
            _, status, usage = os.wait4(pid, 0)
            assert status == 0
            return usage.ru_utime + usage.ru_stime

        return measure

    make = "from sandboxsync import {0}, Sandbox; transport = {0}(); sandbox = Sandbox(transport); "
    end = "sandbox.exec('true'); transport.close()"
    fake, local = make.format("FakeTransport"), make.format("LocalTransport")
    bare, *sides = in_turns(
        5 if quick else 25, side("pass"), side(fake), side(local), side(fake + end), side(local + end)
    )
    ours, theirs, first, their_first = (each - bare for each in sides)
    yield versus("import and Sandbox(...): CPU", ours, theirs)
    yield versus("the same, one command and close: CPU", first, their_first)


def versus(what: str, ours: float, theirs: float) -> Row:
    """A row of two times in seconds that promises nothing."""
    return Row(what, f"{ours * 1e3:.2f} ms", f"{theirs * 1e3:.2f} ms", f"{ours / theirs:.2f}")


BENCHMARKS = {
    "command": one_command,
    "test": one_test,
    "many": many,
    "import": start_up,
}


def raise_limit() -> None:
    """Allow as many descriptors as this process may have; the interpreters that it starts inherit that."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(f"limit of descriptors: {soft}, raised to {hard}", end="\n\n", flush=True)


def main() -> int:
    """Measure, print, and return the exit code."""
    names, quick = options_of("fake", "FakeTransport next to LocalTransport", BENCHMARKS)
    print(machine())
    raise_limit()
    rows: list[Row] = []
    for name in names:
        rows.extend(BENCHMARKS[name](quick))
    return 0 if print_table(rows, "fake", "local") else 1


if __name__ == "__main__":
    sys.exit(main())
