"""Faults, files and restarts of the fake, as a test asks for them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from sandboxsync import Sandbox
from sandboxsync.errors import (
    AuthenticationError,
    CommandTimeoutError,
    InvalidRequestError,
    NoSpaceError,
    ProcessNotFoundError,
    SandboxPermissionError,
    SandboxUnavailableError,
    SessionTerminatedError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.models import Completed
from sandboxsync.transports.fake import FakeClock, FakeTransport


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A fake that this test alone uses."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def sandbox(fake: FakeTransport) -> Sandbox:
    """A sandbox of it."""
    return Sandbox(fake, id="box")


# Calls that fail

VERBS: dict[str, Callable[[Sandbox], object]] = {
    "exec": lambda sandbox: sandbox.exec("echo x"),
    "exec_stream": lambda sandbox: sandbox.exec_stream("echo x"),
    "set_env_vars": lambda sandbox: sandbox.create_session().set_env_vars({"A": "1"}),
    "create_session": lambda sandbox: sandbox.create_session(),
    "list_sessions": lambda sandbox: sandbox.list_sessions(),
    "delete_session": lambda sandbox: sandbox.create_session().delete(),
    "start_process": lambda sandbox: sandbox.start_process("sleep 1"),
    "list_processes": lambda sandbox: sandbox.list_processes(),
    "get_process": lambda sandbox: sandbox.get_process("x"),
    "kill_process": lambda sandbox: sandbox.start_process("sleep 1").kill(),
    "wait_for_exit": lambda sandbox: sandbox.start_process("true").wait_for_exit(),
    "wait_for_log": lambda sandbox: sandbox.start_process("echo x").wait_for_log("x"),
    "wait_for_port": lambda sandbox: sandbox.start_process("sleep 9").wait_for_port(80),
    "get_process_logs": lambda sandbox: sandbox.start_process("echo x").logs(),
    "write_file": lambda sandbox: sandbox.write_file("f", "x"),
    "read_file": lambda sandbox: sandbox.read_file("/etc/passwd"),
    "read_text": lambda sandbox: sandbox.read_text("/etc/passwd"),
    "read_bytes": lambda sandbox: sandbox.read_bytes("/etc/passwd"),
    "read_file_stream": lambda sandbox: sandbox.read_file_stream("/etc/passwd"),
    "mkdir": lambda sandbox: sandbox.mkdir("d"),
    "delete_file": lambda sandbox: sandbox.delete_file("f"),
    "rename_file": lambda sandbox: sandbox.rename_file("f", "g"),
    "list_files": lambda sandbox: sandbox.list_files(),
    "exists": lambda sandbox: sandbox.exists("f"),
    "stat": lambda sandbox: sandbox.stat("/etc"),
    "ping": lambda sandbox: sandbox.ping(),
    "workspace": lambda sandbox: sandbox.workspace,
    "destroy": lambda sandbox: sandbox.destroy(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_fails(sandbox: Sandbox, fake: FakeTransport, verb: str) -> None:
    """Each verb fails when it is told to, with the error that was asked for."""
    fake.fail(verb, TransportError)
    with pytest.raises(TransportError):
        VERBS[verb](sandbox)


def test_so_many_times(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A fault strikes as often as it says, in that operation and that sandbox alone; faults come in their order."""
    fake.fail("exec", AuthenticationError, times=2, sandbox="box")
    fake.fail("run", TransportError("no way", http_status=502))
    assert Sandbox(fake, id="other").ping()
    assert sandbox.exists("/etc")
    with pytest.raises(TransportError, match="no way"):
        Sandbox(fake, id="other").exec("true")
    for _ in range(2):
        with pytest.raises(AuthenticationError) as caught:
            sandbox.exec("touch made")
        assert (caught.value.http_status, caught.value.retryable) == (401, False)
    assert sandbox.exec("ls").stdout == ""


def test_a_copy_each_time(sandbox: Sandbox, fake: FakeTransport) -> None:
    """An error that is made is raised as another object each time, with all that it holds."""
    error = TransportError("m", code="C", http_status=502, context={"a": 1})
    fake.fail("ping", error, times=2)
    seen = []
    for _ in range(2):
        with pytest.raises(TransportError) as caught:
            sandbox.ping()
        seen.append(caught.value)
    assert seen[0] is not seen[1]
    assert error not in seen
    assert [(str(each), each.code, each.http_status, each.context) for each in seen] == [("m", "C", 502, {"a": 1})] * 2


