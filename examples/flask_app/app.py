"""POST /build runs a build of the request's body in the session of the current user and streams its log.

    $ cd examples && python -m flask_app.app
    $ curl -N --cookie-jar jar --cookie jar --data-binary 'to be or not to be' http://127.0.0.1:5000/build

A user is a random name in a signed cookie. There is one sandbox, with a session for each user: their shells are apart,
their files are not. Users who must not see what others have need a sandbox each.
"""

from __future__ import annotations

import os
import secrets

from flask import Flask, Response, request, session

from sandboxsync import LocalTransport, Sandbox
from sandboxsync.transports.base import Transport

from .builds import HEADERS, build_events


def create_app(transport: Transport, sandbox_id: str = "builds") -> Flask:
    """Return the application. It does not close the transport, and starts the sandbox with the first build."""
    app = Flask(__name__)
    app.config.update(
        # One that all workers know, so that any of them knows the users.
        SECRET_KEY=os.environ.get("SECRET_KEY") or secrets.token_hex(),
        SESSION_COOKIE_SAMESITE="Lax",
        MAX_CONTENT_LENGTH=1_000_000,
        BUILD_TIMEOUT=60.0,
    )
    sandbox = Sandbox(transport, id=sandbox_id)

    @app.post("/build")
    def build() -> Response:
        user = session.setdefault("user", f"user-{secrets.token_hex(8)}")
        source = request.get_data(as_text=True)
        events = build_events(sandbox.get_session(user), source, app.config["BUILD_TIMEOUT"])
        return Response(events, mimetype="text/event-stream", headers=HEADERS)

    @app.delete("/session")
    def leave() -> tuple[str, int]:
        user = session.pop("user", None)
        if user is not None:
            sandbox.delete_session(user, missing_ok=True)
        return "", 204

    return app


if __name__ == "__main__":
    with LocalTransport() as transport:
        create_app(transport).run(threaded=True)
