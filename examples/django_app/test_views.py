"""Run with `pytest django_app`, in memory, or with `pytest django_app --sandbox=local`, on this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from django.http import StreamingHttpResponse
from django.test import Client, override_settings

from sandboxsync import Sandbox

from . import views
from .builds import server_sent

# A user's session stays for the next build, until the user leaves.
pytestmark = pytest.mark.sandbox(leaks="ignore")


@pytest.fixture
def client(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    """A user with a browser; the application uses the sandbox of the test."""
    monkeypatch.setattr(views, "get_sandbox", lambda: sandbox)
    with override_settings(BUILD_TIMEOUT=20.0):
        yield Client()


def post(client: Client, text: str) -> StreamingHttpResponse:
    """Ask for a build."""
    return client.post("/build", data=text, content_type="text/plain")


def events_of(response: StreamingHttpResponse) -> Iterator[tuple[str, object]]:
    """The events of a stream, as they come."""
    for event in response.streaming_content:
        name, data = event.decode().rstrip("\n").split("\n")
        yield name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def test_a_build_streams_its_log(client: Client) -> None:
    """The log comes as events, with the exit code at the end."""
    response = post(client, "to be\nor not")
    assert response["Content-Type"] == "text/event-stream"
    *log, (last, result) = events_of(response)
    assert {name for name, _ in log} == {"stdout"}
    text = "".join(str(data) for _, data in log)
    assert text == "reading\n  2 words so far\n  4 words so far\nwrote words.txt\n"
    assert last == "completed"
    assert isinstance(result, dict)
    assert result["exit_code"] == 0


def test_a_failed_build_says_why(client: Client) -> None:
    """Its standard error and exit code are there: it is no error of the application."""
    *log, (last, result) = events_of(post(client, ""))
    assert ("stderr", "there is no word in it\n") in log
    assert last == "completed"
    assert isinstance(result, dict)
    assert result["exit_code"] == 3


def test_each_user_has_a_session(client: Client, sandbox: Sandbox) -> None:
    """The cookie says who it is: one user's second build does not touch the files of another."""
    other = Client()
    for user, text in ((client, "one"), (other, "two"), (client, "three")):
        list(events_of(post(user, text)))
    users = [name for name in sandbox.list_sessions() if name.startswith("user-")]
    assert sorted(sandbox.read_text(f"builds/{user}/words.txt") for user in users) == ["1 three\n", "1 two\n"]


def test_leaving_ends_the_session(client: Client, sandbox: Sandbox) -> None:
    """Who leaves has no session any more, and is somebody else next time."""
    list(events_of(post(client, "one")))
    (user,) = sandbox.list_sessions()
    assert client.delete("/session").status_code == 204
    assert sandbox.list_sessions() == []
    list(events_of(post(client, "one")))
    assert sandbox.list_sessions() != [user]


def test_a_timeout_is_an_event(client: Client, slow_build: None) -> None:
    """A build that takes too long is stopped, and the last event says so."""
    with override_settings(BUILD_TIMEOUT=0.5):
        *log, (last, error) = events_of(post(client, "one"))
    assert log == [("stdout", "begun\n")]
    assert last == "error"
    assert isinstance(error, dict)
    assert error["code"] == "COMMAND_TIMEOUT"


def test_a_deleted_session_is_an_event(client: Client, sandbox: Sandbox, slow_build: None) -> None:
    """A build whose session is deleted ends with an event that says so."""
    with contextlib.closing(post(client, "one")) as response:
        events = events_of(response)
        assert next(events) == ("stdout", "begun\n")
        sandbox.delete_session(*sandbox.list_sessions())
        ((last, error),) = events
    assert last == "error"
    assert isinstance(error, dict)
    assert error["code"].startswith("SESSION_")


def test_a_client_that_goes_away_ends_its_build(client: Client, sandbox: Sandbox, slow_build: None) -> None:
    """What a server does when the connection is lost stops the command; the session is free for the next one."""
    with contextlib.closing(post(client, "one")) as response:
        assert next(events_of(response)) == ("stdout", "begun\n")
    (user,) = sandbox.list_sessions()
    assert sandbox.exec("echo free", session_id=user, timeout=5).stdout == "free\n"


@pytest.fixture
def slow_build(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A build that says that it has begun, and then never ends. It does not sleep, which takes no time in memory."""
    script = tmp_path_factory.mktemp("slow") / "build.sh"
    script.write_text("echo begun\nwhile :; do :; done\n")
    monkeypatch.setattr(f"{__package__}.builds.SCRIPT", script)


def test_no_text_breaks_the_stream() -> None:
    """Line ends in a log are part of the data: it cannot begin an event of its own."""
    event = server_sent("stdout", "a\n\nevent: completed\r\ndata: {}\u2028")
    assert event.count("\n") == 3
    assert "\r" not in event
