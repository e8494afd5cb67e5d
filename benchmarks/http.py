"""`HTTPTransport` next to bare `requests`: ``python -m benchmarks.http [--quick] [NAME ...]``.

Both sides talk to the same server, which runs in a process of its own, and take turns (a b a b ...) in one run; numbers
are medians. Exit code 1 when a bar is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import attrs

from benchmarks._http_bare import bare
from benchmarks._http_server import Served, served
from benchmarks._table import Row, bounded, compared, machine, options_of, print_table
from benchmarks.fake import raise_limit
from benchmarks.local import in_turns, timed
from sandboxsync import Sandbox

DIALECTS = ("bridge", "container")
THREADS = 200


def one_command(where: Served, dialect: str, quick: bool) -> Iterator[Row]:
    """A command that does nothing, in a session that exists, next to a plain exec of the same server."""
    with where.transport(dialect) as transport, Sandbox(transport, "abc") as sandbox:
        session, other = sandbox.create_session(), bare(where, dialect, "abc")

        def repeated(function: Callable[[], object]) -> Callable[[], float]:
            measure = timed(function)
            return lambda: median(measure() for _ in range(10))

        sides = (repeated(lambda: session.exec("true")), repeated(lambda: other.exec("true")))
        ours, theirs = in_turns(5 if quick else 20, *sides)
        yield compared(f'{dialect}: exec("true")', ours, theirs, 2)
        assert other.exec("seq 100000") == len(session.exec("seq 100000").stdout)
        sides = (timed(lambda: session.exec("seq 100000")), timed(lambda: other.exec("seq 100000")))
        ours, theirs = in_turns(3 if quick else 10, *sides)
        yield compared(f"{dialect}: seq 100000", ours, theirs, 2)


def files(where: Served, dialect: str, quick: bool) -> Iterator[Row]:
    """100 MB down and up, each side in an interpreter of its own."""

    def measure(side: str, way: str) -> Callable[[], float]:
        def run() -> float:
            command = [sys.executable, "-m", "benchmarks._http_files", side, way, dialect]
            text = json.dumps(attrs.asdict(where))
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
            result = json.loads(done.stdout)
            memory[side, way] = max(memory.get((side, way), 0), result["memory"])
            return float(result["seconds"])

        return run

    memory: dict[tuple[str, str], int] = {}
    for way in ("download", "upload"):
        ours, theirs = in_turns(1 if quick else 3, measure("ours", way), measure("bare", way))
        rates = f"{100 / ours:.0f} MB/s", f"{100 / theirs:.0f} MB/s"
        yield Row(f"{dialect}: {way} of 100 MB", *rates, f"{theirs / ours:.2f}", ">= 0.7", theirs / ours >= 0.7)
        yield bounded(f"{dialect}: {way}, memory above what it was", memory["ours", way] / (1 << 20), 64, "MiB")


def many(where: Served, dialect: str, quick: bool) -> Iterator[Row]:
    """200 threads with a session each through one `Sandbox`, next to as many plain requests."""

    def ours() -> float:
        with where.transport(dialect) as transport, Sandbox(transport, "abc") as sandbox:

            def use(number: int) -> str:
                with sandbox.session() as session:
                    return session.exec(f"echo {number}").stdout

            sandbox.exec("true")
            start = time.perf_counter()
            with ThreadPoolExecutor(THREADS) as pool:
                answers = list(pool.map(use, range(THREADS)))
            seconds = time.perf_counter() - start
        assert answers == [f"{number}\n" for number in range(THREADS)]
        return seconds

    def theirs() -> float:
        def use(number: int) -> None:
            other = bare(where, dialect, "abc")
            for _ in range(3):  # made, used, deleted
                other.exec(f"echo {number}")

        start = time.perf_counter()
        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(use, range(THREADS)))
        return time.perf_counter() - start

    one, other = in_turns(1 if quick else 3, ours, theirs)
    yield compared(f"{dialect}: {THREADS} threads with a session", one, other, 1.5, unit="s", scale=1)


BENCHMARKS: dict[str, Callable[[Served, str, bool], Iterator[Row]]] = {
    "exec": one_command,
    "files": files,
    "many": many,
}


def main() -> int:
    """Measure, print, and return the exit code."""
    names, quick = options_of("http", "HTTPTransport next to bare requests", BENCHMARKS)
    print(machine())
    raise_limit()
    rows: list[Row] = []
    with served() as where:
        for dialect in DIALECTS:
            for name in names:
                rows.extend(BENCHMARKS[name](where, dialect, quick))
    return 0 if print_table(rows, "ours", "requests") else 1


if __name__ == "__main__":
    sys.exit(main())
