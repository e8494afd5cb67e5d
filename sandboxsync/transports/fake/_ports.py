"""The ports of a sandbox on which something listens."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping

__all__ = ["Ports"]


class Ports:
    """Which ports are open, and the HTTP status that each answers with. Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[int, list[int]] = {}

    @contextlib.contextmanager
    def open(self, ports: Mapping[int, int]) -> Iterator[None]:
        """Let something listen, as long as the block lasts. Of two that listen on one port the last answers."""
        with self._lock:
            for port, status in ports.items():
                self._open.setdefault(port, []).append(status)
        try:
            yield
        finally:
            with self._lock:
                for port, status in ports.items():
                    self._open[port].remove(status)

    def probe(self, port: int, path: str | None) -> int | None:
        """See `Transport.probe_port`."""
        with self._lock:
            listening = self._open.get(port)
            if not listening:
                return None
            return 0 if path is None else listening[-1]
