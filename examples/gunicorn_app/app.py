"""A WSGI app whose workers share what their parent made: `gunicorn --preload --workers 2 --threads 4 app:app`.

`SANDBOX_URL` and `SANDBOX_API_KEY` say where the sandboxes are.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import sandboxsync

# Once, in the parent: with --preload this is before the fork. Each worker opens connections of its own.
sandbox = sandboxsync.connect(id="web")
sandbox.ping()


def app(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    """Greet whom the path names, from a shell that this request has for itself."""
    name = environ["PATH_INFO"].strip("/")
    with sandbox.session(env={"NAME": name}) as session:
        body = session.exec('cd /tmp && echo "hello $NAME from $PWD"').stdout_bytes
    start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8"), ("X-Worker", str(os.getpid()))])
    return [body]
