"""The record of calls of the fake, and its assertions."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from sandboxsync import Sandbox
from sandboxsync.errors import CommandTimeoutError, SandboxUnavailableError, SessionTerminatedError
from sandboxsync.transports.fake import FakeTransport


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A fake that this test alone uses."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def sandbox(fake: FakeTransport) -> Sandbox:
    """A sandbox of it."""
    return Sandbox(fake, id="box")


def test_entry_of_a_command(sandbox: Sandbox, fake: FakeTransport) -> None:
    """An `exec` is there with all that was given, and all that came of it."""
    sandbox.exec("mkdir d")
    sandbox.exec("cat; echo e >&2; sleep 2; exit_code() { return 3; }; exit_code", env={"A": "1"}, cwd="d", stdin="in")
    call = fake.calls[-1]
    assert (call.kind, call.sandbox_id, call.session_id) == ("exec", "box", "default")
    assert (call.env, call.cwd, call.stdin) == ({"A": "1"}, "d", b"in")
    assert (call.exit_code, call.stdout, call.stderr, call.stdout_bytes) == (3, "in", "e\n", b"in")
    assert call.is_over
    assert call.duration is not None
    assert 2 <= call.duration < 3
    assert call.error is None
    assert timedelta(0) <= fake.clock.now() - call.started_at < timedelta(seconds=4)
    Sandbox(fake, id="other", enable_default_session=False).exec(["echo", "a b"])
    assert (fake.calls[-1].sandbox_id, fake.calls[-1].session_id) == ("other", None)
    assert fake.calls.commands == ["mkdir d", call.command, "'echo' 'a b'"]


def test_entry_of_a_scripted_command(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Each scripted command has an entry of its own, with all that it was run with."""
    fake.on("tool *", stdout="out", stderr="err", exit_code=2, delay=1)
    fake.command("reader", lambda stdin: stdin)
    sandbox.exec("cd /tmp; export A=1; tool 'a b' || echo x | B=2 reader")
    outer, tool, reader = fake.calls
    assert [call.kind for call in fake.calls] == ["exec", "command", "command"]
    assert (tool.command, tool.argv, tool.cwd) == ("tool a b", ("tool", "a b"), "/tmp")
    assert (tool.sandbox_id, tool.session_id) == ("box", "default")
    assert tool.env["A"] == "1"
    assert "B" not in tool.env
    assert (tool.exit_code, tool.stdout, tool.stderr) == (2, "out", "err")
    assert tool.duration is not None
    assert 1 <= tool.duration < 2
    assert (reader.env["B"], reader.stdin, reader.stdout) == ("2", b"x\n", "x\n")
    assert outer.stdout == "outx\n"


