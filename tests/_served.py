"""A server in a process of its own, as a service is one: what it holds and how busy it is are not the tests' matter."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import attrs


@attrs.frozen
class Served:
    """Where it is, in either dialect."""

    url: str
    api_key: str
    container_url: str
    _process: subprocess.Popen[str]

    def renew_container(self) -> None:
        """End the sandbox behind `container_url`, which its own API cannot do; the next call gets a fresh one."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("renew\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "renewed\n"


@contextmanager
def served() -> Iterator[Served]:
    """Start one, and end it. It is no child of this process, whose own children tests look at."""
    command = ["setsid", "--fork", sys.executable, __file__]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield Served(**json.loads(process.stdout.readline()), process=process)
        # Until it has closed its output, which it does when it ends.
        process.communicate(timeout=60)


def main() -> None:
    """Serve until nobody wants it any more."""
    from sandboxsync.server import running_server

    with running_server() as server:
        where = {"url": server.url, "api_key": server.api_key, "container_url": server.container_url}
        print(json.dumps(where), flush=True)
        while sys.stdin.readline():
            server.transport.destroy(server.container_id)
            print("renewed", flush=True)


if __name__ == "__main__":
    main()
