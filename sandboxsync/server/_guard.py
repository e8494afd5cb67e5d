"""What comes before any route: who may ask, which path is meant, how much may be sent."""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["BodyTooLargeError", "Guard", "decode_path", "read_body"]

_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")
_KEPT = frozenset(";/?:@&=+$,#%")
_MOST_DROPPED = 1 << 28


class BodyTooLargeError(Exception):
    """A body is larger than its route takes: `size` bytes, or that many up to where reading it was given up."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


class Guard:
    """Answers 403 to a request for another host, or from a page of one, and decodes paths as the service does.

    A page that a browser shows could otherwise, by a name that leads to this machine, run commands here.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = Headers(scope=scope)
            server = scope.get("server")
            host = None if server is None else f"{server[0]}:{server[1]}"
            origins = headers.getlist("origin")
            if headers.getlist("host") != [host] or any(origin != f"http://{host}" for origin in origins):
                await PlainTextResponse("Forbidden", 403)(scope, receive, send)
                return
            raw = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": decode_path(raw.decode("latin-1"))}
        await self._app(scope, receive, send)


def decode_path(raw: str) -> str:
    """What the service takes for the path of a URL: without dot segments, decoded as by JavaScript's `decodeURI`.

    That leaves alone what has a meaning in a URL (`%2F`, `%3F`, `%23` …) and, here, `%25`; and what is no UTF-8.
    """
    segments: list[str] = []
    parts = raw.split("/")[1:]
    for index, part in enumerate(parts):
        plain = part.lower().replace("%2e", ".")
        last = index == len(parts) - 1
        if plain == "..":
            del segments[-1:]
        if plain not in (".", ".."):
            segments.append(part)
        elif last:
            segments.append("")
    return _ESCAPES.sub(_decode, "/" + "/".join(segments))


def _decode(match: re.Match[str]) -> str:
    try:
        text = unquote_to_bytes(match[0]).decode()
    except UnicodeDecodeError:
        return match[0]
    if _KEPT.isdisjoint(text):
        return text
    written = iter(_ESCAPE.findall(match[0]))
    decoded = []
    for letter in text:
        escapes = [next(written) for _ in letter.encode()]
        decoded.append(escapes[0] if letter in _KEPT else letter)
    return "".join(decoded)


async def read_body(request: Request, most: int) -> bytes:
    """Return the body, of `most` bytes at most. Raises `BodyTooLargeError`, `ClientDisconnect`."""
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > most:
        await _drop(request, int(told))
        raise BodyTooLargeError(int(told))
    pieces = []
    size = 0
    async for piece in request.stream():
        size += len(piece)
        if size <= most:
            pieces.append(piece)
        elif size > _MOST_DROPPED:
            break
    if size > most:
        raise BodyTooLargeError(size)
    return b"".join(pieces)


async def _drop(request: Request, size: int) -> None:
    """Take in a body that is refused, so that the client that sends it gets to read why."""
    if size <= _MOST_DROPPED:
        try:
            async for _ in request.stream():
                continue
        except ClientDisconnect:
            return