def test_errors_of_files(sandbox: Sandbox, fake: FakeTransport) -> None:
    """The class of a file error is enough: it gets its errno and the file."""
    fake.fail("write_file", SandboxPermissionError)
    with pytest.raises(PermissionError) as caught:
        sandbox.write_file("d/f", "x")
    assert (caught.value.filename, caught.value.errno) == ("d/f", 13)
    assert not sandbox.exists("d")


@pytest.mark.parametrize(
    ("operation", "error", "options"),
    [
        ("close", TransportError, {}),
        ("fly", TransportError, {}),
        ("exec", ValueError, {}),
        ("exec", ValueError("x"), {}),
        ("exec", "x", {}),
        ("exec", TransportError, {"times": 0}),
        ("exec", TransportError, {"after_bytes": -1}),
        ("write_file", TransportError, {"after_bytes": 5}),
    ],
)
def test_faults_that_cannot_be(fake: FakeTransport, operation: str, error: object, options: dict[str, int]) -> None:
    """Unknown operations, errors that no sandbox raises, and numbers that are none are refused."""
    with pytest.raises(InvalidRequestError):
        fake.fail(operation, error, **options)  # type: ignore[arg-type]


# Streams that break


def test_a_command_breaks_off(sandbox: Sandbox, fake: FakeTransport) -> None:
    """After so many bytes the stream breaks, with the output so far; the command is stopped, and the session lives."""
    session = sandbox.create_session()
    session.exec("x=1")
    fake.fail("exec", after_bytes=8)
    with pytest.raises(StreamInterruptedError) as caught:
        session.exec("echo hello; sleep 1; echo world; sleep 1; touch late")
    assert (caught.value.stdout, caught.value.command[:10]) == ("hello\nwo", "echo hello")
    assert fake.calls[-1].error is caught.value
    assert session.exec("echo $x").stdout == "1\n"
    assert not sandbox.exists("late")


def test_a_command_breaks_off_before_its_end_is_told(sandbox: Sandbox, fake: FakeTransport) -> None:
    """With less output than that, or none at all, no success is told (H1)."""
    for after, output in ((0, ""), (3, "ab"), (100, "ab")):
        fake.fail("exec", after_bytes=after)
        with pytest.raises(StreamInterruptedError) as caught:
            sandbox.exec("printf ab")
        assert caught.value.stdout == output
    fake.fail("exec", SandboxUnavailableError, after_bytes=1)
    events: list[object] = []
    with pytest.raises(SandboxUnavailableError), sandbox.exec_stream("printf ab") as stream:
        events.extend(stream)
    assert not any(isinstance(event, Completed) for event in events)
    assert sandbox.exec("printf ab").stdout == "ab"


def test_a_file_breaks_off(sandbox: Sandbox, fake: FakeTransport) -> None:
    """So does the reading of a file."""
    sandbox.write_file("f", b"x" * 100_000)
    fake.fail("read_file", after_bytes=70_000)
    got = 0
    with pytest.raises(StreamInterruptedError), sandbox.read_file_stream("f", chunk_size=1000) as stream:
        for chunk in stream:
            got += len(chunk)
    assert got == 70_000
    fake.fail("read_file", after_bytes=1_000_000)
    with pytest.raises(StreamInterruptedError):
        sandbox.read_bytes("f")
    assert len(sandbox.read_bytes("f")) == 100_000


# A service that is not well


def test_unavailable(sandbox: Sandbox, fake: FakeTransport) -> None:
    """For so many calls, whatever they are, there is no room."""
    fake.unavailable(times=2, retry_after=3)
    for call in (sandbox.ping, lambda: sandbox.exec("true")):
        with pytest.raises(SandboxUnavailableError) as caught:
            call()
        error = caught.value
        assert (error.http_status, error.code, error.retryable) == (503, "capacity_exceeded", True)
        assert error.retry_after == 3
    assert sandbox.ping()


def test_heal(sandbox: Sandbox, fake: FakeTransport) -> None:
    """All faults can be taken back."""
    fake.unavailable(times=100)
    fake.fail("exec", after_bytes=0)
    fake.latency(100)
    fake.heal()
    assert sandbox.exec("echo ok").stdout == "ok\n"
    assert fake.clock.monotonic() < 50


