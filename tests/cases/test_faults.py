"""Cases of services that fail, met on the fake, which fails on demand as they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxsync import (
    CommandTimeoutError,
    ExecResult,
    FakeTransport,
    FileTooLargeError,
    InvalidRequestError,
    ProcessTimeoutError,
    Sandbox,
    SandboxError,
    SandboxUnavailableError,
    SessionTerminatedError,
    Stdout,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.testing._tools import in_threads, within


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A transport of this test alone."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def sandbox(fake: FakeTransport) -> Iterator[Sandbox]:
    """A sandbox of that transport."""
    with Sandbox(fake) as sandbox:
        yield sandbox


def test_EX14_every_end_is_an_end(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A process that failed, was killed or ran out of time is waited for no longer, and its code is never 0."""
    fake.process("crash", exit_code=7)
    fake.process("serve")
    failed = sandbox.start_process("crash")
    killed = sandbox.start_process("serve")
    late = sandbox.start_process("serve", timeout=2)
    killed.kill()
    with within(5):
        assert [failed.wait_for_exit(5), killed.wait_for_exit(5), late.wait_for_exit(5)] == [7, 143, 124]
    assert [process.status for process in (failed, killed, late)] == ["failed", "killed", "killed"]


def test_EX19_a_scripted_result_is_a_real_one(fake: FakeTransport, sandbox: Sandbox) -> None:
    """What is scripted comes as the same value, of the same types, as what a shell has run."""
    fake.on("tool", stdout="out", stderr="err", exit_code=4)
    for result in (sandbox.exec("tool"), sandbox.exec("printf out; printf err >&2; (exit 4)")):
        assert isinstance(result, ExecResult)
        assert (result.exit_code, result.success, result.stdout, result.stderr_bytes) == (4, False, "out", b"err")


def test_TO25_a_command_without_an_end_gives_no_result(fake: FakeTransport, sandbox: Sandbox) -> None:
    """What never ends runs into its timeout; there is no result with an exit code of `None`."""
    fake.process("serve", logs=[(1.0, "up\n")])
    with within(5), pytest.raises(CommandTimeoutError) as caught:
        sandbox.exec("serve", timeout=60)
    assert caught.value.stdout == "up\n"


