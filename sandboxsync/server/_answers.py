"""What both APIs answer with: JSON as JavaScript writes it, times, and bodies that a worker thread writes."""

from __future__ import annotations

import asyncio
import json
import math
import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxsync.errors import SandboxError
from sandboxsync.server._workers import Workers

__all__ = ["Answer", "ConnectionCloseError", "Streamed", "Writer", "as_text", "dump", "load", "load_in", "now", "stamp"]


_LARGE = 1 << 18
"""Bytes of JSON that take a millisecond."""


class ConnectionCloseError(Exception):
    """Raised to have the connection closed: to break an answer off, or after one is complete as the service does."""


def now() -> str:
    """The present time as the service writes it."""
    return stamp(datetime.now(timezone.utc))


def stamp(time: datetime) -> str:
    """A time as the service writes it: UTC, to the millisecond."""
    return time.astimezone(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def dump(value: object) -> bytes:
    """JSON without spaces. What is no text (half of a surrogate pair, a name that is not UTF-8) becomes U+FFFD."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in text).encode()


def load(body: bytes) -> Any:
    """The value of a JSON body, its strings without halves of surrogate pairs. Raises `ValueError`."""
    try:
        value = json.loads(body, parse_constant=_refuse)
        return _well_formed(value) if b"\\ud" in body.lower() else value
    except RecursionError:
        raise ValueError("nested too deeply") from None


async def load_in(workers: Workers, body: bytes) -> Any:
    """As `load`, but in a worker thread when it takes long."""
    return load(body) if len(body) < _LARGE else await workers.short(load, body)


def _refuse(name: str) -> None:
    raise ValueError(name)


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return "".join("\ufffd" if "\ud800" <= letter <= "\udfff" else letter for letter in value)
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    if isinstance(value, dict):
        return {_well_formed(name): _well_formed(item) for name, item in value.items()}
    return value


def as_text(value: object) -> str:
    """What JavaScript makes of a JSON value where it needs text."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, list):
        return ",".join("" if item is None else as_text(item) for item in value)
    if isinstance(value, float):
        return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)
    return "[object Object]" if isinstance(value, dict) else str(value)


class Answer(Response):
    """A JSON answer."""

    media_type = "application/json"

    def __init__(self, value: object, status: int = 200) -> None:
        super().__init__(dump(value), status)


class Writer:
    """The body of an answer, written by a worker thread.

    `write` blocks while the client reads slowly. After the client has gone it does nothing, so that a command goes on.
    """

    def __init__(self, send: Send, headers: Mapping[str, str], silence: float | None) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._headers = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
        self._silence = silence
        self._timer: asyncio.TimerHandle | None = None
        self._cutting: asyncio.Task[None] | None = None
        self.begun = False
        self.over = False
        self.gone = threading.Event()
        """Set when nobody reads this any more."""

    def begin(self) -> None:
        """Send the status and the headers now, before there is a body. Idempotent."""
        if not self.begun:
            self._do(b"", True)

    def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        self._do(data, True)

    def end(self) -> None:
        """Send the end of the body."""
        self._do(b"", False)

    def close(self) -> None:
        """Write nothing from now on. On the event loop."""
        self.over = True
        if self._timer is not None:
            self._timer.cancel()

    def _do(self, data: bytes, more: bool) -> None:
        asyncio.run_coroutine_threadsafe(self._put(data, more), self._loop).result()

    async def _put(self, data: bytes, more: bool) -> None:
        if self.over:
            return
        try:
            await self._put_now(data, more)
        except OSError:
            self.over = True  # how some servers tell that the client has gone
            self.gone.set()

    async def _put_now(self, data: bytes, more: bool) -> None:
        if not self.begun:
            self.begun = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        if self._timer is not None:
            self._timer.cancel()
        if not more:
            self.over = True
        elif self._silence is not None:
            self._timer = self._loop.call_later(self._silence, self._cut)
        if data or not more:
            await self._send({"type": "http.response.body", "body": data, "more_body": more})

    def _cut(self) -> None:
        """End a body in which nothing came for too long, as if it were complete."""
        self.gone.set()
        self._cutting = self._loop.create_task(self._put(b"", False))


class Streamed:
    """An answer whose body a worker thread writes with the `Writer` that `produce` is given.

    What `produce` raises before it has begun is answered by the handlers of the app; after that it breaks the
    connection off. `silence` is the seconds without data after which the body ends.
    """

    def __init__(
        self,
        workers: Workers,
        produce: Callable[[Writer], None],
        headers: Mapping[str, str],
        silence: float | None = None,
    ) -> None:
        self._workers = workers
        self._produce = produce
        self._headers = headers
        self._silence = silence

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        writer = Writer(send, self._headers, self._silence)
        listening = asyncio.ensure_future(_listen(receive, writer))
        try:
            await self._workers.long(self._produce, writer)
        except SandboxError as exc:
            if not writer.begun:
                raise
            raise ConnectionCloseError from exc
        finally:
            listening.cancel()
            writer.close()


async def _listen(receive: Receive, writer: Writer) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    writer.gone.set()
