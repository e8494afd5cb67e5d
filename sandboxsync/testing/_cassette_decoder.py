"""From the JSON of a cassette to values again. No I/O."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import attrs

from sandboxsync import errors
from sandboxsync.errors import SandboxError
from sandboxsync.models import ExecResult, FileInfo, ProcessLogs
from sandboxsync.transports.base import Exited, Output, ProcessInfo

from ._cassette import Json
from ._cassette_tree import build_tree

RETURNS: Mapping[str, type | tuple[type] | None] = {
    "workspace": str,
    "list_sessions": (str,),
    "start_process": ProcessInfo,
    "list_processes": (ProcessInfo,),
    "get_process": ProcessInfo,
    "wait_process": ProcessInfo,
    "forget_process": bool,
    "probe_port": int,
    "write_file": FileInfo,
    "stat": FileInfo,
    "list_files": (FileInfo,),
    "make_directory": str,
    **dict.fromkeys(("ping", "destroy", "create_session", "delete_session", "set_session_env", "kill_process")),
    **dict.fromkeys(("remove_file", "rename", "write_tree", "run", "follow_logs", "read_file", "read_tree")),
}
"""What each call returns, in a tuple for a list of such; `None` for nothing, or a stream."""

_PLACE = re.compile(r"⟨⟨|⟨\w+ \d+⟩")
_TIMES = frozenset({"started_at", "start_time", "end_time", "modified_at"})
_BYTES = frozenset({"stdin", "stdout_bytes", "stderr_bytes"})


class Decoder:
    """Turns what an `Encoder` made into values again. *ids* says which id stands where now."""

    def __init__(self, ids: Mapping[str, str], began: datetime) -> None:
        self._ids = ids
        self._began = began

    def text(self, data: Json) -> str:
        """Return text. Raises `TypeError` for what is none."""
        text = data if isinstance(data, str) else "".join(data)
        return _PLACE.sub(lambda match: "⟨" if match[0] == "⟨⟨" else self._ids.get(match[0], match[0]), text)

    def content(self, data: Json) -> bytes:
        """Return bytes."""
        if isinstance(data, dict):
            return base64.b64decode("".join(data["base64"]), validate=True)
        return self.text(data).encode("utf-8")

    def time(self, data: Json) -> datetime:
        """Return a time."""
        if isinstance(data, str):
            return datetime.fromisoformat(data)
        return self._began + timedelta(seconds=data)

    def returned(self, name: str, data: Json) -> Any:
        """Return what the call *name* has returned."""
        kind = RETURNS[name]
        if isinstance(kind, tuple):
            return [self._typed(kind[0], item) for item in data]
        return data if kind is None else self._typed(kind, data)

    def _typed(self, kind: type, data: Json) -> Any:
        if kind is str:
            return self.text(data)
        return self._record(kind, data) if attrs.has(kind) else data

    def _record(self, cls: Any, data: Json) -> Any:
        required = {field.name: None for field in attrs.fields(cls) if field.default is attrs.NOTHING}
        return cls(**required | {name: self._field(name, value) for name, value in data.items()})

    def _field(self, name: str, value: Json) -> Any:
        if name in _TIMES:
            return self.time(value)
        if name in _BYTES:
            return self.content(value)
        if name == "mode":
            return int(value, 8)
        if name in ("result", "logs"):
            return self._record(ExecResult if name == "result" else ProcessLogs, value)
        if name == "context":
            return self._context(value)
        return self.text(value) if isinstance(value, (str, list)) else value

    def _context(self, value: Json) -> Any:
        if isinstance(value, dict):
            return {self.text(key): self._context(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._context(item) for item in value]
        return self.text(value) if isinstance(value, str) else value

    def error(self, data: Json) -> SandboxError:
        """Return a new error, equal to the one that was raised."""
        fields = {name: self._field(name, value) for name, value in data.items() if name not in ("class", "message")}
        cls = getattr(errors, data["class"])
        if not issubclass(cls, SandboxError):
            raise ValueError(f"not an error of a transport: {data['class']}")
        error: SandboxError = cls(self.text(data["message"]), **fields)
        return error

    def events(self, data: Json) -> list[tuple[float, Any]]:
        """Return the events of a stream: `Output`, `Exited`, an error, or `("killed", error or None)`."""
        events: list[tuple[float, Any]] = []
        for event in data:
            item: Any
            match event:
                case {"exited": code, "duration": duration}:
                    item = Exited(code, duration)
                case {"error": error}:
                    item = self.error(error)
                case {"killed": error}:
                    item = ("killed", None if error is True else self.error(error))
                case {"stdout": text}:
                    item = Output("stdout", self.content(text))
                case {"stderr": text}:
                    item = Output("stderr", self.content(text))
                case _:
                    raise ValueError(f"not an event: {event!r}")
            events.append((float(event["at"]), item))
        return events

    def pieces(self, answer: Json, size: int) -> list[bytes]:
        """Return the content of a file or a tree, in pieces of *size* bytes."""
        if "tree" in answer:
            data = build_tree([{key: self._in_tree(key, value) for key, value in e.items()} for e in answer["tree"]])
        else:
            data = self.content(answer["content"])
        return [data[start : start + size] for start in range(0, len(data), size)]

    def _in_tree(self, key: str, value: Json) -> Any:
        if key == "content":
            return self.content(value)
        return self.time(value) if key == "time" else self._field(key, value)
