"""`HTTPTransport`: what it is made with, what it finds at the other end, and how it says that something is wrong."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import (
    AuthenticationError,
    ConfigurationError,
    HTTPTimeouts,
    HTTPTransport,
    ProtocolError,
    RetryPolicy,
    Sandbox,
    TransportError,
    UnsupportedOperationError,
    connect,
)
from sandboxsync.transports.http._ids import bridge_id
from tests._http import KEY
from tests._loopback import Received, Server, answer, each
from tests._served import Served

ONCE = RetryPolicy(attempts=1)


def bridge_answers(request: Received) -> bytes | None:
    """What a bridge says to who finds out what it is."""
    if request.path == "/health":
        return answer(b'{"ok":true}', content_type="application/json")
    if request.path == "/v1/openapi.json":
        if request.headers.get("authorization") != f"Bearer {KEY}":
            return answer(b'{"error":"Unauthorized","code":"unauthorized"}', "401 Unauthorized")
        paths = ["/v1/sandbox/{id}/exec", "/v1/sandbox/{id}/file/{path}", "/v1/sandbox/{id}/running"]
        return answer(json.dumps({"paths": {path: {} for path in paths}}).encode())
    return None


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Received], bytes | None]], tuple[str, list[Received]]]]:
    """Starts a server that answers as told, 404 where told nothing; gives its URL, and what it is asked."""
    servers: list[Server] = []

    def start(reply: Callable[[Received], bytes | None]) -> tuple[str, list[Received]]:
        seen: list[Received] = []

        def handle(request: Received) -> bytes:
            seen.append(request)
            return reply(request) or answer(b"404 Not Found", "404 Not Found")

        servers.append(Server(each(handle)))
        return servers[-1].url, seen

    yield start
    for server in servers:
        server.close()


Serve = Callable[[Callable[[Received], "bytes | None"]], "tuple[str, list[Received]]"]


# What is at the other end


def test_a_bridge_is_found_once(serve: Serve) -> None:
    """Two requests find it out, the first of them without the key; later calls ask nothing more."""

    def reply(request: Received) -> bytes | None:
        return answer(b'{"running":true}') if request.path.endswith("/running") else bridge_answers(request)

    url, seen = serve(reply)
    with HTTPTransport(url, api_key=KEY) as transport:
        for _ in range(2):
            transport.ping("abc", 5)
    assert [request.path for request in seen] == [
        "/health",
        "/v1/openapi.json",
        *["/v1/sandbox/abc/running"] * 2,
    ]
    assert ["authorization" in request.headers for request in seen] == [False, True, True, True]


def test_H5_a_container_server_gets_no_key(serve: Serve) -> None:
    """It would take it for the id of a session."""

    def reply(request: Received) -> bytes | None:
        return answer(b'{"success":true,"status":"healthy"}') if request.path == "/api/ping" else None

    url, seen = serve(reply)
    with HTTPTransport(url, api_key=KEY) as transport:
        transport.ping("abc", 5)
    assert {request.path for request in seen} == {"/health", "/api/ping"}
    assert not any("authorization" in request.headers for request in seen)


@pytest.mark.parametrize("dialect", ["container", "auto"])
def test_a_container_server_gets_no_authorization_of_the_users_either(dialect: str, serve: Serve) -> None:
    """A header of that name is refused, at once or when it is found out."""
    url, _ = serve(lambda request: answer(b'{"success":true}') if request.path == "/api/ping" else None)
    with pytest.raises(ConfigurationError, match="Authorization"):
        with HTTPTransport(url, headers={"authorization": "Basic x"}, dialect=dialect) as transport:  # type: ignore[arg-type]
            transport.ping("abc", 5)


def test_a_wrong_key_is_told_at_once(server: Served) -> None:
    """`AuthenticationError`, without the key in it, from the first call on."""
    for key in (KEY, None):
        with HTTPTransport(server.url, api_key=key) as transport, pytest.raises(AuthenticationError) as caught:
            Sandbox(transport).exec("true")
        assert KEY not in f"{caught.value!r} {caught.value} {vars(caught.value)}"
        assert caught.value.http_status == 401


def test_H6_a_page_is_no_service(serve: Serve) -> None:
    """One sentence says what came and that the URL may be wrong."""
    url, _ = serve(lambda request: answer(b"<html><title>Welcome</title>", content_type="text/html"))
    with HTTPTransport(url, retry=ONCE) as transport, pytest.raises(ProtocolError) as caught:
        transport.ping("abc", 5)
    text = str(caught.value)
    assert url in text
    assert "<html><title>Welcome" in text
    assert "is the URL that of a sandbox service?" in text


@pytest.mark.parametrize(
    ("status", "kind"), [("403 Forbidden", AuthenticationError), ("500 Internal Server Error", ProtocolError)]
)
def test_what_stands_before_the_service_is_told(status: str, kind: type[Exception], serve: Serve) -> None:
    """A gateway that lets nobody in, or that fails, is no missing service."""
    url, _ = serve(lambda request: answer(b"<h1>no</h1>", status))
    with HTTPTransport(url, retry=ONCE) as transport, pytest.raises(kind):
        transport.ping("abc", 5)


def test_nobody_there_is_one_clear_error() -> None:
    """As the connection's own."""
    with HTTPTransport("http://127.0.0.1:1", retry=ONCE) as transport, pytest.raises(TransportError, match="refused"):
        transport.ping("abc", 5)


