"""`Recording`: a transport as it is, and a cassette of it."""

from __future__ import annotations

import gc
import json
import os
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import (
    CommandTimeoutError,
    ConfigurationError,
    ProcessNotFoundError,
    SandboxFileNotFoundError,
    SandboxUnavailableError,
)
from sandboxsync.testing import Recording, TransportSuite
from sandboxsync.testing._files import FileRules
from sandboxsync.testing._fixtures import Fixtures
from sandboxsync.testing._offers import CapabilityRules
from sandboxsync.testing._tools import in_threads
from sandboxsync.transports.base import Exited, SessionRef, SessionSpec, Transport
from tests._stub_transport import StubBytes, StubTransport, err, out, process

REF = SessionRef("box", "s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the cassette goes."""
    return tmp_path / "cassette.json"


def calls_in(path: Path) -> list[dict[str, Any]]:
    """The calls of a cassette."""
    calls: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["calls"]
    return calls


def answers(path: Path) -> list[Any]:
    """What they answered."""
    return [call["answer"] for call in calls_in(path)]


class TestRecordingKeepsTheRules(FileRules, CapabilityRules, Fixtures):
    """Some groups of the suite stand for all."""

    @pytest.mark.parametrize("megabytes", [20])
    def test_F1_large_files_in_constant_memory(self, sandbox: Sandbox, megabytes: int) -> None:
        """A recording keeps large pieces elsewhere."""
        super().test_F1_large_files_in_constant_memory(sandbox, megabytes)

    @pytest.fixture
    def transport(self, path: Path) -> Iterator[Transport]:
        """A local one that is recorded."""
        with Recording(LocalTransport(), path) as transport:
            yield transport

    @pytest.fixture
    def transport_source(self, path: Path) -> str:
        """The same, in an interpreter of its own."""
        return f"__import__('sandboxsync.testing').testing.Recording(sandboxsync.LocalTransport(), {str(path)!r})"

    forks_share_sessions = False
    test_C3_a_forked_child_may_go_on = TransportSuite.test_C3_a_forked_child_may_go_on
    test_C5_no_process_outlives_the_interpreter = TransportSuite.test_C5_no_process_outlives_the_interpreter
    end_interpreter = TransportSuite.end_interpreter


def test_every_call_passes_on(path: Path) -> None:
    """With the same arguments, the same results, and in the cassette once, in order."""
    stub = StubTransport([out(b"hi\n"), err(b"oh"), Exited(3, 0.25)])
    stub.files["f"] = stub.write_file(REF, "f", [b"x"])
    stub.content["f"] = [b"abc", b"de"]
    stub.log_items = [out(b"log"), Exited(0, 1.0)]
    stub.ports = [200]
    stub.calls.clear()
    with Recording(stub, path) as recording, Sandbox(recording, "box") as sandbox:
        assert sandbox.workspace == "/workspace"
        assert sandbox.ping(1)
        session = sandbox.create_session("s", env={"A": "1"}, cwd="d")
        session.set_env_vars({"B": None})
        result = session.exec("ls", stdin=b"in", timeout=5)
        assert (result.stdout, result.stderr, result.exit_code) == ("hi\n", "oh", 3)
        job = session.start_process("sleep 9", process_id="p1")
        assert [event.type for event in session.stream_process_logs("p1")] == ["stdout", "exit"]
        assert sandbox.list_processes()[0].id == "p1"
        job.kill()
        job.wait_for_port(80)
        assert session.read_bytes("f") == b"abcde"
        session.write_file("g", "text")
        assert session.stat("f").size == 1
        assert session.list_files()[0].name == "f"
        assert session.mkdir("d").path == "/workspace/d"
        session.delete_file("f")
        session.rename_file("a", "b")
        assert list(stub.read_tree(REF, "d", ())) == list(recording.read_tree(REF, "d", ()))
        recording.write_tree(REF, "d", iter([b"no tar"]))
        assert sandbox.list_sessions() == ["default", "s1", "s2"]
        assert sandbox.cleanup_completed_processes() == 0
        assert recording.forget_process("box", "p1")
        session.delete()
        sandbox.destroy()
    recorded = [call["asked"]["call"] for call in calls_in(path)]
    passed_on = [name for name in stub.names if name != "close"]
    # One tree was read beside the recording.
    passed_on.remove("read_tree")
    assert recorded == passed_on
    assert all(method in recorded for method in Transport.__abstractmethods__ - {"close"})
    assert stub.names[-1] == "close"


def test_attributes_are_those_of_the_transport(path: Path) -> None:
    """Its capabilities; its name is in the cassette."""
    stub = StubTransport()
    recording = Recording(stub, path)
    assert recording.capabilities is stub.capabilities
    assert recording.name == "Recording"
    recording.close()
    assert json.loads(path.read_text())["transport"] == "StubTransport"
    assert repr(path)[-15:-2] in repr(recording)


def test_errors_pass_and_are_recorded(path: Path) -> None:
    """The very same object, of a call and of a stream; what callers add to it later is not in the cassette."""
    error = SandboxFileNotFoundError(filename="nope")
    late = CommandTimeoutError("late", timeout=1.0)
    stub = StubTransport([out(b"before"), late])
    stub.fail["stat"] = error
    with Recording(stub, path) as recording, Sandbox(recording, "box") as sandbox:
        with pytest.raises(SandboxFileNotFoundError) as caught:
            sandbox.stat("nope")
        assert caught.value is error
        with pytest.raises(CommandTimeoutError) as stopped:
            sandbox.exec("sleep")
        assert stopped.value is late
        assert stopped.value.stdout == "before"
    stat, run = answers(path)
    shown = {"class": "SandboxFileNotFoundError", "message": "No such file or directory: 'nope'", "filename": "nope"}
    assert stat == {"error": shown}
    assert [event.keys() - {"at"} for event in run["events"]] == [{"stdout"}, {"error"}]
    assert run["events"][1]["error"] == {"class": "CommandTimeoutError", "message": "late", "timeout": 1.0}


def test_output_has_its_times(path: Path) -> None:
    """In seconds since the command was there to read, to the millisecond."""
    with Recording(LocalTransport(), path) as recording, Sandbox(recording) as sandbox:
        sandbox.exec("echo a; sleep 0.3; echo b >&2")
    (run,) = [call["answer"] for call in calls_in(path) if call["asked"]["call"] == "run"]
    first, second, end = run["events"]
    assert (first["stdout"], second["stderr"], end["exited"]) == ("a\n", "b\n", 0)
    assert second["at"] - first["at"] == pytest.approx(0.3, abs=0.2)
    assert all(event["at"] == round(event["at"], 3) for event in run["events"])


@pytest.mark.parametrize("end", ["close", "abandon", "left open", "kill"])
def test_streams_that_are_given_up_are_kept(path: Path, end: str) -> None:
    """What was read of them, marked as incomplete; a kill is in its place."""
    stub = StubTransport([out(b"one"), out(b"two"), Exited(0, 1)])
    with Recording(stub, path) as recording:
        sandbox = Sandbox(recording, "box")
        stream = sandbox.exec_stream("x")
        next(stream)
        next(stream)
        if end == "close":
            stream.close()
        elif end == "kill":
            stream.kill()
            list(stream)
        elif end == "abandon":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                del stream
                gc.collect()
            assert stub.streams[0].closes == 1
    if end == "left open":
        stream.close()
    (run,) = answers(path)
    assert [event.keys() - {"at"} for event in run["events"]][:2] == [
        {"stdout"},
        *([{"killed"}] if end == "kill" else []),
    ]
    assert run.get("incomplete") == (None if end == "kill" else True)


def test_files_and_trees_that_are_given_up_are_kept(path: Path) -> None:
    """What was read of them, marked as incomplete, or with the error that ended them."""

    class Trees(StubTransport):
        def read_tree(self, ref: SessionRef, path: str, exclude: Any) -> Iterator[bytes]:
            self.closed = False
            try:
                yield b"one"
                yield b"two"
            finally:
                self.closed = True

    stub = Trees()
    stub.content = {"half": [b"one", b"two"], "bad": [b"one", SandboxUnavailableError("gone")]}
    with Recording(stub, path) as recording, Sandbox(recording, "box") as sandbox:
        with sandbox.read_file_stream("half") as stream:
            assert next(stream) == b"one"
        with pytest.raises(SandboxUnavailableError):
            sandbox.read_bytes("bad")
        pieces = recording.read_tree(REF, "t", ())
        assert next(pieces) == b"one"
        pieces.close()  # type: ignore[attr-defined]
        assert stub.closed
    half, bad, cut = answers(path)
    assert half == {"path": "half", "size": 6, "content": "one", "incomplete": True}
    assert (bad["content"], bad["error"]["class"]) == ("one", "SandboxUnavailableError")
    assert cut == {"content": "one", "incomplete": True}


def test_content_is_passed_on_in_pieces(path: Path) -> None:
    """What it raises is raised, and the cassette says so."""

    class Greedy(StubTransport):
        def write_file(self, ref: SessionRef, path: str, chunks: Any) -> Any:
            self.seen = next(iter(chunks))
            return super().write_file(ref, path, chunks)

    def broken() -> Iterator[bytes]:
        yield b"one"
        raise LookupError("mine")

    stub = StubTransport()
    with Recording(stub, path) as recording, Sandbox(recording, "box") as sandbox:
        sandbox.write_file("f", iter([b"one ", b"two"]))
        assert stub.written == b"one two"
        with pytest.raises(LookupError):
            sandbox.write_file("f", broken())
    whole, half = calls_in(path)
    assert whole["asked"]["content"] == "one two"
    assert "content" not in half["asked"]
    assert half["answer"] == {"interrupted": "LookupError"}


def test_calls_of_threads_are_in_the_order_in_which_they_began(path: Path) -> None:
    """Each is an entry of its own, with its own answer; of other threads than the first it says so."""
    stub = StubTransport(*([out(b"x"), Exited(0, 0)] for _ in range(40)))
    with Recording(stub, path) as recording, Sandbox(recording, "box") as sandbox:
        sandbox.ping()
        in_threads(8, lambda number: [sandbox.exec(f"{number} {n}", session_id=f"s{number}") for n in range(5)])
    calls = calls_in(path)
    assert "thread" not in calls[0]
    for number in range(8):
        mine = [call for call in calls if call["asked"].get("session") == f"s{number}"]
        assert [call["asked"]["command"] for call in mine] == [f"{number} {n}" for n in range(5)]
        assert len({call["thread"] for call in mine}) == 1
        assert all(len(call["answer"]["events"]) == 2 for call in mine)


def test_a_call_in_flight_at_the_end_says_so(path: Path) -> None:
    """It is in the cassette without an answer."""
    stub = StubTransport()
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait(20)

    stub.before = lambda: wait() if stub.names[-1] == "ping" else None
    recording = Recording(stub, path)
    thread = threading.Thread(target=lambda: recording.ping("box", None))
    thread.start()
    begun.wait(20)
    recording.close()
    go_on.set()
    thread.join(20)
    assert answers(path) == [{"unfinished": True}]


def test_an_interrupted_call_says_so(path: Path) -> None:
    """And the interrupt is passed on."""
    stub = StubTransport()
    stub.fail["ping"] = KeyboardInterrupt()
    with Recording(stub, path) as recording, pytest.raises(KeyboardInterrupt):
        recording.ping("box", None)
    assert answers(path) == [{"interrupted": "KeyboardInterrupt"}]


def test_the_cassette_is_written_when_closing_fails(path: Path) -> None:
    """And the failure is raised."""
    stub = StubTransport()
    stub.fail["close"] = SandboxUnavailableError("gone")
    recording = Recording(stub, path)
    recording.ping("box", None)
    with pytest.raises(SandboxUnavailableError):
        recording.close()
    assert len(calls_in(path)) == 1


def test_a_cassette_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """The transport is closed all the same, and closing again tries again."""
    (tmp_path / "file").write_text("x")
    stub = StubTransport()
    recording = Recording(stub, tmp_path / "file" / "c.json")
    recording.ping("box", None)
    for _ in range(2):
        with pytest.raises(OSError, match=r"exists|directory"):
            recording.close()
    assert stub.names.count("close") == 2
    (tmp_path / "file").unlink()
    recording.close()
    assert len(calls_in(tmp_path / "file" / "c.json")) == 1


def test_the_path_is_that_of_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A relative one does not follow a change of directory; closing twice writes once."""
    monkeypatch.chdir(tmp_path)
    recording = Recording(StubTransport(), "c.json")
    (tmp_path / "d").mkdir()
    monkeypatch.chdir(tmp_path / "d")
    recording.close()
    (tmp_path / "c.json").unlink()
    recording.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["d"]


def test_a_forked_child_writes_nothing(path: Path) -> None:
    """Its calls go on to the transport; the cassette is its parent's alone."""
    recording = Recording(StubTransport(), path)
    recording.ping("box", None)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            recording.ping("child", None)
            recording.close()
            status = int(path.exists())
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    recording.close()
    assert [call["asked"]["sandbox"] for call in calls_in(path)] == ["box"]


def test_no_secret_is_in_the_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, from this process and from environments, in any field, however it was cut or encoded."""
    monkeypatch.setenv("TOKEN", "hunter2")
    stub = StubTransport([out(b"hun"), out(b"ter2"), err(b"\xffhunter2"), Exited(0, 0)], [Exited(0, 0)])
    stub.content["f"] = [b"hunt", b"er2"]
    stub.fail["ping"] = SandboxUnavailableError("no hunter2", context={"hunter2": ["late-one"]})
    with Recording(stub, path, redact=["TOKEN"]) as recording:
        sandbox = Sandbox(recording, "hunter2")
        sandbox.exec("echo hunter2 late-one", stdin=b"\xffhunter2", cwd="hunter2")
        sandbox.exec("true", env={"TOKEN": "late-one", "OTHER": "xhunter2"})
        sandbox.read_bytes("f")
        sandbox.write_file("hunter2", b"\xffhunter2")
        recording.create_session(SessionRef("hunter2", "late-one"), SessionSpec({"TOKEN": "third"}, "third"))
        with pytest.raises(SandboxUnavailableError):
            sandbox.ping()
    text = path.read_text("utf-8")
    for secret in ("hunter2", "late-one", "third", "aHVudGVyMg", "/2h1bnRlcjI"):
        assert secret not in text
    assert text.count("<redacted>") >= 8


def test_ids_that_were_made_up_are_numbered(path: Path) -> None:
    """Two recordings of the same thing differ in times only."""
    texts = []
    for _ in range(2):
        stub = StubTransport()
        with Recording(stub, path) as recording, Sandbox(recording) as sandbox:
            with sandbox.session() as session:
                session.exec(f"echo {session.id}")
                stub.processes["other"] = process("other", command=f"for {session.id}")
                sandbox.start_process("x", session_id=session.id)
                sandbox.list_processes()
        data = json.loads(path.read_text("utf-8"))
        del data["began"]
        for call in data["calls"]:
            call["answer"].pop("events", None)
        texts.append(json.dumps(data, ensure_ascii=False))
    assert texts[0] == texts[1]
    assert "echo ⟨session 1⟩" in texts[0]
    assert "for ⟨session 1⟩" in texts[0]


def test_logs_that_are_read_to_now_are_whole(path: Path) -> None:
    """Of those that are followed, only the process's end is the end."""
    stub = StubTransport()
    stub.log_items = [out(b"x"), ProcessNotFoundError("gone")]
    with Recording(stub, path) as recording:
        for live in (False, True):
            logs = recording.follow_logs("box", "p", live)
            assert logs.read(0) == out(b"x")
            stub.logs[-1].items = []
            assert logs.read(0) is None
            logs.close()
        assert all(logs.closed for logs in stub.logs)
    assert [answer.get("incomplete") for answer in answers(path)] == [None, True]


def test_what_was_read_after_a_close_is_no_end(path: Path) -> None:
    """A file that was closed says that there is no more, and was not read to its end."""
    stub = StubTransport()
    stub.content["f"] = [b"one", b"two"]
    with Recording(stub, path) as recording:
        stream = recording.read_file(REF, "f", 10)
        assert next(iter(stream)) == b"one"
        stream.close()
        inner = stream._stream  # type: ignore[attr-defined]
        assert isinstance(inner, StubBytes)
        inner.chunks = []
        assert list(stream) == []
    assert answers(path)[0]["incomplete"]


def test_bad_redactions_are_refused_at_once(path: Path) -> None:
    """Not when the cassette is written."""
    with pytest.raises(ConfigurationError):
        Recording(StubTransport(), path, redact="TOKEN")
