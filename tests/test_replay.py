"""`Replay`: what a recording has written, as a transport."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import (
    CommandTimeoutError,
    ConfigurationError,
    ProcessReadyTimeoutError,
    SandboxError,
    SandboxFileNotFoundError,
    SandboxUnavailableError,
    SessionExistsError,
    StreamInterruptedError,
)
from sandboxsync.testing import CassetteMismatchError, Recording, Replay
from sandboxsync.testing._matching import POLLS
from sandboxsync.testing._tools import within
from sandboxsync.transports.base import CommandRequest, Exited, Output, SessionRef, Transport
from tests._stub_transport import StubTransport, err, info, out, process
from tests.test_errors import make, tree, whole

REF = SessionRef("box", "s")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the cassette is."""
    return tmp_path / "cassette.json"


def record(path: Path, stub: Transport, use: Callable[[Any], Any], **options: Any) -> Any:
    """Make a cassette, and return what *use* has returned."""
    with Recording(stub, path, **options) as recording:
        return use(recording)


def both(path: Path, stub: Transport, use: Callable[[Any], Any]) -> Replay:
    """Record a program and replay it with the same result, to the end of the cassette."""
    expected = record(path, stub, use)
    with Replay(path) as replay:
        assert use(replay) == expected
        replay.assert_all_used()
    return replay


# A program in two interpreters

PROGRAM = """
import json, sys
from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import CommandTimeoutError, FileError, ProcessReadyTimeoutError, SessionExistsError
from sandboxsync.testing import Recording, Replay

mode, path, directory = sys.argv[1:]
seen = []
with eval(mode, {**globals(), "path": path}) as transport, Sandbox(transport) as sandbox:
    sandbox.upload(f"{directory}/source", "project")
    with sandbox.session(cwd="project") as session:
        build = session.exec("sh build.sh && cat out/result", timeout=60, env={"WHO": "world"})
        seen.append([build.exit_code, build.stdout, build.stderr, round(build.duration, 3), str(build.started_at)])
        with session.exec_stream("for n in 1 2 3; do echo $n; sleep 0.05; echo err$n >&2; done; (exit 4)") as stream:
            seen.append([[type(event).__name__, getattr(event, "text", None)] for event in stream])
        try:
            session.read_text("missing")
        except FileError as error:
            seen.append([type(error).__name__, str(error), error.errno, error.filename, error.code])
        try:
            session.exec("X=kept; cd out"), session.exec("echo begun; sleep 60", timeout=0.3)
        except CommandTimeoutError as error:
            seen.append([str(error), error.stdout, error.timeout, error.started, error.command])
        seen.append(session.exec("echo $X ${PWD##*/}; printf '\\\\377\\\\0'").stdout_bytes.hex())
        process = session.start_process("echo up; sleep 0.4; echo down >&2; exit 3", env={"A": "1"})
        seen.append([process.wait_for_log("up", timeout=20).line, process.status, process.pid])
        seen.append([process.wait_for_exit(20), process.status, process.logs().stdout, process.logs().stderr])
        seen.append([[event.type, event.data] for event in session.stream_process_logs(process.id)])
        try:
            session.start_process("sleep 60", process_id="slow").wait_for_log("never", timeout=0.3)
        except ProcessReadyTimeoutError as error:
            seen.append(str(error))
        sandbox.kill_process("slow")
        seen.append([[entry.relative_path, entry.size, oct(entry.mode), str(entry.modified_at)]
                     for entry in session.list_files("..", recursive=True)])
        session.download("..", f"{directory}/copy-{mode[:6]}")
        seen.append([session.exists("nope"), session.stat("result").size, len(sandbox.list_sessions())])
        try:
            sandbox.create_session(session.id)
        except SessionExistsError as error:
            seen.append([error.session_id == session.id, session.id in str(error)])
if mode.startswith("Replay"):
    transport.assert_all_used()
print(json.dumps(seen))
"""


