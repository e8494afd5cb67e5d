"""What a request to the container's API says: its JSON, its session, its command."""

from __future__ import annotations

from typing import Any

import attrs
from starlette.requests import Request

from sandboxsync.server._answers import as_text, load_in
from sandboxsync.server._commands import Command, milliseconds
from sandboxsync.server._container_errors import ContainerError, command_failed, invalid
from sandboxsync.server._guard import read_body
from sandboxsync.server._workers import Workers
from sandboxsync.transports.base import SessionRef, Transport

__all__ = [
    "EVENTS",
    "NO_SESSION",
    "Site",
    "body_of",
    "command_of",
    "json_of",
    "path_in",
    "session_in",
    "session_of",
]

NO_SESSION = "__DISABLE_SESSION__"
"""The id that stands for no session."""
EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}
"""The headers of an answer of events."""
_MOST = 128 << 20


@attrs.frozen
class Site:
    """What all handlers share: the sandbox, the threads, and the seconds that an answer may be silent."""

    transport: Transport
    sandbox_id: str
    workers: Workers
    silence: float

    def ref(self, session_id: str | None) -> SessionRef:
        """A reference to a session, or to none."""
        return SessionRef(self.sandbox_id, session_id)


async def json_of(request: Request, site: Site) -> dict[str, Any]:
    """Return the JSON object of a request. Raises `ContainerError` for what is no JSON; other JSON is an empty object.

    Its type must be said to be JSON: a page of somebody else could send anything else here.
    """
    try:
        value = await load_in(site.workers, await body_of(request))
    except ValueError:
        told = "Failed to parse request body: Failed to parse JSON"
        raise ContainerError("INTERNAL_ERROR", told, 500, {"stack": f"Error: {told}"}) from None
    return value if isinstance(value, dict) else {}


async def body_of(request: Request) -> bytes:
    """Return the body of a request that says it is JSON."""
    body = await read_body(request, _MOST)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ContainerError("VALIDATION_FAILED", "Content-Type must be application/json", 415)
    return body


def session_in(body: dict[str, Any]) -> str | None:
    """The session that a body names for a call about files or processes; `None` is none."""
    given = body.get("sessionId")
    session_id = given if isinstance(given, str) and given else "default"
    return None if session_id == NO_SESSION else session_id


def session_of(request: Request, body: dict[str, Any]) -> str | None:
    """The session that a command names, in the body or elsewhere as the service has it; `None`: it names none."""
    scheme, _, bearer = request.headers.get("authorization", "").partition(" ")
    named = [
        body.get("sessionId"),
        bearer.strip() if scheme == "Bearer" else None,
        request.headers.get("x-session-id"),
        request.query_params.get("session"),
    ]
    return next((name for name in named if isinstance(name, str) and name), None)


def command_of(body: dict[str, Any], session_id: str | None) -> Command:
    """The command of a body. Raises `ContainerError` for variables that a session does not take."""
    text = as_text(body["command"]) if "command" in body else "undefined"
    cwd = body.get("cwd")
    env = body.get("env")
    variables: dict[str, str] = {}
    for name, value in env.items() if isinstance(env, dict) else ():
        if session_id is None:
            variables[name] = as_text(value)
        elif value is not None:
            variables[name] = _variable(text, session_id, name, value)
    return Command(text, cwd if isinstance(cwd, str) and cwd else None, variables, milliseconds(body.get("timeoutMs")))


def _variable(command: str, session_id: str, name: str, value: object) -> str:
    if not name.isidentifier() or not name.isascii():
        raise command_failed(command, session_id, f"Invalid environment variable name: {name}")
    if not isinstance(value, str) or "\0" in value:
        raise command_failed(command, session_id, f"Invalid value of environment variable: {name}")
    return value


def path_in(body: dict[str, Any], name: str = "path") -> str:
    """A path of a body. Raises `ContainerError`."""
    path = body.get(name)
    shown = path if isinstance(path, str) else as_text(path) if name in body else "undefined"
    wrong = None
    if not isinstance(path, str) or not path:
        wrong = "Path must be a non-empty string"
    elif "\0" in path:
        wrong = "Path contains null bytes"
    if wrong is not None:
        raise invalid(f"Invalid path format for '{shown}': {wrong}", name, wrong, "INVALID_PATH")
    assert isinstance(path, str)
    return path
