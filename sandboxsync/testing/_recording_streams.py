"""The streams of a `Recording`: each passes on what another one gives, and notes it. None of them takes a lock."""

from __future__ import annotations

import copy
from collections.abc import Generator, Iterator
from typing import Any

from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import ByteStream, Clock, CommandStream, Exited, LogStream, Output

from ._spool import Spool


class _Events:
    """What a stream has given, and when, in seconds since it was opened."""

    def __init__(self, answer: dict[str, Any], spool: Spool, clock: Clock) -> None:
        self._items: list[tuple[float, Any]] = []
        self._clock = clock
        self._began = clock.monotonic()
        self._spool = spool
        self.over = False
        answer["events"] = self._items

    def take(self, item: Output | Exited) -> None:
        self.over = self.over or isinstance(item, Exited)
        self._note((item.stream, self._spool.keep(item.data)) if isinstance(item, Output) else item)

    def fail(self, error: SandboxError) -> None:
        self.over = True
        # A copy: callers add to the error.
        self._note(copy.copy(error))

    def kill(self) -> list[Any]:
        """Note that the command is killed now, unless it has ended; what comes of it is put at the end of the list."""
        mark: list[Any] = ["killed", None]
        if not self.over:
            self._note(mark)
        return mark

    def _note(self, item: object) -> None:
        self._items.append((self._clock.monotonic() - self._began, item))


class RecordedCommand(CommandStream):
    """A command that runs."""

    def __init__(self, stream: CommandStream, answer: dict[str, Any], spool: Spool, clock: Clock) -> None:
        self.started_at = answer["started_at"] = stream.started_at
        self._stream = stream
        self._events = _Events(answer, spool, clock)

    def read(self) -> Output | Exited:
        try:
            item = self._stream.read()
        except SandboxError as exc:
            self._events.fail(exc)
            raise
        self._events.take(item)
        return item

    def kill(self) -> None:
        # Noted first: the end that another thread reads follows from it.
        mark = self._events.kill()
        try:
            self._stream.kill()
        except SandboxError as exc:
            mark[1] = copy.copy(exc)
            raise

    def close(self) -> None:
        self._stream.close()

    def abandon(self) -> None:
        self._stream.abandon()


class RecordedLogs(LogStream):
    """The logs of a process. That nothing came in time is not noted: it is a matter of the reader's timeouts."""

    def __init__(self, stream: LogStream, live: bool, answer: dict[str, Any], spool: Spool, clock: Clock) -> None:
        self._stream = stream
        self._live = live
        self._answer = answer
        self._events = _Events(answer, spool, clock)

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        try:
            item = self._stream.read(timeout)
        except SandboxError as exc:
            self._events.fail(exc)
            raise
        if item is not None:
            self._events.take(item)
        elif not self._live:
            self._answer["whole"] = True
        return item

    def close(self) -> None:
        self._stream.close()


class RecordedBytes(ByteStream):
    """A file being read."""

    def __init__(self, stream: ByteStream, answer: dict[str, Any], spool: Spool) -> None:
        self.path = stream.path
        self.size = stream.size
        self._stream = stream
        self._spool = spool
        self._answer = answer
        self._closed = False
        answer.update(path=stream.path, size=stream.size, pieces=[], whole=False)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            data = next(self._stream)
        except StopIteration:
            # After a close there is no more either.
            self._answer["whole"] |= not self._closed
            raise
        except SandboxError as exc:
            self._answer["error"] = copy.copy(exc)
            raise
        self._answer["pieces"].append(self._spool.keep(data))
        return data

    def close(self) -> None:
        self._closed = True
        self._stream.close()


def recorded_tree(chunks: Iterator[bytes], answer: dict[str, Any], spool: Spool) -> Generator[bytes]:
    """Hand on the pieces of a tree."""
    answer.update(pieces=[], whole=False)
    return _passed_on(chunks, answer, spool)


def _passed_on(chunks: Iterator[bytes], answer: dict[str, Any], spool: Spool) -> Generator[bytes]:
    try:
        for chunk in chunks:
            answer["pieces"].append(spool.keep(chunk))
            yield chunk
        answer["whole"] = True
    except SandboxError as exc:
        answer["error"] = copy.copy(exc)
        raise
    finally:
        if isinstance(chunks, Generator):
            chunks.close()
