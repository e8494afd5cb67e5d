"""A build in a session of its user, told as server-sent events. It knows no web framework."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from sandboxsync import Completed, SandboxError, Session, Stderr, Stdout

SCRIPT = Path(__file__).with_name("build.sh")

HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""What keeps proxies from holding the events back."""


def directory_of(session: Session) -> str:
    """Where a user's builds happen. Sessions share the files of their sandbox, so each has a directory."""
    return f"builds/{session.id}"


def build_events(session: Session, source: str, timeout: float | None) -> Iterator[str]:
    """Build `source` and yield an event for each piece of the log, at last `completed` or `error`.

    A second build of the user waits until the first has ended, for as long as `timeout` (s) allows. A server that finds
    the client gone, which it does when it sends the next event, closes this generator: that leaves the stream, which
    ends the build.
    """
    directory = directory_of(session)
    try:
        session.write_file(f"{directory}/build.sh", SCRIPT.read_bytes())
        with session.exec_stream("bash build.sh", cwd=directory, stdin=source, timeout=timeout) as stream:
            for event in stream:
                if isinstance(event, Stdout):
                    yield server_sent("stdout", event.text)
                elif isinstance(event, Stderr):
                    yield server_sent("stderr", event.text)
                elif isinstance(event, Completed):
                    yield server_sent("completed", {"exit_code": event.exit_code, "duration": event.duration})
    except SandboxError as error:
        # The status of the response is long sent.
        yield server_sent("error", {"code": error.code, "message": str(error)})


def server_sent(name: str, data: object) -> str:
    """One event. Its data is JSON, which has no raw line ends: nothing in it can begin a field or an event."""
    return f"event: {name}\ndata: {json.dumps(data)}\n\n"
