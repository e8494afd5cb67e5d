"""Build and test a small project in two sessions of one sandbox, side by side.

Each session is a shell of its own, with its own variables and directory; both see the same files. Their output is
shown as it comes. One command of the tests hangs on purpose: it is stopped after a second, and its session goes on.
"""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sandboxsync import CommandTimeoutError, ExecResult, LocalTransport, Sandbox, Session

PROJECT = Path(__file__).resolve().with_name("project")

started = time.monotonic()
printing = threading.Lock()


def say(who: str, text: str) -> None:
    """Print lines, each with the time and whose it is."""
    with printing:
        for line in text.splitlines():
            print(f"{time.monotonic() - started:5.2f} s  {who:<5} | {line}", flush=True)


def run(session: Session, command: str, timeout: float | None = None) -> ExecResult:
    """Run a command, show its output line by line as it comes, and return its result."""
    say(session.id, f"$ {command}")
    rest = {"stdout": "", "stderr": ""}

    def show(stream: str, text: str) -> None:
        lines, newline, rest[stream] = (rest[stream] + text).rpartition("\n")
        say(session.id, lines + newline)

    try:
        return session.exec(command, timeout=timeout, check=True, on_output=show)
    finally:
        for text in rest.values():
            say(session.id, text)


def build(sandbox: Sandbox) -> str:
    """Build the program and run it; return what it printed."""
    with sandbox.session("build", env={"MODE": "release"}, cwd="project") as session:
        run(session, "export VERSION=$(cat VERSION)")
        run(session, "./build.sh")
        run(session, "cd dist")
        # The shell still knows VERSION, and where it is.
        return run(session, "echo to be or not to be | python3 wordfreq-$VERSION.pyz").stdout


def test(sandbox: Sandbox) -> str:
    """Run the tests, then a command that hangs; return what the session still knows afterwards."""
    with sandbox.session("test", env={"PYTHONPATH": "..", "PYTHONUNBUFFERED": "1"}, cwd="project/tests") as session:
        run(session, "python3 -m unittest -v && TESTED=yes")
        try:
            run(session, "echo waiting for a server that never comes; sleep 60", timeout=1)
        except CommandTimeoutError as error:
            say(session.id, f"{error}; it had printed {error.stdout!r}")
        return run(session, 'echo "TESTED=$TESTED in $(basename "$PWD")"').stdout.strip()


def main() -> int:
    """Run both side by side."""
    with LocalTransport() as transport, Sandbox(transport) as sandbox:
        sandbox.upload(PROJECT, "project", exclude=["__pycache__"])
        with ThreadPoolExecutor() as pool:
            building, testing = pool.submit(build, sandbox), pool.submit(test, sandbox)
            built, tested = building.result(), testing.result()
        programs = ", ".join(file.name for file in sandbox.list_files("project/dist"))
    print()
    print(f"built   {programs}; which says {built.splitlines()[0].strip()!r} first")
    print(f"tested  after the timeout its shell still has {tested}")
    print(f"done    in {time.monotonic() - started:.1f} s; the sandbox, its shells and its files are gone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