def test_a_real_program_is_replayed_in_another_interpreter(tmp_path: Path) -> None:
    """A build, a stream, a missing file, a timeout, a process with logs, trees: all of it is the same."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "build.sh").write_text('echo building; mkdir -p out; echo "hello $WHO" > out/result; echo done >&2\n')
    (tmp_path / "program.py").write_text(PROGRAM)
    cassette = tmp_path / "c.json"

    def run(mode: str) -> Any:
        result = subprocess.run(
            [sys.executable, str(tmp_path / "program.py"), mode, str(cassette), str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=100,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        assert (result.returncode, result.stderr) == (0, "")
        return json.loads(result.stdout)

    recorded = run("Recording(LocalTransport(), path)")
    (source / "build.sh").touch()
    replayed = run("Replay(path)")
    assert replayed == recorded
    assert recorded[0][1] == "building\nhello world\n"
    copies = [
        {p.name: p.read_bytes() for p in tmp_path.glob(f"copy-{name}/**/*") if p.is_file()}
        for name in ("Record", "Replay")
    ]
    assert copies[0] == copies[1]
    assert copies[0]["result"] == b"hello world\n"


def test_a_recording_of_a_replay_is_the_same(path: Path, tmp_path: Path) -> None:
    """A replay is a transport like any other."""
    stub = StubTransport([out(b"x\xff"), err(b"y"), Exited(1, 0.5)])
    record(path, stub, lambda transport: Sandbox(transport, "box").exec("x"))
    again = tmp_path / "again.json"
    record(again, Replay(path), lambda transport: Sandbox(transport, "box").exec("x"))
    asked = [[call["asked"] for call in json.loads(file.read_text("utf-8"))["calls"]] for file in (path, again)]
    assert asked[0] == asked[1]


# Every answer


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_every_error_is_raised_again(path: Path, cls: type[SandboxError]) -> None:
    """By a call, and by a stream after the output before it; equal, and a new one each time."""
    stub = StubTransport([out(b"before"), make(cls)])
    stub.fail["stat"] = make(cls)

    def use(transport: Transport) -> list[dict[str, object]]:
        caught: list[SandboxError] = []
        for _ in range(2):
            with pytest.raises(cls) as raised:
                transport.stat(REF, "f", True)
            caught.append(raised.value)
        stream = transport.run(REF, CommandRequest("x"))
        assert stream.read() == out(b"before")
        with pytest.raises(cls) as raised:
            stream.read()
        caught.append(raised.value)
        states = [whole(error) for error in caught]
        for state in states:
            state["context"] = json.dumps(state["context"])
        return states

    both(path, stub, use)


def test_files_are_read_in_pieces(path: Path) -> None:
    """Of the size that is asked for, with what was known of them, to the error that ended them."""
    stub = StubTransport()
    stub.content = {"f": [b"abc", b"de"], "bad": [b"abc", SandboxUnavailableError("gone")]}

    def use(transport: Transport) -> Any:
        stream = transport.read_file(REF, "f", 3)
        assert iter(stream) is stream
        seen = [stream.path, stream.size, *stream]
        bad = transport.read_file(REF, "bad", 3)
        seen.append(next(bad))
        with pytest.raises(SandboxUnavailableError):
            next(bad)
        bad.close()
        assert list(bad) == []
        return seen

    both(path, stub, use)


def test_what_was_not_recorded_of_a_stream_is_told(path: Path) -> None:
    """Where the recording stopped to read, a replay says so, and hands out nothing made up."""
    stub = StubTransport([out(b"one"), out(b"two"), Exited(0, 0)])
    stub.content["f"] = [b"abc", b"de"]
    stub.log_items = [out(b"one"), out(b"two")]

    def use(transport: Transport) -> Any:
        streams = transport.run(REF, CommandRequest("x")), transport.follow_logs("box", "p", True)
        file = transport.read_file(REF, "f", 3)
        return streams, file, [streams[0].read(), streams[1].read(), next(file)]

    expected = record(path, stub, use)[2]
    replay = Replay(path)
    (run, logs), file, seen = use(replay)
    assert seen == expected
    with within(1):
        assert logs.read(5) is None
    for more in (run.read, logs.read, lambda: next(file)):
        with pytest.raises(CassetteMismatchError, match=r"stopped to read here, before the end of calls\["):
            more()
    run.close()
    logs.close()
    for more in (run.read, logs.read):
        with pytest.raises(ValueError, match="ended or was closed"):
            more()


def test_a_call_without_an_answer_says_so(path: Path) -> None:
    """One that was interrupted; where the content raised, it is what raises again."""
    stub = StubTransport()
    stub.fail["ping"] = KeyboardInterrupt()

    def broken() -> Iterator[bytes]:
        yield b"x"
        raise LookupError("mine")

    def use(transport: Transport) -> None:
        with suppress(KeyboardInterrupt):
            transport.ping("box", None)
        with pytest.raises(LookupError):
            transport.write_file(REF, "f", broken())

    record(path, stub, use)
    replay = Replay(path)
    with pytest.raises(CassetteMismatchError, match="KeyboardInterrupt"):
        replay.ping("box", None)
    with pytest.raises(LookupError):
        replay.write_file(REF, "f", broken())


# What is asked


def exec_in(*commands: str) -> Callable[[Transport], list[str]]:
    """A program that runs commands in one session."""
    return lambda transport: [Sandbox(transport, "box").exec(command, session_id="s").stdout for command in commands]


def test_another_call_is_refused(path: Path) -> None:
    """The error passes the façade, and says what was asked, what was expected, and what is nearest, with its line."""
    record(path, StubTransport(), exec_in("make build", "make test", "ls"))
    replay = Replay(path)
    sandbox = Sandbox(replay, "box")
    with pytest.raises(CassetteMismatchError) as caught:
        sandbox.exec("make tests", session_id="s")
    lines = str(caught.value).splitlines()
    line = next(number for number, text in enumerate(path.read_text().splitlines(), 1) if "make test" in text)
    assert str(path) in lines[0]
    assert "asked:" in lines[1]
    assert "command='make tests'" in lines[1]
    assert "expected: calls[0]" in lines[2]
    assert "command='make build'" in lines[2]
    assert "nearest:  calls[1], line" in lines[3]
    assert abs(line - int(lines[3].split("line ")[1].split(":")[0])) <= 6
    assert lines[4].strip() == "command: recorded 'make test', asked 'make tests'"
    assert isinstance(caught.value, AssertionError)
    sandbox.exec("make build", session_id="s")


def test_calls_of_a_session_are_in_order(path: Path) -> None:
    """One that comes later, was answered already, or goes elsewhere is refused; nothing is used up by that."""
    record(path, StubTransport(), exec_in("one", "two"))
    replay = Replay(path)
    sandbox = Sandbox(replay, "box")
    for command, session_id in (("two", "s"), ("one", "other"), ("one", "default")):
        with pytest.raises(CassetteMismatchError):
            sandbox.exec(command, session_id=session_id)
    with pytest.raises(CassetteMismatchError, match="no further call"):
        Sandbox(replay, "another").exec("one", session_id="s")
    for command in ("one", "two"):
        sandbox.exec(command, session_id="s")
    with pytest.raises(CassetteMismatchError, match="asked for before"):
        sandbox.exec("two", session_id="s")


@pytest.mark.parametrize(
    "options",
    [{"timeout": 2.0}, {"env": {"A": "2"}}, {"cwd": "d"}, {"stdin": b"x"}, {"timeout": None}],
    ids=str,
)
def test_every_option_counts(path: Path, options: dict[str, Any]) -> None:
    """A command with other options is another call."""
    record(path, StubTransport(), lambda transport: Sandbox(transport, "box").exec("x", env={"A": "1"}, timeout=1.0))
    with pytest.raises(CassetteMismatchError, match=next(iter(options))):
        Sandbox(Replay(path), "box").exec("x", **{"env": {"A": "1"}, "timeout": 1.0, **options})
    with pytest.raises(CassetteMismatchError, match="sandbox_env"):
        Sandbox(Replay(path), "box", env={"B": "1"}).exec("x", env={"A": "1"}, timeout=1.0)


def test_content_counts(path: Path) -> None:
    """A file that is written is compared, however it comes in pieces; where nothing was taken, nothing is."""
    stub = StubTransport()
    record(path, stub, lambda transport: transport.write_file(REF, "f", [b"ab", b"c"]))
    with pytest.raises(CassetteMismatchError, match="content: recorded 'abc', asked 'abd'"):
        Replay(path).write_file(REF, "f", [b"abd"])
    assert Replay(path).write_file(REF, "f", [b"a", b"bc"]).size == 3
    stub.fail["write_file"] = SandboxUnavailableError("no")
    with suppress(SandboxUnavailableError):
        record(path, stub, lambda transport: transport.write_file(REF, "f", [b"ab", b"c"]))
    untouched = iter([b"else"])
    with pytest.raises(SandboxUnavailableError):
        Replay(path).write_file(REF, "f", untouched)
    assert list(untouched) == [b"else"]


def test_unused_calls_are_told(path: Path) -> None:
    """Each on a line, without those that only look."""
    record(path, StubTransport(), lambda transport: [exec_in("one", "two")(transport), transport.workspace("box")])
    replay = Replay(path)
    exec_in("one")(replay)
    (line,) = replay.unused
    assert "calls[1], line " in line
    assert "command='two'" in line
    with pytest.raises(AssertionError, match=r"nobody has asked for 1 calls(.|\n)*'two'"):
        replay.assert_all_used()


def test_a_closed_replay_says_so(path: Path) -> None:
    """`close` is idempotent, and every other call raises afterwards."""
    record(path, StubTransport(), exec_in("one"))
    with Replay(path) as replay:
        assert str(path) in repr(replay)
        assert replay.name == "Replay"
    replay.close()
    with pytest.raises(ConfigurationError, match="closed"):
        exec_in("one")(replay)


def test_a_missing_cassette_is_told_at_once(tmp_path: Path) -> None:
    """Not at the first call."""
    with pytest.raises(ConfigurationError, match=r"none\.json"):
        Replay(tmp_path / "none.json")


# Polls


def test_looking_may_take_more_rounds(path: Path) -> None:
    """What only looks is answered as the last time when the next recorded call is another one."""
    stub = StubTransport()
    stub.processes["p"] = process("p")

    def use(rounds: int) -> Callable[[Transport], list[Any]]:
        def run(transport: Transport) -> list[Any]:
            sandbox = Sandbox(transport, "box")
            seen: list[Any] = [sandbox.exists("f", session_id="s") for _ in range(rounds)]
            sandbox.exec("touch f", session_id="s")
            stub.files["f"] = info("/f")
            seen += [sandbox.exists("f", session_id="s") for _ in range(rounds)]
            sandbox.exec("ls", session_id="s")
            seen += [sandbox.workspace, sandbox.ping(), sandbox.list_sessions()] * rounds
            seen += [found.status for _ in range(rounds) if (found := sandbox.get_process("p"))]
            return [value for n, value in enumerate(seen) if value not in seen[:n]]

        return run

    expected = record(path, stub, use(3))
    for rounds in (1, 2, 3, 7):
        replay = Replay(path)
        assert use(rounds)(replay) == expected
        replay.assert_all_used()
    with pytest.raises(CassetteMismatchError):
        Sandbox(Replay(path), "box").exists("g", session_id="s")


def test_states_come_in_their_order(path: Path) -> None:
    """Each look at a process that was recorded is answered once, and the last one stays."""
    stub = StubTransport()
    stub.processes["p"] = process("p")

    def use(transport: Transport) -> None:
        transport.get_process("box", "p")
        stub.processes["p"] = process("p", status="completed", exit_code=0)
        transport.get_process("box", "p")

    record(path, stub, use)
    replay = Replay(path)
    assert [replay.get_process("box", "p").status for _ in range(4)] == ["running", *["completed"] * 3]


def test_one_more_round_takes_nothing_of_what_comes_later(path: Path) -> None:
    """A look that is repeated is answered as the last time when something else was asked before the next one."""
    stub = StubTransport()
    stub.processes["p"] = process("p")

    def use(rounds: int) -> Callable[[Transport], list[Any]]:
        def run(transport: Transport) -> list[Any]:
            seen = {transport.wait_process("box", "p", 0.01).status for _ in range(rounds)}
            transport.follow_logs("box", "p", False).close()
            stub.processes["p"] = process("p", status="completed", exit_code=0)
            return [seen, transport.wait_process("box", "p", None).status]

        return run

    expected = record(path, stub, use(2))
    for rounds in (1, 2, 3):
        assert use(rounds)(Replay(path)) == expected == [{"running"}, "completed"]


def test_looking_without_a_session_goes_on(path: Path) -> None:
    """Where calls are in no order, one that was left out keeps nothing back."""
    stub = StubTransport()

    def use(command: str | None) -> Callable[[Transport], list[bool]]:
        def run(transport: Transport) -> list[bool]:
            sandbox = Sandbox(transport, "box", enable_default_session=False)
            seen = [sandbox.exec(command).success] if command else []
            seen.append(sandbox.exists("f"))
            stub.files["f"] = info("/f")
            return [*seen, sandbox.exists("f")]

        return run

    assert record(path, stub, use("x")) == [True, False, True]
    assert use(None)(Replay(path)) == [False, True]


def test_a_wait_without_end_is_no_poll(path: Path) -> None:
    """What is to return when a process has ended does not say for ever that it runs."""
    stub = StubTransport()
    stub.processes["p"] = process("p")
    record(path, stub, lambda transport: transport.wait_process("box", "p", 0.01))
    replay = Replay(path)
    assert replay.wait_process("box", "p", 5).status == "running"
    assert replay.wait_process("box", "p", 7).status == "running"
    with pytest.raises(CassetteMismatchError):
        replay.wait_process("box", "p", None)


def test_only_what_changes_nothing_is_a_poll() -> None:
    """The list is closed."""
    assert {"stat", "list_files", "get_process", "workspace"} < POLLS
    assert not POLLS & {"run", "destroy", "kill_process", "forget_process", "write_file", "read_file", "start_process"}


# Ids and secrets


def test_made_up_ids_stand_for_each_other(path: Path) -> None:
    """Of sandboxes, sessions and processes, in arguments, output, results and errors."""

    class Echo(StubTransport):
        def list_sessions(self, sandbox_id: str) -> list[str]:
            return sorted({ref.session_id for ref in self.refs if ref.session_id}, key=str)

        def create_session(self, ref: SessionRef, spec: Any) -> None:
            super().create_session(ref, spec)
            self.scripts.append([out(f"in {ref.session_id}".encode()), Exited(0, 0)])
            self.fail["delete_session"] = SessionExistsError(f"no {ref.session_id}", session_id=ref.session_id)

    def use(transport: Transport) -> Any:
        sandbox = Sandbox(transport)
        session = sandbox.create_session()
        seen = [session.exec(f"echo {session.id}").stdout == f"in {session.id}"]
        started = session.start_process("x")
        again = sandbox.get_process(started.id)
        assert again is not None
        seen += [again.id == started.id, sandbox.list_processes()[0].id == started.id]
        seen += [sandbox.list_sessions() == [session.id]]
        with pytest.raises(SessionExistsError) as caught:
            session.delete()
        seen += [caught.value.session_id == session.id, str(caught.value) == f"no {session.id}"]
        assert all(seen), seen
        return seen

    both(path, Echo(), use)


def test_a_given_id_is_no_other(path: Path) -> None:
    """A session that is named must have the name it had; a made-up one stands for a made-up one alone."""
    record(path, StubTransport(), lambda transport: Sandbox(transport, "box").create_session().exec("x"))
    for id in ("mine", "default"):
        with pytest.raises(CassetteMismatchError):
            Sandbox(Replay(path), "box").create_session(id)
    replay = Replay(path)
    Sandbox(replay, "box").create_session()
    with pytest.raises(CassetteMismatchError):
        Sandbox(replay, "box").create_session()
    with pytest.raises(CassetteMismatchError, match=r"expected: calls\[0\].*⟨session 1⟩"):
        Sandbox(Replay(path), "box").create_session(cwd="d")


def test_threads_may_come_in_another_order(path: Path) -> None:
    """Sessions that were made alike are told apart by what is done in them, in any order."""
    commands = [f"job {n}" for n in range(12)]

    class Jobs(StubTransport):
        def run(self, ref: SessionRef, request: CommandRequest) -> Any:
            self.scripts = [[out(f"{request.command} done".encode()), Exited(0, 0)]]
            return super().run(ref, request)

    lock = threading.Lock()

    def use(order: list[str], threads: int, shared: Callable[[Any], Any]) -> Callable[[Transport], dict[str, str]]:
        def run(transport: Transport) -> dict[str, str]:
            sandbox = Sandbox(transport, "box")
            plain = Sandbox(transport, "box", enable_default_session=False)

            def job(command: str) -> str:
                with sandbox.session() as session:
                    first = shared(lambda: session.exec("same"))
                    time.sleep(0.001)
                    return str(
                        first.stdout
                        + shared(lambda: session.exec(command)).stdout
                        + shared(lambda: plain.exec(command)).stdout
                    )

            with ThreadPoolExecutor(threads) as pool:
                return dict(zip(order, pool.map(job, order), strict=True))

        return run

    def locked(call: Callable[[], Any]) -> Any:
        with lock:
            return call()

    expected = record(path, Jobs(), use(commands, 4, locked))
    assert len(set(expected.values())) == 12
    for order, threads in ((commands, 4), (commands[::-1], 4), (commands[5:] + commands[:5], 1)):
        replay = Replay(path)
        assert use(order, threads, lambda call: call())(replay) == expected
        replay.assert_all_used()


def test_a_forked_child_may_go_on(path: Path) -> None:
    """It has what was left at the fork, and its parent too."""
    record(path, StubTransport([out(b"1"), Exited(0, 0)], [out(b"2"), Exited(0, 0)]), exec_in("one", "two"))
    replay = Replay(path)
    exec_in("one")(replay)
    replay._matcher._lock.acquire()
    pid = os.fork()
    if pid == 0:
        status = 1
        with suppress(BaseException):
            status = int(exec_in("two")(replay) != ["2"])
        os._exit(status)
    replay._matcher._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert exec_in("two")(replay) == ["2"]


def test_secrets_do_not_matter(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real one, another, or none, calls are the same; what was hidden is handed out as it is."""

    def use(transport: Transport) -> str:
        sandbox = Sandbox(transport, "box")
        token = os.environ.get("TOKEN", "")
        sandbox.write_file("f", f"key={token}".encode() + b"\xff" * 70_000)
        result = sandbox.exec(f"login {token}; login sk-{len(token)}", env={"TOKEN": token}, stdin=token)
        return result.stdout

    import re

    monkeypatch.setenv("TOKEN", "hunter2")
    stub = StubTransport([out(b"hi hun"), out(b"ter2"), Exited(0, 0)])
    record(path, stub, use, redact=["TOKEN", re.compile(r"sk-\d+")])
    for token in ("hunter2", "another-one"):
        monkeypatch.setenv("TOKEN", token)
        assert use(Replay(path)) == "hi <redacted>"
    with pytest.raises(CassetteMismatchError) as caught:
        Sandbox(Replay(path), "box").exec("echo another-one")
    assert "another-one" not in str(caught.value)


