"""The streams of a `Replay`, and its clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any

from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import ByteStream, Clock, CommandStream, Exited, LogStream, Output

from ._cassette_file import Entry
from ._matching import CassetteMismatchError

_TERMINATED = 143


class ReplayClock(Clock):
    """A clock that begins when the recording did. Sleeping takes no time, and only moves it on, unless *realtime*.

    It moves on for the thread that has slept: what one thread waited for must not use up the time of another.
    """

    def __init__(self, realtime: bool, began: datetime) -> None:
        self.realtime = realtime
        self._began = began
        self._start = time.monotonic()
        self._thread = threading.local()

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        ahead: float = getattr(self._thread, "ahead", 0.0)
        return time.monotonic() - self._start + ahead

    def now(self) -> datetime:
        """Return the date and time that it was in the recording."""
        return self._began + timedelta(seconds=self.monotonic())

    def sleep(self, seconds: float) -> None:
        """Let *seconds* pass."""
        if self.realtime:
            time.sleep(seconds)
        else:
            self._thread.ahead = getattr(self._thread, "ahead", 0.0) + max(0.0, seconds)


class _Events:
    """What a stream gives, each at its time."""

    def __init__(self, entry: Entry, events: Iterable[tuple[float, Any]], clock: ReplayClock) -> None:
        self.left = deque(events)
        self.over = False
        self._entry = entry
        self._clock = clock
        self._began = clock.monotonic()
        self._hurry = threading.Event()

    def wait(self, at: float, most: float | None = None) -> bool:
        """Wait for a time of the recording, *most* seconds at most; return whether it came. `hurry` ends it."""
        ahead = max(0.0, at - (self._clock.monotonic() - self._began))
        if not self._clock.realtime:
            # Everything comes at once, however long it took.
            self._clock.sleep(ahead if most is None or ahead <= most else 0.0)
            return True
        return self._hurry.wait(ahead if most is None else min(ahead, most)) or most is None or ahead <= most

    def hurry(self) -> None:
        """Let what is left come at once."""
        self._hurry.set()

    def take(self) -> Output | Exited:
        """Return or raise what is next, and note when it is the end."""
        item = self.left.popleft()[1]
        self.over = not isinstance(item, Output)
        if isinstance(item, SandboxError):
            raise item
        assert isinstance(item, (Output, Exited))
        return item

    def check(self) -> None:
        """Raise `ValueError` once the stream is over."""
        if self.over:
            raise ValueError("this stream has ended or was closed")

    def cut(self) -> CassetteMismatchError:
        """What it means that there is no end."""
        return CassetteMismatchError(f"the recording stopped to read here, before the end of {self._entry}")


class ReplayedCommand(CommandStream):
    """A command that ran. After a `kill` what is left comes at once; one that was not recorded ends the command."""

    def __init__(
        self, entry: Entry, started_at: datetime, events: Iterable[tuple[float, Any]], clock: ReplayClock
    ) -> None:
        self.started_at = started_at
        self._events = _Events(entry, events, clock)

    def read(self) -> Output | Exited:
        events = self._events
        while True:
            events.check()
            if not events.left:
                raise events.cut()
            at, item = events.left[0]
            if not isinstance(item, tuple):
                events.wait(at)
                events.check()
                return events.take()
            events.left.popleft()

    def kill(self) -> None:
        events = self._events
        if events.over:
            return
        kills = [item for _, item in events.left if isinstance(item, tuple)]
        if not kills:
            events.left = deque([(0.0, Exited(_TERMINATED, 0.0))])
        events.hurry()
        if kills and kills[0][1] is not None:
            raise kills[0][1]

    def close(self) -> None:
        self._events.over = True
        self._events.hurry()

    def abandon(self) -> None:
        self.close()


class ReplayedLogs(LogStream):
    """The logs of a process. After what was recorded nothing comes any more, as from a process that is quiet."""

    def __init__(self, entry: Entry, events: Iterable[tuple[float, Any]], clock: ReplayClock) -> None:
        self._live = entry.asked["live"]
        self._clock = clock
        self._events = _Events(entry, events, clock)

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        events = self._events
        events.check()
        if events.left:
            if not events.wait(events.left[0][0], timeout):
                return None
            events.check()
            return events.take()
        if not self._live:
            return None
        if timeout is None:
            raise events.cut()
        self._clock.sleep(timeout)
        return None

    def close(self) -> None:
        self._events.over = True
        self._events.hurry()


class ReplayedBytes(ByteStream):
    """A file that was read."""

    def __init__(self, entry: Entry, path: str, pieces: Iterator[bytes]) -> None:
        self.path = path
        self.size = entry.answer["size"]
        self._pieces: Iterator[bytes] = pieces

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        self._pieces = iter(())


def replayed_pieces(entry: Entry, pieces: Iterable[bytes], error: SandboxError | None) -> Iterator[bytes]:
    """Give the content of a file or a tree, and the end that it had."""
    yield from pieces
    if error is not None:
        raise error
    if "incomplete" in entry.answer:
        raise CassetteMismatchError(f"the recording stopped to read here, before the end of {entry}")
