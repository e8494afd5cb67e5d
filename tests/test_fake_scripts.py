"""Scripted programs and processes of the fake."""

from __future__ import annotations

import os
import posixpath
import re
import threading
import time
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any

import pytest

from sandboxsync import Sandbox
from sandboxsync.errors import (
    CommandTimeoutError,
    GitError,
    GitRepositoryNotFoundError,
    InvalidRequestError,
    ProcessExitedBeforeReadyError,
    ProcessReadyTimeoutError,
    UnsupportedOperationError,
)
from sandboxsync.models import Stderr, Stdout
from sandboxsync.transports.fake import FakeResult, FakeTransport


@pytest.fixture
def fake() -> Iterator[FakeTransport]:
    """A fake that this test alone uses."""
    with FakeTransport() as fake:
        yield fake


@pytest.fixture
def sandbox(fake: FakeTransport) -> Sandbox:
    """A sandbox of it."""
    return Sandbox(fake, id="box")


# Patterns


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("tool", ["tool"], ["tool x"]),
        ("tool run", ["tool run", "tool   'run'", "\\tool ru''n"], ["tool run x", "tool"]),
        ("tool -m 'a b'", ["tool -m 'a b'", 'tool -m "a b"'], ["tool -m a c"]),
        ("tool *", ["tool a", "tool a b"], ["tool"]),
        ("tool ?", ["tool a"], ["tool ab"]),
        ("tool [ab]", ["tool a"], ["tool c"]),
        (re.compile(r"tool (run|test).*"), ["tool run", "tool test x"], ["tool x run"]),
        (re.compile(r"^tool\s\d+$"), ["tool 12"], ["tool x", "tool 1 x"]),
        (["tool", "run"], ["tool run", "tool run x"], ["tool", "tool x run"]),
        (["tool", "a b"], ["tool 'a b' c"], ["tool a b"]),
        ("./tool *", ["./tool a"], ["./tool"]),
    ],
)
def test_patterns(sandbox: Sandbox, fake: FakeTransport, pattern: object, yes: list[str], no: list[str]) -> None:
    """A text, a glob, a compiled pattern and the first words are each compared with the words of a command."""
    fake.on(pattern, stdout="scripted")  # type: ignore[arg-type]
    assert [sandbox.exec(command).stdout for command in yes] == ["scripted"] * len(yes)
    assert [sandbox.exec(command).exit_code for command in no] == [127] * len(no)


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        " tool",
        "* run",
        "to?l",
        "$tool",
        [],
        [1],
        7,
        re.compile(".*"),
        re.compile(r"(tool|other) x"),
        re.compile(r"tool+ x"),
        re.compile(b"tool x"),
        "cd /",
        "export A=1",
        ["exit"],
        re.compile("eval x"),
        ": *",
        "while *",
    ],
)
def test_patterns_that_cannot_be(fake: FakeTransport, pattern: object) -> None:
    """The first word has to be literal, and no part of the shell itself."""
    with pytest.raises(InvalidRequestError):
        fake.on(pattern)  # type: ignore[arg-type]
    assert fake.programs == frozenset()


@pytest.mark.parametrize(
    "values",
    [
        {"times": 0},
        {"times": True},
        {"exit_code": 256},
        {"exit_code": -1},
        {"delay": -1},
        {"delay": float("inf")},
        {"stdout": 5},
        {"output": [(0.1,)]},
        {"output": [(0.1, "x", "stdin")]},
        {"output": [("x", "x")]},
    ],
)
def test_values_that_cannot_be(fake: FakeTransport, values: Mapping[str, object]) -> None:
    """What means nothing is refused when it is said, not when the command runs."""
    with pytest.raises(InvalidRequestError):
        fake.on("tool", **values)  # type: ignore[arg-type]


# Answers


