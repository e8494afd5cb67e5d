"""Where requests go and with which secrets, and how it is told that they cannot."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from sandboxsync.errors import (
    ProtocolError,
    SandboxError,
    TransportError,
)
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind
from tests._http import (
    KEY,
    ONCE_ONLY,
    QUICK,
    drip_head,
    echo,
    free_port,
    get,
    lose,
    reset,
    stall,
)
from tests._loopback import Peer, Received, Server, answer, each

# Redirects, the key, proxies


def test_redirects_of_reads_are_followed() -> None:
    """Within the service the key goes along; a circle ends; what has a body is not redirected."""
    keys: list[str | None] = []

    def reply(request: Received) -> bytes:
        keys.append(request.headers.get("authorization"))
        if request.path == "/end":
            return answer(b"done")
        to = {"/a": "b", "/b": "/end", "/loop": "/loop"}[request.path]
        return answer(b"moved", "307 Moved", Location=to)

    with Server(each(reply)) as server, closing(Connection(server.url, api_key=KEY, retry=QUICK)) as connection:
        assert get(connection, "/a").read() == b"done"
        assert keys == [f"Bearer {KEY}"] * 3
        with pytest.raises(ProtocolError, match="redirects"):
            get(connection, "/loop")
        response = connection.request("POST", "/a", kind=Kind.ONCE, json={})
        assert response.status == 307
        with pytest.raises(ProtocolError, match="not followed"):
            response.check()
        with connection.request("DELETE", "/a", kind=Kind.ONCE) as response:
            assert response.status == 307


def test_the_key_is_dropped_on_the_way_elsewhere() -> None:
    """H5: another host gets neither the key nor the headers of the service, also when it sends back."""
    there: list[dict[str, str]] = []
    here: list[dict[str, str]] = []

    def elsewhere(request: Received) -> bytes:
        there.append(request.headers)
        return answer(b"moved", "302 Found", Location=f"{home.url}/back")

    def reply(request: Received) -> bytes:
        here.append(request.headers)
        if request.path == "/back":
            return answer(b"back")
        return answer(b"moved", "302 Found", Location=f"{other.url}/x?y=1")

    with Server(each(elsewhere)) as other, Server(each(reply)) as home:
        options = {"X-Token": "hunter2-header"}
        with closing(Connection(home.url, api_key=KEY, headers=options)) as connection:
            assert get(connection, headers={"Session-Id": "s1"}).read() == b"back"
    assert "authorization" in here[0]
    for headers in (there[0], here[1]):
        assert not {"authorization", "x-token", "session-id", "cookie"} & set(headers)
        assert KEY not in str(headers)


@pytest.mark.parametrize("location", ["ftp://x/", "http://", "http://u:p@127.0.0.1/", "//[", "http://h:0/", "/a b\x7f"])
def test_redirects_to_nowhere(location: str) -> None:
    """H6: they are answers that make no sense."""
    reply = answer(b"", "302 Found", Location=location)
    with Server(each(lambda request: reply)) as server, closing(Connection(server.url)) as connection:
        with pytest.raises(ProtocolError):
            get(connection)


def test_netrc_never_replaces_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """H5: nor does it add one where there is none."""
    netrc = tmp_path / ".netrc"
    netrc.write_text("machine 127.0.0.1 login user password hunter2\ndefault login user password hunter2\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: list[str | None] = []

    def reply(request: Received) -> bytes:
        seen.append(request.headers.get("authorization"))
        return answer()

    with Server(each(reply)) as server:
        for key in (KEY, None):
            with closing(Connection(server.url, api_key=key)) as connection:
                get(connection)
    assert seen == [f"Bearer {KEY}", None]


def test_cookies_are_not_kept() -> None:
    """What a service sets is not sent back: a session belongs to no connection."""
    seen: list[Received] = []

    def reply(request: Received) -> bytes:
        seen.append(request)
        return answer(Set_Cookie="a=b")

    with Server(each(reply)) as server, closing(Connection(server.url)) as connection:
        get(connection)
        get(connection)
    assert "cookie" not in seen[1].headers


def test_a_proxy_is_used() -> None:
    """A named proxy gets the whole URL; one that cannot be used is named in the error, without its password."""
    with Server(each(echo)) as proxy:
        url = proxy.url.replace("http://", "http://user:hunter2@")
        with closing(Connection("http://service.example:81", proxies={"http": url})) as connection:
            assert get(connection).read() == b"GET\nhttp://service.example:81/x\n"

    def refuse(peer: Peer) -> None:
        peer.receive()
        peer.send(answer(b"", "407 Proxy Authentication Required"))

    with Server(refuse) as proxy:
        url = proxy.url.replace("http://", "http://user:hunter2@")
        with closing(Connection("https://service.example", proxies={"https": url}, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match=rf"through the proxy 127\.0\.0\.1:{proxy.port}: .*407") as caught:
                get(connection)
            assert caught.value.code == "PROXY_ERROR"
            assert "hunter2" not in "".join(traceback.format_exception(caught.value))
            assert proxy.connections == 1
        with closing(Connection("http://service.example", proxies={"http": url}, retry=QUICK)) as connection:
            with pytest.raises(TransportError, match="407") as caught:
                get(connection).check()
            assert caught.value.code == "PROXY_ERROR"
    gone = f"http://user:hunter2@127.0.0.1:{free_port()}"
    with closing(Connection("https://service.example", proxies={"https": gone}, retry=ONCE_ONLY)) as connection:
        with pytest.raises(TransportError, match=r"the proxy 127\.0\.0\.1:.*Connection refused") as caught:
            get(connection)
        assert caught.value.code == "PROXY_ERROR"
        assert "hunter2" not in "".join(traceback.format_exception(caught.value))


def test_proxies_of_the_environment_are_not_for_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy cannot reach this machine, and would see the key."""
    monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    with Server(each(echo)) as server, closing(Connection(server.url, api_key=KEY)) as connection:
        assert get(connection).status == 200