def test_entry_of_a_process(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A background process has one, that is complete as soon as its end can be known."""
    process = sandbox.start_process("echo out; sleep 5; exit 4", env={"A": "1"}, cwd="/tmp")
    call = fake.calls[-1]
    assert (call.kind, call.command, call.env, call.cwd) == ("process", process.command, {"A": "1"}, "/tmp")
    assert not call.is_over
    assert process.wait_for_exit() == 4
    assert (call.exit_code, call.stdout) == (4, "out\n")
    assert call.duration is not None
    assert 5 <= call.duration < 6


def test_entry_is_there_from_the_beginning(sandbox: Sandbox, fake: FakeTransport) -> None:
    """While a command runs its entry is there, with what was read so far."""
    fake.on("tool", output=[(1, "a\n"), (1, "b\n")], delay=1)
    with sandbox.exec_stream("tool") as stream:
        assert not fake.calls[0].is_over
        events = iter(stream)
        next(events)
        next(events)
        assert fake.calls[0].stdout == "a\n"
    stopped, tool = fake.calls
    assert stopped.is_over
    assert stopped.exit_code is None
    assert stopped.stdout == "a\n"
    assert (tool.is_over, tool.exit_code) == (True, None)


def test_errors_are_in_the_record(sandbox: Sandbox, fake: FakeTransport) -> None:
    """What a call raised is in its entry, also when nothing was run."""
    fake.on("tool", output=[(1, "a\n"), (9, "b\n")])
    with pytest.raises(CommandTimeoutError) as timeout:
        sandbox.exec("tool", timeout=5)
    with pytest.raises(SessionTerminatedError) as died:
        sandbox.exec("exit 3")
    fake.unavailable()
    with pytest.raises(SandboxUnavailableError) as unavailable:
        sandbox.exec("echo x")
    outer, tool, exit_call, last = fake.calls
    assert (outer.error, exit_call.error, last.error) == (timeout.value, died.value, unavailable.value)
    assert (tool.exit_code, tool.stdout) == (None, "a\n")
    assert last.is_over


def test_sequence(sandbox: Sandbox, fake: FakeTransport) -> None:
    """The record is a sequence, and can be cleared."""
    for number in range(3):
        sandbox.exec(f"echo {number}")
    assert len(fake.calls) == 3
    assert [call.command for call in fake.calls[1:]] == ["echo 1", "echo 2"]
    assert fake.calls[-1].stdout == "2\n"
    assert "exec 'echo 1' in box/default: exit code 0" in repr(fake.calls)
    fake.calls.clear()
    assert list(fake.calls) == []
    assert not fake.calls


def test_assertions(sandbox: Sandbox, fake: FakeTransport) -> None:
    """They hold for what was run, by text and by the words of scripted commands."""
    calls = fake.calls
    calls.assert_not_called()
    fake.on("npm *")
    sandbox.exec("npm run build || echo fell", cwd="/tmp", env={"CI": "1"})
    sandbox.exec(["echo", "a b"], session_id="s")
    calls.assert_any_call("npm run build")
    calls.assert_any_call(["npm", "run"])
    calls.assert_any_call(re.compile("npm .*"), cwd="/tmp", session_id="default")
    calls.assert_any_call("npm run build || *", env={"CI": "1"})
    calls.assert_called_with("echo 'a b'", session_id="s", sandbox_id="box")
    calls.assert_called_with("echo a b")
    calls.assert_called_with(["echo", "a b"])
    calls.assert_not_called("npm test")
    calls.assert_not_called("npm *", cwd="/")
    wrongs: list[Callable[[], None]] = [
        lambda: calls.assert_any_call("npm test"),
        lambda: calls.assert_any_call("npm run build", env={"CI": "2"}),
        lambda: calls.assert_called_with("npm run build"),
        lambda: calls.assert_called_once_with("npm test"),
        lambda: calls.assert_not_called("npm run *"),
        lambda: calls.assert_not_called(),
    ]
    for wrong in wrongs:
        with pytest.raises(AssertionError):
            wrong()


def test_once_is_once(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A call and the scripted command in it are one when both match; each command counts for itself."""
    sandbox.exec("npm test")
    fake.calls.assert_called_once_with("npm test")
    fake.calls.clear()
    fake.on("npm test")
    sandbox.exec("npm test")
    fake.calls.assert_called_once_with("npm test")
    fake.calls.assert_called_with("npm test")
    fake.calls.clear()
    sandbox.exec("for i in 1 2; do npm test; done && npm test")
    with pytest.raises(AssertionError, match="run 3 times"):
        fake.calls.assert_called_once_with("npm test")
    fake.calls.clear()
    sandbox.start_process("npm test").wait_for_exit()
    fake.calls.assert_called_once_with("npm test")


def test_messages(sandbox: Sandbox, fake: FakeTransport) -> None:
    """An assertion that fails shows what was run in place of that."""
    with pytest.raises(AssertionError, match=r"^'npm test' was not run; nothing was$"):
        fake.calls.assert_any_call("npm test")
    sandbox.exec("npm ci")
    with pytest.raises(AssertionError) as caught:
        fake.calls.assert_called_once_with("npm test", cwd="app")
    assert str(caught.value) == (
        "'npm test' with cwd='app' was run 0 times, not once; calls: 1\n  exec 'npm ci' in box/default: exit code 127"
    )


def test_threads(fake: FakeTransport) -> None:
    """Calls of many threads are all in the record, each complete and apart."""
    fake.on("tool *", stdout="x", delay=0.1)

    def work(number: int) -> None:
        session = Sandbox(fake, id="box").create_session(f"s{number}")
        for turn in range(10):
            session.exec(f"tool {number} {turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(fake.calls) == 160
    assert all(call.is_over and call.exit_code == 0 and call.stdout == "x" for call in fake.calls)
    fake.calls.assert_called_once_with("tool 3 7", session_id="s3")
