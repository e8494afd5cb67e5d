"""C1 to C6: many threads, forks, and what is left of it all."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from sandboxsync import Process, Sandbox, Session
from sandboxsync.models import Started
from sandboxsync.transports.base import Capability, Transport

from ._machine import descendants, mentioning, still_there
from ._tools import (
    eventually,
    in_real_time,
    in_threads,
    long_sleep,
    python_program,
    requires,
    run_program,
    running,
    side_by_side,
    start,
    within,
)

ENDS: dict[str, tuple[str, Callable[[subprocess.Popen[str]], None]]] = {
    "return": ("return", lambda process: None),
    "sys.exit": ("sys.exit", lambda process: None),
    "exception": ("exception", lambda process: None),
    "os._exit": ("os._exit", lambda process: None),
    "Ctrl-C": ("signal", lambda process: process.send_signal(signal.SIGINT)),
    "SIGTERM": ("signal", lambda process: process.terminate()),
    "SIGKILL": ("signal", lambda process: process.kill()),
    "SIGKILL with a forked child alive": ("forked", lambda process: process.kill()),
}
TIDY = ("return", "sys.exit", "exception", "Ctrl-C")


class ConcurrencyRules:
    """Rules C1 to C6."""

    sessions_made = 1000
    """How many sessions the test of C5 makes and deletes; a slow transport may say less."""
    threads_used = 200
    """How many threads the test of C1 has at once; a service with fewer places may say less."""
    forks_share_sessions = False
    """Whether a forked child goes on in the very sessions of its parent, because they live elsewhere: what it deletes
    there is gone for both. Otherwise it has new shells, and cannot end anything of its parent."""

    def test_C1_many_threads_with_a_session_each(self, transport_source: str) -> None:
        """No deadlock, no mixed output, within a limit of 1,024 descriptors."""
        wrong = run_program("many_threads", transport_source, str(self.threads_used), timeout=110)
        assert not wrong, (len(wrong), wrong[:3])

    def test_C1_eight_threads_on_one_session(self, session: Session) -> None:
        """Each gets its own output, and every command ran once."""

        def work(number: int) -> None:
            for round_ in range(10):
                result = session.exec(f"N=$((N + 1)); echo {number} {round_}; echo err{number} >&2; (exit {number})")
                assert result.stdout == f"{number} {round_}\n"
                assert (result.stderr, result.exit_code) == (f"err{number}\n", number)

        in_threads(8, work)
        assert session.exec("echo $N").stdout == "80\n"

    def test_C1_what_is_made_in_one_thread_ends_in_another(self, sandbox: Sandbox) -> None:
        """Sessions, streams and processes may be made, used and ended in different threads."""
        session = start(lambda: sandbox.create_session("s")).result(20)
        stream = start(lambda: session.exec_stream("echo a; sleep 60")).result(20)
        assert isinstance(start(lambda: next(stream)).result(20), Started)
        start(stream.close).result(20)
        process = start(lambda: session.start_process("sleep 60")).result(20)
        start(process.kill).result(20)
        assert session.exec("echo ok").stdout == "ok\n"
        start(session.delete).result(20)
        assert sandbox.list_sessions() == []

    def test_C2_simultaneous_first_uses_make_one_session(self, sandbox: Sandbox) -> None:
        """Of a session, of the default session, and of the sandbox itself."""
        for session_id in ("new", "newer", None):
            use = partial(sandbox.exec, "N=$((N + 1)); echo $N", session_id=session_id)
            results = in_threads(10, lambda i, use=use: use())  # type: ignore[misc]
            assert sorted(int(result.stdout) for result in results) == list(range(1, 11))
        assert sandbox.list_sessions() == ["default", "new", "newer"]

    def test_C2_simultaneous_first_uses_by_different_objects(self, transport: Transport, sandbox: Sandbox) -> None:
        """The objects need not know of each other."""
        objects = [Sandbox(transport, id=sandbox.id) for _ in range(10)]
        results = in_threads(10, lambda i: objects[i].get_session("new").exec("N=$((N + 1)); echo $N"))
        assert sorted(int(result.stdout) for result in results) == list(range(1, 11))
        assert sandbox.list_sessions() == ["new"]

    @pytest.mark.parametrize("end", ["os._exit", "sys.exit", "close", "delete", "destroy"])
    def test_C3_a_forked_child_may_go_on(self, transport_source: str, end: str) -> None:
        """It works with what its parent made, and whatever it ends, the parent keeps all it had."""
        report = run_program(
            "fork", transport_source, end, "same sessions" if self.forks_share_sessions else "own shells"
        )
        child = report.pop("child")
        assert child == {
            "session": "1 d parent\n",
            "kept": "child\n",
            "busy": "free\n",
            "default": "parent\n",
            "new": "x",
            "process": "started",
        }
        assert report == {
            "status": 0,
            "left by child": False,
            "session": "1 parent d parent\n1\n",
            "job": "running",
            "went": True,
        }

    def test_C3_importing_starts_no_thread(self) -> None:
        """Nor does it load what only some transports need, or print anything."""
        script = (
            "import sys, threading; import sandboxsync; sandboxsync.Sandbox, sandboxsync.connect;"
            " print(threading.active_count(), 'requests' in sys.modules, 'pytest' in sys.modules)"
        )
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        result = subprocess.run(
            [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, timeout=60, env=environment
        )
        assert (result.stdout, result.stderr) == ("1 False False\n", "")

    def test_C4_nothing_process_wide_is_changed(self, transport_source: str) -> None:
        """Neither signal handlers nor timers, limits, hooks, umask, directory or environment."""
        assert run_program("process_wide_state", transport_source) == []

    @in_real_time
    def test_C4_signals_of_the_caller_are_the_callers(self, session: Session) -> None:
        """A handler and a timer that the caller set work while a command runs, and do not disturb it."""
        seen: list[int] = []
        if threading.current_thread() is not threading.main_thread():
            pytest.skip("only the main thread may set a handler")
        old = signal.signal(signal.SIGALRM, lambda number, frame: seen.append(number))
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.05, 0.05)
            result = session.exec("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, old)
        assert (result.stdout, result.exit_code) == ("1\n2\n3\n4\n5\n", 0)
        assert len(seen) > 1

    def test_C5_nothing_is_left_of_deleted_sessions(self, transport_source: str, tmp_path: Path) -> None:
        """After many sessions there is no descriptor, thread, child process or temporary file more than before."""
        (tmp_path / "tmp").mkdir()
        report = run_program(
            "sessions_come_and_go",
            transport_source,
            str(self.sessions_made),
            env={"TMPDIR": str(tmp_path / "tmp")},
            timeout=110,
        )
        assert report == {"descriptors": 0, "threads": 0, "children": 0, "files": 0}
        assert list((tmp_path / "tmp").iterdir()) == []

    @pytest.mark.parametrize("tidy", [True, False], ids=["in order", "at once"])
    def test_C5_no_process_outlives_the_interpreter(self, transport_source: str, tmp_path: Path, tidy: bool) -> None:
        """However it ends, all that it started here is gone within 2 s, and temporary files if there was time."""

        def try_one(kind: str) -> None:
            self.end_interpreter(transport_source, tmp_path / kind.replace(" ", "-"), kind)

        side_by_side([kind for kind in ENDS if (kind in TIDY) == tidy], try_one, 100)

    def end_interpreter(self, transport_source: str, temporary: Path, kind: str) -> None:
        """Let an interpreter with a busy sandbox end in one way, and look for what it leaves."""
        end, finish = ENDS[kind]
        temporary.mkdir(parents=True)
        with python_program("hold", transport_source, end, env={"TMPDIR": str(temporary)}) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            child: int | None = None
            try:
                child = json.loads(process.stdout.readline() or "{}").get("child")
                started = {pid: born for pid, born in descendants(process.pid).items() if pid != child}
                process.stdin.close()
                finish(process)
                process.wait(20)
                eventually(lambda: not still_there(started), 2)
                eventually(lambda: [pid for pid in mentioning(str(temporary)) if pid != child] == [], 2)
            finally:
                process.kill()
                if child is not None:
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
            assert process.stderr is not None
            complaints = process.stderr.read()
        if kind in TIDY:
            assert list(temporary.iterdir()) == []
        if kind in ("return", "sys.exit"):
            assert complaints == ""
            assert process.returncode == 0

    @in_real_time
    def test_C5_a_closed_transport_has_nothing_left(self, transport: Transport, sandbox: Sandbox) -> None:
        """`close` ends what is there, and later calls say that it is closed."""
        before = descendants(os.getpid())
        call = start(lambda: sandbox.exec("sleep 60"))
        sandbox.start_process("sleep 60")
        sandbox.exec("sleep 60 &", session_id="s")
        transport.close()
        assert call.exception(10) is not None
        eventually(lambda: not still_there({p: b for p, b in descendants(os.getpid()).items() if p not in before}), 2)
        transport.close()
        with pytest.raises(ValueError, match="closed"):
            sandbox.exec("true")
        sandbox.close()

    def test_C6_a_sandbox_outlives_the_thread_that_began_it(self, transport: Transport) -> None:
        """What was first used in a thread works on after that thread has ended."""
        with Sandbox(transport) as sandbox:

            def begin() -> tuple[Session, Process]:
                session = sandbox.create_session("s")
                session.exec("V=kept")
                sandbox.exec("W=kept")
                return session, sandbox.start_process("echo up; sleep 60")

            thread = threading.Thread(target=lambda: made.append(begin()))
            made: list[tuple[Session, Process]] = []
            thread.start()
            thread.join(60)
            session, process = made[0]
            assert session.exec("sleep 0.3; echo $V").stdout == "kept\n"
            assert sandbox.exec("echo $W").stdout == "kept\n"
            assert process.refresh().status == "running"
            with within(3):
                process.kill()

    @requires(Capability.OS_PROCESSES)
    def test_C6_so_do_jobs_and_running_commands(self, sandbox: Sandbox) -> None:
        """Neither a background job nor the shell is tied to the thread that started it."""
        job = long_sleep()
        start(lambda: sandbox.exec(f"{job} &")).result(20)
        start(lambda: sandbox.start_process("sleep 60")).result(20)
        stream = start(lambda: sandbox.exec_stream("sleep 0.3; echo done", session_id="s")).result(20)
        assert stream.result().stdout == "done\n"
        assert running(sandbox, job) == [job]
        assert [process.status for process in sandbox.list_processes()] == ["running"]
