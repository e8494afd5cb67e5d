"""What a connection is made with: what cannot be used is refused before anything is sent, and no secret is shown."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync.errors import ConfigurationError, InvalidRequestError
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._retry import Kind
from sandboxsync.transports.http._settings import check_target, check_url, is_loopback, proxy_for

KEY = "sk-Zeta/9+x=4242"
PROXIES = {"https": "http://user:hunter2@proxy:3128"}


def request(connection: Connection, **options: object) -> None:
    """A request with these options, which is refused before it is sent: nothing listens at port 9."""
    arguments: dict[str, object] = {"method": "GET", "path": "/x", "kind": Kind.ONCE, **options}
    connection.request(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://localhost", "http://localhost"),
        ("https://Bridge.Example/", "https://bridge.example"),
        ("HTTPS://bridge.example:443/a/b//", "https://bridge.example/a/b"),
        ("http://127.0.0.1:8787", "http://127.0.0.1:8787"),
        ("http://[::1]:3000/x", "http://[::1]:3000/x"),
        ("http://sandbox_1:3000", "http://sandbox_1:3000"),
        ("https://a.example./%41", "https://a.example./%41"),
    ],
)
def test_urls_of_services(url: str, base: str) -> None:
    """Scheme, host, port and path are taken, in one spelling."""
    assert Connection(url).base_url == base
    assert repr(Connection(url)) == f"Connection({base!r})"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "bridge.example",
        "localhost:8787",
        "//bridge.example",
        "ftp://bridge.example",
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "http://:80",
        "http://host:99999",
        "http://host:0",
        "http://host:x",
        "http://[::1",
        "http://[zz]/",
        "http://-host",
        "http://ho st",
        "http://host/a b",
        "http://host/\r\nX: y",
        "http://host\\@evil",
        "http://bücher.example",
        "http://host/?a=b",
        "http://host/?",
        "http://host/#x",
        "http://host/a/../b",
        "http://host/%2e%2e/b",
        "http://host/%",
        None,
        b"http://host",
        5,
    ],
)
def test_urls_that_are_none(url: object) -> None:
    """Each is refused at once, with a sentence."""
    with pytest.raises(ConfigurationError, match="URL of a service"):
        Connection(url)  # type: ignore[arg-type]


@pytest.mark.parametrize("url", ["https://user:hunter2@host", "https://hunter2@host", "https://@host"])
def test_a_url_holds_no_user(url: str) -> None:
    """A user in the URL is refused, and not shown."""
    with pytest.raises(ConfigurationError, match="api_key") as caught:
        Connection(url)
    assert "hunter2" not in str(caught.value)


@given(st.text(max_size=30))
def test_any_url_is_survived(text: str) -> None:
    """Whatever the text, it is a URL of a service or refused."""
    for url in (text, f"http://{text}", f"https://host{text}"):
        with suppress(ConfigurationError):
            assert check_url(url).scheme in {"http", "https"}


@pytest.mark.parametrize("key", ["", " ", "a b", "key\n", "key\r\nX-Evil: 1", "schlüssel", "key\0", 5, b"key"])
def test_keys_that_are_none(key: object) -> None:
    """A key that would break a header is refused, and not shown."""
    with pytest.raises(ConfigurationError, match="API key") as caught:
        Connection("https://host", api_key=key)  # type: ignore[arg-type]
    assert str(key).strip() == "" or str(key) not in str(caught.value)


@pytest.mark.parametrize("host", ["bridge.example", "10.0.0.5", "localhost.example", "[2001:db8::1]", "127.example"])
def test_no_key_over_plain_http(host: str) -> None:
    """H5: a key, or a header like one, is not sent unencrypted to another machine, unless that is asked for."""
    with pytest.raises(ConfigurationError, match="allow_insecure") as caught:
        Connection(f"http://{host}", api_key=KEY)
    assert KEY not in str(caught.value)
    with pytest.raises(ConfigurationError, match="allow_insecure"):
        Connection(f"http://{host}", headers={"Authorization": "Basic abcdefgh"})
    Connection(f"http://{host}", api_key=KEY, allow_insecure=True)
    Connection(f"http://{host}")
    Connection(f"https://{host}", api_key=KEY)


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("LOCALHOST.", True),
        ("a.localhost", True),
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("localhost.example", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("::", False),
        ("", False),
    ],
)
def test_what_is_this_machine(host: str, expected: bool) -> None:
    """Loopback addresses and the names that always mean them."""
    assert is_loopback(host) is expected


def test_no_key_to_a_proxy_in_the_clear() -> None:
    """A proxy that was named for http would see the key, also on the way to this machine."""
    with pytest.raises(ConfigurationError, match="allow_insecure"):
        Connection("http://localhost", api_key=KEY, proxies={"http": "http://proxy:3128"})
    Connection("http://localhost", api_key=KEY, proxies={"https": "http://proxy:3128"})
    Connection("http://localhost", api_key=KEY, proxies={"http": "http://proxy:3128"}, allow_insecure=True)


def test_the_key_shows_itself_to_no_one() -> None:
    """H5: it is in no repr, no attribute's repr, and what holds it cannot be pickled or copied."""
    connection = Connection("https://host", api_key=KEY, headers={"X-Token": "hunter2-header"}, proxies=PROXIES)
    shown = f"{connection!r} {vars(connection)!r} {vars(connection._line)!r}"
    assert KEY not in shown
    assert "hunter2" not in shown
    assert KEY in connection.secrets
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="pickled or copied"):
            attempt(connection)
        with pytest.raises(TypeError, match="pickled or copied"):
            attempt(connection._line._key)
        with pytest.raises(TypeError, match="pickled or copied"):
            attempt(connection.secrets)


