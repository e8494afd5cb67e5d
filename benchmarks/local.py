"""`LocalTransport` next to `subprocess`: ``python -m benchmarks.local [--quick] [NAME ...]``.

Each comparison runs both sides in turns (a b a b ...) in one run, so that noise hits both, and takes medians. Exit code
1 when a bar is missed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from benchmarks._table import Row, bounded, compared, machine, options_of, print_table
from sandboxsync import LocalTransport, Sandbox, Session, Stdout

GIGABYTE = 1_000_000_000
MEGABYTE = 1 << 20


def in_turns(rounds: int, *sides: Callable[[], float]) -> list[float]:
    """The median of what each side measures; one round of each before them does not count."""
    measured: list[list[float]] = [[] for _ in sides]
    for number in range(-1, rounds):
        for side, results in zip(sides, measured, strict=True):
            value = side()
            if number >= 0:
                results.append(value)
    return [median(results) for results in measured]


def timed(function: Callable[[], object]) -> Callable[[], float]:
    """What measures the seconds of a call."""

    def measure() -> float:
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    return measure


def small_command(session: Session, quick: bool) -> Iterator[Row]:
    """A command that does nothing, many times in a row: the median of medians of twenty."""

    def repeated(function: Callable[[], object]) -> Callable[[], float]:
        measure = timed(function)
        return lambda: median(measure() for _ in range(20))

    ours, theirs = in_turns(
        10 if quick else 50,
        repeated(lambda: session.exec("true")),
        repeated(lambda: subprocess.run(["bash", "-c", "true"], capture_output=True)),
    )
    yield compared('exec("true"), subprocess.run', ours, theirs, 0.25)


def first_byte(session: Session, quick: bool) -> Iterator[Row]:
    """The time from the call to the first output, of a command that goes on."""
    command = "echo x; sleep 1"

    def ours() -> float:
        session.exec("true")  # stopping the last command has cost the session its shell
        start = time.perf_counter()
        with session.exec_stream(command) as stream:
            for event in stream:
                if isinstance(event, Stdout):
                    return time.perf_counter() - start
        raise AssertionError("no output")

    def theirs() -> float:
        start = time.perf_counter()
        with subprocess.Popen(["bash", "-c", command], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            os.read(process.stdout.fileno(), 1 << 16)
            seconds = time.perf_counter() - start
            process.kill()
        return seconds

    mine, its = in_turns(10 if quick else 40, ours, theirs)
    yield compared("first byte of exec_stream, Popen", mine, its, 1.5)


def bulk(session: Session, quick: bool) -> Iterator[Row]:
    """A gigabyte, each side in an interpreter of its own."""
    memory: dict[str, int] = {}

    def side(name: str) -> Callable[[], float]:
        def measure() -> float:
            argv = [sys.executable, "-m", "benchmarks._bulk", name]
            result = subprocess.run(argv, capture_output=True, text=True, check=True)
            answer = json.loads(result.stdout)
            memory[name] = max(memory.get(name, 0), answer["memory"])
            return float(answer["seconds"])

        return measure

    ours, theirs = in_turns(1 if quick else 5, side("ours"), side("baseline"))
    ours, theirs = GIGABYTE / ours / 1e6, GIGABYTE / theirs / 1e6
    ratio = ours / theirs
    yield Row("1 GB: rate", f"{ours:.0f} MB/s", f"{theirs:.0f} MB/s", f"{ratio:.2f}", ">= 0.6", ratio >= 0.6)
    theirs_memory = f"{memory['baseline'] / MEGABYTE:.1f} MiB"
    yield bounded("1 GB: memory above what it was", memory["ours"] / MEGABYTE, 64, "MiB", theirs_memory)


def many_lines(session: Session, quick: bool) -> Iterator[Row]:
    """A million lines in one result."""
    command = "seq 1 1000000"
    ours, theirs = in_turns(
        3 if quick else 15,
        timed(lambda: session.exec(command)),
        timed(lambda: subprocess.run(["bash", "-c", command], capture_output=True, text=True)),
    )
    yield compared("exec(seq 1 1000000), subprocess.run", ours, theirs, 3.0)


def sessions(session: Session, quick: bool) -> Iterator[Row]:
    """Sessions made, used once, deleted, one after the other."""
    sandbox = session.sandbox

    def use() -> None:
        with sandbox.session() as other:
            other.exec("true")

    (each,) = in_turns(50 if quick else 200, timed(use))
    yield bounded("session made, used once, deleted", each * 1e3, 15, "ms")


def holdings(session: Session, quick: bool) -> Iterator[Row]:
    """What each session holds: of many less what is held without them."""
    count = 20
    sandbox = session.sandbox

    def held() -> tuple[int, int, int]:
        return descendants(os.getpid()), len(os.listdir("/proc/self/fd")), threading.active_count()

    without = held()
    made = [sandbox.create_session() for _ in range(count)]
    for one in made:
        one.exec("true")
    idle = held()
    streams = [one.exec_stream("sleep 60") for one in made]
    busy = held()
    for stream in streams:
        stream.close()
    for one in made:
        one.delete()
    processes, descriptors, threads = ((b - a) / count for a, b in zip(without, idle, strict=True))
    yield bounded("per session: processes", processes, 1)
    yield bounded("per session: descriptors, idle", descriptors, 4)
    yield bounded("per session: descriptors, with a command", (busy[1] - without[1]) / count, 4)
    yield bounded("per session: threads", max(threads, (busy[2] - without[2]) / count), 0)


def descendants(pid: int) -> int:
    """How many processes there are below one."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    below = [pid]
    for one in below:
        below.extend(children.get(one, ()))
    return len(below) - 1


def start_up(session: Session, quick: bool) -> Iterator[Row]:
    """The CPU time of an import, above that of a bare interpreter; what is not loaded by it."""

    def side(code: str) -> Callable[[], float]:
        def measure() -> float:
            pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], os.environ)
            _, status, usage = os.wait4(pid, 0)
            assert status == 0
            return usage.ru_utime + usage.ru_stime

        return measure

    use = "from sandboxsync import LocalTransport, Sandbox; Sandbox(LocalTransport())"
    bare, imported, used = in_turns(5 if quick else 25, side("pass"), side("import sandboxsync"), side(use))
    yield bounded("import sandboxsync: CPU", (imported - bare) * 1e3, 60, "ms", f"{bare * 1e3:.0f} ms")
    yield Row("import and Sandbox(LocalTransport()): CPU", f"{(used - bare) * 1e3:.2f} ms", f"{bare * 1e3:.0f} ms")
    heavy = ("requests", "websocket", "cattrs")
    code = f"{use}; import sys; sys.exit(sum(name in sys.modules for name in {heavy!r}))"
    loaded = subprocess.run([sys.executable, "-c", code]).returncode
    yield bounded(f"of {', '.join(heavy)} loaded", loaded, 0)


BENCHMARKS = {
    "small": small_command,
    "first-byte": first_byte,
    "bulk": bulk,
    "lines": many_lines,
    "sessions": sessions,
    "holdings": holdings,
    "import": start_up,
}


def main() -> int:
    """Measure, print, and return the exit code."""
    names, quick = options_of("local", "LocalTransport next to subprocess", BENCHMARKS)
    print(machine(), end="\n\n", flush=True)
    rows: list[Row] = []
    with LocalTransport() as transport, Sandbox(transport) as sandbox, sandbox.session() as session:
        for name in names:
            rows.extend(BENCHMARKS[name](session, quick))
    return 0 if print_table(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
