"""An answer: its head is here, its body is read when it is asked for."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from sandboxsync.errors import ProtocolError, SandboxError, StreamInterruptedError, TransportError

from ._errors import Asked, error_for, malformed
from ._lanes import shut

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from ._adapter import Body
    from ._exchange import Exchange

__all__ = ["DEFAULT_LIMIT", "Response"]

DEFAULT_LIMIT = 64 * 1024 * 1024
"""Bytes of a body that is read whole: the 32 MiB that a service sends at most, in base64, and room to spare."""

_ERROR_LIMIT = 4 * 1024 * 1024

Broken = Callable[[BaseException], SandboxError]
Finished = Callable[["str | None"], None]


class Response:
    """Head and body of an answer with any status. One thread reads, any may close.

    Its connection goes back when the body was read to its end, or is closed with it: read it, or use it in a `with`
    block, or close it.
    """

    def __init__(
        self,
        status: int,
        headers: Mapping[str, str],
        body: Body,
        exchange: Exchange,
        *,
        asked: Asked,
        secrets: Collection[str],
        broken: Broken,
        finished: Finished,
    ) -> None:
        """`broken` makes an error of what the body raised; `finished` is called once, with the error's name if any."""
        self.status = status
        self.headers = headers
        """By lower-case name."""
        self._body = body
        self._exchange = exchange
        self._asked = asked
        self._secrets = secrets
        self._broken = broken
        self._finished = [finished]
        self._reading = threading.Lock()
        self._closed = False
        self._pid = os.getpid()
        self._loaded: bytes | None = None

    def __repr__(self) -> str:
        return f"<Response {self.status} for {self._asked.operation}>"

    def read(self, limit: int = DEFAULT_LIMIT) -> bytes:
        """Return the whole body, again and again. Blocks until it is there.

        Raises `ProtocolError` when it is larger than `limit` bytes, and what `stream` raises.
        """
        if self._loaded is None:
            pieces, size = [], 0
            for piece in self.stream():
                size += len(piece)
                if size > limit:
                    self._end(None)
                    raise ProtocolError(
                        f"{self._asked.operation}: the answer has more than {limit} bytes", http_status=self.status
                    )
                pieces.append(piece)
            self._loaded = b"".join(pieces)
        return self._loaded

    def stream(self) -> Iterator[bytes]:
        """Yield the bytes of the body as they come, none of them empty. Blocks while none come.

        Raises `StreamInterruptedError` when the answer breaks off or is closed from another thread,
        `RequestTimeoutError` when nothing comes within the read limit or the total one passes, `ProtocolError` for a
        body that is not HTTP.
        """
        while True:
            piece = self._next()
            if not piece:
                return
            yield piece

    def finish(self, seconds: float) -> None:
        """Give the connection back when all that matters was read: with its end when that comes at once, else closed.

        Blocks, but for no more than `seconds` of silence.
        """
        self._exchange.hurry(seconds)
        try:
            while self._finished and self._next():
                continue
        except TransportError:
            self.close()

    def _next(self) -> bytes:
        self._check_process()
        with self._reading:
            if self._closed and not self._body.complete:
                raise self._was_closed()
            try:
                piece = self._body.read()
            except Exception as exc:
                failure: BaseException | None = exc
                piece = b""
            else:
                failure = None
            complete = self._body.complete
        if self._closed and not complete:
            # Closed meanwhile by another thread, which left the rest to this one.
            self._end(None)
            raise self._was_closed()
        if failure is not None:
            error = self._broken(failure)
            self._end(type(error).__name__)
            raise error from error.__cause__
        if complete and self._finished:
            self._end(None)
        return piece

    def json(self) -> object:
        """Return what the body says. Raises `ProtocolError` when it is no JSON, and what `read` raises."""
        body = self.read()
        try:
            value: object = json.loads(body)
        except (ValueError, RecursionError) as exc:
            raise self.nonsense("the answer is no JSON") from exc
        return value

    def nonsense(self, what: str) -> ProtocolError:
        """Return (not raise) the error for an answer that was read and makes no sense: `what` is wrong, as a clause."""
        return malformed(what, self._loaded or b"", self._asked, status=self.status, secrets=self._secrets)

    def check(self, asked: Asked | None = None) -> Self:
        """Return this answer if its status is one of success, else raise its error, with its body read and closed."""
        if 200 <= self.status < 300:
            return self
        with self:
            body = self.load_error()
            raise error_for(self.status, self.headers, body, asked or self._asked, secrets=self._secrets)

    def load_error(self) -> bytes:
        """Return the body of an answer that tells an error: as much as there is of it, since half of it tells too."""
        if self._loaded is not None:
            return self._loaded
        pieces, size = [], 0
        try:
            for piece in self.stream():
                pieces.append(piece)
                size += len(piece)
                if size > _ERROR_LIMIT:
                    self._end(None)
                    break
        except TransportError:
            # The status is known, and worth more than how its text broke off.
            pieces.append(b"")
        self._loaded = b"".join(pieces)
        return self._loaded

    def close(self) -> None:
        """Give up the rest of the body. Idempotent, from any thread: a read that waits in another one raises.

        In a forked child it does nothing: the connection is the parent's. Raises only what a hook raises.
        """
        if self._pid != os.getpid() or not self._finished:
            self._closed = True
            return
        self._closed = True
        if self._reading.acquire(blocking=False):
            self._reading.release()
            self._end(None)
            return
        if self._exchange.sock is not None:
            # Wakes the thread that reads; it gives the connection back.
            shut(self._exchange.sock)

    def _end(self, error: str | None) -> None:
        """Give the connection back and tell it, once."""
        try:
            finished = self._finished.pop()
        except IndexError:
            return
        self._closed = True
        finished(error)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            raise StreamInterruptedError(f"{self._asked.operation}: the answer is that of the process that asked")

    def _was_closed(self) -> StreamInterruptedError:
        return StreamInterruptedError(f"{self._asked.operation}: the answer was closed before its end")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> Literal[False]:
        try:
            self.close()
        except Exception:
            # A hook's; the block's own exception is worth more.
            if exc is None:
                raise
        return False
