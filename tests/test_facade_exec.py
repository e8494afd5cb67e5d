"""``exec`` and ``exec_stream`` over a scripted transport."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import sandboxsync
from sandboxsync import (
    UNSET,
    CommandFailedError,
    CommandTimeoutError,
    Completed,
    ExecResult,
    InvalidRequestError,
    OutputDecodeError,
    OutputLimitError,
    Sandbox,
    SessionTerminatedError,
    Started,
    Stderr,
    Stdout,
    StreamInterruptedError,
)
from sandboxsync.transports.base import CommandRequest, Exited, Output
from tests._stub_transport import NOW, StubTransport, err, out

END = Exited(0, 0.25)


def sandbox(*script: Any) -> tuple[Sandbox, StubTransport]:
    """A sandbox whose next command prints what the script says."""
    transport = StubTransport(script or [END])
    return Sandbox(transport), transport


def test_result_holds_what_the_command_left() -> None:
    """Exec returns exact bytes, their text, the exit code, the duration, the start and the session."""
    sb, _ = sandbox(out(b"a\xc3"), err(b"oops"), out(b"\xa9\xff"), Exited(3, 1.5))
    assert sb.exec("cmd") == ExecResult(3, "aé\ufffd", "oops", b"a\xc3\xa9\xff", b"oops", "cmd", 1.5, NOW, "default")


def test_request_carries_the_options() -> None:
    """What exec was given reaches the transport checked; UNSET and None stay apart."""
    sb, transport = sandbox()
    sb.exec(["a b"], timeout=5, env={"A": "1", "B": None}, cwd="d", stdin="é")
    assert transport.last("run")[1] == CommandRequest("'a b'", {"A": "1"}, "d", "é".encode(), 5.0, None)
    Sandbox(transport, command_timeout=7).exec("x")
    assert transport.last("run")[1] == CommandRequest("x", {}, None, None, UNSET, 7.0)
    sb.exec("x", timeout=None)
    assert transport.last("run")[1].timeout is None


def test_stdin_takes_bytes() -> None:
    """Stdin of bytes goes as it is; text in the call's encoding; without it there is none."""
    sb, transport = sandbox()
    sb.exec("cat", stdin=b"\xff\0")
    assert transport.last("run")[1].stdin == b"\xff\0"
    sb.exec("cat", stdin="é", encoding="latin-1")
    assert transport.last("run")[1].stdin == b"\xe9"
    sb.exec("cat", stdin="")
    assert transport.last("run")[1].stdin == b""


def test_check_raises_with_the_result() -> None:
    """A non-zero exit is a result; with check=True it raises CommandFailedError that holds it."""
    sb, _ = sandbox(out(b"x"), Exited(2, 0.1))
    with pytest.raises(CommandFailedError) as caught:
        sb.exec("cmd", check=True)
    assert caught.value.result.exit_code == 2
    assert caught.value.result.stdout == "x"


@pytest.mark.parametrize("error", [CommandTimeoutError, SessionTerminatedError, StreamInterruptedError])
def test_errors_carry_the_output_so_far(error: Callable[[str], Exception]) -> None:
    """T4, S9, H1: an error of a running command carries the command and all output before it."""
    sb, transport = sandbox(out(b"a\xc3"), err(b"b"), error("x"))
    with pytest.raises(sandboxsync.SandboxError) as caught:
        sb.exec("cmd")
    seen: Any = caught.value
    assert (seen.command, seen.stdout_bytes, seen.stderr_bytes) == ("cmd", b"a\xc3", b"b")
    assert (seen.stdout, seen.stderr) == ("a\ufffd", "b")
    assert transport.streams[0].closes
    assert pickle.loads(pickle.dumps(seen)).stdout_bytes == b"a\xc3"


@pytest.mark.parametrize("stream", [False, True])
def test_s17_a_restart_is_told_once(stream: bool) -> None:
    """S17: after a command in flight was told of the restart, the next call of the object is not told again."""
    restarted = SessionTerminatedError("x", code="SANDBOX_RESTARTED")
    sb, transport = sandbox(out(b"a"), restarted)
    sb.exec_stream("x").close()
    transport.refs[0].meet("first life")
    transport.scripts = [[out(b"a"), restarted]]
    with pytest.raises(SessionTerminatedError):
        list(sb.exec_stream("cmd")) if stream else sb.exec("cmd")
    transport.refs[0].meet("second life")
    with pytest.raises(SessionTerminatedError):
        transport.refs[0].meet("third life")


