"""Trying a port of this machine, which is the sandbox's own when nothing isolates it."""

from __future__ import annotations

import socket
import time

__all__ = ["probe_port"]


def probe_port(port: int, path: str | None, timeout: float) -> int | None:
    """See `Transport.probe_port`."""
    until = time.monotonic() + timeout
    for host in ("127.0.0.1", "::1"):
        left = until - time.monotonic()
        if left <= 0:
            return None
        answer = _connect(host, port, left) if path is None else _get(host, port, path, left)
        if answer is not None:
            return answer
    return None


def _connect(host: str, port: int, timeout: float) -> int | None:
    try:
        socket.create_connection((host, port), timeout).close()
    except OSError:
        return None
    return 0


def _get(host: str, port: int, path: str, timeout: float) -> int | None:
    import http.client

    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
