"""What a handler of the bridge raises to answer with an error, and the check that many of them make."""

from __future__ import annotations

import re

from starlette.requests import Request

__all__ = ["RefusedError", "session_of"]

_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")


class RefusedError(Exception):
    """An error that the bridge tells: its text, its status, its code."""

    def __init__(self, text: str, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.status = status
        self.code = code


def session_of(request: Request) -> str | None:
    """The session that a request names in its header, if any. Raises `RefusedError` for what is no id."""
    session_id = request.headers.get("session-id")
    if session_id is not None and (_SESSION_ID.fullmatch(session_id) is None or ".." in session_id):
        raise RefusedError("Invalid session ID format")
    return session_id
