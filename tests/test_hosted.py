"""Hosted sessions on a service that loses answers: nothing runs twice, nothing is lost, nothing is left."""

from __future__ import annotations

import logging
import random
import shlex
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from importlib import resources
from pathlib import Path
from typing import Literal

import pytest

from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import (
    AuthenticationError,
    ProcessNotFoundError,
    SandboxError,
    SessionExistsError,
    SessionTerminatedError,
    StreamInterruptedError,
    TransportError,
)
from sandboxsync.testing import skip_unless_able
from sandboxsync.testing._tools import eventually
from sandboxsync.transports.base import CommandRequest, Exited, ProcessRequest, SessionRef, SessionSpec
from sandboxsync.transports.http._retry import RetryPolicy
from sandboxsync.transports.http.hosted._command import HostedCommand
from sandboxsync.transports.http.hosted._host import PlainAnswer, PlainExec
from sandboxsync.transports.http.hosted._lines import data_of, data_of_part
from sandboxsync.transports.http.hosted._sandbox import HostedSandbox
from tests._hosted_transport import HostedTransport, LocalExec

_QUICK = RetryPolicy(attempts=12, total=20.0, base=0.002, cap=0.01)
_HOST = "/run/sandboxsync-host"


class Flaky(PlainExec):
    """A way to a sandbox that breaks as its plan says, for one call after the other: see `Break`."""

    def __init__(self, inner: PlainExec, plan: Callable[[Sequence[str]], Break | None]) -> None:
        self._inner = inner
        self._plan = plan
        self.calls: list[Sequence[str]] = []

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        self.calls.append(argv)
        trouble = self._plan(argv)
        if trouble is None:
            return self._inner.exec(argv)
        if trouble.error is not None:
            raise trouble.error
        if trouble.after is None:
            raise TransportError("not delivered")
        answer = self._inner.exec(argv)
        if trouble.after < 0:
            _read_on(answer)
            raise TransportError("delivered, and no answer came")
        return BreakingAnswer(answer, trouble)


class Break:
    """What goes wrong: an error at once; nothing is delivered (`None`); no answer comes (-1); it ends after some bytes.

    `silently`: as if the program had ended there.
    """

    def __init__(self, after: int | None, silently: bool = False, error: SandboxError | None = None) -> None:
        self.after = after
        self.silently = silently
        self.error = error


class BreakingAnswer(PlainAnswer):
    def __init__(self, inner: PlainAnswer, trouble: Break) -> None:
        self._inner = inner
        self._left = trouble.after or 0
        self._silently = trouble.silently

    def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | int:
        if self._left <= 0:
            if self._silently:
                return 137
            raise StreamInterruptedError("it broke", retryable=True)
        item = self._inner.read()
        if isinstance(item, int):
            return item
        stream, data = item
        data, self._left = data[: self._left], self._left - len(data)
        return stream, data

    def close(self) -> None:
        self._inner.close()


def _read_on(answer: PlainAnswer) -> None:
    """What was delivered runs, though nobody hears of it; sometimes it has ended by then."""
    if random.random() < 0.5:
        answer.close()
    else:
        while not isinstance(answer.read(), int):
            pass


@pytest.fixture(scope="module")
def local() -> Iterator[LocalTransport]:
    """Where the sandboxes are."""
    with LocalTransport(isolation="bubblewrap") as transport:
        yield transport


@pytest.fixture
def box(request: pytest.FixtureRequest, local: LocalTransport) -> Iterator[Sandbox]:
    """The inner sandbox, to look at what is going on there."""
    skip_unless_able(request, local)
    with Sandbox(local) as sandbox:
        yield sandbox


def hosted(
    box: Sandbox, plan: Callable[[Sequence[str]], Break | None] = lambda argv: None, policy: RetryPolicy = _QUICK
) -> HostedSandbox:
    """A client of the sandbox whose calls go as the plan says."""
    return HostedSandbox(Flaky(_way(box), plan), policy=policy)


def _way(box: Sandbox) -> LocalExec:
    transport = box.transport
    assert isinstance(transport, LocalTransport)
    return LocalExec(transport, box.id)