def test_latency(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Every operation takes longer on the clock, and no longer in truth."""
    fake.latency(10)
    began, real = fake.clock.monotonic(), time.monotonic()
    sandbox.write_file("f", "x")
    sandbox.exec("true")
    assert 20 <= fake.clock.monotonic() - began < 21
    assert time.monotonic() - real < 2
    fake.latency(0)
    sandbox.exec("true")
    assert fake.clock.monotonic() - began < 21
    with pytest.raises(InvalidRequestError):
        fake.latency(-1)


def test_disk_full(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Nothing can be written while the disks are full, by calls and by commands; what is deleted makes room."""
    sandbox.write_file("old", b"x" * 100)
    with fake.disk_full() as full:
        with pytest.raises(NoSpaceError) as caught:
            sandbox.write_file("new", "x")
        assert caught.value.errno == 28
        result = sandbox.exec("echo x > new")
        assert result.exit_code == 1
        assert "No space left on device" in result.stderr
        with pytest.raises(NoSpaceError):
            Sandbox(fake, id="made-meanwhile").write_file("new", "x")
        sandbox.delete_file("old")
        sandbox.write_file("new", b"x" * 100)
    full.undo()
    sandbox.write_file("more", b"x" * 1000)
    Sandbox(fake, id="made-meanwhile").write_file("new", "x")


def test_one_disk_full(sandbox: Sandbox, fake: FakeTransport) -> None:
    """One sandbox may have no room while others have."""
    full = fake.disk_full("box")
    with pytest.raises(NoSpaceError):
        sandbox.write_file("new", "x")
    Sandbox(fake, id="other").write_file("new", "x")
    full.undo()
    sandbox.write_file("new", "x")


# Files and restarts


def test_files(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Files can be arranged before anything else is done, for one sandbox or for all new ones, and looked at."""
    fake.files["app/main.py"] = "print(1)\n"
    fake.sandbox("box").files["/etc/motd"] = b"hi\n"
    assert sandbox.exec("cat app/main.py /etc/motd; echo 2 > app/two").stdout == "print(1)\nhi\n"
    assert fake.sandbox("box").files == {"app/main.py": "print(1)\n", "app/two": "2\n", "/etc/motd": "hi\n"}
    assert fake.sandbox("other").files == {"app/main.py": "print(1)\n"}
    assert fake.files == {"app/main.py": "print(1)\n"}


def test_restart(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A sandbox that restarts has lost its files and sessions; whoever knew one is told once (S17)."""
    fake.files["base"] = "b"
    fake.on("tool", stdout="still\n")
    session, stranger = sandbox.create_session("s"), Sandbox(fake, id="box")
    session.exec("export A=1; echo x > made")
    process = sandbox.start_process("sleep 1000")
    handle = fake.sandbox("box")
    handle.restart()
    assert handle.files == {"base": "b"}
    assert stranger.exec("echo ok").stdout == "ok\n"
    with pytest.raises(ProcessNotFoundError):
        process.refresh()
    with pytest.raises(SessionTerminatedError) as caught:
        session.exec("touch ran")
    assert (caught.value.code, caught.value.exit_code) == ("SANDBOX_RESTARTED", None)
    assert session.exec("echo [$A]; ls; tool").stdout == "[]\nbase\nstill\n"


def test_restart_under_a_command(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A command in flight raises the same with its output so far."""
    fake.process("server", logs="up\n")
    with pytest.raises(SessionTerminatedError) as caught, sandbox.exec_stream("server") as stream:
        for event in stream:
            if getattr(event, "text", "") == "up\n":
                fake.sandbox("box").restart()
    assert caught.value.code == "SANDBOX_RESTARTED"
    assert sandbox.exec("echo ok").stdout == "ok\n"


def test_faults_do_not_strike_what_a_test_does(sandbox: Sandbox, fake: FakeTransport) -> None:
    """What a test arranges is no call of the code under test."""
    fake.unavailable()
    fake.sandbox("box").files["f"] = "x"
    fake.sandbox("box").restart()
    with pytest.raises(SandboxUnavailableError):
        sandbox.ping()


def test_retries_of_the_code_under_test() -> None:
    """Waiting on the fake's clock makes a test of retries take no time."""
    clock = FakeClock()
    with FakeTransport(clock=clock) as fake:
        sandbox = Sandbox(fake)
        fake.unavailable(times=3)
        real, began = time.monotonic(), clock.monotonic()
        for number in range(4):
            try:
                sandbox.exec("true")
            except SandboxUnavailableError:
                clock.sleep(60)
            else:
                assert number == 3
        assert clock.monotonic() - began >= 180
        assert time.monotonic() - real < 2
        with pytest.raises(CommandTimeoutError):
            sandbox.exec("sleep 100", timeout=60)
