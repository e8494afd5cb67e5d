"""A call, and what is told of each attempt at it: one line in the log, one event."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

import attrs

from sandboxsync._deadline import Deadline
from sandboxsync._redact import redact

from ._errors import Asked
from ._events import Hook, RequestFinished
from ._exchange import Exchange
from ._retry import Kind
from ._upload import Upload

__all__ = ["Call", "Report"]

_log = logging.getLogger("sandboxsync.http")


@attrs.frozen
class Call:
    """What is asked for. `path` is as it goes over the wire, with its query; limits in seconds."""

    method: str
    path: str
    route: str
    kind: Kind
    asked: Asked
    common_headers: Mapping[str, str]
    headers: Mapping[str, str]
    upload: Upload
    load: bool
    read: float | None
    total: float | None
    deadline: Deadline


class Report:
    """Says once what became of an attempt: one line in the log, one event."""

    def __init__(self, call: Call, number: int, on_event: Hook | None) -> None:
        self.exchange: Exchange | None = None
        self._call = call
        self._number = number
        self._on_event = on_event
        self._started = time.monotonic()
        self._first_byte: float | None = None
        self._status: int | None = None
        self._finished = False

    def answered(self, status: int) -> None:
        self._status = status
        self._first_byte = time.monotonic() - self._started

    def finish(self, error: str | None) -> None:
        if self._finished:
            return
        self._finished = True
        duration = time.monotonic() - self._started
        call, exchange = self._call, self.exchange
        sent = 0 if exchange is None else exchange.bytes_sent
        received = 0 if exchange is None else exchange.bytes_received
        _log.debug(
            "%s %s: %s in %.3f s, attempt %d, %d bytes sent, %d received%s",
            call.method,
            redact(call.path),
            "no answer" if self._status is None else self._status,
            duration,
            self._number,
            sent,
            received,
            "" if error is None else f", {error}",
        )
        if self._on_event is not None:
            self._on_event(
                RequestFinished(
                    call.method,
                    call.route,
                    self._status,
                    duration,
                    self._first_byte,
                    self._number,
                    sent,
                    received,
                    error,
                )
            )
