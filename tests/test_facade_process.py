"""Background processes over a scripted transport."""

from __future__ import annotations

import itertools
import re
import threading
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import (
    UNSET,
    InvalidRequestError,
    LogEvent,
    LogMatch,
    Process,
    ProcessError,
    ProcessExitedBeforeReadyError,
    ProcessLogs,
    ProcessNotFoundError,
    ProcessReadyTimeoutError,
    ProcessTimeoutError,
    Sandbox,
    SandboxUnavailableError,
)
from sandboxsync._waiting import LONGEST_LINE, TAIL, LineSearch, matcher
from sandboxsync.transports.base import Exited, ProcessRequest
from tests._stub_transport import NOW, StubTransport, err, out, process

ENDED: dict[str, Any] = {"status": "failed", "exit_code": 3, "end_time": NOW}


@pytest.fixture
def transport() -> StubTransport:
    """A transport that answers."""
    return StubTransport()


@pytest.fixture
def started(transport: StubTransport) -> Process:
    """A process that runs."""
    found = Sandbox(transport).start_process("serve", process_id="p")
    del transport.calls[:]
    return found


def test_start_process(transport: StubTransport) -> None:
    """The request is checked, an id is made when none is given, and no timeout is inherited."""
    sandbox = Sandbox(transport, command_timeout=5)
    started = sandbox.start_process(["a b"], env={"A": "1", "B": None}, cwd="d", auto_cleanup=True)
    request = transport.last("start_process")[1]
    assert request == ProcessRequest(started.id, "'a b'", {"A": "1"}, "d", None, True)
    assert re.fullmatch(r"proc-[0-9a-f]{12}", started.id)
    sandbox.start_process("x", timeout=9, session_id="s")
    assert transport.last("start_process")[1].timeout == 9.0
    assert transport.last("start_process")[0].session_id == "s"
    sandbox.start_process("x", timeout=UNSET)
    assert transport.last("start_process")[1].timeout is None


def test_attributes_are_those_of_the_last_call(transport: StubTransport, started: Process) -> None:
    """The attributes stay until a call on the object brings newer ones."""
    assert (started.id, started.pid, started.command, started.status) == ("p", 42, "serve", "running")
    assert (started.start_time, started.end_time, started.exit_code) == (NOW, None, None)
    assert started.session_id == "default"
    transport.processes["p"] = process("p", **ENDED)
    assert started.status == "running"
    assert started.refresh() is started
    assert (started.status, started.exit_code, started.end_time) == ("failed", 3, NOW)
    assert repr(started) == "<Process 'p' failed exit_code=3>"


def test_get_and_list(transport: StubTransport, started: Process) -> None:
    """get_process is None for an unknown id; list_processes keeps the transport's order."""
    transport.processes["o"] = process("o")
    sandbox = Sandbox(transport)
    assert [p.id for p in sandbox.list_processes()] == ["p", "o"]
    found = sandbox.get_process("o")
    assert found is not None
    assert found.id == "o"
    assert sandbox.get_process("nope") is None


def test_s17_a_lost_process_is_not_found(transport: StubTransport, started: Process) -> None:
    """S17: calls on a process that the sandbox does not know any more raise ProcessNotFoundError."""
    transport.processes.clear()
    with pytest.raises(ProcessNotFoundError):
        started.refresh()
    transport.fail["kill_process"] = ProcessNotFoundError(process_id="p")
    with pytest.raises(ProcessNotFoundError):
        started.kill()


def test_kill(transport: StubTransport, started: Process) -> None:
    """Kill sends the signal and brings the attributes up to date; of a forgotten process it says what is known."""
    started.kill("HUP")
    assert transport.last("kill_process")[2] == 1
    assert started.status == "running"
    transport.processes["p"] = process("p", status="killed", exit_code=143, end_time=NOW)
    started.kill()
    assert (started.status, started.exit_code) == ("killed", 143)
    forgotten = Sandbox(transport).start_process("x", process_id="q", auto_cleanup=True)
    transport.processes.clear()
    forgotten.kill(9)
    assert (forgotten.status, forgotten.exit_code) == ("killed", 137)
    assert forgotten.end_time is not None