@pytest.mark.parametrize("name", ["connect_timeout", "read_timeout", "total_timeout"])
@pytest.mark.parametrize("value", [0, -1, True, math.nan, "5", [1]])
def test_limits_are_checked(name: str, value: object) -> None:
    """T7: a limit is a number above 0 or `None`, on the connection and on a request."""
    with pytest.raises(ConfigurationError, match=name):
        Connection("http://localhost", **{name: value})  # type: ignore[arg-type]
    if name != "connect_timeout":
        with pytest.raises(InvalidRequestError, match=name):
            request(Connection("http://localhost:9"), **{name: value})
    for unlimited in (math.inf, None):
        Connection("http://localhost", **{name: unlimited})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"verify": "/no/such/bundle.pem"},
        {"verify": None},
        {"verify": 1},
        {"retry": 3},
        {"on_event": "print"},
        {"proxies": "http://proxy"},
        {"proxies": {"http": "http://"}},
        {"proxies": {"http": "socks5://proxy:1080"}},
        {"proxies": {"http": "http://pro\nxy"}},
        {"proxies": {"http": None}},
        {"proxies": {"http": "http://proxy:x"}},
        {"headers": {"X-A": "b\r\nX-Evil: 1"}},
        {"headers": {"X-A": "b\nc"}},
        {"headers": {"X-A": "č\u010a"}},
        {"headers": {"X-A": "b\0"}},
        {"headers": {"X A": "b"}},
        {"headers": {"X-A:": "b"}},
        {"headers": {"": "b"}},
        {"headers": {"X-A": 5}},
        {"headers": {"X-A": b"b"}},
        {"headers": {5: "b"}},
        {"headers": [("X-A", "b")]},
        {"headers": {"Host": "other"}},
        {"headers": {"content-length": "5"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"User-Agent": "me"}},
        {"headers": {"authorization": "Basic x"}, "api_key": KEY},
    ],
)
def test_settings_are_checked(options: dict[str, object]) -> None:
    """Each setting that cannot be used is refused when the connection is made; a secret is not shown."""
    with pytest.raises(ConfigurationError):
        Connection("https://localhost", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "options",
    [
        {"headers": {"X-A": "b\r\nX-Evil: 1"}},
        {"headers": {"X-A": "b\nc"}},
        {"headers": {"X-A": "\u010d\u010a"}},
        {"headers": {"X-A\r\nB": "b"}},
        {"headers": {"Authorization": "x"}},
        {"headers": {"Connection": "close"}},
        {"method": "get"},
        {"method": "GET / HTTP/1.1\r\n"},
        {"path": "x"},
        {"path": ""},
        {"path": "/a b"},
        {"path": "/a\r\nX: y"},
        {"path": "/é"},
        {"path": "/a?b"},
        {"path": "/a#b"},
        {"path": "/a/../b"},
        {"path": "/a/%2E%2e/b"},
        {"path": "/a/."},
        {"path": "/%zz"},
        {"path": None},
        {"json": object()},
        {"json": math.nan},
        {"json": {"a": b"x"}},
        {"json": 1, "body": b"x"},
    ],
)
def test_requests_are_checked(options: dict[str, object]) -> None:
    """A line end in a header or a path, or a body that is none, is refused before anything is sent."""
    with pytest.raises(InvalidRequestError):
        request(Connection("http://localhost:9"), **options)


@given(st.text(max_size=20))
def test_any_path_is_sent_as_it_is_or_refused(text: str) -> None:
    """No path becomes another one on its way."""
    with suppress(InvalidRequestError):
        assert check_target(text, None) == text
        assert text.startswith("/")
        assert text.isascii()
        assert text.isprintable()


def test_query_is_encoded() -> None:
    """Values of a query may be anything."""
    assert check_target("/x", {"a": "b c&d", "é": "/?"}) == "/x?a=b+c%26d&%C3%A9=%2F%3F"
    assert check_target("/x", {}) == "/x"


def test_proxies_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are used for other machines only, as `NO_PROXY` says; named ones stand in their place."""
    for name in (
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
    far, near = check_url("https://bridge.example"), check_url("http://127.0.0.1:8787")
    assert proxy_for(far, None) is None
    monkeypatch.setenv("HTTPS_PROXY", "proxy:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:3128")
    assert proxy_for(far, None) == "http://proxy:3128"
    assert proxy_for(near, None) is None
    assert proxy_for(check_url("http://bridge.example"), None) == "http://proxy:3128"
    assert proxy_for(far, {}) is None
    assert proxy_for(far, {"all": "http://other:1"}) == "http://other:1"
    assert proxy_for(near, {"http": "http://other:1"}) == "http://other:1"
    monkeypatch.setenv("NO_PROXY", "bridge.example")
    assert proxy_for(far, None) is None
    monkeypatch.setenv("NO_PROXY", "")
    monkeypatch.setenv("HTTPS_PROXY", "socks5://user:hunter2@proxy:1080")
    with pytest.raises(ConfigurationError, match="socks5") as caught:
        proxy_for(far, None)
    assert "hunter2" not in str(caught.value)


def test_nothing_heavy_is_imported_before_the_first_request() -> None:
    """Making a connection imports neither requests nor urllib3."""
    program = (
        "import sys; from sandboxsync.transports.http._connection import Connection;"
        "Connection('https://host', api_key='k');"
        "print(sorted({'requests', 'urllib3', 'ssl', 'http.client'} & set(sys.modules)))"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root)
    assert done.stdout == "[]\n"
