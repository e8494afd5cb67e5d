"""Cases about timeouts, kills and waiting; the rows are in `docs/cases.md`."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, ProcessReadyTimeoutError, SandboxDestroyedError
from sandboxsync.testing import in_real_time, requires
from sandboxsync.testing._tools import eventually, file_exists, start, stays, within
from sandboxsync.transports.base import Capability, Transport

SERVER = "import http.server as h; s = h.HTTPServer(('127.0.0.1', 0), h.SimpleHTTPRequestHandler);"
SERVER += " print(s.server_port, flush=True); s.serve_forever()"


@in_real_time
def test_TO01_a_stuck_command_blocks_nobody(sandbox: Sandbox, session: Session) -> None:
    """Another session goes on meanwhile, and so does this one afterwards."""
    call = start(lambda: session.exec("sleep 600", timeout=1))
    with sandbox.session() as other, within(0.5):
        assert other.exec("echo other").stdout == "other\n"
    with within(2):
        assert isinstance(call.exception(10), CommandTimeoutError)
    assert session.exec("echo ok", timeout=10).stdout == "ok\n"


@pytest.mark.parametrize("stream", [False, True], ids=["exec", "exec_stream"])
@in_real_time
def test_TO05_destroying_the_sandbox_ends_calls_in_flight(transport: Transport, stream: bool) -> None:
    """The blocked call raises; it waits for no timeout."""
    sandbox = Sandbox(transport)
    command = "echo out; touch begun; sleep 90"
    run = (lambda: sandbox.exec_stream(command).result()) if stream else (lambda: sandbox.exec(command, timeout=60))
    call = start(run)
    eventually(lambda: file_exists(sandbox, "begun"))
    with within(3):
        sandbox.destroy()
        assert isinstance(call.exception(10), SandboxDestroyedError)
    with pytest.raises(SandboxDestroyedError):
        sandbox.exec("true")
    sandbox.destroy()


@requires(Capability.NATIVE_PROGRAMS)
def test_TO08_a_server_below_a_shell_dies_with_its_timeout(sandbox: Sandbox) -> None:
    """Nothing listens any more when the process has ended."""
    sandbox.write_file("server.py", SERVER)
    process = sandbox.start_process("sh -c 'python3 server.py; true'", timeout=2)
    eventually(lambda: process.logs().stdout, 10)
    port = int(process.logs().stdout)
    assert process.wait_for_exit(20) == 124
    other = sandbox.start_process("sleep 60")
    with pytest.raises(ProcessReadyTimeoutError):
        other.wait_for_port(port, mode="tcp", timeout=0.2)


@in_real_time
def test_TO10_a_timeout_reaches_what_a_shell_waits_for(sandbox: Sandbox, session: Session) -> None:
    """In a session, without one, and in a process."""
    plain = Sandbox(sandbox.transport, id=sandbox.id, enable_default_session=False)
    attempts: list[Callable[[str], object]] = [
        lambda command: session.exec(command, timeout=0.3),
        lambda command: plain.exec(command, timeout=0.3),
        lambda command: session.exec_stream(command, timeout=0.3).result(),
    ]
    for number, attempt in enumerate(attempts):
        with pytest.raises(CommandTimeoutError):
            attempt(f"(sleep 0.9; touch late{number}) & wait")
    assert sandbox.start_process("(sleep 0.9; touch late9) & wait", timeout=0.3).wait_for_exit(20) == 124
    stays(lambda: sandbox.exec("ls").stdout == "", 1.0)


def test_TO17_streams_and_processes_read_end_of_file(session: Session) -> None:
    """`cat` ends at once wherever it runs."""
    with within(2):
        with session.exec_stream("cat; echo end") as stream:
            assert stream.result().stdout == "end\n"
        process = session.start_process("cat; echo end")
        assert process.wait_for_exit(20) == 0
    assert process.logs().stdout == "end\n"


def test_TO23_an_unknown_option_is_refused_at_once(sandbox: Sandbox, session: Session) -> None:
    """`TypeError` before anything runs."""
    for caller in (sandbox, session):
        with pytest.raises(TypeError):
            caller.exec("touch ran", cancel=None)  # type: ignore[call-arg]
    assert not sandbox.exists("ran")


def test_SM08_the_exit_code_does_not_need_the_stream(sandbox: Sandbox) -> None:
    """A log stream that is left early takes nothing from `wait_for_exit`."""
    process = sandbox.start_process("echo a; sleep 0.2; echo b; exit 4")
    with process.stream_logs() as stream:
        assert next(stream).data == "a\n"
    assert process.wait_for_exit(20) == 4
    assert process.logs().stdout == "a\nb\n"


@in_real_time
def test_PR11_waiting_for_a_job_takes_as_long_as_the_job(session: Session) -> None:
    """`wait` waits, and nothing else does."""
    with within(0.5):
        assert session.exec("sleep 60 & echo done").stdout == "done\n"
    started = time.monotonic()
    assert session.exec("sleep 0.5 & wait $!; echo w").stdout == "w\n"
    assert 0.5 <= time.monotonic() - started < 5