def test_keyboard_interrupt_stops_the_command() -> None:
    """T6: KeyboardInterrupt closes the stream, which ends the command, and is raised."""
    sb, transport = sandbox(out(b"a"), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        sb.exec("cmd")
    assert transport.streams[0].closes == 1


# on_output


def test_e13_on_output_sees_every_character_in_order() -> None:
    """E13: on_output is called in this thread, in order, with all text of the result, before exec returns."""
    sb, _ = sandbox(out(b"a\xe2"), err(b"E"), out(b"\x82"), out(b"\xacb\xc3"), END)
    seen: list[tuple[str, str, int]] = []
    result = sb.exec("cmd", on_output=lambda name, text: seen.append((name, text, threading.get_ident())))
    me = threading.get_ident()
    assert seen == [
        ("stdout", "a", me),
        ("stderr", "E", me),
        ("stdout", "€b", me),
        ("stdout", "\ufffd", me),
    ]
    assert result.stdout == "a€b\ufffd"


@pytest.mark.parametrize("raised", [ValueError("mine"), KeyboardInterrupt(), CommandTimeoutError("other")])
def test_what_on_output_raises_stops_the_command(raised: BaseException) -> None:
    """What on_output raises stops the command and reaches the caller as it is, with nothing of ours in it."""
    sb, transport = sandbox(out(b"a"), out(b"b"), END)

    def fail(name: str, text: str) -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        sb.exec("cmd", on_output=fail)
    assert caught.value is raised
    assert transport.streams[0].closes == 1
    assert transport.streams[0].reads == 1
    if isinstance(raised, CommandTimeoutError):
        assert raised.command == ""


# max_output


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_output_limit_keeps_exactly_the_first_bytes(size: int) -> None:
    """Past max_output the command is stopped; the error has exactly its first bytes, and the other stream's."""
    data = b"0123456789" * 3
    chunks = [out(data[i : i + size]) for i in range(0, len(data), size)]
    sb, transport = sandbox(err(b"e"), *chunks, END)
    seen: list[str] = []
    with pytest.raises(OutputLimitError) as caught:
        sb.exec("cmd", max_output=12, on_output=lambda name, text: seen.append(text))
    assert caught.value.stdout_bytes == data[:12]
    assert caught.value.stdout == data[:12].decode()
    assert caught.value.stderr_bytes == b"e"
    assert caught.value.command == "cmd"
    assert "".join(seen) == "e" + data[:12].decode()
    assert transport.streams[0].closes == 1


def test_output_limit_is_per_stream_and_may_be_reached() -> None:
    """Exactly max_output bytes on each stream are no error; 0 allows no output at all."""
    sb, _ = sandbox(out(b"aa"), err(b"bb"), out(b"a"), err(b"b"), END)
    assert sb.exec("cmd", max_output=3).stdout == "aaa"
    with pytest.raises(OutputLimitError):
        sandbox(out(b"a"), END)[0].exec("cmd", max_output=0)
    assert sandbox(END)[0].exec("cmd", max_output=0).success


# Decoding


def split(data: bytes, cuts: list[int]) -> list[bytes]:
    """Bytes in pieces, cut where asked."""
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[a:b] for a, b in pairwise(edges)]


TEXTS = st.text(max_size=40)
ENCODINGS = ["utf-8", "utf-8-sig", "utf-7", "utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252"]
ENCODINGS += ["gb18030", "shift_jis", "euc_jp", "big5", "iso2022_jp", "hz", "unicode_escape"]