# Time


def timed(path: Path) -> None:
    """A cassette with a command that took 5 s, killed at 4 s, and one that took 0.4 s."""
    record(
        path,
        StubTransport([out(b"a"), out(b"b"), Exited(0, 5.0)], [out(b"a"), Exited(143, 5.0)]),
        lambda transport: [exec_in("one")(transport), _killed(transport)],
    )
    data = json.loads(path.read_text())
    first, second = (call["answer"]["events"] for call in data["calls"])
    first[0]["at"], first[1]["at"], first[2]["at"] = 0.1, 0.3, 0.4
    second[0]["at"], second[1]["at"], second[2]["at"] = 0.0, 4.0, 4.1
    path.write_text(json.dumps(data))


def _killed(transport: Transport) -> list[Any]:
    stream = transport.run(REF, CommandRequest("two"))
    first = stream.read()
    stream.kill()
    return [first, stream.read()]


def test_events_come_at_once(path: Path) -> None:
    """But the clock of the transport shows the time that they took, to the thread that read them."""
    timed(path)
    replay = Replay(path)
    before, date = replay.clock.monotonic(), replay.clock.now()
    with within(-1.7):
        exec_in("one")(replay)
        _killed(replay)
        replay.clock.sleep(60)
    assert 64 < replay.clock.monotonic() - before < 65
    assert 64 < (replay.clock.now() - date).total_seconds() < 65
    seen: list[float] = []
    thread = threading.Thread(target=lambda: seen.append(replay.clock.monotonic() - before))
    thread.start()
    thread.join()
    assert seen[0] < 2


