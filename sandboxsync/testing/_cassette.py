"""What a cassette holds: the calls of a transport as values of JSON that a person can read. No I/O.

A call is two mappings, `asked` and `answer`. Text of several lines is a list of lines. Bytes are text where they are
text, else base64. A time is a number of seconds since the recording began, or a date before that. An id that was made
up, and so is another one in each run, is `⟨session 1⟩` wherever it stands, whatever text it is part of.
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, TypeAlias

import attrs

from sandboxsync import errors
from sandboxsync._unset import UNSET
from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import (
    CommandRequest,
    Exited,
    ProcessRequest,
    SessionRef,
    SessionSpec,
    Transport,
)

from ._cassette_tree import list_tree
from ._secrets import Secrets
from ._spool import Taken, bytes_of

Json: TypeAlias = Any

LARGEST = 64 * 1024
"""Bytes of written content that are kept as they are; of more, the size and the SHA-256."""

ENVIRONMENTS = frozenset({"env", "sandbox_env", "changes"})
IDS = ("sandbox", "session", "process")
"""The arguments that are ids, by their names in `asked`."""

# A run of hexadecimal digits, as in a UUID and in most random names, or a name that `Sandbox` makes up.
_MADE_UP = re.compile(r"[0-9a-f]{12}|\As[a-z2-7]{19}\Z")
_NOT_SHOWN = re.compile(r"[^\x08-\x0a\x0c\x0d\x1b\x20-\x7e\x80-\U0010ffff]")

# What an error has unless it is told otherwise; its class says the rest.
_PLAIN: Mapping[str, object] = {"http_status": None, "context": {}, "started": True}
_NAMES = {"sandbox_id": "sandbox", "process_id": "process", "chunks": "content"}


@attrs.define(eq=False)
class Call:
    """A call as it was made: `thread` is any number for its thread, `asked` and `answer` hold values of the seam."""

    name: str
    thread: int
    asked: dict[str, Any]
    answer: dict[str, Any] = attrs.field(factory=dict)


def asked_of(name: str, arguments: Sequence[object]) -> dict[str, Any]:
    """Return the arguments of a call by name: a reference or a request taken apart, what was left out left out."""
    asked: dict[str, Any] = {}
    for parameter, value in zip(_parameters(name), arguments, strict=True):
        if isinstance(value, SessionRef):
            asked |= {"sandbox": value.sandbox_id, "session": value.session_id}
            if value.env:
                asked["sandbox_env"] = dict(value.env)
        elif isinstance(value, (CommandRequest, ProcessRequest, SessionSpec)):
            for field in attrs.fields(type(value)):
                given = getattr(value, field.name)
                if given not in (field.default, {}):
                    asked[_NAMES.get(field.name, field.name)] = given
        elif value is not UNSET:
            asked[_NAMES.get(parameter, parameter)] = value
    return asked


@cache
def _parameters(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(getattr(Transport, name)).parameters)[1:]


def is_made_up(id: object) -> bool:
    """Whether an id looks random: by 12 hexadecimal digits in a row, or as those that `Sandbox` makes up."""
    return isinstance(id, str) and _MADE_UP.search(id) is not None


def number_ids(calls: Iterable[Call]) -> dict[str, str]:
    """Return what stands for each id that was made up by who called. Those that answers have brought stay."""
    numbers: dict[str, str] = {}
    counts = dict.fromkeys(IDS, 0)
    brought: set[str | None] = set()
    for call in calls:
        for kind in IDS:
            id = call.asked.get(kind) or ""
            made_here = kind == "sandbox" or call.name in ("create_session", "start_process")
            if is_made_up(id) and id not in numbers and (made_here or id not in brought):
                counts[kind] += 1
                numbers[id] = f"⟨{kind} {counts[kind]}⟩"
        returned = call.answer.get("returned")
        for value in returned if isinstance(returned, list) else ():
            brought |= {value} if isinstance(value, str) else {getattr(value, "id", None)}
            brought.add(getattr(value, "session_id", None))
    return numbers


class Encoder:
    """Turns calls into JSON. *ids* says what stands for an id, *began* is when the recording began."""

    def __init__(self, secrets: Secrets, ids: Mapping[str, str], began: datetime) -> None:
        self._secrets = secrets
        self._ids = sorted(ids.items(), key=lambda item: len(item[0]), reverse=True)
        self._began = began

    def asked(self, name: str, asked: Mapping[str, Any]) -> dict[str, Json]:
        """Return what a call was asked, beginning with its name."""
        return {"call": name, **{key: self._argument(name, key, value) for key, value in asked.items()}}

    def _argument(self, name: str, key: str, value: Any) -> Json:
        if key in ENVIRONMENTS:
            hidden = self._secrets.environment(value)
            return {self._places(word): text and self._lines(text) for word, text in sorted(hidden.items())}
        if isinstance(value, Taken):
            pieces = [bytes_of(piece) for piece in value.pieces]
            tree = list_tree(pieces) if name == "write_tree" else None
            return self._written(pieces) if tree is None else {"tree": [self._member(entry, True) for entry in tree]}
        if isinstance(value, (list, tuple)):
            return [self._flat(item) for item in value]
        return self._value(value)

    def _written(self, pieces: Sequence[bytes]) -> Json:
        data = b"".join(self._secrets.pieces(pieces))
        if len(data) > LARGEST:
            return {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        return self._shown(data)

    def _member(self, entry: Mapping[str, Any], written: bool) -> Json:
        member = {key: self._value(value) for key, value in entry.items() if key not in ("content", "time")}
        if not written:
            member["time"] = self._value(entry["time"])
        if "content" in entry:
            member["content"] = (self._written if written else self.content)([entry["content"]])
        return member

    def answer(self, name: str, answer: Mapping[str, Any]) -> dict[str, Json]:
        """Return what a call answered. Of a stream that was not read to its end it says so."""
        if not answer:
            return {"unfinished": True}
        encoded: dict[str, Json] = {}
        whole = True
        for key, value in answer.items():
            if key == "events":
                encoded[key] = self._events(value)
                whole = any(isinstance(item, (Exited, SandboxError)) for _, item in value)
            elif key == "pieces":
                encoded |= self._content_of(name, [bytes_of(piece) for piece in value])
                whole = "error" in answer
            elif key == "returned" and isinstance(value, list):
                encoded[key] = [self._flat(item) if isinstance(item, str) else self._value(item) for item in value]
            elif key != "whole":
                encoded[key] = self._value(value)
        return encoded if whole or answer.get("whole") else {**encoded, "incomplete": True}

    def _content_of(self, name: str, pieces: Sequence[bytes]) -> dict[str, Json]:
        tree = list_tree(pieces) if name == "read_tree" else None
        if tree is None:
            return {"content": self.content(pieces)}
        return {"tree": [self._member(entry, False) for entry in tree]}

    def _events(self, events: Iterable[tuple[float, Any]]) -> list[Json]:
        """Secrets are looked for in the whole of each output: one may be cut by two events."""
        events = list(events)
        shown: dict[int, bytes] = {}
        for name in ("stdout", "stderr"):
            mine = [n for n, (_, item) in enumerate(events) if isinstance(item, tuple) and item[0] == name]
            shown.update(zip(mine, self._secrets.pieces([bytes_of(events[n][1][1]) for n in mine]), strict=True))
        encoded = []
        for number, (at, item) in enumerate(events):
            if number in shown:
                event = {item[0]: self._shown(shown[number])} if shown[number] else None
            elif isinstance(item, Exited):
                event = {"exited": item.exit_code, "duration": round(item.duration, 3)}
            elif isinstance(item, SandboxError):
                event = {"error": self._value(item)}
            else:
                event = {"killed": True if item[1] is None else self._value(item[1])}
            if event is not None:
                encoded.append({"at": round(at, 3), **event})
        return encoded

    def content(self, pieces: Sequence[bytes]) -> Json:
        """Return bytes, as text if they are."""
        return self._shown(b"".join(self._secrets.pieces(pieces)))

    def _shown(self, data: bytes) -> Json:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = "\0"
        if _NOT_SHOWN.search(text):
            digits = base64.b64encode(data).decode()
            short = len(digits) <= LARGEST
            return {"base64": [digits[n : n + 76] for n in range(0, len(digits), 76)] if short else digits}
        return self._lines(text)

    def _value(self, value: object) -> Json:
        if isinstance(value, str):
            return self._lines(self._secrets.text(value))
        if isinstance(value, (bytes, bytearray)):
            return self.content([bytes(value)])
        if isinstance(value, datetime):
            past = (value - self._began).total_seconds()
            return round(past, 6) if past >= 0 else value.isoformat()
        if isinstance(value, SandboxError):
            return self._error(value)
        if attrs.has(type(value)):
            return self._record(value)
        return value

    def _record(self, value: Any) -> dict[str, Json]:
        names = [field.name for field in attrs.fields(type(value)) if field.name != "permissions"]
        record = {name: self._value(getattr(value, name)) for name in names}
        if "mode" in record:
            record["mode"] = f"{record['mode']:04o}"
        return {name: item for name, item in record.items() if item is not None}

    def _error(self, error: SandboxError) -> dict[str, Json]:
        cls = next(cls for cls in type(error).__mro__ if cls.__module__ == errors.__name__)
        assert issubclass(cls, SandboxError)
        plain = {**_PLAIN, "code": cls.code, "retryable": cls.retryable, "errno": getattr(cls, "_errno", None)}
        encoded = {"class": cls.__name__, "message": self._value(str(error))}
        for name in _keywords(cls):
            value = getattr(error, name)
            if name == "context" and value:
                encoded[name] = self._context(value)
            elif value != plain.get(name) and value not in ("", b""):
                encoded[name] = self._value(value)
        return encoded

    def _context(self, value: object) -> Json:
        if isinstance(value, Mapping):
            return {self._flat(str(key)): self._context(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._context(item) for item in value]
        return value if isinstance(value, (int, float, type(None))) else self._flat(str(value))

    def _flat(self, text: str) -> str:
        return self._places(self._secrets.text(text))

    def _lines(self, text: str) -> Json:
        text = self._places(text)
        lines = text.split("\n")
        return text if "\n" not in text[:-1] else [*(f"{line}\n" for line in lines[:-1]), *filter(None, lines[-1:])]

    def _places(self, text: str) -> str:
        if "⟨" in text:
            text = text.replace("⟨", "⟨⟨")
        for id, place in self._ids:
            if id in text:
                text = text.replace(id, place)
        return text


def _keywords(cls: type[SandboxError]) -> tuple[str, ...]:
    """The fields that a class of error takes, the common ones last."""
    found = [
        name
        for base in cls.__mro__
        if base.__module__ == errors.__name__ and "__init__" in vars(base)
        for name, parameter in inspect.signature(vars(base)["__init__"]).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return tuple(dict.fromkeys(found))