@given(
    data=st.binary(max_size=60) | TEXTS.map(lambda text: text.encode("utf-8", "surrogatepass")),
    cuts=st.lists(st.integers(0, 60), max_size=12),
    encoding=st.sampled_from(ENCODINGS),
    errors=st.sampled_from(["replace", "ignore", "backslashreplace", "strict"]),
)
def test_e2_any_chunking_decodes_as_the_whole(data: bytes, cuts: list[int], encoding: str, errors: str) -> None:
    """E2, E13: in any chunking exec, on_output and the events of a stream give the whole, decoded."""
    script = [*(out(piece) for piece in split(data, cuts)), END]
    seen: list[str] = []
    try:
        whole = data.decode(encoding, errors)
    except UnicodeDecodeError:
        with pytest.raises(OutputDecodeError) as caught:
            sandbox(*script)[0].exec("x", encoding=encoding, errors=errors)
        assert caught.value.stdout_bytes == data
        with pytest.raises(OutputDecodeError):
            list(sandbox(*script)[0].exec_stream("x", encoding=encoding, errors=errors))
        return
    result = sandbox(*script)[0].exec(
        "x", encoding=encoding, errors=errors, on_output=lambda name, text: seen.append(text)
    )
    events = list(sandbox(*script)[0].exec_stream("x", encoding=encoding, errors=errors))
    pieces = [event for event in events if isinstance(event, Stdout)]
    assert result.stdout == whole
    assert result.stdout_bytes == data
    assert "".join(seen) == whole
    assert "".join(piece.text for piece in pieces) == whole
    assert b"".join(piece.data for piece in pieces) == data


def test_strict_decoding_stops_the_command_when_it_is_watched() -> None:
    """With on_output, errors="strict" raises as soon as output is no text, and carries the bytes so far."""
    sb, transport = sandbox(out(b"ok"), out(b"\xff"), out(b"never"), END)
    with pytest.raises(OutputDecodeError) as caught:
        sb.exec("cmd", errors="strict", on_output=lambda name, text: None)
    assert caught.value.stdout_bytes == b"ok\xff"
    assert caught.value.stdout == "ok\\xff"
    assert transport.streams[0].closes == 1
    assert isinstance(caught.value.__cause__, UnicodeDecodeError)


def test_an_error_is_not_replaced_by_one_of_decoding() -> None:
    """A timeout stays a timeout where the output so far is no text and errors="strict"."""
    sb, _ = sandbox(out(b"\xff"), CommandTimeoutError("x"))
    with pytest.raises(CommandTimeoutError) as caught:
        sb.exec("cmd", errors="strict")
    assert caught.value.stdout == "\\xff"


# ExecStream


def test_stream_begins_with_started_and_ends_with_completed() -> None:
    """The events come in order, Completed last, and then StopIteration for ever."""
    sb, _ = sandbox(out(b"a\xe2\x82"), err(b"e"), out(b"\xac"), Exited(7, 0.5))
    with sb.exec_stream("cmd") as stream:
        assert list(stream) == [
            Started("cmd", NOW),
            Stdout("a", b"a\xe2\x82"),
            Stderr("e", b"e"),
            Stdout("€", b"\xac"),
            Completed(7, 0.5),
        ]
        assert list(stream) == []
        stream.close()
        assert next(stream, None) is None


def test_stream_rest_of_a_character_comes_before_completed() -> None:
    """A character that is never completed comes as an event of its own without data."""
    sb, _ = sandbox(out(b"a\xe2"), END)
    events = list(sb.exec_stream("cmd"))
    assert events[1:] == [Stdout("a", b"a\xe2"), Stdout("\ufffd", b""), Completed(0, 0.25)]


def test_stream_that_breaks_raises_and_never_just_ends() -> None:
    """H1: after what came, the error is raised, and again at each later step; it carries only the rest."""
    broken = StreamInterruptedError("x")
    sb, _ = sandbox(out(b"a\xe2"), broken)
    stream = sb.exec_stream("cmd")
    assert [next(stream), next(stream), next(stream)][1:] == [Stdout("a", b"a\xe2"), Stdout("\ufffd", b"")]
    for _ in range(2):
        with pytest.raises(StreamInterruptedError) as caught:
            next(stream)
    assert caught.value is broken
    assert (broken.command, broken.stdout_bytes) == ("cmd", b"")


def test_stream_limit_hands_out_the_first_bytes() -> None:
    """Past max_output the first bytes are handed out, then OutputLimitError is raised; the command is stopped."""
    sb, transport = sandbox(out(b"abc"), out(b"def"), END)
    stream = sb.exec_stream("cmd", max_output=4)
    assert [next(stream), next(stream), next(stream)][1:] == [Stdout("abc", b"abc"), Stdout("d", b"d")]
    with pytest.raises(OutputLimitError):
        next(stream)
    assert transport.streams[0].closes == 1


