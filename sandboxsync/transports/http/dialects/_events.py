"""The answer of an exec that comes as server-sent events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal, TypeAlias

from sandboxsync.errors import StreamInterruptedError
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http._sse import Event, EventParser
from sandboxsync.transports.http.hosted._host import PlainAnswer

__all__ = ["EventAnswer", "Item"]

Item: TypeAlias = tuple[Literal["stdout", "stderr"], bytes] | int

_PATIENCE = 2.0
"""Seconds for the last bytes of an answer once the program's end has come."""


class EventAnswer(PlainAnswer):
    """What a program prints, out of the events of a response. One thread reads, any may close."""

    def __init__(self, response: Response, item_of: Callable[[Event], Item | None]) -> None:
        """`item_of` says what an event means, `None` for nothing; it raises for one that tells of an error."""
        self._response = response
        self._item_of = item_of
        self._pieces = response.stream()
        self._parser = EventParser()
        self._events: deque[Event] = deque()

    def read(self) -> Item:
        while True:
            while self._events:
                item = self._item_of(self._events.popleft())
                if isinstance(item, int):
                    self._response.finish(_PATIENCE)
                if item is not None:
                    return item
            piece = next(self._pieces, None)
            if piece is None:
                raise StreamInterruptedError("the answer of the service ended before the program did")
            self._events.extend(self._parser.feed(piece))

    def close(self) -> None:
        self._response.close()
