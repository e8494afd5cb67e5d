"""The time limits of a transport over HTTP."""

from __future__ import annotations

import attrs

from sandboxsync.transports.http._settings import check_seconds

__all__ = ["HTTPTimeouts"]


@attrs.frozen(kw_only=True)
class HTTPTimeouts:
    """How long a service may take, in seconds; `None` is no limit. None of these bounds a command: `timeout` does that.

    `connect`: to each address of the service. `read`: each silence of it, and the head of an answer from its first byte
    on; a command that prints nothing is no silence, for the sandbox says that it still runs. `total`: a request that
    runs no command, with its retries and the reading of its answer.

    Raises `ConfigurationError` for what is no number of seconds above 0.
    """

    connect: float | None = attrs.field(default=10.0)
    read: float | None = attrs.field(default=60.0)
    total: float | None = attrs.field(default=None)

    def __attrs_post_init__(self) -> None:
        for name in ("connect", "read", "total"):
            check_seconds(getattr(self, name), f"timeout {name}")
