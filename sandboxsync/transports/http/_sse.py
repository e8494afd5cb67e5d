"""Server-sent events out of bytes, in whatever pieces they come (H4). No I/O; for one thread at a time."""

from __future__ import annotations

import attrs

from sandboxsync.errors import ProtocolError

__all__ = ["DEFAULT_LIMIT", "Event", "EventParser"]

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Bytes of one event: the 32 MiB that a service sends at most, in base64, and room to spare."""

_BOM = b"\xef\xbb\xbf"


@attrs.frozen
class Event:
    """One event. `name` is `message` where the stream gave none; `data` are its data lines, joined by a line feed."""

    name: str
    data: bytes


class EventParser:
    """Takes bytes, gives the events that are complete. It keeps only the event that is not, at most `limit` bytes.

    As the standard has it: a line ends with CR, LF or CRLF; a blank line ends an event; one without a data line is
    none; comments, `id`, `retry` and unknown fields mean nothing; a byte order mark may begin the stream.
    """

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        """Refuse an event whose lines have more than `limit` bytes together."""
        self._limit = limit
        self._line: list[bytes] = []
        self._line_size = 0
        self._size = 0
        self._name = b""
        self._data: list[bytes] = []
        self._fields = False
        self._after_cr = False
        self._first = True
        self._error: ProtocolError | None = None

    def feed(self, data: bytes) -> list[Event]:
        """Return the events that end within `data`, oldest first.

        Raises `ProtocolError` once an event is larger than the limit; events before it in `data` are returned first,
        the error comes with the next call then. After an error every call raises it.
        """
        if self._error is not None:
            raise self._error
        if not data:
            return []
        if self._after_cr and data.startswith(b"\n"):
            data = data[1:]
        self._after_cr = data.endswith(b"\r")
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        events: list[Event] = []
        first, *rest = data.split(b"\n")
        try:
            self._add(first)
            for piece in rest:
                self._end_line(events)
                self._add(piece)
        except ProtocolError as exc:
            self._error = exc
            self._line.clear()
            self._data.clear()
            if not events:
                raise
        return events

    def close(self) -> bool:
        """Return whether the stream ended where an event did. What is left of one that did not is thrown away.

        Raises `ProtocolError` when an event was larger than the limit.
        """
        if self._error is not None:
            raise self._error
        left = b"".join(self._line)
        complete = not self._fields and (not left or (self._first and left == _BOM))
        self._line.clear()
        self._data.clear()
        return complete

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._line.append(piece)
        self._line_size += len(piece)
        # Comments count too while their line is there: else one that never ends would fill the memory.
        if self._size + self._line_size > self._limit:
            raise ProtocolError(f"the service sent an event of more than {self._limit} bytes")

    def _end_line(self, events: list[Event]) -> None:
        line = self._line[0] if len(self._line) == 1 else b"".join(self._line)
        self._line.clear()
        self._line_size = 0
        if self._first:
            self._first = False
            line = line.removeprefix(_BOM)
        if not line:
            if self._data:
                events.append(Event(self._name.decode("utf-8", "replace") or "message", b"\n".join(self._data)))
                self._data.clear()
            self._name = b""
            self._size = 0
            self._fields = False
            return
        if line.startswith(b":"):
            return
        self._fields = True
        self._size += len(line)
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
        elif field == b"event":
            self._name = value
