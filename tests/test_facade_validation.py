"""Bad input raises ``InvalidRequestError`` before anything reaches the transport."""

from __future__ import annotations

import io
import math
import re
import signal
import subprocess
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

import pytest

from sandboxsync import InvalidRequestError, Sandbox
from sandboxsync._validate import check_command, check_env, check_limit, check_signal, check_timeout
from tests._stub_transport import StubTransport, process

BAD_IDS = ["", "a" * 129, "a/b", "a b", "é", "a\n", 5, None, b"a"]
BAD_TIMEOUTS = [0, -1, 0.0, math.nan, -math.inf, True, False, "5", b"1", [1], 1j]
BAD_PATHS = ["", "a\0b", b"a", 5, PureWindowsPath("a"), None, "\ud800"]

CALLS = {
    "empty command": lambda sb: sb.exec(""),
    "no arguments": lambda sb: sb.exec([]),
    "an argument that is no str": lambda sb: sb.exec(["a", 1]),
    "a command of bytes": lambda sb: sb.exec(b"ls"),
    "a command of None": lambda sb: sb.exec(None),
    "a NUL in the command": lambda sb: sb.exec("a\0"),
    "a NUL in an argument": lambda sb: sb.exec(["a\0"]),
    "half a surrogate pair": lambda sb: sb.exec("echo \ud800"),
    "a name with a dash": lambda sb: sb.exec("x", env={"A-B": "1"}),
    "a name with a digit first": lambda sb: sb.exec("x", env={"1A": "1"}),
    "an empty name": lambda sb: sb.exec("x", env={"": "1"}),
    "a name that is no ASCII": lambda sb: sb.exec("x", env={"É": "1"}),
    "a name with a line end": lambda sb: sb.exec("x", env={"A\n": "1"}),
    "a read-only name": lambda sb: sb.exec("x", env={"UID": "1"}),
    "a value that is no str": lambda sb: sb.exec("x", env={"A": 1}),
    "a NUL in a value": lambda sb: sb.exec("x", env={"A": "\0"}),
    "env that is no mapping": lambda sb: sb.exec("x", env=["A=1"]),
    "stdin that is no text": lambda sb: sb.exec("x", stdin=5),
    "stdin that cannot be encoded": lambda sb: sb.exec("x", stdin="é", encoding="ascii"),
    "negative max_output": lambda sb: sb.exec("x", max_output=-1),
    "max_output of a bool": lambda sb: sb.exec("x", max_output=True),
    "max_output of a float": lambda sb: sb.exec("x", max_output=1.5),
    "unknown encoding": lambda sb: sb.exec("x", encoding="utf-9"),
    "encoding that is none of text": lambda sb: sb.exec("x", encoding="hex"),
    "encoding with a NUL": lambda sb: sb.exec("x", encoding="a\0"),
    "encoding that is no str": lambda sb: sb.exec("x", encoding=None),
    "unknown errors handler": lambda sb: sb.exec("x", errors="nope"),
    "errors handler that only encodes": lambda sb: sb.exec("x", errors="xmlcharrefreplace"),
    "on_output that cannot be called": lambda sb: sb.exec("x", on_output="print"),
    "a stream of an empty command": lambda sb: sb.exec_stream(""),
    "a stream with an unknown encoding": lambda sb: sb.exec_stream("x", encoding="utf-9"),
    "an unset read-only variable": lambda sb: sb.set_env_vars({"A": "1", "PPID": None}),
    "a bad session variable": lambda sb: sb.get_session("s").set_env_vars({"A": 5}),
    "a process without command": lambda sb: sb.start_process(""),
    "a bad process id": lambda sb: sb.start_process("x", process_id="a/b"),
    "a bad id to kill": lambda sb: sb.kill_process("a b"),
    "a bad id to get": lambda sb: sb.get_process(""),
    "a bad id to read": lambda sb: sb.get_process_logs(".."),
    "a bad id to follow": lambda sb: sb.stream_process_logs(5),
    "an unknown signal": lambda sb: sb.kill_process("p", "SIGNOPE"),
    "signal 0": lambda sb: sb.kill_process("p", 0),
    "a signal of a bool": lambda sb: sb.kill_process("p", True),
    "a chunk size of 0": lambda sb: sb.read_file_stream("f", chunk_size=0),
    "text in an unknown encoding": lambda sb: sb.read_text("f", "utf-9"),
    "text that cannot be encoded": lambda sb: sb.write_file("f", "é", encoding="ascii"),
    "content in an unknown encoding": lambda sb: sb.write_file("f", "é", encoding="utf-9"),
    "content of a number": lambda sb: sb.write_file("f", 5),
    "content of a text file": lambda sb: sb.write_file("f", io.StringIO("x")),
    "progress that cannot be called": lambda sb: sb.write_file("f", b"", progress=1),
    "a lone pattern": lambda sb: sb.upload("a", "b", exclude="*.pyc"),
    "an empty pattern": lambda sb: sb.download("a", "b", exclude=[""]),
    "a local path of bytes": lambda sb: sb.upload(b"a", "b"),
    "an empty local path": lambda sb: sb.download("a", ""),
    "an archive that is none": lambda sb: sb.persist(5),
    "an archive to read that is none": lambda sb: sb.hydrate(None),
    "no repository": lambda sb: sb.git_checkout(""),
    "a depth of 0": lambda sb: sb.git_checkout("u", depth=0),
    "an empty branch": lambda sb: sb.git_checkout("u", branch=""),
    "an empty token": lambda sb: sb.git_checkout("u", token=""),
    "a bad ping": lambda sb: sb.ping(0),
}