def test_events_come_at_their_times(path: Path) -> None:
    """With `realtime`; a kill lets the rest come at once."""
    timed(path)
    replay = Replay(path, realtime=True)
    began = time.monotonic()
    exec_in("one")(replay)
    assert 0.4 <= time.monotonic() - began < 2.4
    began = time.monotonic()
    assert _killed(replay) == [Output("stdout", b"a"), Exited(143, 0.5)]
    assert time.monotonic() - began < 2


def test_a_close_wakes_who_reads(path: Path) -> None:
    """In another thread, in the middle of a wait."""
    timed(path)
    replay = Replay(path, realtime=True)
    exec_in("one")(replay)
    stream = replay.run(REF, CommandRequest("two"))
    stream.read()
    threading.Timer(0.1, stream.close).start()
    with within(1), pytest.raises(ValueError, match="closed"):
        stream.read()
    stream.abandon()


def test_a_kill_that_was_not_recorded_ends_the_command(path: Path) -> None:
    """What is left of its output is gone; a kill that failed fails again, and one after the end does nothing."""
    record(path, StubTransport([out(b"a"), out(b"b"), Exited(0, 1)]), exec_in("one"))
    stream = Replay(path).run(REF, CommandRequest("one"))
    assert stream.read() == out(b"a")
    stream.kill()
    assert stream.read() == Exited(143, 0.0)
    stream.kill()

    class Stuck(StubTransport):
        def run(self, ref: SessionRef, request: CommandRequest) -> Any:
            stream = super().run(ref, request)

            def kill() -> None:
                raise StreamInterruptedError("no answer")

            stream.kill = kill  # type: ignore[method-assign]
            return stream

    def use(transport: Transport) -> Any:
        stream = transport.run(REF, CommandRequest("one"))
        with pytest.raises(StreamInterruptedError, match="no answer"):
            stream.kill()
        return [stream.read(), stream.read()]

    both(path, Stuck([out(b"a"), Exited(0, 1)]), use)


