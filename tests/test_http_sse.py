"""The parser of server-sent events: any chunking, any line end, bounded memory, linear time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync.errors import ProtocolError
from sandboxsync.transports.http._sse import Event, EventParser

RECORDED = Path(__file__).parent / "wire" / "events.jsonl"

CHUNKINGS = st.lists(st.integers(1, 7), max_size=200)
RAW = st.lists(
    st.sampled_from([b"data", b"event", b"id", b":", b": ", b" ", b"\r", b"\n", b"\r\n", b"\xef\xbb\xbf", b"\0", b"x"]),
    max_size=40,
).map(b"".join)
LINES = st.binary(max_size=20).map(lambda line: line.replace(b"\r", b"").replace(b"\n", b""))
NAMES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8)
EVENTS = st.lists(st.builds(Event, NAMES.map(lambda name: name or "message"), st.lists(LINES).map(b"\n".join)))


def pieces(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """Cut data into pieces of these sizes, the rest into one."""
    cut, start = [], 0
    for size in sizes:
        cut.append(data[start : start + size])
        start += size
    return [*cut, data[start:]]


def parse(chunks: Iterable[bytes], limit: int = 1000) -> tuple[list[Event], bool]:
    """All events of the chunks, and whether they ended on a complete one."""
    parser = EventParser(limit)
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events, parser.close()


def encode(event: Event, end: bytes) -> bytes:
    """The event as a server may write it."""
    head = [] if event.name == "message" else [b"event: " + event.name.encode()]
    return end.join([*head, *(b"data: " + line for line in event.data.split(b"\n")), b"", b""])


@given(RAW, CHUNKINGS)
def test_any_chunking_gives_the_same_events(data: bytes, sizes: list[int]) -> None:
    """H4: where the bytes are cut changes nothing, whatever they are."""
    assert parse(pieces(data, sizes)) == parse([data])
    assert parse(data[at : at + 1] for at in range(len(data))) == parse([data])


@given(RAW, CHUNKINGS, st.integers(0, 12))
def test_any_chunking_meets_the_same_limit(data: bytes, sizes: list[int], limit: int) -> None:
    """An event is too large in any chunking or in none, and what came before it is told first."""

    def outcome(chunks: Iterable[bytes]) -> tuple[list[Event], object]:
        parser, events = EventParser(limit), []
        try:
            for chunk in chunks:
                events += parser.feed(chunk)
            return events, parser.close()
        except ProtocolError as exc:
            return events, str(exc)

    assert outcome(pieces(data, sizes)) == outcome([data])


@given(EVENTS, CHUNKINGS, st.sampled_from([b"\n", b"\r", b"\r\n"]), st.sampled_from([b"", b"\xef\xbb\xbf", b": hi\n"]))
def test_what_was_encoded_comes_back(events: list[Event], sizes: list[int], end: bytes, start: bytes) -> None:
    """Every event survives the way over the wire, with each of the three line ends."""
    data = start + b"".join(encode(event, end) for event in events)
    assert parse(pieces(data, sizes)) == (events, True)


@pytest.mark.parametrize(
    ("data", "events", "complete"),
    [
        (b"", [], True),
        (b"data: a\n\n", [Event("message", b"a")], True),
        (b"data:a\n\n", [Event("message", b"a")], True),
        (b"data:  a\n\n", [Event("message", b" a")], True),
        (b"data\n\n", [Event("message", b"")], True),
        (b"data: a\ndata: b\ndata:\n\n", [Event("message", b"a\nb\n")], True),
        (b"event: x\r\ndata: a\r\r", [Event("x", b"a")], True),
        (b"event: x\n\ndata: a\n\n", [Event("message", b"a")], True),
        (b"event: x\nevent: y\ndata: a\n\n", [Event("y", b"a")], True),
        (b"event\ndata: a\n\n", [Event("message", b"a")], True),
        (b": ping\n\n:\n\n", [], True),
        (b"id: 1\nretry: 5\nnonsense\ndatax: 2\n\n", [], True),
        (b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n", [Event("message", b"a")], True),
        (b"data: a\n", [], False),
        (b"data: a\n\ndata: b", [Event("message", b"a")], False),
        (b"data: a\n\nevent: x\n", [Event("message", b"a")], False),
        (b"data: a\n\n: hear", [Event("message", b"a")], False),
        (b"data: \x00\xff\n\n", [Event("message", b"\x00\xff")], True),
        (b"event: \xff\ndata: 1\n\n", [Event("\ufffd", b"1")], True),
    ],
)
def test_the_forms_of_the_standard(data: bytes, events: list[Event], complete: bool) -> None:
    """Each form of a line means what the standard says, and the end of the stream is told apart."""
    assert parse([data]) == (events, complete)


def test_a_carriage_return_at_the_end_of_a_chunk() -> None:
    """H4: it ends the line at once, and a line feed that follows ends no other."""
    parser = EventParser()
    assert parser.feed(b"data: a\r") == []
    assert parser.feed(b"\r") == [Event("message", b"a")]
    assert parser.feed(b"\n") == []
    assert parser.feed(b"data: b\r") == []
    assert parser.feed(b"\ndata: c\n") == []
    assert parser.feed(b"\n") == [Event("message", b"b\nc")]
    assert parser.close()


def test_an_event_is_bounded() -> None:
    """An event, a line or a comment larger than the limit raises, and goes on raising."""
    for data in (b"data: " + b"x" * 95, b": " + b"x" * 99, b"data: x\n" * 15, b"data: " + b"x" * 95 + b"\n\n"):
        parser = EventParser(100)
        with pytest.raises(ProtocolError, match="more than 100 bytes"):
            parser.feed(data)
        with pytest.raises(ProtocolError):
            parser.feed(b"\n\n")
        with pytest.raises(ProtocolError):
            parser.close()
    assert parse([(b"data: " + b"x" * 94 + b"\n\n") * 3], 100)[1]
    assert parse([b": comments end\n" * 50], 100) == ([], True)


def test_a_huge_event_takes_linear_time() -> None:
    """32 MiB in many small pieces, with line feeds or carriage returns, are parsed in seconds."""
    started = time.monotonic()
    for end in (b"\n", b"\r"):
        parser = EventParser()
        assert parser.feed(b"data: ") == []
        for _ in range(16_384):
            assert parser.feed(b"x" * 1024) == []
        assert parser.feed(end) == []
        for _ in range(128):
            assert parser.feed(b"data: y" + end) == []
            assert parser.feed((b"data: " + b"y" * 56 + end) * 1024) == []
        assert [len(event.data) for event in parser.feed(end)] == [16 * 2**20 + 1 + 128 * (2 + 57 * 1024) - 1]
    assert time.monotonic() - started < 20


def recorded() -> list[dict[str, object]]:
    """The recorded answers of both services that are streams of events."""
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("exchange", recorded(), ids=lambda exchange: f"{exchange['service']}-{exchange['name']}")
def test_recorded_streams(exchange: dict[str, object]) -> None:
    """Every stream that the services were heard to send parses, in its own chunks and byte by byte."""
    assert isinstance(exchange["chunks"], list)
    chunks = [chunk.encode() for chunk in exchange["chunks"]]
    body = b"".join(chunks)
    events, complete = parse(chunks, 2**20)
    assert (events, complete) == parse([body[at : at + 1] for at in range(len(body))], 2**20)
    assert events or exchange["end"] != "eof"
    assert complete
    for event in events:
        assert event.name in {"message", "stdout", "stderr", "exit", "error"}
        if event.name not in {"stdout", "stderr"}:
            assert isinstance(json.loads(event.data), dict)
