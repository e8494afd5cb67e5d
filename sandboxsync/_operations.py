"""The verbs that a ``Session`` has, and a ``Sandbox`` for any of its sessions."""

from __future__ import annotations

from ._commands import CommandVerbs
from ._files import FileVerbs
from ._offers import OfferedVerbs
from ._processes import ProcessVerbs


class Operations(CommandVerbs, FileVerbs, ProcessVerbs, OfferedVerbs):
    """All verbs, bound to one sandbox and one session of it, or to none."""
