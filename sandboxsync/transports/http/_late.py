"""The imports that wait for the first request, made so that a fork cannot fall into the middle of them.

A thread that is in an import when another one forks leaves a child in which that import never ends. So a fork waits
until this one is over.
"""

from __future__ import annotations

import codecs
import os
import threading

__all__ = ["load"]

# Re-entrant, for a fork from within an import.
_lock = threading.RLock()
_loaded = False


def load() -> None:
    """Import requests and what a request imports late itself. Quick when that is done."""
    global _loaded
    if _loaded:
        return
    with _lock:
        # The order is that of their use of each other.
        from . import _adapter, _failures  # noqa: F401
        from ._settings import user_agent

        user_agent()
        # Of the look-up of any host.
        codecs.lookup("idna")
        _loaded = True


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)
