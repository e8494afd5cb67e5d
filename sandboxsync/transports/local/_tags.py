"""Tags: the numbers by which the processes of a sandbox are told apart.

A tag is what `_supervisor.py` and `before.bash` make the soft limit on file locks: 63 bits, of which the highest ten
are the number of the client (0, or that of a forked child), the next 25 the owner (a session, a background process, a
command without a session), the rest the job (a command of a session). Owners and jobs start anew when their bits are
used up: by then their first ones are long gone.
"""

from __future__ import annotations

__all__ = ["all_of", "range_of", "tag_of"]

_OWNER_BITS, _JOB_BITS = 25, 28
_CLIENT_SHIFT = _OWNER_BITS + _JOB_BITS


def tag_of(client: int, owner: int, job: int = 0) -> int:
    """The tag of a job. Both count from 1; owner 0 is nobody's, job 0 is the shell or the process itself."""
    return client << _CLIENT_SHIFT | (1 + (owner - 1) % ((1 << _OWNER_BITS) - 1)) << _JOB_BITS | job % (1 << _JOB_BITS)


def range_of(client: int, owner: int) -> tuple[int, int]:
    """The lowest and the highest tag of an owner."""
    low = tag_of(client, owner)
    return low, low + (1 << _JOB_BITS) - 1


def all_of(client: int) -> tuple[int, int]:
    """The lowest and the highest tag of all that a client started."""
    low = client << _CLIENT_SHIFT
    return low + 1, low + (1 << _CLIENT_SHIFT) - 1
