"""The bridge: any number of sandboxes by id behind a key, below `/v1/sandbox`. Facts: measured on version 0.12.7."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Literal
from urllib.parse import quote

from sandboxsync.errors import UnsupportedOperationError
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._errors import Asked, ServiceError, error_of, malformed
from sandboxsync.transports.http._ids import bridge_id
from sandboxsync.transports.http._retry import Kind
from sandboxsync.transports.http._sse import Event
from sandboxsync.transports.http.dialects._dialect import BINARY, Dialect, RemoteSandbox, checked, silence_of
from sandboxsync.transports.http.dialects._events import EventAnswer, Item, broken_by, exit_code_of, object_of
from sandboxsync.transports.http.hosted._host import PlainAnswer

__all__ = ["BridgeDialect", "routes_of"]

_PIECE = 6 << 20
"""Bytes of a file in one request: 12 MiB and more fail, whatever the documented limit of 32, and a piece is held in
memory."""
_SANDBOX = "/v1/sandbox/{id}"
_EXEC = f"{_SANDBOX}/exec"
_FILE = f"{_SANDBOX}/file/{{path}}"
_RUNNING = f"{_SANDBOX}/running"


class BridgeDialect(Dialect):
    """A bridge. `routes` are the paths of its own description, empty when it has none."""

    name: Literal["bridge"] = "bridge"

    def __init__(self, connection: Connection, routes: frozenset[str]) -> None:
        """Raises `UnsupportedOperationError` when it says that it cannot run anything."""
        self._connection = connection
        for route in (_EXEC, _FILE):
            if routes and route not in routes:
                raise UnsupportedOperationError(f"this service has no route {route!r}")

    def sandbox(self, sandbox_id: str) -> RemoteSandbox:
        return _BridgeSandbox(self._connection, bridge_id(sandbox_id))


class _BridgeSandbox(RemoteSandbox):
    """A sandbox of a bridge."""

    piece = _PIECE
    staging = "/workspace"  # which is all that it reaches
    suffix = BINARY

    def __init__(self, connection: Connection, remote_id: str) -> None:
        self.key = remote_id
        self._connection = connection
        self._path = f"/v1/sandbox/{remote_id}"

    def ping(self, timeout: float | None) -> None:
        answer = self._connection.request(
            "GET",
            f"{self._path}/running",
            kind=Kind.READ,
            route=_RUNNING,
            asked=Asked("ping", timeout=timeout),
            total_timeout=timeout,
        )
        with answer:
            value = checked(answer, _RUNNING).json()
            if not isinstance(value, dict) or value.get("running") is not True:
                raise answer.nonsense("the answer does not say that the sandbox runs")

    def end(self) -> bool:
        # Once or twice is the same: what is gone is made and ended.
        asked = Asked("destroy")
        with self._connection.request("DELETE", self._path, kind=Kind.READ, route=_SANDBOX, asked=asked) as answer:
            checked(answer, _SANDBOX).read()
        return True

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        answer = self._connection.request(
            "POST",
            f"{self._path}/exec",
            # Only the host is run so, which does nothing twice.
            kind=Kind.DELIVERY,
            route=_EXEC,
            asked=Asked("exec"),
            json={"argv": list(argv)},
            read_timeout=silence_of(self._connection),
            total_timeout=None,
        )
        return EventAnswer(checked(answer, _EXEC), self._item_of)

    def _item_of(self, event: Event) -> Item | None:
        asked, secrets = Asked("exec"), self._connection.secrets
        if event.name in ("stdout", "stderr"):
            try:
                return "stdout" if event.name == "stdout" else "stderr", base64.b64decode(event.data, validate=True)
            except binascii.Error:
                raise malformed("output is not base64", event.data, asked, secrets=secrets) from None
        if event.name == "exit":
            return exit_code_of(object_of(event, asked, secrets).get("exit_code"), event, asked, secrets)
        if event.name == "error":
            value = object_of(event, asked, secrets)
            code = value.get("code")
            said = ServiceError(code if isinstance(code, str) else "exec_error", str(value.get("error")))
            raise broken_by(error_of(said, asked, secrets=secrets))
        return None

    # Files

    def read(self, path: str) -> Generator[bytes, None, None]:
        answer = self._connection.request(
            "GET", self._file(path), kind=Kind.READ, route=_FILE, asked=Asked("read_file", path=path)
        )
        with closing(answer):
            yield from checked(answer, _FILE).stream()

    def write(self, path: str, data: bytes) -> None:
        # The same bytes at the same place, however often.
        answer = self._connection.request(
            "PUT",
            self._file(path),
            kind=Kind.DELIVERY,
            route=_FILE,
            asked=Asked("write_file", path=path),
            headers={"Content-Type": "application/octet-stream"},
            body=data,
        )
        with answer:
            value = checked(answer, _FILE).json()
            if not isinstance(value, dict) or value.get("ok") is not True:
                raise answer.nonsense("the answer does not say that the file was written")

    def _file(self, path: str) -> str:
        return f"{self._path}/file/{quote(path.lstrip('/'))}"


def routes_of(document: object) -> frozenset[str]:
    """The paths of an openapi document, empty for what is none."""
    paths = document.get("paths") if isinstance(document, dict) else None
    return frozenset(paths) if isinstance(paths, dict) else frozenset()
