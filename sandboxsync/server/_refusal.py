"""What a handler of the bridge raises to answer with an error."""

from __future__ import annotations

__all__ = ["RefusedError"]


class RefusedError(Exception):
    """An error that the bridge tells: its text, its status, its code."""

    def __init__(self, text: str, status: int = 400, code: str = "invalid_request") -> None:
        super().__init__(text)
        self.status = status
        self.code = code