def verb_of(argv: Sequence[str]) -> str:
    """What a call asks of the host."""
    verb = argv[6] if "install" not in argv[2] else "install"
    return argv[8] if verb == "once" else verb


def read(command: HostedCommand) -> tuple[bytes, bytes, int]:
    """All that a command prints, and its exit code."""
    out = {"stdout": b"", "stderr": b""}
    while not isinstance(item := command.read(), Exited):
        out[item.stream] += item.data
    return out["stdout"], out["stderr"], item.exit_code


def run(sandbox: HostedSandbox, command: str, session: str | None = "s", **what: object) -> tuple[bytes, bytes, int]:
    """Run one to its end."""
    return read(sandbox.run(SessionRef("x", session), CommandRequest(command, **what)))  # type: ignore[arg-type]


# H1, H2: retries


@pytest.mark.parametrize("seed", range(3))
def test_H2_each_command_runs_once_and_loses_nothing(box: Sandbox, seed: int) -> None:
    """Answers break at any byte, before the first one, and before delivery: outputs are exact and each runs once."""
    chance = random.Random(seed)

    def plan(argv: Sequence[str]) -> Break | None:
        kind = chance.random()
        if kind < 0.6:
            return None
        after = chance.choice([None, -1, 0, 1, chance.randrange(2, 40), chance.randrange(40, 400)])
        return Break(after, silently=chance.random() < 0.3)

    sandbox = hosted(box, plan)

    def work(worker: int) -> None:
        for number in range(17):
            mark = f"{worker}.{number}"
            script = f"echo {mark} >> log; N=$((N + 1)); echo {mark} $N; printf 'e\\0%s' {mark} >&2"
            if number % 4 == 1:
                script += "; seq 3000; sleep 0.05; seq 2000 >&2"
            out, err, code = run(sandbox, script, f"s{worker}", stdin=b"x" * 30_000 if number % 8 == 3 else None)
            lines = "".join(f"{line}\n" for line in range(1, 3001)) if number % 4 == 1 else ""
            more = "".join(f"{line}\n" for line in range(1, 2001)) if number % 4 == 1 else ""
            assert (out.decode(), code) == (f"{mark} {number + 1}\n{lines}", 0)
            assert err == f"e\0{mark}{more}".encode()

    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(work, worker) for worker in range(4)]:
            future.result()
    log = box.exec("sort log").stdout.split()
    assert log == sorted(f"{worker}.{number}" for worker in range(4) for number in range(17))


@pytest.mark.parametrize("lost", [-1, 0, 12])
def test_H2_every_other_call_may_come_twice(box: Sandbox, lost: int) -> None:
    """The first answer to each kind of call is lost, and what it did is done once."""
    seen: set[str] = set()

    def plan(argv: Sequence[str]) -> Break | None:
        verb = verb_of(argv)
        if verb in seen:
            return None
        seen.add(verb)
        return Break(lost)

    sandbox, ref = hosted(box, plan), SessionRef("x", "s")
    sandbox.create_session(ref, SessionSpec(env={"A": "1"}))
    with pytest.raises(SessionExistsError):
        sandbox.create_session(ref, SessionSpec())
    sandbox.set_session_env(ref, {"A": "2"}, None)
    assert run(sandbox, "echo $A; cat", stdin=b"y" * 200_000) == (b"2\n" + b"y" * 200_000, b"", 0)
    info = sandbox.start_process(
        ref, ProcessRequest("p", "trap 'echo usr >> got' USR1; echo up; while :; do sleep 0.05; done")
    )
    assert info.status == "running"
    log = sandbox.follow_logs("p", True)
    assert b"".join(item.data for item in [log.read(5)] if item and not isinstance(item, Exited)) == b"up\n"
    sandbox.kill_process("p", 10)
    eventually(lambda: box.exists("got") and box.read_text("got"))
    assert box.read_text("got") == "usr\n"
    sandbox.kill_process("p", 15)
    assert sandbox.wait_process("p", 5).status == "killed"
    assert len(sandbox.list_processes()) == 1
    assert sandbox.forget_process("p")
    assert sandbox.list_sessions() == ["s"]
    assert sandbox.directory(ref) == "/workspace"
    sandbox.delete_session(ref)
    assert sandbox.list_sessions() == []
    assert {"create", "set", "run", "part", "start", "log", "signal", "process", "drop", "delete"} <= seen


