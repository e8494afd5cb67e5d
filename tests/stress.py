"""Run the tests many times in a row, on a loaded machine if asked, and say what failed when.

    python tests/stress.py --runs 20 --load 2 tests/test_conformance.py -k local

What follows the options goes to pytest. The exit code is 0 when no run had a failure.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BUSY = "while True: pass"
HERE = Path(__file__).resolve().parent
REPORT = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)


@contextmanager
def load(count: int) -> Iterator[None]:
    """Keep *count* cores busy; what was started here is ended here, by its pid."""
    loops = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def run(number: int, arguments: list[str], logs: Path) -> list[str]:
    """Run pytest once, and return the tests that failed."""
    started = time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or [str(HERE)])]
    result = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    log = logs / f"run-{number}.txt"
    log.write_text(result.stdout + result.stderr, encoding="utf-8")
    failed = sorted(set(REPORT.findall(result.stdout)))
    if result.returncode not in (0, 1) or (result.returncode == 1 and not failed):
        failed.append(f"pytest itself: exit code {result.returncode}, see {log}")
    print(f"run {number}: {len(failed)} failed, {time.monotonic() - started:.0f} s", flush=True)
    for name in failed:
        print(f"    {name}", flush=True)
    return failed


def main() -> int:
    """Run, and print how often each test failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20, help="how many times (20)")
    parser.add_argument("--load", type=int, default=0, help="how many busy loops beside (none)")
    parser.add_argument("--logs", type=Path, default=None, help="where the output of each run goes")
    options, arguments = parser.parse_known_args()
    logs = options.logs or Path(os.environ.get("TMPDIR", "/tmp")) / f"sandboxsync-stress-{os.getpid()}"
    logs.mkdir(parents=True, exist_ok=True)
    failures: Counter[str] = Counter()
    bad_runs = 0
    with load(options.load):
        for number in range(1, options.runs + 1):
            failed = run(number, arguments, logs)
            failures.update(failed)
            bad_runs += bool(failed)
    print(f"{options.runs - bad_runs} of {options.runs} runs passed; the output is in {logs}")
    for name, count in failures.most_common():
        print(f"{count:4} x {name}")
    return bool(bad_runs)


if __name__ == "__main__":
    sys.exit(main())