@pytest.mark.parametrize("name", CALLS)
def test_bad_input_is_refused_before_any_io(name: str) -> None:
    """A bad argument raises InvalidRequestError, which is a ValueError, and the transport hears nothing."""
    transport = StubTransport()
    with pytest.raises(InvalidRequestError) as caught:
        CALLS[name](Sandbox(transport))
    assert isinstance(caught.value, ValueError)
    assert transport.calls == []


@pytest.mark.parametrize("bad", [*BAD_IDS, "a..b", "..", "__DISABLE_SESSION__", "a@b", "a:b"])
def test_s8_session_ids(bad: Any) -> None:
    """S8: what is no session id is refused wherever one is taken, before any I/O."""
    transport = StubTransport()
    sandbox = Sandbox(transport)
    calls: list[Any] = [sandbox.get_session, sandbox.delete_session]
    if bad is not None:
        calls += [sandbox.create_session, sandbox.session, lambda id: sandbox.exec("x", session_id=id)]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call(bad)
    assert transport.calls == []


@pytest.mark.parametrize("good", ["a", "a" * 128, ".", "-rf", ".hidden", "A_b-c.9", "default"])
def test_s8_good_session_ids(good: str) -> None:
    """S8: 1 to 128 of the letters, digits, dot, dash and underscore are a session id."""
    assert Sandbox(StubTransport()).get_session(good).id == good


@pytest.mark.parametrize("bad", [value for value in BAD_IDS if value is not None])
def test_s18_sandbox_ids(bad: Any) -> None:
    """S18: what is no sandbox id is refused when the object is made."""
    with pytest.raises(InvalidRequestError):
        Sandbox(StubTransport(), bad)


@pytest.mark.parametrize("good", ["a", "..", "user@host:1", "a" * 128, "-"])
def test_s18_good_sandbox_ids(good: str) -> None:
    """S18: the id is kept as it was given."""
    assert Sandbox(StubTransport(), good).id == good


@pytest.mark.parametrize("bad", BAD_TIMEOUTS)
def test_t7_timeouts(bad: Any) -> None:
    """T7: a timeout that is zero, negative, NaN, a bool or no number is refused before any I/O."""
    transport = StubTransport()
    sandbox = Sandbox(transport)
    for call in (
        lambda: Sandbox(transport, command_timeout=bad),
        lambda: sandbox.create_session(command_timeout=bad),
        lambda: sandbox.session(command_timeout=bad),
        lambda: sandbox.exec("x", timeout=bad),
        lambda: sandbox.exec_stream("x", timeout=bad),
        lambda: sandbox.start_process("x", timeout=bad),
        lambda: sandbox.git_checkout("u", timeout=bad),
        lambda: sandbox.ping(bad),
    ):
        with pytest.raises(InvalidRequestError):
            call()
    assert transport.calls == []


def test_t7_infinity_is_no_limit() -> None:
    """T7: infinity, and what no clock can hold, is no limit; waits take 0 for one look."""
    assert check_timeout(math.inf) is None
    assert check_timeout(10**400) is None
    assert check_timeout(3) == 3.0
    assert check_limit(0, zero=True) == 0.0
    with pytest.raises(InvalidRequestError):
        check_limit(-0.1, zero=True)


@pytest.mark.parametrize("bad", BAD_PATHS)
def test_f4_paths(bad: Any) -> None:
    """F4: an empty path, a NUL, or what is no POSIX path is refused by every call that takes one."""
    transport = StubTransport()
    sandbox = Sandbox(transport)
    calls: list[Any] = [
        lambda: sandbox.read_file(bad),
        lambda: sandbox.read_text(bad),
        lambda: sandbox.read_bytes(bad),
        lambda: sandbox.read_file_stream(bad),
        lambda: sandbox.write_file(bad, b""),
        lambda: sandbox.mkdir(bad),
        lambda: sandbox.delete_file(bad),
        lambda: sandbox.rename_file(bad, "b"),
        lambda: sandbox.rename_file("a", bad),
        lambda: sandbox.move_file(bad, "b"),
        lambda: sandbox.move_file("a", bad),
        lambda: sandbox.list_files(bad),
        lambda: sandbox.exists(bad),
        lambda: sandbox.stat(bad),
        lambda: sandbox.upload("a", bad),
        lambda: sandbox.download(bad, "a"),
    ]
    if bad is not None:
        calls += [
            lambda: sandbox.exec("x", cwd=bad),
            lambda: sandbox.start_process("x", cwd=bad),
            lambda: sandbox.create_session(cwd=bad),
            lambda: sandbox.git_checkout("u", target_dir=bad),
            lambda: sandbox.persist("a", dir=bad),
            lambda: sandbox.hydrate("a", dir=bad),
        ]
    for call in calls:
        with pytest.raises(InvalidRequestError):
            call()
    assert transport.calls == []