def test_H2_a_stream_that_cannot_be_resumed_says_so(box: Sandbox) -> None:
    """After the budget: `StreamInterruptedError` with its cause, after all output that came."""
    gone = False
    sandbox = hosted(box, lambda argv: Break(None) if gone else None, RetryPolicy(attempts=3, base=0.001))
    command = sandbox.run(SessionRef("x", "s"), CommandRequest("echo out; sleep 0.3; seq 1000000; sleep 60"))
    first = command.read()
    assert not isinstance(first, Exited)
    assert first.data == b"out\n"
    gone = True
    command._drop_answer()
    with pytest.raises(StreamInterruptedError) as caught:
        read(command)
    assert isinstance(caught.value.__cause__, TransportError)
    begun = time.monotonic()
    command.close()
    assert time.monotonic() - begun < 6


def test_H2_the_budget_begins_anew_with_what_came(box: Sandbox) -> None:
    """A stream that breaks more often than there are attempts is read to its end, while each brings something."""
    sandbox = hosted(
        box, lambda argv: Break(60) if verb_of(argv) in ("run", "follow") else None, RetryPolicy(attempts=4, base=0.001)
    )
    lines = "".join(f"line {number}\n" for number in range(30))
    assert run(sandbox, "for ((i = 0; i < 30; i++)); do echo line $i; sleep 0.02; done") == (lines.encode(), b"", 0)


def test_H3_what_no_retry_heals_is_raised_at_once(box: Sandbox) -> None:
    """A refused key ends a call with its first attempt, also in the middle of a command."""
    refused = False
    flaky = Flaky(_way(box), lambda argv: Break(None, error=AuthenticationError("no")) if refused else None)
    sandbox = HostedSandbox(flaky, policy=_QUICK)
    command = sandbox.run(SessionRef("x", "s"), CommandRequest("sleep 60"))
    refused = True
    command._drop_answer()
    before = len(flaky.calls)
    with pytest.raises(AuthenticationError):
        command.read()
    with pytest.raises(AuthenticationError):
        sandbox.list_sessions()
    assert len(flaky.calls) == before + 2
    command.close()


def test_T6_close_does_not_wait_for_a_service_that_is_gone(box: Sandbox) -> None:
    """`close` is bounded, and raises nothing."""
    gone = False
    sandbox = hosted(box, lambda argv: Break(None) if gone else None, RetryPolicy())
    command = sandbox.run(SessionRef("x", "s"), CommandRequest("sleep 60"))
    gone = True
    begun = time.monotonic()
    command.close()
    assert time.monotonic() - begun < 6


@pytest.mark.parametrize("seed", range(2))
def test_P6_logs_lose_and_repeat_nothing(box: Sandbox, seed: int) -> None:
    """A log that breaks at any byte is read exactly, while the process runs and after."""
    chance = random.Random(seed)
    sandbox = hosted(
        box, lambda argv: Break(chance.randrange(400)) if verb_of(argv) == "log" and chance.random() < 0.5 else None
    )
    sandbox.start_process(
        SessionRef("x", None),
        ProcessRequest("p", "for ((i = 0; i < 40; i++)); do echo line $i; echo e$i >&2; sleep 0.01; done"),
    )
    for _ in range(2):
        log, found = sandbox.follow_logs("p", True), {"stdout": b"", "stderr": b""}
        while not isinstance(item := log.read(), Exited):
            assert item is not None
            found[item.stream] += item.data
        assert found["stdout"].decode() == "".join(f"line {number}\n" for number in range(40))
        assert found["stderr"].decode() == "".join(f"e{number}\n" for number in range(40))


# S15, S17


def test_S15_another_client_finds_what_is_there(box: Sandbox) -> None:
    """Sessions, their state and processes are found by objects that share nothing but the sandbox."""
    one, two = hosted(box), hosted(box)
    one.create_session(SessionRef("x", "s"), SessionSpec(cwd="/tmp", command_timeout=7.5))
    assert run(one, "export V=1; f() { echo f$1; }; cd /") == (b"", b"", 0)
    one.start_process(SessionRef("x", "s"), ProcessRequest("p", "sleep 60"))
    assert two.list_sessions() == ["s"]
    assert run(two, "echo $V; f 2; pwd") == (b"1\nf2\n/\n", b"", 0)
    assert two.get_process("p").status == "running"
    two.kill_process("p", 9)
    assert one.get_process("p").exit_code == 137