def test_waits_of_the_facade_take_no_time(path: Path) -> None:
    """A wait that timed out in the recording does so again, at once."""

    def use(transport: Transport) -> list[str]:
        with Sandbox(transport) as sandbox:
            process = sandbox.start_process("echo up; sleep 60")
            seen = [process.wait_for_log("up").line]
            for wait in (
                lambda: process.wait_for_log("never", timeout=0.5),
                lambda: process.wait_for_port(1, timeout=0.5, interval=0.1, mode="tcp"),
                lambda: process.wait_for_exit(timeout=0.5),
                lambda: sandbox.exec("sleep 9", timeout=0.5),
            ):
                with pytest.raises(TimeoutError) as caught:
                    wait()
                assert isinstance(caught.value, (ProcessReadyTimeoutError, CommandTimeoutError, SandboxError))
                seen.append(str(caught.value).replace(process.id, "ID"))
            return seen

    expected = record(path, LocalTransport(), use)
    began = time.monotonic()
    assert use(Replay(path)) == expected
    assert time.monotonic() - began < 1


def test_logs_wait_for_their_reader(path: Path) -> None:
    """With `realtime`, a read returns nothing when its time passes first, and a close wakes it."""
    stub = StubTransport()
    stub.log_items = [out(b"a"), Exited(0, 1)]

    def use(transport: Transport) -> list[Any]:
        logs = transport.follow_logs("box", "p", True)
        return [logs.read(), logs.read()]

    record(path, stub, use)
    data = json.loads(path.read_text())
    for at, event in zip((0.3, 9.0), data["calls"][0]["answer"]["events"], strict=True):
        event["at"] = at
    path.write_text(json.dumps(data))
    logs = Replay(path, realtime=True).follow_logs("box", "p", True)
    assert logs.read(0.05) is None
    assert logs.read(5) == out(b"a")
    threading.Timer(0.1, logs.close).start()
    with within(1), pytest.raises(ValueError, match="closed"):
        logs.read()
    quick = Replay(path).follow_logs("box", "p", True)
    assert [quick.read(0.05), quick.read(0.05)] == [out(b"a"), Exited(0, 1)]


def test_missing_files_are_missing(path: Path) -> None:
    """Through the façade, with `errno` and `filename`."""
    with suppress(SandboxFileNotFoundError):
        record(path, StubTransport(), lambda transport: Sandbox(transport, "b").stat("f"))
    with pytest.raises(FileNotFoundError) as caught:
        Sandbox(Replay(path), "b").stat("f")
    assert (caught.value.errno, caught.value.filename) == (2, "f")
