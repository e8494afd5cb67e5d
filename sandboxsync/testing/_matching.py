"""Which recorded call answers the one that is made: the order of calls, ids that are others now, and what is unlike."""

from __future__ import annotations

import json
import os
import re
import threading
import weakref
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any

from ._cassette import ENVIRONMENTS, IDS, Encoder, is_made_up
from ._cassette_file import Cassette, Entry, describe

__all__ = ["CassetteMismatchError", "Matcher"]

OF_PROCESS = frozenset({"get_process", "wait_process", "kill_process", "forget_process", "follow_logs"})
OF_SANDBOX = frozenset({"workspace", "ping", "destroy", "list_sessions", "list_processes", "probe_port"})
POLLS = (OF_SANDBOX | OF_PROCESS | {"stat", "list_files"}) - {"destroy", "kill_process", "forget_process"}
"""Calls that only look. How often a program makes them depends on time: they may be repeated, and left out."""

_PLACE = re.compile(r"⟨\w+ \d+⟩")
_TIMING = frozenset({"at", "duration", "took", "started_at", "start_time", "end_time", "modified_at", "pid"})
_BEFORE = " (it was asked for before)"
_RUNNING = ("starting", "running")


class CassetteMismatchError(AssertionError):
    """A cassette has no answer to a call. The message says what was asked, what was expected, and what is nearest."""