def test_kill_all_and_cleanup(transport: StubTransport) -> None:
    """They count what they ended or forgot; one that ends by itself meanwhile is not counted."""
    transport.processes = {
        "a": process("a"),
        "b": process("b", status="starting"),
        "c": process("c", **ENDED),
        "d": process("d", status="completed", exit_code=0),
    }
    sandbox = Sandbox(transport)
    assert sandbox.kill_all_processes() == 2
    killed = sorted(arguments[1:] for name, arguments in transport.calls if name == "kill_process")
    assert killed == [("a", 15), ("b", 15)]
    assert sandbox.cleanup_completed_processes() == 2
    assert sorted(transport.processes) == ["a", "b"]
    transport.fail["kill_process"] = ProcessNotFoundError()
    assert sandbox.kill_all_processes() == 0
    transport.fail["kill_process"] = SandboxUnavailableError("x")
    with pytest.raises(SandboxUnavailableError):
        sandbox.kill_all_processes()


def test_p2_wait_for_exit(transport: StubTransport, started: Process) -> None:
    """P2: it returns the exit code, and the attributes are up to date."""
    transport.processes["p"] = process("p", **ENDED)
    assert started.wait_for_exit() == 3
    assert started.status == "failed"
    assert transport.last("wait_process")[2] is None


def test_wait_for_exit_times_out(transport: StubTransport, started: Process) -> None:
    """A process that still runs raises ProcessTimeoutError, and is left alone; 0 looks once."""
    with pytest.raises(ProcessTimeoutError) as caught:
        started.wait_for_exit(timeout=0)
    assert (caught.value.process_id, caught.value.timeout) == ("p", 0)
    assert transport.names == ["wait_process"]
    with pytest.raises(ProcessTimeoutError):
        started.wait_for_exit(timeout=0.05)


def test_wait_for_exit_without_exit_code(transport: StubTransport, started: Process) -> None:
    """EX14: an end without an exit code is an error, never 0."""
    transport.processes["p"] = process("p", status="error", end_time=NOW)
    with pytest.raises(ProcessError, match="without an exit code"):
        started.wait_for_exit()


# Logs


def test_logs(transport: StubTransport, started: Process) -> None:
    """Logs are what was printed so far, decoded as a whole; nothing is waited for."""
    transport.log_items = [out(b"a\xc3"), err(b"e"), out(b"\xa9"), None, out(b"later")]
    assert started.logs() == ProcessLogs("aé", "e", "p")
    assert transport.logs[0].closed
    assert set(transport.logs[0].timeouts) == {0}
    transport.log_items = [out(b"a"), Exited(0, 1)]
    assert Sandbox(transport).get_process_logs("p") == ProcessLogs("a", "", "p")


def test_stream_logs(transport: StubTransport, started: Process) -> None:
    """The stream gives text as it comes, cut at no character, then one exit event, then ends for ever."""
    transport.log_items = [out(b"a\xc3"), out(b"\xa9"), err(b"\xff"), out(b"\xe2"), Exited(3, 1)]
    with started.stream_logs() as stream:
        events = list(stream)
    assert [(event.type, event.data, event.exit_code) for event in events] == [
        ("stdout", "a", None),
        ("stdout", "é", None),
        ("stderr", "\ufffd", None),
        ("stdout", "\ufffd", None),
        ("exit", "", 3),
    ]
    assert {type(event) for event in events} == {LogEvent}
    assert {event.process_id for event in events} == {"p"}
    assert all(event.timestamp.tzinfo is not None for event in events)
    assert list(stream) == []
    assert transport.logs[0].closed