def test_S17_a_host_that_has_lost_its_state_is_another_sandbox(box: Sandbox) -> None:
    """Commands say that it was restarted, once; processes are not found."""
    sandbox, ref = hosted(box), SessionRef("x", "s")
    read(sandbox.run(ref, CommandRequest("true")))
    command = sandbox.run(ref, CommandRequest("echo out; sleep 60"))
    first = command.read()
    box.exec(f"rm -r {_HOST}")
    command._drop_answer()
    with pytest.raises(SessionTerminatedError) as caught:
        command.read()
    assert (caught.value.code, caught.value.exit_code) == ("SANDBOX_RESTARTED", None)
    assert not isinstance(first, Exited)
    with pytest.raises(SessionTerminatedError):
        sandbox.run(ref, CommandRequest("touch ran"))
    assert read(sandbox.run(ref, CommandRequest("test -e ran; echo $?"))) == (b"1\n", b"", 0)
    with pytest.raises(ProcessNotFoundError):
        sandbox.get_process("p")


# H7: what is left in the sandbox


def _files(box: Sandbox) -> list[str]:
    """The files of jobs that hold something of theirs."""
    return box.exec(f"cd {_HOST}/jobs; find . -type f -name '?*.*' ! -name 'k*' | cut -c3- | sort").stdout.split()


def test_H7_the_files_of_a_job_go_when_its_result_was_taken(box: Sandbox) -> None:
    """The next call takes away all that the last one left."""
    sandbox = hosted(box)
    for session in ("s", None):
        run(sandbox, "echo a; cat", session, stdin=b"secret")
    run(sandbox, "true")
    eventually(lambda: len({name.split(".")[0] for name in _files(box)}) == 1)
    assert box.exec(f"grep -rl secret {_HOST}").stdout == ""


def test_H7_what_nobody_takes_goes_by_itself(box: Sandbox) -> None:
    """Ten minutes later, by something in the sandbox; here the files are made older."""
    sandbox = hosted(box)
    command = sandbox.run(SessionRef("x", "s"), CommandRequest("echo secret; echo ended >> ended"))
    command._drop_answer()
    eventually(lambda: any(name.endswith(".status") for name in _files(box)))
    sandbox.create_session(SessionRef("x", "t"), SessionSpec())
    janitor = int(box.exec(f"cat {_HOST}/janitor").stdout)
    assert box.exec(f"kill -0 {janitor}").exit_code == 0
    box.exec(f"cd {_HOST}/????????????????; sed 's/pause 60/pause 0.05/' janitor.bash > quick.bash; kill {janitor}")
    for done in (False, True):
        box.exec(f"find {_HOST}/jobs {_HOST}/answers -type f -exec touch -d '-11 minutes' {{}} +")

        def is_swept(expected: int = 1 if done else 3) -> bool:
            # It ends by itself when nothing is left; the machine may be too busy for one go.
            box.exec(f"timeout 1 bash {_HOST}/????????????????/quick.bash {_HOST} /workspace")
            # What only says that a job was is there a while longer, and then nothing, and nobody who waits for it.
            left = box.exec(f"ls {_HOST} {_HOST}/answers {_HOST}/jobs | grep -E '^[0-9a-f]{{16}}$|janitor'")
            return _files(box) == [] and len(left.stdout.split()) == expected

        eventually(is_swept, 20)