class Matcher:
    """Finds answers, from any thread. Calls of one session, of one process, or of one kind for the sandbox as a whole
    are answered in the order in which one thread made them; those without a session, in any order.
    """

    def __init__(self, cassette: Cassette, path: str) -> None:
        self._path = path
        self._cassette = cassette
        self._channels: dict[tuple[object, ...], list[Entry]] = {}
        for entry in cassette.entries:
            self._channels.setdefault(_line(entry), []).append(entry)
        self.ids: dict[str, str] = {}
        """What stands in the cassette for an id, to the id that it is now."""
        self._places: dict[str, str] = {}
        self._last: dict[str, Entry] = {}
        self._previous: dict[tuple[object, ...], Entry] = {}
        self._lock = threading.Lock()
        _living.add(self)

    def wants_content(self, name: str, asked: Mapping[str, Any]) -> bool:
        """Whether the recorded call that is next has a content to compare. Raises `CassetteMismatchError`."""
        with self._lock:
            self._take_secrets(asked)
            found = self._next(name, asked) or self._swap(name, asked)
            if found is None:
                raise self._mismatch(name, asked)
            return "content" in found[0].asked

    def take(self, name: str, asked: Mapping[str, Any]) -> Entry:
        """Return the recorded call that answers this one. Raises `CassetteMismatchError`."""
        with self._lock:
            self._take_secrets(asked)
            found = self._next(name, asked) or self._swap(name, asked)
            last = self._last.get(_key(self._encoder().asked(name, asked), name)) if name in POLLS else None
            if last is not None and still_runs(last) and asked.get("timeout", 0) is None:
                last = None
            if found is None and last is None:
                raise self._mismatch(name, asked)
            if last is not None and (found is None or self._goes_on(last, found[0])):
                return last
            assert found is not None
            entry, ids = found
            self.ids |= ids
            self._places |= {id: place for place, id in ids.items()}
            self._use(entry)
            if name in POLLS:
                self._last[_key(self._encoder().asked(name, asked), name)] = entry
            return entry

    def _goes_on(self, last: Entry, found: Entry) -> bool:
        """Whether a look is one more round of the last one: what was found was recorded after something else."""
        earlier = [entry for entry in self._channels[_line(found)] if entry.number < found.number and not entry.used]
        return bool(earlier) and not _is_free(found) and self._previous.get(_line(found)) is last

    def unused(self) -> list[Entry]:
        """The calls that nobody has asked for, without those that only look."""
        return [entry for entry in self._cassette.entries if not entry.used and entry.asked["call"] not in POLLS]

    def _take_secrets(self, asked: Mapping[str, Any]) -> None:
        for layer in ENVIRONMENTS & asked.keys():
            self._cassette.secrets.learn(asked[layer])

    def _encoder(self, ids: Mapping[str, str] | None = None) -> Encoder:
        places = self._places | {id: place for place, id in (ids or {}).items()}
        return Encoder(self._cassette.secrets, places, self._cassette.began)

    def _use(self, entry: Entry) -> None:
        entry.used = True
        self._previous[_line(entry)] = entry
        if not _is_free(entry):
            channel = self._channels[_line(entry)]
            for earlier in channel[: channel.index(entry)]:
                earlier.used = True

    def _candidates(self) -> Iterator[Entry]:
        """What may be asked for next, the first recorded first."""
        found: list[Entry] = []
        for channel in self._channels.values():
            for entry in channel:
                if entry.used:
                    continue
                found.append(entry)
                if entry.asked["call"] not in POLLS and not _is_free(entry):
                    break
        return iter(sorted(found, key=lambda entry: entry.number))

    def _next(self, name: str, asked: Mapping[str, Any]) -> tuple[Entry, dict[str, str]] | None:
        """The call that fits, and the ids that are learned from it."""
        for entry in self._candidates():
            if entry.asked["call"] == name:
                ids = self._learn(entry, asked)
                if ids is not None:
                    now = self._encoder(ids).asked(name, asked)
                    left_out = {"content"} if "content" not in now or "content" not in entry.asked else set()
                    if _key(now, name, left_out) == _key(entry.asked, name, left_out):
                        return entry, ids
        return None

    def _learn(self, entry: Entry, asked: Mapping[str, Any]) -> dict[str, str] | None:
        """What stands for ids that are new now; `None` when the ids of the two calls cannot be the same."""
        new: dict[str, str] = {}
        for kind in IDS:
            recorded, id = entry.asked.get(kind), asked.get(kind)
            if recorded is not None and id is not None and _is_place(recorded):
                known = self.ids.get(recorded, new.get(recorded))
                if known is None and is_made_up(id) and id not in self._places and id not in new.values():
                    new[recorded] = id
                elif known != id:
                    return None
        return new

    def _swap(self, name: str, asked: Mapping[str, Any]) -> tuple[Entry, dict[str, str]] | None:
        """Take an id for another of the recorded ones than before, if all that was asked so far fits that one too.

        Threads that make sessions alike can only be told apart by what they do next.
        """
        for place in [place for kind in IDS if (place := self._places.get(asked.get(kind) or ""))]:
            mine = self._calls_of(place)
            for other in dict.fromkeys(text for entry in self._cassette.entries for text in _ids_of(entry)):
                theirs = self._calls_of(other)
                done, their_done = _done(mine), _done(theirs)
                most = max(done, their_done)
                if other != place and _is_place(other) and _plain(mine[:most], place) == _plain(theirs[:most], other):
                    self._exchange(place, other, mine, theirs, done, their_done)
                    found = self._next(name, asked)
                    if found is not None:
                        return found
                    self._exchange(place, other, mine, theirs, their_done, done)
        return None

    def _exchange(
        self, place: str, other: str, mine: list[Entry], theirs: list[Entry], done: int, their_done: int
    ) -> None:
        for calls, count in ((mine, their_done), (theirs, done)):
            for number, entry in enumerate(calls[: max(done, their_done)]):
                entry.used = number < count
        now = {place: self.ids.pop(other, None), other: self.ids.pop(place, None)}
        self.ids |= {key: id for key, id in now.items() if id is not None}
        self._places = {id: key for key, id in self.ids.items()}

    def _calls_of(self, place: str) -> list[Entry]:
        return [entry for entry in self._cassette.entries if place in _ids_of(entry)]

    def _mismatch(self, name: str, asked: Mapping[str, Any]) -> CassetteMismatchError:
        now = self._encoder().asked(name, asked)
        channel = _channel(now)
        expected = [
            entry
            for entry in self._candidates()
            if _channel(entry.asked)[1] == channel[1]
            and self._learn(entry, asked) is not None
            and all(id == now.get(kind) for kind in IDS if not _is_place(id := entry.asked.get(kind)))
        ]
        lines = [f"the cassette {self._path!r} has no answer to this call", f"  asked:    {describe(now)}"]
        lines += [f"  expected: {entry}" for entry in expected[:3]] or ["  expected: no further call of this kind"]
        nearest = self._nearest(now)
        if nearest is not None:
            same = nearest in expected[:1]
            lines.append(f"  nearest:  {'the expected one' if same else nearest}{_BEFORE if nearest.used else ''}")
            for key in [*nearest.asked, *(now.keys() - nearest.asked.keys())]:
                recorded, given = nearest.asked.get(key), now.get(key)
                if recorded != given and not (key == "timeout" and name in POLLS):
                    lines.append(f"    {key}: recorded {_short(recorded)}, asked {_short(given)}")
        return CassetteMismatchError("\n".join(lines))

    def _nearest(self, now: dict[str, Any]) -> Entry | None:
        best, score = None, -1.0
        likeness = SequenceMatcher(b=describe(now))
        for entry in self._cassette.entries:
            likeness.set_seq1(describe(entry.asked))
            # The call itself says more than its arguments, and one that is left more than one that was asked for.
            bonus = 0.5 * (entry.asked["call"] == now["call"]) + 0.01 * (not entry.used)
            if likeness.quick_ratio() + bonus > score and likeness.ratio() + bonus > score:
                best, score = entry, likeness.ratio() + bonus
        return best