def test_stream_logs_never_just_ends(transport: StubTransport, started: Process) -> None:
    """A stream that was closed refuses to go on; an error of the transport is raised."""
    transport.log_items = [out(b"a"), Exited(3, 1)]
    with started.stream_logs() as stream:
        next(stream)
    with pytest.raises(InvalidRequestError):
        next(stream)
    transport.log_items = [ProcessNotFoundError("forgotten")]
    with Sandbox(transport).stream_process_logs("p") as stream, pytest.raises(ProcessNotFoundError):
        next(stream)


def test_dropped_log_stream_warns(transport: StubTransport, started: Process) -> None:
    """A stream that is dropped before its end warns ResourceWarning."""
    with pytest.warns(ResourceWarning, match="unclosed <ProcessLogStream 'p'"):
        started.stream_logs()


# wait_for_log


@pytest.mark.parametrize(
    ("items", "pattern", "line"),
    [
        ([out(b"one\nready now\nlast\n")], "ready", "ready now"),
        ([out(b"o\nre"), out(b"ady\r\n")], "ready", "ready"),
        ([err(b"r1\nr2\n")], "r2", "r2"),
        ([out(b"a.c abc\n")], "a.c", "a.c abc"),
        ([out(b"prompt> "), None], "prompt>", "prompt> "),
        ([out(b"a"), err(b"b"), out(b"c\n")], "ac", "ac"),
        ([out(b"\xc3"), out(b"\xa9\n")], "é", "é"),
        ([out(b"x\n"), out(b"no line end"), Exited(0, 1)], "no line", "no line end"),
    ],
)
def test_p5_wait_for_log(transport: StubTransport, started: Process, items: Any, pattern: str, line: str) -> None:
    """P5: a line of either output is found, whole or in pieces, with its end or without, now or before."""
    transport.log_items = items
    assert started.wait_for_log(pattern, timeout=5) == LogMatch(line)
    assert transport.logs[0].closed
    assert transport.names[-1] == "get_process"


def test_wait_for_log_with_a_pattern(transport: StubTransport, started: Process) -> None:
    """A compiled pattern gives its match, of the whole line where the line came in pieces."""
    transport.log_items = [out(b"on port 80"), out(b"80\n")]
    found = started.wait_for_log(re.compile(r"port (\d+)"))
    assert found.match is not None
    assert (found.line, found.match[1]) == ("on port 8080", "8080")


def test_wait_for_log_of_an_ended_process(transport: StubTransport, started: Process) -> None:
    """P5: it fails at once when the process is gone, with the exit code and the end of the logs."""
    transport.log_items = [out(b"x" * 300_000), err(b"boom\n"), Exited(3, 1)]
    with pytest.raises(ProcessExitedBeforeReadyError, match="exit code 3") as caught:
        started.wait_for_log("ready")
    assert caught.value.exit_code == 3
    assert caught.value.logs == ProcessLogs("x" * TAIL, "boom\n", "p")
    assert "boom" in str(caught.value)


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_wait_for_log_times_out(transport: StubTransport, started: Process, timeout: float) -> None:
    """P5: after the timeout it raises with the end of the logs; 0 looks once at all that is there."""
    transport.log_items = [out(b"a\n"), out(b"b\n"), None]
    with pytest.raises(ProcessReadyTimeoutError) as caught:
        started.wait_for_log("ready", timeout=timeout)
    assert caught.value.logs == ProcessLogs("a\nb\n", "", "p")
    assert caught.value.timeout == timeout
    transport.log_items = [out(b"a\n"), out(b"ready")]
    assert started.wait_for_log("ready", timeout=0).line == "ready"


def test_t1_a_flood_of_logs_is_no_way_round_the_timeout(transport: StubTransport, started: Process) -> None:
    """T1: wait_for_log ends within its timeout + 1 s where the process prints faster than it is read."""
    transport.log_items = itertools.repeat(out(b"y\n" * 1000))
    begun = time.perf_counter()
    with pytest.raises(ProcessReadyTimeoutError):
        started.wait_for_log("ready", timeout=0.1)
    assert time.perf_counter() - begun < 1.1