def test_H7_nobody_else_can_read_it_and_nothing_is_in_the_workspace(box: Sandbox) -> None:
    """The directory is its user's own, and what runs for long has nothing of the user's in its arguments."""
    sandbox = hosted(box)
    sandbox.create_session(SessionRef("x", "s"), SessionSpec(env={"SESSION": "secret-1"}))
    commands = [
        sandbox.run(
            SessionRef("x", session, env={"BOX": "secret-5"}),
            CommandRequest("sleep 60; : secret-2", env={"V": "secret-3"}, stdin=b"secret-4"),
        )
        for session in ("s", None)
    ]
    sandbox.start_process(SessionRef("x", "s"), ProcessRequest("p", "sleep 60; :", env={"V": "secret-6"}))
    waiting = ThreadPoolExecutor(1).submit(run, sandbox, ": secret-7; true", "s")
    time.sleep(0.3)
    shown = box.exec("cat /proc/[0-9]*/cmdline | tr '\\0' '\\n'").stdout
    # The command of a program of its own is what such a program is called with.
    assert {line for line in shown.splitlines() if "secret" in line} <= {"sleep 60; : secret-2"}
    assert box.exec(f"stat -c '%a %U' {_HOST}").stdout == box.exec("echo 700 $(id -un)").stdout
    assert box.exec("ls -A /workspace /tmp").stdout.split() == ["/tmp:", "/workspace:"]
    for command in commands:
        command.close()
    assert waiting.result(10) == (b"", b"", 0)


# The rest


def test_the_log_tells_of_each_command_and_each_resumption(box: Sandbox, caplog: pytest.LogCaptureFixture) -> None:
    """One line at DEBUG for a command, without env, input and credentials; one at WARNING where it went on."""
    lost = [True]
    sandbox = hosted(box, lambda argv: Break(-1) if verb_of(argv) == "run" and lost and lost.pop() else None)
    with caplog.at_level(logging.DEBUG, "sandboxsync.hosted"):
        run(sandbox, "true https://user:hunter2@host/", env={"V": "secret"}, stdin=b"secret")
    levels = [record.levelname for record in caplog.records]
    assert levels == ["WARNING", "DEBUG"]
    line = caplog.records[-1].getMessage()
    assert "'s'" in line
    assert "exited" in line
    assert "true https://***@host/" in line
    assert "secret" not in caplog.text


@pytest.mark.parametrize(
    ("line", "data"),
    [("=a\\nb\\\\n", b"a\nb\\n"), ("=a.b", b"a.b"), ("YQ==", b"a"), ("Y.Q==", b"a"), ("=", b""), ("=\\\\\\n", b"\\\n")],
)
def test_E1_lines_of_output_are_read_as_they_were_written(line: str, data: bytes) -> None:
    """Text with its escapes, base64 with the dots that may come between."""
    assert data_of(line) == data


@pytest.mark.parametrize(
    ("line", "data"),
    [
        ("=a\\", b"a"),
        ("=a\\n", b"a\n"),
        ("YWJjZGVmZ", b"abcdef"),
        ("..YWJj.ZGVmZw=", b""),
        ("agai", b""),
        ("ended exi", b""),
    ],
)
def test_H2_of_a_line_that_broke_off_what_is_sure_is_taken(line: str, data: bytes) -> None:
    """Whole escapes, whole groups of base64, and nothing that may be a word of the host's."""
    assert data_of_part(line) == data


def test_E1_all_bytes_come_through(box: Sandbox) -> None:
    """Whatever way a short output takes."""
    sandbox = hosted(box)
    texts = [
        b"\\n",
        b"a\\\n.",
        b"\n\n",
        b"..",
        b"&x",
        "é".encode(),
        b"\x00",
        b"\xff",
        b"\t\r\x1b",
        b"ended 0\n",
        b"!x\n",
        b"again\n",
    ]
    for text in texts:
        escaped = shlex.quote("".join(f"\\0{byte:03o}" for byte in text))
        for pause in ("", "; sleep 0.1"):
            assert run(sandbox, f"printf %b {escaped}{pause}") == (text, b"", 0)


def test_the_shell_files_are_clean() -> None:
    """As shellcheck sees them, each with those that it sources."""
    folder = resources.files("sandboxsync.transports.shell").joinpath("host")
    assert isinstance(folder, Path)
    try:
        found = subprocess.run(
            ["shellcheck", "-x", "-P", "SCRIPTDIR", *map(str, sorted(folder.glob("*.bash")))],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("needs shellcheck")
    assert (found.returncode, found.stdout) == (0, "")


def test_the_suites_transport_closes() -> None:
    """A transport of hosted sessions that nobody used holds nothing."""
    with closing(HostedTransport()):
        pass
