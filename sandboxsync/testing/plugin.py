"""The plugin for pytest: sandboxes for tests, a look at what a test left in them, and the commands of a failed test.

pytest loads this in every run once the package is installed. So it imports nothing until a fixture is used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

if TYPE_CHECKING:
    from sandboxsync import FakeTransport, Sandbox
    from sandboxsync.transports.base import Transport

    from ._observed import Journal

_SANDBOX_OPTIONS = ("command_timeout", "enable_default_session", "env")
_MARK_OPTIONS = ("transport", "leaks", *_SANDBOX_OPTIONS)

_MARK_HELP = (
    "sandbox(*, transport=None, leaks='fail', env=None, command_timeout=None, enable_default_session=True): "
    "what the sandbox fixtures give this test. transport: 'fake', 'local', a URL, a transport, or a callable that "
    "makes one; it wins over --sandbox. leaks='ignore' allows sessions and processes to be left behind."
)

_GRACE = 1.0
"""Seconds that processes which are about to end are given."""


class _Mark(NamedTuple):
    """What the marks of a test say."""

    transport: object
    leaks: str
    options: dict[str, Any]


class _Record:
    """What is known of a test that uses a sandbox."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.passed = False


_RECORD: pytest.StashKey[_Record] = pytest.StashKey()


# Hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sandbox`."""
    parser.getgroup("sandboxsync", "sandboxes").addoption(
        "--sandbox",
        metavar="WHERE",
        default="fake",
        help="where the sandbox fixture runs commands: 'fake' (in memory, the default), 'local' (this machine, without "
        "isolation), or a URL that sandboxsync.connect takes",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Tell of the mark, and refuse a `--sandbox` that can mean nothing."""
    config.addinivalue_line("markers", _MARK_HELP)
    where = config.getoption("--sandbox")
    if not _is_place(where):
        raise pytest.UsageError(f"--sandbox takes 'fake', 'local' or a URL, not {where!r}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Note whether the test passed, and show its commands where it, its setup or its teardown failed."""
    report: pytest.TestReport = (yield).get_result()
    record = item.stash.get(_RECORD, None)
    if record is None:
        return
    if report.when == "call":
        record.passed = report.passed
    if report.failed and (text := str(record.journal)):
        report.sections.append(("sandbox commands", text))
    if report.when == "teardown":
        # A test that is run again begins anew.
        del item.stash[_RECORD]


# Fixtures


@pytest.fixture
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox that nobody has used yet: where the mark says, else where `--sandbox` says; by default in memory."""
    mark = _mark_of(request.node)
    where = request.config.getoption("--sandbox") if mark.transport is None else mark.transport
    with _given(request, where, mark) as sandbox:
        yield sandbox


@pytest.fixture
def fake_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox in memory that nobody has used yet. `fake_transport` scripts its commands."""
    with _given(request, "fake", _mark_of(request.node)) as sandbox:
        yield sandbox


@pytest.fixture
def local_sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox on this machine, without isolation, that nobody has used yet."""
    with _given(request, "local", _mark_of(request.node)) as sandbox:
        yield sandbox


@pytest.fixture
def fake_transport() -> Iterator[FakeTransport]:
    """The transport of this test's sandboxes in memory, to script what commands do there."""
    with closing(_make_fake()) as transport:
        yield transport


def _make_fake() -> FakeTransport:
    try:
        from sandboxsync import FakeTransport
    except ImportError as error:
        raise _failure(f"{error}; --sandbox=local runs the sandbox fixture on this machine") from None
    return FakeTransport()


# From a mark to a sandbox


def _mark_of(node: pytest.Item) -> _Mark:
    said: dict[str, Any] = {}
    for mark in node.iter_markers("sandbox"):
        if mark.args:
            raise _wrong("it takes keyword arguments only")
        # The closest one comes first, and wins argument by argument.
        said = {**mark.kwargs, **said}
    for name in said:
        if name not in _MARK_OPTIONS:
            raise _wrong(f"no argument is named {name!r}; there are {', '.join(_MARK_OPTIONS)}")
    leaks = said.get("leaks", "fail")
    if leaks not in ("fail", "ignore"):
        raise _wrong(f"leaks is 'fail' or 'ignore', not {leaks!r}")
    transport = said.get("transport")
    if not (transport is None or _is_place(transport) or _is_transport(transport) or callable(transport)):
        raise _wrong(f"transport is a place such as 'local', a transport or a callable that makes one: {transport!r}")
    return _Mark(transport, leaks, {name: said[name] for name in _SANDBOX_OPTIONS if name in said})


def _wrong(why: object) -> BaseException:
    return _failure(f"@pytest.mark.sandbox: {why}")


def _failure(text: str) -> BaseException:
    # Without a traceback, which would show this plugin to somebody who looks for a fault of a test.
    return pytest.fail.Exception(text, pytrace=False)


def _is_place(where: object) -> bool:
    return isinstance(where, str) and (where in ("fake", "local") or ":" in where)


def _is_transport(value: object) -> bool:
    return hasattr(value, "run") and not isinstance(value, type)


@contextmanager
def _given(request: pytest.FixtureRequest, where: object, mark: _Mark) -> Iterator[Sandbox]:
    """A sandbox that ends with the block, which fails when it left something behind."""
    from sandboxsync import ConfigurationError, InvalidRequestError, Sandbox

    from ._observed import Journal, Observed

    node: pytest.Item = request.node
    with _hosting(request, where) as transport:
        record = node.stash.setdefault(_RECORD, _Record(Journal()))
        observed = Observed(transport, record.journal)
        try:
            sandbox = Sandbox(cast("Transport", observed), **mark.options)
        except InvalidRequestError as error:
            raise _wrong(error) from None
        left: list[str] = []
        try:
            yield sandbox
            # A sandbox that was not used is not started to look; a test that failed may have stopped early.
            if mark.leaks == "fail" and observed._used and record.passed:
                left = _left_behind(sandbox)
        finally:
            if observed._used:
                # By the transport, because the test may have closed the sandbox; it may have closed the transport too.
                with suppress(ConfigurationError):
                    transport.destroy(sandbox.id)
    if left:
        raise _failure(
            f"the test left behind in its sandbox: {', '.join(left)}\n"
            "Delete and kill what a test makes, or allow it: @pytest.mark.sandbox(leaks='ignore')"
        )


@contextmanager
def _hosting(request: pytest.FixtureRequest, where: object) -> Iterator[Transport]:
    """The transport that is meant; one that is made here is closed at the end of the block."""
    if where == "fake":
        yield request.getfixturevalue("fake_transport")
    elif _is_transport(where):
        yield cast("Transport", where)
    elif isinstance(where, str):
        with closing(_connected(where)) as transport:
            yield transport
    else:
        transport = cast("Callable[[], Transport]", where)()
        if not _is_transport(transport):
            raise _wrong(f"transport made {transport!r}, which is no transport")
        with closing(transport):
            yield transport


def _connected(where: str) -> Transport:
    from sandboxsync import ConfigurationError, connect

    try:
        return connect("local:" if where == "local" else where).transport
    except ConfigurationError as error:
        raise _failure(f"no sandbox at {where!r}: {error}") from None


def _left_behind(sandbox: Sandbox) -> list[str]:
    """Return the sessions and running processes of a sandbox by name; nothing when it, or the way to it, is gone."""
    from sandboxsync import SandboxError

    deadline = time.monotonic() + _GRACE
    left: list[str] = []
    try:
        left += [f"session {name!r}" for name in sandbox.list_sessions() if name != "default"]
        for process in sandbox.list_processes():
            with suppress(SandboxError):
                process.wait_for_exit(max(0.0, deadline - time.monotonic()))
            if process.status in ("starting", "running"):
                left.append(f"process {process.id!r} ({process.command})")
    except SandboxError:
        pass
    return left
