"""Names of the files that exist only until a write is complete. Pure functions; safe for threads and
forks.
"""

from __future__ import annotations

import os
import re

_FORM = re.compile(r"\.sandboxsync-[0-9a-f]{24}\.tmp")


def temporary_name() -> str:
    """Return a new hidden name of fixed length, so that it fits wherever the final name fits."""
    return f".sandboxsync-{os.urandom(12).hex()}.tmp"


def is_temporary(name: str) -> bool:
    """Whether *name* is one of ours: such a file is not listed and not packed, it is half of something."""
    return _FORM.fullmatch(name) is not None