@given(
    lines=st.lists(st.text(alphabet="ab é", max_size=6), max_size=6),
    cuts=st.lists(st.integers(0, 60), max_size=10),
)
def test_line_search_does_not_mind_pieces(lines: list[str], cuts: list[int]) -> None:
    """In any chunking the first matching line is the one that a search of the whole text finds."""
    data = "".join(line + "\n" for line in lines).encode()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    search = LineSearch(matcher("b"))
    found = [search.feed(data[a:b]) for a, b in pairwise(edges)]
    expected = [LogMatch(line) for line in lines if "b" in line][:1]
    assert [match for match in found if match][:1] == expected
    assert search.tail == data.decode()


def test_line_search_keeps_little(transport: StubTransport) -> None:
    """A line without end is looked at in pieces: it neither fills the memory nor takes square time."""
    search = LineSearch(matcher(re.compile("needle")))
    begun = time.perf_counter()
    for _ in range(800):
        assert search.feed(b"x" * 65536) is None
    assert time.perf_counter() - begun < 5
    assert sum(map(len, search._pieces)) <= LONGEST_LINE
    assert search.feed(b"needle\n") is not None


# wait_for_port


def test_wait_for_port(transport: StubTransport, started: Process) -> None:
    """It looks until the status fits, waiting for the process's end in between."""
    transport.ports = [None, 503, 204]
    started.wait_for_port(8000, path="/healthz", interval=0.01)
    assert transport.names == ["wait_process", "probe_port"] * 3
    assert transport.last("probe_port")[1:3] == (8000, "/healthz")
    transport.ports = [404]
    started.wait_for_port(8000, status=404)
    transport.ports = [199, 400, 200]
    started.wait_for_port(8000, interval=0.01)


def test_wait_for_port_tcp(transport: StubTransport, started: Process) -> None:
    """With mode="tcp" a connection is enough, and no path is asked for."""
    transport.ports = [0]
    started.wait_for_port(8000, mode="tcp")
    assert transport.last("probe_port")[2] is None


def test_wait_for_port_quotes_its_path(transport: StubTransport, started: Process) -> None:
    """A path that is not ASCII is quoted; one that is goes as it is."""
    transport.ports = [200, 200]
    started.wait_for_port(8000, path="/é?a=%20&b")
    assert transport.last("probe_port")[2] == "/%C3%A9?a=%20&b"


def test_p5_wait_for_port_of_an_ended_process(transport: StubTransport, started: Process) -> None:
    """P5: it fails at once when the process is gone, whoever else answers on the port."""
    transport.processes["p"] = process("p", **ENDED)
    transport.log_items = [err(b"address in use\n"), Exited(3, 1)]
    with pytest.raises(ProcessExitedBeforeReadyError) as caught:
        started.wait_for_port(8000)
    assert caught.value.exit_code == 3
    assert caught.value.logs == ProcessLogs("", "address in use\n", "p")
    assert "probe_port" not in transport.names


@pytest.mark.parametrize("timeout", [0, 0.05])
def test_wait_for_port_times_out(transport: StubTransport, started: Process, timeout: float) -> None:
    """After the timeout it raises with the end of the logs; 0 looks once."""
    transport.ports = [None] * 100
    transport.log_items = [out(b"starting\n"), None]
    with pytest.raises(ProcessReadyTimeoutError) as caught:
        started.wait_for_port(8000, timeout=timeout, interval=0.02)
    assert caught.value.logs == ProcessLogs("starting\n", "", "p")
    if timeout == 0:
        assert transport.names.count("probe_port") == 1


def test_no_thread_is_left(transport: StubTransport) -> None:
    """C5: killing many processes side by side leaves no thread behind."""
    transport.processes = {f"p{i}": process(f"p{i}") for i in range(20)}
    before = threading.active_count()
    assert Sandbox(transport).kill_all_processes() == 20
    assert threading.active_count() == before
