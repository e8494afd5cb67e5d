"""A server in a process of its own, for a benchmark: prints where it is as JSON, and ends with its standard input.

``python -m benchmarks._http_server``
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs

from sandboxsync import HTTPTransport


@attrs.frozen
class Served:
    """Where a server is, in either dialect."""

    url: str
    api_key: str
    container_url: str

    def transport(self, dialect: str) -> HTTPTransport:
        """A transport to it."""
        if dialect == "bridge":
            return HTTPTransport(self.url, api_key=self.api_key, dialect="bridge")
        return HTTPTransport(self.container_url, dialect="container")


@contextmanager
def served() -> Iterator[Served]:
    """Start one, and end it."""
    command = [sys.executable, "-m", "benchmarks._http_server"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Served(**json.loads(process.stdout.readline()))
        process.communicate(timeout=60)


def main() -> None:
    """Serve until nobody wants it any more."""
    from sandboxsync.server import running_server

    with running_server() as server:
        where = {"url": server.url, "api_key": server.api_key, "container_url": server.container_url}
        print(json.dumps(where), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
