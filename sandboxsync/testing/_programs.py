"""What an interpreter of its own must try: programs for `_child`. Each returns what it has seen, for JSON."""

from __future__ import annotations

import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sandboxsync import Sandbox
from sandboxsync.errors import CommandTimeoutError

from ._child import make, program, wait_for
from ._machine import descendants, descriptors

_PR_GET_CHILD_SUBREAPER = 37


@program
def look_around(source: str) -> dict[str, tuple[str, str, str]]:
    """What a command sees in each kind of session."""
    look = "set -- a b; echo ok $* '*' $?; mkdir -p d; cd d; echo ${PWD##*/}; cd .."
    report = {}
    with make(source) as transport, Sandbox(transport) as sandbox:
        plain = Sandbox(transport, id=sandbox.id, enable_default_session=False)
        with sandbox.session() as session:
            for kind, caller in (("default", sandbox), ("session", session), ("no session", plain)):
                result = caller.exec(look)
                report[kind] = (result.stdout, result.stderr, caller.exec("set; env").stdout)
        process = sandbox.start_process(look + "; env >&2")
        process.wait_for_exit(20)
        logs = process.logs()
        report["process"] = (logs.stdout, "", logs.stderr)
    return report


@program
def stop_commands(source: str, count: str) -> dict[str, int]:
    """Stop that many commands at their timeouts; report the children and descriptors that are there more."""
    with make(source) as transport, Sandbox(transport) as sandbox:
        sandbox.exec("true")
        children, open_ = len(descendants(os.getpid())), descriptors()
        for _ in range(int(count)):
            try:
                sandbox.exec("sleep 9", timeout=0.05)
            except CommandTimeoutError:
                continue
            raise AssertionError("no timeout")
        sandbox.exec("true")
        wait_for(lambda: len(descendants(os.getpid())) <= children, 3)
        return {"children": len(descendants(os.getpid())) - children, "descriptors": descriptors() - open_}


@program
def interrupt(source: str, mark: str) -> dict[str, Any]:
    """Get SIGINT while a command, a stream or its result is waited for; report what the session knows then."""
    report: dict[str, Any] = {}
    with make(source) as transport, Sandbox(transport) as sandbox:
        sandbox.exec("V=kept")
        look = Sandbox(transport, id=sandbox.id, enable_default_session=False)

        def press(name: str) -> None:
            wait_for(lambda: look.exists(name))
            os.kill(os.getpid(), signal.SIGINT)

        for kind in ("exec", "exec_stream", "result"):
            name = f"{mark}-{kind}"
            command = f"echo up; touch {name}; sleep 1; touch late"
            finger = threading.Thread(target=press, args=(name,))
            try:
                finger.start()
                if kind == "exec":
                    sandbox.exec(command)
                else:
                    with sandbox.exec_stream(command) as stream:
                        if kind == "result":
                            stream.result()
                        else:
                            list(stream)
            except KeyboardInterrupt:
                report[kind] = sandbox.exec("echo $V", timeout=20).stdout.strip()
            finger.join()
        report["late"] = wait_for(lambda: look.exists("late"), 1.2)
    return report


def state() -> dict[str, str]:
    """What a process has only one of."""
    os.umask(mask := os.umask(0))
    reaper = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(reaper))
    facts: dict[str, object] = {
        "signals": {number: signal.getsignal(number) for number in signal.valid_signals()},
        "mask": signal.pthread_sigmask(signal.SIG_BLOCK, []),
        "timers": [signal.getitimer(timer) for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL)],
        "umask": mask,
        "cwd": os.getcwd(),
        "environ": dict(os.environ),
        "limits": [resource.getrlimit(kind) for kind in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
        "socket timeout": socket.getdefaulttimeout(),
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "tracing": (sys.gettrace(), sys.getprofile()),
        "switches": (sys.getswitchinterval(), sys.getrecursionlimit(), gc.isenabled()),
        "subreaper": reaper.value,
        "group": (os.getpgrp(), os.getsid(0)),
    }
    return {name: repr(fact) for name, fact in facts.items()}


@program
def process_wide_state(source: str) -> list[str]:
    """What using the transport changes for the whole process."""
    before = state()
    seen = []

    def use(sandbox: Sandbox) -> None:
        sandbox.exec("trap '' INT; ulimit -c 0; umask 077; mkdir -p d; cd d; export A=1", stdin="x")
        try:
            sandbox.exec("sleep 9", timeout=0.1)
        except CommandTimeoutError:
            sandbox.start_process("sleep 9").kill()
        with sandbox.exec_stream("sleep 9"):
            seen.append(state())
        sandbox.write_file("f", "x")
        seen.append(state())

    with make(source) as transport:
        with Sandbox(transport) as sandbox, ThreadPoolExecutor(1) as pool:
            use(sandbox)
            pool.submit(use, sandbox).result()
        seen.append(state())
    return [name for later in seen for name in before if later[name] != before[name]]
