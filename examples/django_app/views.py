"""POST /build runs a build of the request's body in the session of the current user and streams its log.

    $ cd examples && DJANGO_SETTINGS_MODULE=django_app.settings python -m django runserver
    $ curl -N --cookie-jar jar --cookie jar --data-binary 'to be or not to be' http://127.0.0.1:8000/build

A user is a random name in a signed cookie, which browsers do not send with the forms of other sites. There is one
sandbox, with a session for each user: their shells are apart, their files are not. Users who must not see what others
have need a sandbox each.
"""

from __future__ import annotations

import functools
import secrets

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse

from sandboxsync import Sandbox, connect

from .builds import HEADERS, build_events


@functools.cache
def get_sandbox() -> Sandbox:
    """The sandbox of all builds. It is made late, in the process that serves, and starts with the first build."""
    return connect(settings.SANDBOX_URL, id="builds")


def build(request: HttpRequest) -> StreamingHttpResponse:
    """Build what the request holds, as server-sent events."""
    user = request.get_signed_cookie("user", default=None) or f"user-{secrets.token_hex(8)}"
    source = request.body.decode("utf-8", "replace")
    events = build_events(get_sandbox().get_session(user), source, settings.BUILD_TIMEOUT)
    response = StreamingHttpResponse(events, content_type="text/event-stream", headers=HEADERS)
    response.set_signed_cookie("user", user, httponly=True, samesite="Lax")
    return response


def leave(request: HttpRequest) -> HttpResponse:
    """End the user's session."""
    user = request.get_signed_cookie("user", default=None)
    if user is not None:
        get_sandbox().delete_session(user, missing_ok=True)
    response = HttpResponse(status=204)
    response.delete_cookie("user", samesite="Lax")
    return response
