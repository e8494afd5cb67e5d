"""Taking secrets out of text."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync._redact import MASK, redact, redact_context, redact_value


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pw@host/x", "https://***@host/x"),
        ("https://ghp_token@host/x.git", "https://***@host/x.git"),
        ("https://user:p@ss@host/x", "https://***@host/x"),
        ("https://user:p/ss@host/x", "https://***@host/x"),
        ("https://user:p#s?s@host/x", "https://***@host/x"),
        ("https://user:p#s@@host/x", "https://***@host/x"),
        ("https://user:p#s@s@host/x", "https://***@host/x"),
        ("https://:pw@host", "https://***@host"),
        ("clone 'https://a:b@h/1' and https://c:d@h/2", "clone 'https://***@h/1' and https://***@h/2"),
        ("git+ssh://git:pw@h:22/r", "git+ssh://***@h:22/r"),
        ("wss://k:v@[::1]:80/ws", "wss://***@[::1]:80/ws"),
        ("Authorization: Bearer abc.def-1", "Authorization: Bearer ***"),
        ("authorization: basic dXNlcjpwdw==", "authorization: basic ***"),
        ("{'Authorization': 'Bearer abc'}", "{'Authorization': 'Bearer ***'}"),
        ('{"authorization":"token abc"}', '{"authorization":"token ***"}'),
        ("Proxy-Authorization: Basic eDp5", "Proxy-Authorization: Basic ***"),
        ("Authorization=secret", "Authorization=***"),
        ("sent Bearer sk-12345 there", "sent Bearer *** there"),
        ("GET /openapi.json?a=1&token=abc&b=2", "GET /openapi.json?a=1&token=***&b=2"),
    ],
)
def test_secrets_go(text: str, shown: str) -> None:
    """URL credentials, Authorization values and tokens in a query are masked; the rest stays."""
    assert redact(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "https://host/path@1.2",
        "https://host:8080/path@1.2",
        "https://host:8080?mail=a@b",
        "http://[::1]:8080/a@b",
        "npm install pkg@1.0 from https://host and mail a@b",
        "file:///workspace/a@b",
        "the bearer token was refused",
        "basic usage: authorization is needed",
        "user@host:repo.git",
    ],
)
def test_plain_text_stays(text: str) -> None:
    """Text without a secret is unchanged, whatever ``@`` and words it holds."""
    assert redact(text) == text


@given(st.text(), st.text(st.characters(codec="ascii", exclude_characters=' "<>`'), min_size=1))
def test_redacting_twice_is_redacting_once(text: str, word: str) -> None:
    """A second pass finds nothing that the first one left."""
    once = redact(f"{text} https://u:{word}@host/ {text}")
    assert redact(once) == once


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters='"<>`'), min_size=1))
def test_no_password_survives(password: str) -> None:
    """Whatever printable characters a URL's password has, none of them is left."""
    assert redact(f"see https://user:q7{password}@host/x").startswith("see https://***@")


def test_long_text_is_quick() -> None:
    """A long text that looks like the start of many secrets is read in bounded time."""
    started = time.monotonic()
    for piece in ("a", "://", "://a:b", "authorization", "bearer ", "?token", "://u:p/"):
        redact(piece * (200_000 // len(piece)))
    assert time.monotonic() - started < 10


def test_values_are_redacted_at_every_depth() -> None:
    """Strings in mappings, lists and tuples are redacted; other objects and the original stay."""
    url = "https://u:pw@h"
    given: dict[str, object] = {"a": [url, (url, 1)], "b": {"c": url}, "d": None, "e": 5}
    assert redact_context(given) == {
        "a": ["https://***@h", ("https://***@h", 1)],
        "b": {"c": "https://***@h"},
        "d": None,
        "e": 5,
    }
    assert given["b"] == {"c": url}
    assert redact_value(b"x") == b"x"
    assert redact_context(None) == {}


@pytest.mark.parametrize("key", ["token", "access_token", "password", "Authorization", "api_key", "X-API-Key"])
def test_values_of_secret_keys_go_whole(key: str) -> None:
    """A value under a name that says secret is masked, whatever it looks like."""
    assert redact_context({"headers": {key: "abc"}}) == {"headers": {key: MASK}}