def test_everywhere_in_a_command(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A scripted command is one wherever the shell comes to it, in sessions from before and after."""
    before = sandbox.create_session("before")
    before.exec("x=1; later() { tool a; }")
    fake.on("tool a", stdout="A\n", stderr="E\n", exit_code=3)
    after = sandbox.create_session("after")
    after.exec("x=1; later() { tool a; }")
    for run in (before.exec, after.exec, Sandbox(fake, id="box", enable_default_session=False).exec):
        assert run("tool a || echo fell $?").stdout == "A\nfell 3\n"
        assert run("tool a | tr A B").stdout == "B\n"
        assert run("for i in 1 2; do tool a; done").stdout == "A\nA\n"
        assert run("f() { tool a; }; f; echo $?").stdout == "A\n3\n"
        assert run('echo "[$(tool a 2>&1)]"').stdout == "[A\nE]\n"
        assert run("echo 'tool a' > s; bash s; chmod +x s; ./s").stdout == "A\nA\n"
        assert run("tool a 2>/dev/null >out; cat out").stdout == "A\n"
        result = run("tool a")
        assert (result.stdout, result.stderr, result.exit_code) == ("A\n", "E\n", 3)
        assert run(["tool", "a"]).exit_code == 3
    for session in (before, after):
        assert session.exec("later; echo $x").stdout == "A\n1\n"


@pytest.mark.parametrize("with_session", [True, False])
def test_in_files(fake: FakeTransport, with_session: bool) -> None:
    """So is one that stands in a file, whose name the text of the command does not show."""
    fake.on("tool", stdout="out\n", delay=1)
    fake.on("cat never")
    fake.process("server", logs=[(1, "up\n")], port=80)
    fake.command("mistake", lambda: 1 // 0)
    fake.files["file"] = "tool\ncat file | head -1\n"
    fake.files["serve"] = "echo begun\nserver\n"
    fake.files["wrong"] = "mistake\n"
    sandbox = Sandbox(fake, id="box", enable_default_session=with_session)
    sandbox.exec("chmod +x *")
    result = sandbox.exec("./file")
    assert result.stdout == "out\ntool\n"
    assert 1 <= result.duration < 2
    with pytest.raises(CommandTimeoutError) as caught:
        sandbox.exec("./serve", timeout=30)
    assert caught.value.stdout.startswith("begun\n")
    with pytest.raises(ZeroDivisionError):
        sandbox.exec("./wrong")
    assert sandbox.exec("echo ok").stdout == "ok\n"


def test_registered_while_a_command_runs(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A script may come while a command is in flight, and counts for what that runs afterwards."""
    for command in ("sleep 3; tool", "trap : EXIT; sleep 3; tool"):
        with fake.clock.paused():
            stream = sandbox.exec_stream(command)
            fake.on("tool", stdout="now\n")
        assert stream.result().stdout == "now\n"
    with fake.clock.paused():
        stream = sandbox.create_session().exec_stream("sleep 30", timeout=1)
        fake.on("other", stdout="now\n")
    with pytest.raises(CommandTimeoutError):
        stream.result()


def test_bytes(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Output may be any bytes."""
    fake.on("tool", stdout=bytes(range(256)), stderr="é\n")
    result = sandbox.exec("tool; tool 1>&2")
    assert result.stdout_bytes == bytes(range(256))
    assert sorted(result.stderr_bytes) == sorted("é\né\n".encode() + bytes(range(256)))


def test_order_of_scripts(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Those with times are used up in their order; of the others the newest counts."""
    fake.on("tool *", stdout="general ")
    fake.on("tool a", stdout="first ", times=1)
    fake.on("tool a", stdout="second ", times=2)
    fake.on("tool a", stdout="last ")
    assert sandbox.exec("for i in 1 2 3 4 5; do tool a; done; tool b").stdout == (
        "first second second last last general "
    )


def test_what_is_not_scripted_of_a_name(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Commands of a scripted name that no script matches are what they would be without it."""
    fake.on("cat special", stdout="scripted\n")
    fake.on("xargs never")
    fake.on("tool a")
    fake.on("sleep 99", exit_code=4)
    sandbox.write_file("file", b"in the file\xff")
    result = sandbox.exec("cat special; echo piped | cat; cat file")
    assert result.stdout_bytes == b"scripted\npiped\nin the file\xff"
    assert sandbox.exec("cat", stdin=b"in\xff").stdout_bytes == b"in\xff"
    result = sandbox.exec("cd /tmp; echo x > here; cat here nothing")
    assert (result.stdout, result.exit_code) == ("x\n", 1)
    assert "nothing: No such file" in result.stderr
    result = sandbox.exec("tool b")
    assert (result.stdout, result.exit_code) == ("", 127)
    assert "tool: command not found" in result.stderr
    assert sandbox.exec("sleep 20; sleep 99").exit_code == 4
    fake.on("inner *", stdout="inner\n")
    assert sandbox.exec("echo x | xargs inner").stdout == "inner\n"


def test_what_is_not_scripted_is_stopped_too(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A program that runs in the place of a script is gone with the command that it is part of (T2)."""
    fake.on("bash never")
    began = time.monotonic()
    with pytest.raises(CommandTimeoutError) as caught:
        sandbox.exec("bash -c 'echo begun; while :; do :; done; echo late > late'", timeout=0.3)
    assert time.monotonic() - began < 5
    assert caught.value.stdout in ("", "begun\n")
    assert sandbox.exec("echo ok").stdout == "ok\n"
    assert "late" not in fake.sandbox("box").files


# Time


def test_delay(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A delay is in the duration, and takes no real time."""
    fake.on("npm run build", stdout="built\n", delay=2.5)
    began = time.monotonic()
    assert 2.5 <= sandbox.exec("npm run build").duration < 3
    at = fake.clock.monotonic()
    with pytest.raises(CommandTimeoutError) as caught:
        sandbox.exec("npm run build", timeout=1)
    assert 1 <= fake.clock.monotonic() - at < 1.5
    assert caught.value.stdout == "built\n"
    assert time.monotonic() - began < 1
    assert sandbox.exec("echo ok").stdout == "ok\n"


def test_streaming(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Timed output is seen while the command runs, each piece in its time."""
    fake.on("tool", stdout="at once\n", output=[(1, "a\n"), (2, b"b\n", "stderr"), (0, "c\n")], delay=1, exit_code=2)
    began = fake.clock.monotonic()
    seen = []
    with sandbox.exec_stream("tool") as stream:
        for event in stream:
            if isinstance(event, (Stdout, Stderr)):
                seen.append((round(fake.clock.monotonic() - began), event.text))
    # Which of two streams is seen first is nobody's promise.
    assert sorted(seen) == [(0, "at once\n"), (1, "a\n"), (3, "b\n"), (3, "c\n")]
    assert 4 <= fake.clock.monotonic() - began < 4.5


# Functions


def test_function(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A function is given what it asks for by name, as the command has it."""
    seen: list[object] = []

    @fake.command("tool")
    def tool(argv: list[str], env: Mapping[str, str], cwd: str, stdin: bytes, files: MutableMapping[str, bytes]) -> str:
        seen.append((argv, env["A"], env.get("B"), cwd, stdin))
        files[posixpath.join(cwd, "made")] = b"m"
        return "said\n"

    assert callable(tool)
    sandbox.exec("export A=1; B=2; mkdir -p d/e; cd d")
    assert sandbox.exec("tool 'x y' \"$B\"", stdin=b"in\xff").stdout == "said\n"
    assert sandbox.exec("printf p | A=5 tool; cat made", cwd="e", env={"B": "b"}).stdout == "said\nm"
    assert seen == [
        (["tool", "x y", "2"], "1", None, "/workspace/d", b"in\xff"),
        (["tool"], "5", "b", "/workspace/d/e", b"p"),
    ]
    assert dict(fake.sandbox("box").files) == {"/workspace/d/made": b"m", "/workspace/d/e/made": b"m"}


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (None, (0, "", "")),
        ("text\n", (0, "text\n", "")),
        (b"bytes", (0, "bytes", "")),
        (7, (7, "", "")),
        ((2, "out", b"err"), (2, "out", "err")),
        (FakeResult("out", "err", 3, delay=2), (3, "out", "err")),
    ],
)
def test_what_a_function_returns(
    sandbox: Sandbox, fake: FakeTransport, returned: object, expected: tuple[int, str, str]
) -> None:
    """Output, an exit code, all three, or a result; nothing is success."""
    fake.command("tool", lambda: returned)
    result = sandbox.exec("tool")
    assert (result.exit_code, result.stdout, result.stderr) == expected
    assert result.duration >= (2 if isinstance(returned, FakeResult) else 0)


def test_function_that_does_not_read(sandbox: Sandbox, fake: FakeTransport) -> None:
    """What a command does not read is there for those after it."""
    fake.command("tool", lambda argv: f"[{argv[1]}]")
    fake.on("other *", stdout="o")
    loop = "printf 'a\\nb\\n' | while read x; do {} $x; done"
    assert sandbox.exec(loop.format("tool")).stdout == "[a][b]"
    assert sandbox.exec(loop.format("other")).stdout == "oo"


def test_scripts_come_before_the_function(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A script is about fewer commands than a function of that name, so it counts."""
    fake.on("tool a", stdout="script", times=1)
    fake.command("tool", lambda: "function")
    assert sandbox.exec("tool a; echo; tool a; echo; tool b").stdout == "script\nfunction\nfunction"


def test_a_function_that_raises(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Its exception is raised by the call of the test, after the command has gone on as after any failure."""

    @fake.command("tool")
    def tool() -> None:
        raise LookupError("a mistake")

    said = []
    with pytest.raises(LookupError, match="a mistake"):
        sandbox.exec("tool || echo fell $?", on_output=lambda stream, text: said.append((stream, text)))
    assert "".join(text for stream, text in said if stream == "stdout") == "fell 1\n"
    assert "LookupError: a mistake" in "".join(text for stream, text in said if stream == "stderr")
    assert sandbox.exec("echo ok").stdout == "ok\n"
    with pytest.raises(LookupError), sandbox.exec_stream("tool") as stream:
        list(stream)
    with pytest.raises(LookupError):
        Sandbox(fake, id="box", enable_default_session=False).exec("echo x | tool | cat")
    process = sandbox.start_process("tool")
    assert process.wait_for_exit() == 1
    assert isinstance(fake.calls[-1].error, LookupError)
    assert "LookupError" in process.logs().stderr


@pytest.mark.parametrize("returned", [True, 1.5, 256, (1, 2), [], ("0", "", "")])
def test_a_function_that_returns_nonsense(sandbox: Sandbox, fake: FakeTransport, returned: object) -> None:
    """That is a mistake in the test as well."""
    fake.command("tool", lambda: returned)
    with pytest.raises(InvalidRequestError):
        sandbox.exec("tool")


def test_functions_that_cannot_be(fake: FakeTransport) -> None:
    """What asks for something else, or is none, or has the name of a builtin, is refused at once."""
    functions: list[Any] = [lambda args: 0, lambda argv, other: 0, "x"]
    for function in functions:
        with pytest.raises(InvalidRequestError):
            fake.command("tool", function)
    for name in ("cd", "a b", "t*", ""):
        with pytest.raises(InvalidRequestError):
            fake.command(name, lambda: 0)
    fake.command("tool", lambda argv, *rest, more=1, **others: 0)


def test_a_function_that_uses_the_sandbox(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A function may run other commands, and say what further ones do."""
    other = sandbox.create_session("other")

    @fake.command("tool")
    def tool() -> str:
        fake.on("made-up", stdout="made up\n")
        return other.exec("echo inner").stdout

    assert sandbox.exec("tool; made-up").stdout == "inner\nmade up\n"


# Processes


def test_process(sandbox: Sandbox, fake: FakeTransport) -> None:
    """A scripted server logs, opens its port after that, and runs until it is killed."""
    fake.process("node server.js", logs=[(0.5, "starting\n"), (0.5, "listening on 3000\n")], port=3000)
    began, real = fake.clock.monotonic(), time.monotonic()
    process = sandbox.start_process("PORT=3000 node server.js")
    with pytest.raises(ProcessReadyTimeoutError):
        process.wait_for_port(3000, timeout=0)
    assert process.wait_for_log("listening", timeout=10).line == "listening on 3000"
    process.wait_for_port(3000, timeout=10)
    process.wait_for_port(3000, mode="tcp", timeout=10)
    assert 1 <= fake.clock.monotonic() - began < 3
    assert process.refresh().status == "running"
    process.kill()
    assert (process.status, process.exit_code) == ("killed", 143)
    assert process.logs().stdout == "starting\nlistening on 3000\n"
    assert fake.probe_port("box", 3000, None, 1) is None
    assert time.monotonic() - real < 3


def test_process_that_ends(sandbox: Sandbox, fake: FakeTransport) -> None:
    """With an exit code it ends by itself, and whoever waits for its port is told."""
    fake.process("server", logs="cannot bind\n", exit_code=3, delay=5)
    fake.process("other", port=[80, 81], status=503, times=1)
    process = sandbox.start_process("server")
    with pytest.raises(ProcessExitedBeforeReadyError) as caught:
        process.wait_for_port(3000)
    assert (caught.value.exit_code, process.refresh().exit_code) == (3, 3)
    other = sandbox.start_process("other")
    other.wait_for_port(81, status=503, timeout=5)
    with pytest.raises(ProcessReadyTimeoutError):
        other.wait_for_port(80, timeout=5)
    assert sandbox.start_process("other").wait_for_exit() == 127


def test_process_in_a_command(sandbox: Sandbox, fake: FakeTransport) -> None:
    """What serves may stand in any command, which a timeout stops."""
    fake.process("server", logs="up\n", port=80)
    with pytest.raises(CommandTimeoutError) as caught:
        sandbox.exec("f() { server; }; f", timeout=30)
    assert caught.value.stdout == "up\n"
    assert sandbox.exec("echo ok").stdout == "ok\n"
    fake.sandbox("box").restart()


@pytest.mark.parametrize("values", [{"port": 0}, {"port": [70000]}, {"status": 99}, {"exit_code": -1}, {"logs": [5]}])
def test_processes_that_cannot_be(fake: FakeTransport, values: Mapping[str, object]) -> None:
    """What is no port, status or log is refused when it is said."""
    with pytest.raises((InvalidRequestError, TypeError)):
        fake.process("server", **values)  # type: ignore[arg-type]


# Git


def test_git_checkout(sandbox: Sandbox, fake: FakeTransport) -> None:
    """With a function in the place of git, a repository is checked out as that says."""
    with pytest.raises(UnsupportedOperationError, match=r"command\('git'"):
        sandbox.git_checkout("https://example.com/demo.git")

    @fake.command("git")
    def git(argv: list[str], env: Mapping[str, str], files: MutableMapping[str, bytes]) -> str | None:
        if "clone" in argv:
            assert env["SANDBOXSYNC_GIT_PASSWORD"] == "secret"
            files[posixpath.join(argv[-1], "README.md")] = b"# demo\n"
        return "trunk\n" if "symbolic-ref" in argv else None

    sandbox.exec("mkdir d; cd d")
    result = sandbox.git_checkout("https://example.com/demo.git", token="secret", branch="trunk")
    assert (result.branch, result.target_dir) == ("trunk", "/workspace/d/demo")
    assert sandbox.read_text("demo/README.md") == "# demo\n"
    assert "secret" not in repr(fake.calls) + repr(list(fake.calls))
    with pytest.raises(GitError, match="not an empty directory"):
        sandbox.git_checkout("https://example.com/demo.git", token="secret")


def test_git_checkout_that_fails(sandbox: Sandbox, fake: FakeTransport) -> None:
    """What a scripted git says becomes the error that git itself would lead to."""
    fake.on("git clone *", stderr="fatal: repository 'x' not found\n", exit_code=128)
    with pytest.raises(GitRepositoryNotFoundError):
        sandbox.git_checkout("https://example.com/demo.git")
    fake.on("git clone *", delay=60)
    with pytest.raises(CommandTimeoutError):
        sandbox.git_checkout("https://example.com/demo.git", timeout=5)


# Threads and processes


def test_threads(fake: FakeTransport) -> None:
    """Many threads may script and run at once; a number of times is used exactly so often."""
    fake.on("tool", exit_code=7, times=40)
    codes: list[int] = []

    def work(number: int) -> None:
        sandbox = Sandbox(fake, id=f"box-{number % 3}")
        session = sandbox.create_session(f"s{number}")
        for turn in range(10):
            fake.on(f"own-{number} {turn}", stdout=f"{number}.{turn}\n")
            assert session.exec(f"own-{number} {turn}").stdout == f"{number}.{turn}\n"
            codes.append(session.exec("tool").exit_code)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [7] * 40 + [127] * 40


def test_fork(sandbox: Sandbox, fake: FakeTransport) -> None:
    """Scripts, functions and the record work in a forked child (C3)."""
    fake.on("tool", stdout="script\n")
    fake.command("func", lambda argv: "function\n")
    sandbox.exec("tool")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            fake.on("late", stdout="late\n")
            said = sandbox.exec("tool; func; late; cat </dev/null").stdout
            fake.calls.assert_called_with("late")
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        assert pipe.read() == b"script\nfunction\nlate\n"
    os.waitpid(child, 0)
    assert sandbox.exec("late").exit_code == 127
