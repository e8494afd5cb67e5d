"""What faults make of an answer: from pieces to pieces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from http import HTTPStatus

from ._values import Answer
from ._wire import CHUNKED, END, Framing, Head, Piece

__all__ = ["framing_of", "interrupted", "own_answer", "slowed", "split", "truncated"]


def interrupted(pieces: Iterable[Piece], after: int, part: str, act: Callable[[], None]) -> Iterator[Piece]:
    """Call `act` when so many bytes of a part, or of the whole answer, have been passed on."""
    left = after
    acted = False
    for data, kind in pieces:
        if not acted and left == 0 and part == "answer":
            # Only now, when the first byte is here: the server has the request.
            act()
            acted = True
        counts = not acted and part in ("answer", kind)
        first = data[:left] if counts else data
        yield Piece(first, kind)
        left -= len(first) if counts else 0
        if not acted and left == 0:
            act()
            acted = True
        if len(first) < len(data):
            yield Piece(data[len(first) :], kind)


def split(pieces: Iterable[Piece], sizes: Sequence[int]) -> Iterator[Piece]:
    """Cut it into pieces of these sizes, in turn."""
    size = itertools.cycle(sizes)
    for data, kind in pieces:
        while data:
            first = next(size)
            yield Piece(data[:first], kind)
            data = data[first:]


def slowed(pieces: Iterable[Piece], size: int, part: str, pause: Callable[[], None]) -> Iterator[Piece]:
    """Pause before each piece of this size, of one part or of all."""
    for piece in pieces:
        if part != "answer" and (part == "head") != (piece.part == "head"):
            yield piece
            continue
        for small in split([piece], [size]):
            pause()
            yield small


def truncated(head: Head, framing: Framing, pieces: Iterable[Piece], after: int) -> Iterator[Piece]:
    """End the body in order after so many bytes of it."""
    if framing >= 0:
        head = head.changed(content_length=str(min(after, framing)))
    yield Piece(head.raw, "head")
    left = after
    for data, kind in pieces if left else ():
        if kind == "body":
            data = data[:left]
            left -= len(data)
            yield from _framed(data, framing)
        if left == 0:
            break
    if framing == CHUNKED:
        yield Piece(b"0\r\n\r\n", "frame")


def _framed(data: bytes, framing: Framing) -> Iterator[Piece]:
    if framing == CHUNKED:
        yield Piece(b"%x\r\n" % len(data), "frame")
    yield Piece(data, "body")
    if framing == CHUNKED:
        yield Piece(b"\r\n", "frame")


def own_answer(answer: Answer, *, has_body: bool, keep_alive: bool) -> bytes:
    """The bytes of an answer that no server gave."""
    reasons = {status.value: status.phrase for status in HTTPStatus}
    lines = [f"HTTP/1.1 {answer.status} {reasons.get(answer.status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    if answer.status not in (204, 304):
        lines.append(f"Content-Length: {len(answer.body)}")
    if not keep_alive:
        lines.append("Connection: close")
    head = "\r\n".join([*lines, "", ""]).encode("latin-1")
    return head + answer.body if has_body and answer.status not in (204, 304) else head


def framing_of(head: Head, method: str, status: int) -> Framing:
    """Where the body of an answer ends."""
    if method == "HEAD" or status in (204, 304):
        return 0
    if status == 101:
        return END
    framing = head.framing
    return END if framing is None else framing