def test_stream_strict_decoding_carries_the_rest() -> None:
    """With errors="strict" what is no text raises with the bytes that were not handed out."""
    sb, transport = sandbox(out(b"ok"), err(b"\xff"), END)
    stream = sb.exec_stream("cmd", errors="strict")
    next(stream), next(stream)
    with pytest.raises(OutputDecodeError) as caught:
        next(stream)
    assert (caught.value.stdout_bytes, caught.value.stderr_bytes) == (b"", b"\xff")
    assert transport.streams[0].closes == 1


def test_stream_result_drains_it() -> None:
    """result() before the first event gives what exec gives; the stream has then nothing more to hand out."""
    sb, _ = sandbox(out(b"a"), err(b"b"), Exited(3, 1.5))
    stream = sb.exec_stream("cmd")
    assert stream.result() == ExecResult(3, "a", "b", b"a", b"b", "cmd", 1.5, NOW, "default")
    with pytest.raises(InvalidRequestError):
        stream.result()
    with pytest.raises(InvalidRequestError):
        next(stream)


def test_stream_result_comes_first() -> None:
    """result() after the first event, or after close, is refused."""
    sb, transport = sandbox(out(b"a"), END)
    with sb.exec_stream("cmd") as stream:
        next(stream)
        with pytest.raises(InvalidRequestError):
            stream.result()
    with pytest.raises(InvalidRequestError):
        stream.result()
    assert transport.streams[0].closes == 1


def test_stream_result_raises_as_exec() -> None:
    """An error of result() carries all output, as that of exec."""
    sb, _ = sandbox(out(b"a"), CommandTimeoutError("x"))
    with pytest.raises(CommandTimeoutError) as caught:
        sb.exec_stream("cmd").result()
    assert caught.value.stdout == "a"


def test_leaving_the_block_stops_the_command() -> None:
    """Leaving the with block closes the stream, also on an exception; iterating it then is refused."""
    sb, transport = sandbox(out(b"a"), END)
    with pytest.raises(KeyError), sb.exec_stream("cmd") as stream:
        raise KeyError
    assert transport.streams[0].closes == 1
    with pytest.raises(InvalidRequestError):
        next(stream)


def test_kill_lets_the_stream_end() -> None:
    """After kill() the events go on to Completed with 128 + the signal; it does nothing to an ended command."""
    sb, transport = sandbox(out(b"a"), out(b"b"), END)
    stream = sb.exec_stream("cmd")
    next(stream), next(stream)
    stream.kill()
    assert list(stream) == [Completed(143, 0.5)]
    stream.kill()
    assert transport.streams[0].kills == 1


def test_close_from_another_thread_ends_iterating() -> None:
    """A stream that another thread closes raises InvalidRequestError; it does not look like a normal end."""
    sb, transport = sandbox()
    reading = threading.Event()

    def wait() -> Output:
        reading.set()
        closed.wait(10)
        raise ValueError("the stream is over")

    closed = threading.Event()
    transport.scripts = [[wait]]
    stream = sb.exec_stream("cmd")
    next(stream)

    def close() -> None:
        reading.wait(10)
        stream.close()
        closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(InvalidRequestError):
        next(stream)
    closer.join()


def test_interrupt_while_iterating_stops_the_command() -> None:
    """T6: KeyboardInterrupt during iteration closes the stream."""
    sb, transport = sandbox(KeyboardInterrupt())
    stream = sb.exec_stream("cmd")
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert transport.streams[0].closes


def test_dropped_stream_warns_and_is_closed() -> None:
    """A stream that is dropped with its command running warns ResourceWarning and lets the session go on."""
    sb, transport = sandbox(out(b"a"), END)
    with pytest.warns(ResourceWarning, match="unclosed <ExecStream running"):
        sb.exec_stream("cmd")
    assert transport.streams[0].closes == 1


def test_nothing_is_read_ahead() -> None:
    """The stream reads from the transport only when its next event is asked for."""
    sb, transport = sandbox(out(b"a"), out(b"b"), END)
    with sb.exec_stream("cmd") as stream:
        next(stream)
        assert transport.streams[0].reads == 0
        next(stream)
        assert transport.streams[0].reads == 1
