"""Programs for `_child` about the lives of interpreters: forks, ends, and what is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NoReturn

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, SandboxError, SessionTerminatedError

from ._child import make, program, tell, wait_for
from ._machine import descendants, descriptors, still_there


@program
def many_threads(source: str, count: str) -> list[str]:
    """As many threads, each with a session of its own, under a limit of 1,024 descriptors; what went wrong."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    barrier = threading.Barrier(int(count))
    wrong: list[str] = []

    def work(number: int) -> None:
        barrier.wait(60)
        with sandbox.session(env={"ME": str(number)}) as session:
            for round_ in range(3):
                result = session.exec(f'N=$((N + 1)); echo "$ME {round_} $N"; echo err$ME >&2; sleep 0.01')
                expected = (f"{number} {round_} {round_ + 1}\n", f"err{number}\n")
                assert (result.stdout, result.stderr) == expected, result

    def run(number: int) -> None:
        try:
            work(number)
        except Exception as error:
            wrong.append(repr(error))

    with make(source) as transport, Sandbox(transport) as sandbox:
        threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(int(count))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        wrong += [thread.name for thread in threads if thread.is_alive()]
    return wrong


def _left() -> dict[str, int]:
    return {
        "descriptors": descriptors(),
        "threads": threading.active_count(),
        "children": len(descendants(os.getpid())),
        "files": sum(len(names) + len(files) for _, names, files in os.walk(tempfile.gettempdir())),
    }


@program
def sessions_come_and_go(source: str, count: str) -> dict[str, int]:
    """Make, use and delete that many sessions in four threads; report what is there more than before."""

    def live(number: int) -> None:
        with sandbox.session(env={"ME": str(number)}) as session:
            assert session.exec("echo $ME").stdout == f"{number}\n"
            if number % 10 == 0:
                session.exec("sleep 60 & echo x > $HOME/file; trap true EXIT")
                session.write_file("f", "x")
            if number % 25 == 0:
                with session.exec_stream("sleep 60"):
                    sandbox.start_process("echo up").wait_for_exit(20)
                with suppress(CommandTimeoutError):
                    session.exec("while :; do :; done", timeout=0.1)
                with suppress(SessionTerminatedError):
                    session.exec("exit 3")

    with make(source) as transport, Sandbox(transport) as sandbox, ThreadPoolExecutor(4) as pool:
        list(pool.map(live, range(8)))
        sandbox.cleanup_completed_processes()
        before = _left()
        list(pool.map(live, range(8, 8 + int(count))))
        sandbox.cleanup_completed_processes()
        wait_for(lambda: all(_left()[name] <= value for name, value in before.items()), 5)
        return {name: max(0, value - before[name]) for name, value in _left().items()}


@program
def hold(source: str, end: str) -> None:
    """Have a busy sandbox, say so, and end the interpreter in the way that is asked for."""
    transport = make(source)
    sandbox = Sandbox(transport)
    session = sandbox.create_session()
    session.exec("sleep 3600 & setsid sleep 3600 &")
    sandbox.start_process("trap '' TERM HUP INT; sleep 3600; sleep 3600")
    _in_background(sandbox, "touch begun; sleep 3600")
    assert wait_for(lambda: sandbox.exists("begun"))
    tell({"child": _sleeper() if end == "forked" else None})
    if end in ("signal", "forked"):
        session.exec("sleep 3600")
        raise AssertionError("nobody ended this")
    # Until whoever reads this has counted the processes.
    sys.stdin.read()
    if end == "os._exit":
        os._exit(0)
    if end == "exception":
        raise LookupError("the end")
    if end == "sys.exit":
        sys.exit(0)
    return None


def _in_background(sandbox: Sandbox, command: str) -> threading.Thread:
    def run() -> None:
        with suppress(SandboxError):
            sandbox.exec(command, session_id="busy")

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def _sleeper() -> int:
    pid = os.fork()
    if pid == 0:
        # Of what it has from its parent it gives back only what the suite reads from, and keeps the rest open.
        for descriptor in (1, 2):
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
        signal.pause()
        os._exit(0)
    return pid


@program
def fork(source: str, end: str, goes_on: str) -> dict[str, Any]:
    """Use what was made before a fork in parent and child; report what each saw."""
    transport = make(source)
    sandbox = Sandbox(transport)
    sandbox.mkdir("d")
    session = sandbox.create_session("s", env={"A": "1"}, cwd="d")
    session.exec("P=parent; echo parent > file; sleep 3600 &")
    job = sandbox.start_process("sleep 3600")
    busy = _in_background(sandbox, "touch begun; until test -e go; do sleep 0.02; done; touch went")
    assert wait_for(lambda: sandbox.exists("begun"))
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _in_child(sandbox, session, end, goes_on == "same sessions", writer)
    os.close(writer)
    with open(reader) as pipe:
        child = json.loads(pipe.read() or "null")
    report: dict[str, Any] = {"child": child, "status": os.waitpid(pid, 0)[1]}
    started = {int(number): born for number, born in child.pop("started").items()}
    report["left by child"] = not wait_for(lambda: not still_there(started), 4)
    result = session.exec('echo "$A $P ${PWD##*/} $(cat file)"; jobs -r | grep -c sleep', timeout=20)
    report["session"] = result.stdout
    report["job"] = job.refresh().status
    sandbox.write_file("go", "")
    busy.join(20)
    report["went"] = sandbox.exists("went")
    sandbox.destroy()
    transport.close()
    return report


def _in_child(sandbox: Sandbox, session: Session, end: str, shared: bool, writer: int) -> NoReturn:
    report: dict[str, Any] = {"started": {}}
    try:
        report["session"] = session.exec('echo "$A ${PWD##*/} $(cat file)"; V=child', timeout=20).stdout
        report["kept"] = session.exec("echo $V", timeout=20).stdout
        report["busy"] = sandbox.exec("echo free", session_id="mine" if shared else "busy", timeout=20).stdout
        report["default"] = sandbox.exec("cat d/file", timeout=20).stdout
        with sandbox.session() as other:
            other.write_file("from-child", "x")
            report["new"] = other.exec("cat from-child", timeout=20).stdout
        process = sandbox.start_process("echo started; sleep 3600")
        report["process"] = process.wait_for_log("started", timeout=20).line
        report["started"] = descendants(os.getpid())
        if end == "close":
            sandbox.transport.close()
        elif shared:
            sandbox.delete_session("mine")
        elif end == "destroy":
            sandbox.destroy()
        elif end == "delete":
            sandbox.delete_session("s")
    except BaseException as error:
        report["error"] = repr(error)
    os.write(writer, json.dumps(report).encode())
    os.close(writer)
    if end == "os._exit":
        os._exit(0)
    sys.exit(0)