# Ways to fail


def test_a_name_that_means_no_host() -> None:
    """The sentence names the service, and the reason."""
    with closing(Connection("http://no-such-host.invalid", retry=ONCE_ONLY)) as connection:
        with pytest.raises(TransportError, match=r"cannot connect to http://no-such-host\.invalid: ") as caught:
            get(connection)
        assert caught.value.code == "NAME_NOT_RESOLVED"


@pytest.mark.parametrize(
    "data",
    [
        b"220 smtp.example ESMTP\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 99999 OK\r\n\r\n",
        b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 " + b"x" * 70000 + b"\r\n\r\n",
    ],
)
def test_what_is_not_http(data: bytes) -> None:
    """H6: it is an answer that makes no sense, and not asked for again."""

    def other(peer: Peer) -> None:
        peer.receive()
        peer.send(data)

    with Server(other) as server, closing(Connection(server.url, retry=QUICK)) as connection:
        with pytest.raises(ProtocolError, match="is not HTTP"):
            get(connection)
        assert server.connections == 1


@pytest.mark.parametrize("handler", [lose, reset, stall, drip_head])
def test_no_error_shows_the_key(handler: Callable[[Peer], None], caplog: pytest.LogCaptureFixture) -> None:
    """H5: not in its text, its causes, their attributes, its pickle, or the log."""
    caplog.set_level(logging.DEBUG)
    with Server(handler) as server:
        options = {"X-Token": "hunter2-header"}
        connection = Connection(server.url, api_key=KEY, headers=options, read_timeout=0.2, retry=QUICK)
        with closing(connection), pytest.raises(SandboxError) as caught:
            get(connection, query={"token": "hunter2-query"})
    shown = [pickle.dumps(caught.value).decode("latin-1"), caplog.text]
    exc: BaseException | None = caught.value
    while exc is not None:
        shown.append(f"{exc!s} {exc!r} {vars(exc)!r} {exc.args!r}")
        shown.append(repr(getattr(getattr(exc, "request", None), "headers", None)))
        exc = exc.__cause__ or exc.__context__
    for text in shown:
        assert KEY not in text
        assert "hunter2" not in text
