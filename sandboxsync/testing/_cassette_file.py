"""A cassette as a file: JSON that breaks a value over lines only where it does not fit on one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from itertools import chain
from typing import Any

import attrs

from sandboxsync._temporary import temporary_name
from sandboxsync.errors import ConfigurationError, SandboxError
from sandboxsync.transports.base import Capability

from ._cassette import IDS, Json
from ._cassette_decoder import RETURNS, Decoder
from ._secrets import Secrets

VERSION = 1
_WIDTH = 100
_SURROGATE = re.compile("[\ud800-\udfff]")


@attrs.define(eq=False)
class Entry:
    """A recorded call: which one of the file (from 0) and the line where it begins; `used` once it has answered."""

    number: int
    line: int
    thread: int
    asked: dict[str, Json]
    answer: dict[str, Json]
    used: bool = False

    def __str__(self) -> str:
        return f"calls[{self.number}], line {self.line}: {describe(self.asked)}"


@attrs.frozen
class Cassette:
    """What a file holds."""

    transport: str
    capabilities: frozenset[Capability]
    began: datetime
    secrets: Secrets
    entries: list[Entry]


def describe(asked: dict[str, Json]) -> str:
    """Return a call on one line."""
    words = [f"{key}={value!r}" for key, value in asked.items() if key != "call"]
    text = f"{asked['call']}({', '.join(words)})"
    return text if len(text) <= 400 else text[:400] + "…"


def write(path: str, head: dict[str, Json], calls: Iterable[dict[str, Json]]) -> None:
    """Put a cassette at *path*, whole or not at all; missing directories are made. Blocks. Raises `OSError`."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    temporary = os.path.join(os.path.dirname(path), temporary_name())
    try:
        with open(temporary, "x", encoding="utf-8") as file:
            lines = (f"  {_text(key)}: {_pretty(value, 2)}" for key, value in head.items())
            file.write("{\n" + ",\n".join(chain(lines, ['  "calls": ['])))
            separator = "\n"
            for call in calls:
                file.write(f"{separator}    {_pretty(call, 4)}")
                separator = ",\n"
            file.write("\n  ]\n}\n")
        os.replace(temporary, path)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _text(value: Json) -> str:
    # A lone surrogate stands for a byte of a name that is no UTF-8; only its escape can be written.
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", json.dumps(value, ensure_ascii=False))


def _pretty(value: Json, indent: int) -> str:
    flat = _text(value)
    if len(flat) + indent <= _WIDTH or not isinstance(value, (dict, list)) or not value:
        return flat
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        items = [f"{_text(key)}: {_pretty(item, indent + 2)}" for key, item in value.items()]
    else:
        items = [_pretty(item, indent + 2) for item in value]
    opening, closing = "{}" if isinstance(value, dict) else "[]"
    return opening + ",".join(f"\n{inner}{item}" for item in items) + f"\n{' ' * indent}{closing}"


def load(path: str) -> Cassette:
    """Return what the file holds. Blocks. Raises `ConfigurationError` for a file that cannot be read or understood."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        data = json.loads(text)
    except (OSError, ValueError) as exc:
        raise ConfigurationError(f"the cassette {path!r} cannot be read: {exc}") from exc
    if not isinstance(data, dict) or "cassette" not in data:
        raise ConfigurationError(f"{path!r} is JSON, but no cassette")
    if data["cassette"] != VERSION:
        raise ConfigurationError(
            f"the cassette {path!r} has version {data['cassette']!r}; this sandboxsync reads {VERSION}"
        )
    entry: Entry | None = None
    try:
        patterns = [re.compile(item["pattern"], item["flags"]) for item in data["redact"]["patterns"]]
        secrets = Secrets([*data["redact"]["names"], *patterns])
        capabilities = frozenset(Capability[name] for name in data["capabilities"])
        began = datetime.fromisoformat(data["began"])
        entries = []
        for number, (call, line) in enumerate(zip(data["calls"], _lines_of(text), strict=True)):
            entry = Entry(number, line, call.get("thread", 1), call["asked"], call["answer"])
            _check(entry, Decoder({}, began))
            entries.append(entry)
    except (KeyError, ValueError, TypeError, AttributeError, re.error) as exc:
        where = "" if entry is None else f" at or after calls[{entry.number}], line {entry.line}"
        reason = str(exc) if isinstance(exc, SandboxError) else repr(exc)
        raise ConfigurationError(f"the cassette {path!r} is damaged{where}: {reason}") from exc
    return Cassette(data["transport"], capabilities, began, secrets, entries)


def _lines_of(text: str) -> list[int]:
    """The line in which each call begins, however the file was formatted."""
    lines: list[int] = []
    start = re.search(r'(?<!\\)"calls"\s*:\s*\[', text)
    position = len(text) if start is None else start.end()
    decoder = json.JSONDecoder()
    seen, line = 0, 1
    while True:
        position += len(text[position:]) - len(text[position:].lstrip(" \t\r\n,"))
        if text[position : position + 1] in ("]", ""):
            return lines
        line += text.count("\n", seen, position)
        seen = position
        lines.append(line)
        position = decoder.raw_decode(text, position)[1]


def _check(entry: Entry, decoder: Decoder) -> None:
    """Decode all of a call, so that what is wrong in it is told now."""
    asked, answer = entry.asked, entry.answer
    name = asked["call"]
    if name not in RETURNS or not all(isinstance(asked.get(key), (str, type(None))) for key in IDS):
        raise ValueError(f"no call of a transport: {describe(asked)}")
    if "error" in answer:
        decoder.error(answer["error"])
    if "events" in answer:
        decoder.events(answer["events"])
        if name == "run":
            decoder.time(answer["started_at"])
    elif "returned" in answer:
        decoder.returned(name, answer["returned"])
    elif "content" in answer or "tree" in answer:
        decoder.pieces(answer, 1 << 16)
    elif not {"unfinished", "interrupted", "error"} & answer.keys():
        raise ValueError(f"no answer: {answer!r}")


def header(transport: str, capabilities: Iterable[Capability], began: datetime, secrets: Secrets) -> dict[str, Any]:
    """Return what a file begins with."""
    patterns = [{"pattern": pattern.pattern, "flags": pattern.flags} for pattern in secrets.patterns]
    return {
        "cassette": VERSION,
        "transport": transport,
        "capabilities": sorted(capability.name for capability in capabilities),
        "began": began.isoformat(),
        "redact": {"names": secrets.names, "patterns": patterns},
    }