def test_f4_paths_arrive_as_text() -> None:
    """F4: a PurePosixPath and a name that is not UTF-8 reach the transport as they are."""
    transport = StubTransport()
    sandbox = Sandbox(transport)
    sandbox.delete_file(PurePosixPath("a/b"))
    assert transport.last("remove_file")[1] == "a/b"
    sandbox.delete_file("~/\udcff\n -x")
    assert transport.last("remove_file")[1] == "~/\udcff\n -x"


@pytest.mark.parametrize("bad", [0, 65536, -1, True, "80", 80.0, None])
def test_ports(bad: Any) -> None:
    """A port is an int from 1 to 65535."""
    transport = StubTransport()
    transport.processes["p"] = process("p")
    found = Sandbox(transport).get_process("p")
    assert found is not None
    del transport.calls[:]
    with pytest.raises(InvalidRequestError):
        found.wait_for_port(bad)
    assert transport.calls == []


@pytest.mark.parametrize(
    "options",
    [
        {"mode": "udp"},
        {"path": "x"},
        {"path": "/a b"},
        {"path": "/a\r\nHost: x"},
        {"path": ""},
        {"status": 99},
        {"status": (200,)},
        {"status": ("200", 300)},
        {"status": True},
        {"timeout": -1},
        {"interval": 0},
        {"interval": None},
    ],
)
def test_port_options(options: Any) -> None:
    """Every bad option of wait_for_port is refused before any I/O."""
    transport = StubTransport()
    started = Sandbox(transport).start_process("x")
    del transport.calls[:]
    with pytest.raises(InvalidRequestError):
        started.wait_for_port(80, **options)
    assert transport.calls == []


@pytest.mark.parametrize("bad", ["", "a\nb", b"a", re.compile(b"a"), 5, None])
def test_log_patterns(bad: Any) -> None:
    """A pattern is a str within one line, or a compiled pattern for text."""
    transport = StubTransport()
    started = Sandbox(transport).start_process("x")
    del transport.calls[:]
    with pytest.raises(InvalidRequestError):
        started.wait_for_log(bad)
    assert transport.calls == []


def test_e8_values_keep_every_character() -> None:
    """E8: any str without NUL is a value; None is left out unless it means to unset."""
    odd = 'it\'s "$HOME"\n`x` é😀\udcff' + "v" * 100_000
    assert check_env({"A": odd, "_b1": "", "C": None}) == {"A": odd, "_b1": ""}
    assert check_env({"C": None}, keep_none=True) == {"C": None}


def test_no_message_shows_a_value() -> None:
    """A refused variable is named by its name alone: its value may be a secret."""
    with pytest.raises(InvalidRequestError) as caught:
        check_env({"TOKEN": "hunter2\0"})
    assert "TOKEN" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["printf", "%s|", "a b", "it's", "$HOME", "*", "é\n", "", "-n"],
        ["printf", "%s|", "'", "''", "\\", '"', "!x", "~", "#", "a=b", ";", "&&", "`x`", "$(x)"],
        ("printf", "%s", "tuple"),
    ],
)
def test_e11_arguments_arrive_as_they_are(words: Any) -> None:
    """E11: a shell that reads the quoted text hands over the very arguments."""
    done = subprocess.run(["bash", "-c", check_command(words)], capture_output=True, check=True)
    plain = subprocess.run(list(words), capture_output=True, check=True)
    assert done.stdout == plain.stdout


@pytest.mark.parametrize("word", ["if", "A=1", "while", "[[", "{"])
def test_e11_the_first_word_is_only_a_word(word: str) -> None:
    """E11: a keyword or an assignment as first argument is the name of a program (which is not found)."""
    assert subprocess.run(["bash", "-c", check_command([word])], capture_output=True).returncode == 127


def test_e9_odd_commands_pass() -> None:
    """E9: blank text, comments, many lines and any length are commands and are not edited."""
    for text in (" ", "\n", "# x", "a\\", "cat <<E\nx\nE", "x" * 200_000, "\udcff"):
        assert check_command(text) == text


def test_signals() -> None:
    """A signal is a name with or without SIG, a member of signal.Signals, or a valid number."""
    for value in ("SIGTERM", "TERM", signal.SIGTERM, 15):
        assert check_signal(value) == 15
    assert check_signal(40) == 40
