"""The answer of an exec that comes as server-sent events."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Literal, TypeAlias

from sandboxsync.errors import SandboxError, StreamInterruptedError, TransportError
from sandboxsync.transports.http._errors import Asked, malformed
from sandboxsync.transports.http._response import Response
from sandboxsync.transports.http._sse import Event, EventParser
from sandboxsync.transports.http.hosted._host import PlainAnswer

__all__ = ["EventAnswer", "Item", "broken_by", "exit_code_of", "object_of"]

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


def object_of(event: Event, asked: Asked, secrets: Collection[str] = ()) -> Mapping[str, object]:
    """The JSON object that an event holds. Raises `ProtocolError` when it holds none."""
    try:
        value = json.loads(event.data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise malformed("an event is no JSON object", event.data, asked, secrets=secrets)
    return value


def exit_code_of(value: object, event: Event, asked: Asked, secrets: Collection[str] = ()) -> int:
    """The exit code that an event tells. Raises `ProtocolError` when that is no number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise malformed("the end has no exit code", event.data, asked, secrets=secrets)
    return value


def broken_by(error: SandboxError) -> TransportError:
    """What an error that comes in place of an exit code means to who runs the host.

    Whatever it says of a session or a command is about the one call that asked, which is no session's: that broke off,
    and the host knows what became of the command.
    """
    if isinstance(error, TransportError):
        return error
    broken = StreamInterruptedError(str(error), code=error.code, context=error.context, retryable=True)
    broken.__cause__ = error
    return broken
