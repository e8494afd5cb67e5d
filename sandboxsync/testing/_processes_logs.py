"""P5, P6: waiting until a process is ready, and following its logs."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sandboxsync import Process, Sandbox
from sandboxsync.errors import (
    InvalidRequestError,
    ProcessExitedBeforeReadyError,
    ProcessNotFoundError,
    ProcessReadyTimeoutError,
)
from sandboxsync.models import LogEvent
from sandboxsync.transports.base import Capability, Transport

from ._tools import in_real_time, in_threads, recorded, requires, start, within

SERVER = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    started = time.monotonic()
    def do_GET(self):
        early = time.monotonic() - self.started < float(sys.argv[1])
        self.send_response(503 if early else 200 if self.path == "/ready" else 404)
        self.end_headers()
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
print("port", server.server_port, "!", flush=True)
server.serve_forever()
"""


def joined(events: list[LogEvent], kind: str) -> str:
    """The text of the events of one kind."""
    return "".join(event.data for event in events if event.type == kind)


class ProcessLogRules:
    """Rules P5 and P6."""

    def test_P5_lines_from_before_the_call_count(self, sandbox: Sandbox) -> None:
        """`wait_for_log` finds what was written before it was called, on either stream."""
        process = sandbox.start_process("echo r1 >&2; echo r2 >&2; echo ready on 8080; sleep 60")
        for pattern in ("r2", "r1", "ready", "r2"):
            with within(1):
                match = process.wait_for_log(pattern, timeout=20)
            assert (pattern in match.line, match.match) == (True, None)
        found = process.wait_for_log(re.compile(r"on (\d+)$"), timeout=20)
        assert found.line == "ready on 8080"
        assert found.match is not None
        assert found.match[1] == "8080"
        assert process.status == "running"
        process.kill()

    def test_P5_lines_from_after_the_call_count(self, sandbox: Sandbox) -> None:
        """It waits for lines to come, and joins one that comes in pieces; a `str` is no pattern."""
        process = sandbox.start_process("echo 'axb'; sleep 0.2; printf 'a.'; sleep 0.2; printf 'b\\n'; sleep 60")
        with within(3):
            assert process.wait_for_log("a.b", timeout=20).line == "a.b"
        process.kill()

    def test_P5_a_process_that_is_gone_fails_the_wait(self, sandbox: Sandbox) -> None:
        """At once, with the exit code and the end of the logs; a line that was printed still counts."""
        process = sandbox.start_process("echo starting; echo oops >&2; exit 3")
        assert process.wait_for_log("starting", timeout=20).line == "starting"
        for wait in (
            lambda: process.wait_for_log("ready", timeout=20),
            lambda: process.wait_for_port(9, timeout=20),
            lambda: process.wait_for_port(9, mode="tcp"),
        ):
            with within(2), pytest.raises(ProcessExitedBeforeReadyError) as caught:
                wait()
            assert caught.value.exit_code == 3
            assert caught.value.logs is not None
            assert (caught.value.logs.stdout, caught.value.logs.stderr) == ("starting\n", "oops\n")
        assert process.wait_for_log("oops", timeout=20).line == "oops"

    def test_P5_a_process_that_ends_during_the_wait(self, sandbox: Sandbox) -> None:
        """The wait ends with it."""
        process = sandbox.start_process("sleep 0.3; exit 4")
        with within(2), pytest.raises(ProcessExitedBeforeReadyError) as caught:
            process.wait_for_log("ready")
        assert caught.value.exit_code == 4
        process = sandbox.start_process("sleep 0.3; exit 5")
        with within(2), pytest.raises(ProcessExitedBeforeReadyError) as caught:
            process.wait_for_port(9, interval=0.1)
        assert caught.value.exit_code == 5

    def test_P5_waiting_has_a_limit(self, sandbox: Sandbox) -> None:
        """At its timeout it raises with the end of the logs, and the process runs on; 0 looks once."""
        process = sandbox.start_process("echo starting; sleep 60")
        process.wait_for_log("starting", timeout=20)
        for timeout in (0, 0.3):
            for wait in (
                lambda timeout: process.wait_for_log("ready", timeout=timeout),
                lambda timeout: process.wait_for_port(9, timeout=timeout, interval=0.1),
            ):
                with within(timeout + 1), pytest.raises(ProcessReadyTimeoutError) as caught:
                    wait(timeout)
                assert isinstance(caught.value, TimeoutError)
                assert caught.value.logs is not None
                assert caught.value.logs.stdout == "starting\n"
        assert process.wait_for_log("starting", timeout=0).line == "starting"
        assert process.refresh().status == "running"
        process.kill()

    def test_P5_a_process_that_prints_without_end(self, sandbox: Sandbox) -> None:
        """Much output hides neither a line nor the end of time."""
        process = sandbox.start_process("echo first; while :; do echo noise; done")
        with within(2):
            assert process.wait_for_log("first", timeout=20).line == "first"
        with within(3), pytest.raises(ProcessReadyTimeoutError):
            process.wait_for_log("never", timeout=0.3)
        process.kill()

    @requires(Capability.NATIVE_PROGRAMS)
    def test_P5_wait_for_port(self, sandbox: Sandbox) -> None:
        """`tcp` is content with a listener, `http` waits for the status that was asked for."""
        sandbox.write_file("server.py", SERVER)
        process = sandbox.start_process(["python3", "server.py", "1.0"])
        port = int(process.wait_for_log(re.compile(r"port (\d+) !"), timeout=20).line.split()[1])
        with within(1):
            process.wait_for_port(port, mode="tcp", timeout=20)
        process.wait_for_port(port, status=503, timeout=20, interval=0.05)
        process.wait_for_port(port, path="/ready", timeout=20, interval=0.05)
        process.wait_for_port(port, path="/x", status=404, timeout=20, interval=0.05)
        process.wait_for_port(port, path="/x", status=(400, 499), timeout=20)
        with within(1.3), pytest.raises(ProcessReadyTimeoutError):
            process.wait_for_port(port, path="/x", timeout=0.3, interval=0.05)
        process.kill()

    @pytest.mark.parametrize("port", [0, -1, 65536, "80", True, None], ids=repr)
    def test_P5_what_is_no_port_is_refused(self, sandbox: Sandbox, port: int) -> None:
        """`InvalidRequestError`; so are a mode, a status and an interval that make no sense."""
        process = sandbox.start_process("sleep 60")
        with pytest.raises(InvalidRequestError):
            process.wait_for_port(port)
        wrong: list[dict[str, Any]] = [{"mode": "udp"}, {"status": "ok"}, {"interval": 0}, {"timeout": -1}]
        for options in wrong:
            with pytest.raises(InvalidRequestError):
                process.wait_for_port(80, **options)
        process.kill()

    def test_P5_waiting_for_a_forgotten_process_raises(self, sandbox: Sandbox) -> None:
        """`ProcessNotFoundError`."""
        process = sandbox.start_process("true")
        process.wait_for_exit(20)
        sandbox.cleanup_completed_processes()
        for wait in (lambda: process.wait_for_log("x"), lambda: process.wait_for_port(9)):
            with pytest.raises(ProcessNotFoundError):
                wait()

    def test_P6_a_stream_has_everything_then_one_exit_event(self, sandbox: Sandbox) -> None:
        """What was printed before and what comes live, once, in order; followers do not disturb each other."""
        process = sandbox.start_process("for i in {1..40}; do echo o$i; echo e$i >&2; sleep 0.01; done; exit 4")
        process.wait_for_log("o5", timeout=20)

        def follow(number: int) -> list[LogEvent]:
            with process.stream_logs() if number % 2 else sandbox.stream_process_logs(process.id) as stream:
                return list(stream)

        late = start(lambda: (process.wait_for_exit(20), follow(0))[1])
        for events in (*in_threads(4, follow), late.result(20)):
            assert [event.type for event in events].count("exit") == 1
            assert (events[-1].type, events[-1].exit_code, events[-1].data) == ("exit", 4, "")
            assert joined(events, "stdout") == "".join(f"o{i}\n" for i in range(1, 41))
            assert joined(events, "stderr") == "".join(f"e{i}\n" for i in range(1, 41))
            assert {event.process_id for event in events} == {process.id}

    def test_P6_following_again_begins_again(self, sandbox: Sandbox) -> None:
        """A stream that is left half-way loses nothing for the next one, and the process does not notice."""
        process = sandbox.start_process("seq 3000; sleep 0.3; seq 3000; exit 5")
        for _ in range(3):
            with process.stream_logs() as stream:
                next(stream)
        with process.stream_logs() as stream:
            events = list(stream)
        assert joined(events, "stdout") == "".join(f"{i}\n" for i in range(1, 3001)) * 2
        assert events[-1].exit_code == 5
        assert process.logs().stdout == joined(events, "stdout")

    def test_P6_characters_are_whole(self, sandbox: Sandbox) -> None:
        """A character that is printed in two parts is one in the events."""
        process = sandbox.start_process("printf 'x\\303'; sleep 0.2; printf '\\251'; sleep 0.1; printf '\\360\\237'")
        with process.stream_logs() as stream:
            events = list(stream)
        assert joined(events, "stdout") == "xé\ufffd"

    @in_real_time
    def test_P6_closing_ends_a_waiting_stream(self, sandbox: Sandbox) -> None:
        """`close`, from any thread, ends who waits for the next event; the process runs on."""
        process = sandbox.start_process("echo up; sleep 60")
        stream = process.stream_logs()
        assert next(stream).data == "up\n"
        waiting = start(lambda: next(stream))
        stream.close()
        stream.close()
        assert waiting.exception(10) is not None
        assert process.refresh().status == "running"
        self.end(process)

    def end(self, process: Process) -> None:
        """Kill a process whose log nobody follows any more."""
        process.kill()
        assert process.status == "killed"

    def test_P6_unknown_processes_raise(self, transport: Transport) -> None:
        """Following what is not there is a `ProcessNotFoundError`, before anything is read."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            with pytest.raises(ProcessNotFoundError):
                sandbox.stream_process_logs("unknown")
            assert "start_process" not in calls