def test_a_failure_to_find_out_is_not_kept(serve: Serve) -> None:
    """The next call tries again."""
    health = iter([answer(b"", "500 Internal Server Error")] * 2)

    def reply(request: Received) -> bytes | None:
        if request.path.endswith("/running"):
            return answer(b'{"running":true}')
        return next(health, None) or bridge_answers(request)

    url, _ = serve(reply)
    with HTTPTransport(url, api_key=KEY, retry=ONCE) as transport:
        with pytest.raises(ProtocolError):
            transport.ping("abc", 5)
        transport.ping("abc", 5)


def test_a_bridge_without_exec_is_no_sandbox(serve: Serve) -> None:
    """A route that is missing is named."""

    def reply(request: Received) -> bytes | None:
        if request.path == "/v1/openapi.json":
            return answer(b'{"paths":{"/v1/sandbox/{id}/running":{}}}')
        return bridge_answers(request)

    url, _ = serve(reply)
    with HTTPTransport(url, api_key=KEY) as transport:
        with pytest.raises(UnsupportedOperationError, match=r"'/v1/sandbox/\{id\}/exec'"):
            Sandbox(transport).exec("true")


def test_a_bridge_that_does_not_describe_itself_is_one_all_the_same(serve: Serve) -> None:
    """What it lacks is told when it is used."""

    def reply(request: Received) -> bytes | None:
        return answer(b'{"ok":true}') if request.path == "/health" else None

    url, _ = serve(reply)
    with HTTPTransport(url, api_key=KEY) as transport:
        with pytest.raises(UnsupportedOperationError, match=r"'/v1/sandbox/\{id\}/running'"):
            transport.ping("abc", 5)


def test_a_container_server_of_another_version_says_what_it_lacks(serve: Serve) -> None:
    """Its answer to a path that it does not know is understood."""
    missing = b'{"code":"UNKNOWN_ERROR","message":"The requested endpoint was not found","context":{},"httpStatus":404}'
    url, _ = serve(lambda request: answer(missing, "404 Not Found"))
    with HTTPTransport(url, dialect="container") as transport:
        with pytest.raises(UnsupportedOperationError, match="'/api/execute/stream'"):
            Sandbox(transport).exec("true")


