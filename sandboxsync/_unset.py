"""The mark of an argument that was left out, where ``None`` has a meaning of its own."""

from __future__ import annotations

import enum
from typing import Final, TypeAlias


class Unset(enum.Enum):
    """The type of :data:`UNSET`; an enum, so that ``is UNSET`` narrows a union for type checkers."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET
"""Left out: inherit what the next outer layer says."""

Timeout: TypeAlias = float | None | Unset
"""Seconds > 0, ``None`` for no limit, or :data:`UNSET` to inherit."""