def _channel(asked: Mapping[str, Any]) -> tuple[object, ...]:
    name, sandbox = asked["call"], asked.get("sandbox")
    if name in OF_SANDBOX:
        return (sandbox, name)
    if name in OF_PROCESS:
        return (sandbox, "process", asked.get("process"))
    return (sandbox, "session", asked.get("session"))


def _is_place(id: str | None) -> bool:
    return id is not None and _PLACE.fullmatch(id) is not None


def _line(entry: Entry) -> tuple[object, ...]:
    """What has an order: the calls of a channel that one thread has made."""
    return (*_channel(entry.asked), entry.thread)


def _is_free(entry: Entry) -> bool:
    """Whether a call is in no order: without a session there is nothing that it could depend on."""
    return _channel(entry.asked)[1:] == ("session", None)


def _key(asked: Mapping[str, Any], name: str, left_out: set[str] | frozenset[str] = frozenset()) -> str:
    # The timeouts of what only looks are what is left of one, and never the same.
    without = left_out | {"timeout"} if name in POLLS else left_out
    return json.dumps({key: value for key, value in asked.items() if key not in without}, sort_keys=True)


def _ids_of(entry: Entry) -> set[str]:
    return {id for kind in IDS if (id := entry.asked.get(kind))}


def _done(calls: list[Entry]) -> int:
    return sum(entry.used for entry in calls)


def _plain(calls: list[Entry], place: str) -> str:
    """The calls without what tells two runs of the same apart."""
    text = json.dumps([[_timeless(entry.asked), _timeless(entry.answer)] for entry in calls], ensure_ascii=False)
    return text.replace(place, "⟨⟩")


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(item) for key, item in value.items() if key not in _TIMING}
    return [_timeless(item) for item in value] if isinstance(value, list) else value


def still_runs(entry: Entry) -> bool:
    """Whether a call has waited for a process in vain."""
    returned = entry.answer.get("returned")
    return entry.asked["call"] == "wait_process" and isinstance(returned, dict) and returned["status"] in _RUNNING


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "…"


_living: weakref.WeakSet[Matcher] = weakref.WeakSet()


def _after_fork() -> None:
    for matcher in list(_living):
        matcher._lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