def test_OF13_no_output_is_empty_text(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A program that prints nothing has two empty texts."""
    fake.on("quiet")
    result = sandbox.exec("quiet")
    assert (result.stdout, result.stderr, result.stdout_bytes) == ("", "", b"")


def test_SM02_a_stream_may_take_long(fake: FakeTransport, sandbox: Sandbox) -> None:
    """Five minutes of output, a line every ten seconds, come whole."""
    fake.on("build", output=[(10.0, f"line {number}\n") for number in range(30)])
    with within(10), sandbox.exec_stream("build") as stream:
        events = list(stream)
    assert "".join(event.text for event in events if isinstance(event, Stdout)).count("line") == 30
    assert sandbox.exec("build").duration >= 300


def test_SM11_a_wait_has_a_deadline(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A process that goes on for ever is waited for as long as was said."""
    fake.process("serve")
    process = sandbox.start_process("serve")
    with within(5), pytest.raises(ProcessTimeoutError):
        process.wait_for_exit(30)
    assert process.refresh().status == "running"


def test_CO04_a_first_use_that_failed_is_tried_again(fake: FakeTransport, sandbox: Sandbox) -> None:
    """Ten threads at once on a sandbox that was not reached the first time: then all of them work."""
    fake.unavailable()
    with pytest.raises(SandboxUnavailableError):
        sandbox.exec("true")
    assert in_threads(10, lambda number: sandbox.exec(f"echo {number}").stdout) == [f"{n}\n" for n in range(10)]
    assert sandbox.list_sessions() == ["default"]


def test_CO05_what_failed_to_start_leaves_nothing(fake: FakeTransport, sandbox: Sandbox) -> None:
    """Of ten sessions made at once three fail, with an error of their kind; only the others are there."""
    fake.fail("create_session", SandboxUnavailableError, times=3)

    def make(number: int) -> str | None:
        try:
            return sandbox.create_session(f"s{number}").id
        except SandboxUnavailableError:
            return None

    made = [name for name in in_threads(10, make) if name is not None]
    assert len(made) == 7
    assert sandbox.list_sessions() == sorted(made)


def test_EQ14_arguments_are_arguments(sandbox: Sandbox) -> None:
    """A line is a line, a list is a list, and an empty one is refused."""
    assert sandbox.exec("printf '%s' native-ok").stdout == "native-ok"
    assert sandbox.exec(["printf", "%s", "a b"]).stdout == "a b"
    with pytest.raises(InvalidRequestError):
        sandbox.exec([])


def test_FI04_a_limit_of_the_service_is_seen(fake: FakeTransport, sandbox: Sandbox) -> None:
    """A file that is too large for one call raises what says so; the file is untouched."""
    sandbox.write_file("f", "old")
    fake.fail("write_file", FileTooLargeError)
    with pytest.raises(FileTooLargeError):
        sandbox.write_file("f", "new")
    assert sandbox.read_text("f") == "old"


def test_SL08_one_recovery_and_no_more(fake: FakeTransport) -> None:
    """After a restart the first call says so, once; the next has a fresh shell with the session's own env."""
    sandbox = Sandbox(fake, id="user-1")
    session = sandbox.create_session("s", env={"A": "1"})
    session.exec("export B=2; cd /tmp")
    fake.sandbox("user-1").restart()
    with pytest.raises(SessionTerminatedError) as caught:
        session.exec("touch ran")
    assert caught.value.code == "SANDBOX_RESTARTED"
    assert session.exec("echo $B; pwd; ls").stdout == "\n/workspace\n"


def test_SL10_destroying_what_never_was(fake: FakeTransport) -> None:
    """Is no error; and one that fails does not hide the error of the block."""
    Sandbox(fake).destroy()
    fake.fail("destroy", SandboxUnavailableError)
    with pytest.raises(LookupError, match="of the block"), Sandbox(fake):
        raise LookupError("of the block")


def test_HT07_never_started_and_died_midway_differ(fake: FakeTransport, sandbox: Sandbox) -> None:
    """The one may be tried again and has run nothing; the other has run, once."""
    fake.unavailable(times=2)
    for _ in range(2):
        with pytest.raises(SandboxUnavailableError) as refused:
            sandbox.exec("echo x >> ran")
        assert (refused.value.retryable, refused.value.http_status) == (True, 503)
    assert not sandbox.exists("ran")
    fake.fail("exec", after_bytes=3)
    with pytest.raises(StreamInterruptedError) as broken:
        sandbox.exec("echo x >> ran; echo output")
    assert broken.value.stdout == "out"
    assert sandbox.read_text("ran") == "x\n"


def test_HT08_an_interrupted_call_is_not_to_be_repeated(fake: FakeTransport, sandbox: Sandbox) -> None:
    """Its error says so, and reading may go on."""
    sandbox.write_file("f", "x")
    error = StreamInterruptedError("interrupted", code="OPERATION_INTERRUPTED", http_status=409, retryable=False)
    fake.fail("exec", error)
    with pytest.raises(SandboxError) as caught:
        sandbox.exec("true")
    assert (caught.value.code, caught.value.http_status, caught.value.retryable) == (
        "OPERATION_INTERRUPTED",
        409,
        False,
    )
    assert sandbox.read_text("f") == "x"


def test_HT17_ping_says_what_it_is(fake: FakeTransport, sandbox: Sandbox) -> None:
    """`True`, or a `TransportError`, and nothing else."""
    assert sandbox.ping() is True
    fake.unavailable()
    with pytest.raises(TransportError):
        sandbox.ping()
    assert sandbox.ping() is True