# Its settings


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "rpc"},
        {"timeout": 5},
        {"timeout": (1, 2)},
        {"retry": 3},
        {"api_key": "a\nb"},
        {"headers": {"Host": "x"}},
        {"verify": "/no/such/bundle"},
        {"on_event": 1},
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, object]) -> None:
    """Before any request, as `ConfigurationError`."""
    with pytest.raises(ConfigurationError):
        HTTPTransport("http://127.0.0.1:1", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("limit", [0, -1, True, float("nan"), "5"])
@pytest.mark.parametrize("name", ["connect", "read", "total"])
def test_T7_limits_that_make_no_sense_are_refused(name: str, limit: object) -> None:
    """A limit is a number of seconds above 0."""
    with pytest.raises(ConfigurationError, match=name):
        HTTPTimeouts(**{name: limit})  # type: ignore[arg-type]


def test_H5_a_key_needs_a_private_way() -> None:
    """Over plain http it goes to this machine alone, unless that is asked for."""
    with pytest.raises(ConfigurationError, match="allow_insecure"):
        HTTPTransport("http://sandbox.example", api_key=KEY)
    assert KEY not in repr(HTTPTransport("http://sandbox.example", api_key=KEY, allow_insecure=True))


def test_nothing_of_http_is_imported_before_the_first_request() -> None:
    """Making a transport costs no import of requests."""
    code = (
        "import sys, sandboxsync; sandboxsync.Sandbox(sandboxsync.HTTPTransport('http://127.0.0.1:1', api_key='k'));"
        "print([name for name in ('requests', 'urllib3', 'websocket', 'cattrs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "[]\n"


# Names of sandboxes


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("abc", "abc"),
        ("a" * 63, "a" * 63),
    ],
)
def test_S18_names_that_fit_go_as_they_are(name: str, expected: str) -> None:
    """Lower-case letters and 2 to 7, 63 at most."""
    assert bridge_id(name) == expected


@given(st.text("abcz27019AZ._@:-", min_size=1, max_size=128), st.text("abcz27019AZ._@:-", min_size=1, max_size=128))
def test_S18_ids_of_a_bridge_fit_and_differ(one: str, other: str) -> None:
    """Any name has one that the bridge takes; two names never share one."""
    assert re.fullmatch("[a-z2-7]{1,63}", bridge_id(one))
    assert (bridge_id(one) == bridge_id(other)) == (one == other)


def test_S18_the_encoding_is_the_documented_one() -> None:
    """`zz` and base32, or `zzh` and base32 of the SHA-256: other clients must find the same sandbox."""
    assert bridge_id("user-123") == "zzovzwk4rngezdg"
    assert bridge_id("zzz") == "zzpj5hu"
    digest = base64.b32encode(hashlib.sha256(b"A" * 128).digest()).decode().rstrip("=").lower()
    assert bridge_id("A" * 128) == f"zzh{digest}"


# URLs


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variables that `connect` reads."""
    monkeypatch.delenv("SANDBOX_URL", raising=False)
    monkeypatch.delenv("SANDBOX_API_KEY", raising=False)


def test_connect_over_http(server: Served, no_environment: None) -> None:
    """A URL leads to the service, with the dialect found out or named."""
    for url in (server.url, f"bridge+{server.url}"):
        with connect(url, id="abc", api_key=server.api_key) as sandbox:
            assert sandbox.ping()
    for url in (server.container_url, f"container+{server.container_url}"):
        with connect(url, id="abc") as sandbox:
            assert sandbox.ping()


def test_H5_the_key_of_the_environment_is_for_one_host(
    server: Served, no_environment: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`SANDBOX_API_KEY` goes to the host of `SANDBOX_URL`, or of any URL when that is unset."""
    monkeypatch.setenv("SANDBOX_API_KEY", server.api_key)
    with connect(server.url) as sandbox:
        assert sandbox.ping()
    monkeypatch.setenv("SANDBOX_URL", server.url)
    with connect() as sandbox:
        assert sandbox.ping()
    monkeypatch.setenv("SANDBOX_URL", "https://other.example")
    with connect(server.url, id="abc") as sandbox, pytest.raises(AuthenticationError):
        sandbox.ping()


@pytest.mark.parametrize(
    "url", ["http:", "https://", "bridge+local:", "ftp+http://h", "http://user:pw@h", "rpc+http://h"]
)
def test_urls_that_make_no_sense_are_refused(url: str, no_environment: None) -> None:
    """With one sentence that holds no password."""
    with pytest.raises(ConfigurationError) as caught:
        connect(url)
    assert "pw" not in str(caught.value)
