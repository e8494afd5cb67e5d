"""Isolated sandboxes next to those that are not: ``python -m benchmarks.isolation [--quick] [NAME ...]``.

Both sides run in turns (a b a b ...) in one run, so that noise hits both, and the numbers are medians. Exit code 1
when a bar is missed. A sandbox holds five descriptors, and a session two, so the soft limit on them is raised to the
hard one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from benchmarks._table import Row, bounded, compared, machine, options_of, print_table
from benchmarks.fake import raise_limit
from benchmarks.local import in_turns, timed
from sandboxsync import LocalTransport, Sandbox

SANDBOXES = 100


def one_command(quick: bool) -> Iterator[Row]:
    """A command that does nothing in a session that exists: the median of medians of twenty."""
    with LocalTransport(isolation="bubblewrap") as isolated, LocalTransport() as bare:
        sessions = [Sandbox(transport).create_session("main") for transport in (isolated, bare)]

        def repeated(number: int) -> Callable[[], float]:
            measure = timed(lambda: sessions[number].exec("true"))
            return lambda: median(measure() for _ in range(20))

        ours, theirs = in_turns(10 if quick else 50, repeated(0), repeated(1))
        yield compared('exec("true")', ours, theirs, 1.2)


def one_sandbox(quick: bool) -> Iterator[Row]:
    """From nothing to the answer of the first command, and the end of it."""
    with LocalTransport(isolation="bubblewrap") as isolated, LocalTransport() as bare:

        def first(transport: LocalTransport) -> Callable[[], float]:
            def measure() -> float:
                start = time.perf_counter()
                sandbox = Sandbox(transport)
                sandbox.exec("true")
                seconds = time.perf_counter() - start
                sandbox.destroy()
                return seconds

            return measure

        ours, theirs = in_turns(10 if quick else 40, first(isolated), first(bare))
        yield bounded("a new sandbox, first exec answered", ours * 1e3, 80, "ms", f"{theirs * 1e3:.0f} ms")


def many(quick: bool) -> Iterator[Row]:
    """A hundred sandboxes with two sessions each at once, all of which answer."""

    def everything(**options: str) -> float:
        start = time.perf_counter()
        with LocalTransport(**options) as transport:  # type: ignore[arg-type]
            sandboxes = [Sandbox(transport) for _ in range(SANDBOXES)]

            def use(sandbox: Sandbox) -> list[str]:
                sessions = [sandbox.create_session() for _ in range(2)]
                return [session.exec("echo $$").stdout for session in sessions]

            with ThreadPoolExecutor(SANDBOXES) as pool:
                answers = list(pool.map(use, sandboxes))
            assert all(answer.strip().isdigit() for pair in answers for answer in pair)
            again = [
                session_answer for sandbox in sandboxes for session_answer in sandbox.exec("echo ok").stdout.split()
            ]
            assert again == ["ok"] * SANDBOXES
        return time.perf_counter() - start

    ours, theirs = in_turns(
        1 if quick else 3, lambda: everything(isolation="bubblewrap"), lambda: everything(isolation="none")
    )
    yield bounded(f"{SANDBOXES} sandboxes with two sessions: time", ours, 30, "s", f"{theirs:.1f} s")


BENCHMARKS: dict[str, Callable[[bool], Iterator[Row]]] = {"exec": one_command, "start": one_sandbox, "many": many}


def main() -> int:
    """Measure, print, and return the exit code."""
    names, quick = options_of("isolation", "isolated sandboxes next to those that are not", BENCHMARKS)
    print(machine())
    raise_limit()
    rows: list[Row] = []
    for name in names:
        rows.extend(BENCHMARKS[name](quick))
    return 0 if print_table(rows, "bubblewrap", "none") else 1


if __name__ == "__main__":
    sys.exit(main())
