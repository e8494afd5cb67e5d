"""What the tests of the suite share: needs, bounds on time, calls in threads, looks into a sandbox from inside."""

from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar, cast

import pytest

from sandboxsync import Sandbox
from sandboxsync.transports.base import Capability, Transport

T = TypeVar("T")
_Test = TypeVar("_Test", bound=Callable[..., object])

SLACK = float(os.environ.get("SANDBOXSYNC_SLACK", "2"))
"""Seconds granted on top of every bound: the machine may be busy."""

_NEEDS = "_sandboxsync_needs"
_NEEDS_FOR = "_sandboxsync_needs_for"
_REAL_TIME = "_sandboxsync_real_time"
_numbers = itertools.count(1)


def requires(*capabilities: Capability) -> Callable[[_Test], _Test]:
    """Mark a test that only a transport with all of these capabilities can pass."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NEEDS, capabilities)
        return test

    return mark


def requires_for(values: Collection[object], *capabilities: Capability) -> Callable[[_Test], _Test]:
    """Mark a parametrized test of which only some *values* need all of these capabilities."""

    def mark(test: _Test) -> _Test:
        setattr(test, _NEEDS_FOR, [*getattr(test, _NEEDS_FOR, []), (values, capabilities)])
        return test

    return mark


def in_real_time(test: _Test) -> _Test:
    """Mark a test that does something while a command sleeps: a clock that jumps over sleep must not do so in it."""
    setattr(test, _REAL_TIME, True)
    return test


def real_time(transport: Transport) -> AbstractContextManager[object]:
    """A block in which the clock of *transport* does not jump."""
    paused = getattr(transport.clock, "paused", nullcontext)
    return cast("AbstractContextManager[object]", paused())


def time_of(request: pytest.FixtureRequest, transport: Transport) -> AbstractContextManager[object]:
    """The kind of time that the test of *request* runs in."""
    return real_time(transport) if getattr(request.function, _REAL_TIME, False) else nullcontext()


def skip_unless_able(request: pytest.FixtureRequest, transport: Transport) -> None:
    """Skip the test of *request* when *transport* lacks what the test `requires`: the one way out of the suite."""
    needs: list[Capability] = list(getattr(request.function, _NEEDS, ()))
    call = getattr(request.node, "callspec", None)
    for values, capabilities in getattr(request.function, _NEEDS_FOR, ()):
        if call is not None and any(value in values for value in call.params.values()):
            needs += capabilities
    missing = [need.name for need in needs if need not in transport.capabilities]
    if missing:
        pytest.skip(f"{transport.name} has no {', '.join(missing)}")


def make_transport(source: str) -> Transport:
    """Return what *source* makes: a Python expression over the name `sandboxsync`."""
    import sandboxsync

    return cast(Transport, eval(source, {"sandboxsync": sandboxsync}))


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fail when the block takes more than *seconds* and `SLACK`."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds + SLACK, f"took {took:.2f} s, {seconds} s are allowed"


def eventually(condition: Callable[[], T], timeout: float = 5.0) -> T:
    """Return the first true value of *condition*, which is asked again and again for *timeout* s and `SLACK`."""
    deadline = time.monotonic() + timeout + SLACK
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"still {value!r} after {timeout + SLACK} s"
        time.sleep(0.02)


def stays(condition: Callable[[], object], seconds: float) -> None:
    """Fail as soon as *condition* is false within the next *seconds*."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert condition()
        time.sleep(0.05)


def start(function: Callable[[], T]) -> Future[T]:
    """Run *function* in a thread of its own, a daemon: one that hangs must not keep the interpreter alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def in_threads(count: int, function: Callable[[int], T], timeout: float = 60.0) -> list[T]:
    """Call *function* with 0, 1, … in *count* threads that begin at once; return the results in that order."""
    barrier = threading.Barrier(count)

    def run(number: int) -> T:
        barrier.wait(timeout)
        return function(number)

    futures = [start(partial(run, number)) for number in range(count)]
    deadline = time.monotonic() + timeout
    return [future.result(max(0.0, deadline - time.monotonic())) for future in futures]


def side_by_side(items: Iterable[T], function: Callable[[T], object], timeout: float = 60.0) -> None:
    """Call *function* with each of *items* at the same time; fail with all that failed."""
    calls = [(item, start(partial(function, item))) for item in items]
    deadline = time.monotonic() + timeout
    errors = [(item, call.exception(max(0.0, deadline - time.monotonic()))) for item, call in calls]
    failed = [f"{item!r}: {error!r}" for item, error in errors if error is not None]
    assert not failed, "\n".join(failed)


def unique(prefix: str = "x") -> str:
    """A name that no other test has."""
    return f"{prefix}-{os.getpid()}-{next(_numbers)}-{random.randrange(10**6)}"


def long_sleep() -> str:
    """A `sleep` of about an hour that can be told from all others by its text."""
    return f"sleep 36{next(_numbers):02d}.{os.getpid()}{random.randrange(10**6):06d}"


def observer(sandbox: Sandbox) -> Sandbox:
    """Another object for the same sandbox, whose commands belong to no session and so never wait."""
    return Sandbox(sandbox.transport, id=sandbox.id, enable_default_session=False)


def running(sandbox: Sandbox, *commands: str) -> list[str]:
    """Those of *commands*, such as `long_sleep()`, that are the command line of a process in the sandbox."""
    seen = observer(sandbox).exec("cat /proc/[0-9]*/cmdline 2>/dev/null").stdout_bytes
    return [command for command in commands if command.replace(" ", "\0").encode() in seen]


def has_process(sandbox: Sandbox, pid: int | str) -> bool:
    """Whether *pid* exists in the sandbox, be it as a zombie."""
    return observer(sandbox).exec(f"test -d /proc/{pid}").success


def file_exists(sandbox: Sandbox, name: str) -> bool:
    """Whether the workspace has *name*, seen without a turn in any session."""
    return observer(sandbox).exists(name)


class _Recorder:
    """A transport that notes which of its methods are called."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._transport, name)
        if not callable(value):
            return value

        def call(*args: object, **kwargs: object) -> object:
            self.calls.append(name)
            return value(*args, **kwargs)

        return call


def recorded(transport: Transport) -> tuple[Transport, list[str]]:
    """*transport* as it is, and the list that the names of its methods are added to when they are called."""
    recorder = _Recorder(transport)
    return cast(Transport, recorder), recorder.calls


def python_program(
    name: str,
    source: str,
    *arguments: str,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """Start a function of `_child` in an interpreter of its own; *source* makes the transport there."""
    return subprocess.Popen(
        [sys.executable, "-m", "sandboxsync.testing._child", name, source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {}), "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def run_program(
    name: str, source: str, *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 60.0
) -> Any:
    """Run a function of `_child` to its end and return what it reported; fail when it failed or complained."""
    with python_program(name, source, *arguments, env=env) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        finally:
            process.kill()
    assert (process.returncode, err) == (0, ""), f"exit code {process.returncode}\n{out}\n{err}"
    return json.loads(out.splitlines()[-1]) if out else None
