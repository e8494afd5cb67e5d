"""Trying a port of the sandbox's network, which is this machine's when nothing isolates it."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

__all__ = ["probe_port"]


def probe_port(make: Callable[[int], socket.socket], port: int, path: str | None, timeout: float) -> int | None:
    """See `Transport.probe_port`. `make` returns a stream socket of a family."""
    until = time.monotonic() + timeout
    for family, host in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
        left = until - time.monotonic()
        if left <= 0:
            return None
        try:
            with make(family) as sock:
                sock.settimeout(left)
                sock.connect((host, port))
                answer = 0 if path is None else _get(sock, host, port, path)
        except OSError:
            continue
        if answer is not None:
            return answer
    return None


def _get(sock: socket.socket, host: str, port: int, path: str) -> int | None:
    import http.client

    connection = http.client.HTTPConnection(host, port)
    connection.sock = sock
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
