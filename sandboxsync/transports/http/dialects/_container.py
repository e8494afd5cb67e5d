"""The container server, below `/api`: one sandbox, no key. Facts: measured on version 0.12.7."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Generator, Mapping, Sequence
from typing import Literal

from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked, ServiceError, error_of, malformed
from sandboxsync.transports.http._retry import Kind
from sandboxsync.transports.http._sse import Event, EventParser
from sandboxsync.transports.http.dialects._dialect import BINARY, Dialect, RemoteSandbox, checked, silence_of
from sandboxsync.transports.http.dialects._events import EventAnswer, Item, broken_by, exit_code_of, object_of
from sandboxsync.transports.http.hosted._host import PlainAnswer

__all__ = ["ContainerDialect"]

_NO_SESSION = "__DISABLE_SESSION__"
"""What the server takes for a command of no session of its own; in those output is lost."""
_PIECE = 3 << 20
"""Bytes of a file in one request, which holds them in base64 too, and as JSON."""
_EXEC = "/api/execute/stream"
_READ = "/api/read/stream"
_WRITE = "/api/write"
_PING = "/api/ping"


class ContainerDialect(Dialect):
    """A container server, reached directly: all ids mean the one sandbox that it is."""

    name: Literal["container"] = "container"

    def __init__(self, connection: Connection) -> None:
        """`connection` is one without a key: the server takes an `Authorization` for the id of a session."""
        self._connection = connection

    def sandbox(self, sandbox_id: str) -> RemoteSandbox:
        return _ContainerSandbox(self._connection)


class _ContainerSandbox(RemoteSandbox):
    """The sandbox of a container server."""

    key = "container"
    piece = _PIECE
    staging = None
    suffix = BINARY

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def ping(self, timeout: float | None) -> None:
        asked = Asked("ping", timeout=timeout)
        with self._connection.request("GET", _PING, kind=Kind.READ, asked=asked, total_timeout=timeout) as answer:
            value = checked(answer, _PING).json()
            if not isinstance(value, dict) or value.get("success") is not True:
                raise answer.nonsense("the answer does not say that the sandbox is well")

    def end(self) -> bool:
        return False

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        answer = self._connection.request(
            "POST",
            _EXEC,
            # Only the host is run so, which does nothing twice.
            kind=Kind.DELIVERY,
            asked=Asked("exec"),
            json={"command": shlex.join(argv), "sessionId": _NO_SESSION},
            read_timeout=silence_of(self._connection),
            total_timeout=None,
        )
        return EventAnswer(checked(answer, _EXEC), _item_of)

    # Files

    def read(self, path: str) -> Generator[bytes, None, None]:
        asked = Asked("read_file", path=path)
        answer = self._connection.request(
            "POST", _READ, kind=Kind.READ, asked=asked, json={"path": path, "sessionId": _NO_SESSION}
        )
        parser = EventParser()
        with answer:
            for piece in checked(answer, _READ).stream():
                for event in parser.feed(piece):
                    value = object_of(event, asked)
                    if value.get("type") == "complete":
                        return
                    if value.get("type") == "chunk":
                        yield _bytes_of(value, event, asked)

    def write(self, path: str, data: bytes) -> None:
        # By hand: the content is far the most of it, and needs no escapes.
        rest = json.dumps({"path": path, "encoding": "base64", "sessionId": _NO_SESSION})
        body = b"".join((b'{"content":"', base64.b64encode(data), b'",', rest[1:].encode()))
        answer = self._connection.request(
            "POST",
            _WRITE,
            # The same bytes at the same place, however often.
            kind=Kind.DELIVERY,
            asked=Asked("write_file", path=path),
            headers={"Content-Type": "application/json"},
            body=body,
        )
        with answer:
            value = checked(answer, _WRITE).json()
            if not isinstance(value, dict) or value.get("success") is not True:
                raise answer.nonsense("the answer does not say that the file was written")


def _item_of(event: Event) -> Item | None:
    asked = Asked("exec")
    value = object_of(event, asked)
    kind, data = value.get("type"), value.get("data")
    if kind in ("stdout", "stderr"):
        if not isinstance(data, str):
            raise malformed("output is no text", event.data, asked)
        return "stdout" if kind == "stdout" else "stderr", data.encode("utf-8", "replace")
    if kind == "complete":
        return exit_code_of(value.get("exitCode"), event, asked)
    if kind == "error":
        said = ServiceError("COMMAND_EXECUTION_ERROR", str(value.get("error", data)))
        raise broken_by(error_of(said, asked))
    return None


def _bytes_of(value: Mapping[str, object], event: Event, asked: Asked) -> bytes:
    data = value.get("data")
    if isinstance(data, str):
        try:
            return base64.b64decode(data, validate=True)
        except ValueError:
            pass  # told below, as what is no text is
    raise malformed("a piece of a file is not base64", event.data, asked)
