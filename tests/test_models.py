"""The values that calls return."""

from __future__ import annotations

import copy
import pickle
import re
from datetime import datetime, timezone

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import models
from sandboxsync._unset import UNSET, Unset
from sandboxsync.errors import CommandFailedError

NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


def result(exit_code: int = 0, stdout: str = "out", command: str = "true") -> models.ExecResult:
    """Return the result of a command."""
    return models.ExecResult(
        exit_code=exit_code,
        stdout=stdout,
        stderr="err",
        stdout_bytes=stdout.encode(),
        stderr_bytes=b"err",
        command=command,
        duration=0.25,
        started_at=NOW,
        session_id="s1",
    )


def content(data: bytes) -> models.ReadFileResult:
    """Return the result of reading a file with this content."""
    return models.ReadFileResult("/workspace/a", data, len(data), "text/plain", NOW)


VALUES = [
    result(),
    models.Started("true", NOW),
    models.Stdout("é", b"\xc3\xa9"),
    models.Stderr("e", b"e"),
    models.Completed(0, 0.1),
    models.SessionDeleteResult(True, "s1", NOW),
    models.ProcessLogs("o", "e", "p1"),
    models.LogEvent("exit", "", NOW, "p1", 3),
    models.LogMatch("ready"),
    models.FileInfo("a", "/workspace/a", "a", "file", 1, NOW, 0o644),
    models.WriteFileResult("/workspace/a", 1, NOW),
    content(b"x"),
    models.MkdirResult("/workspace/d", True, NOW),
    models.GitCheckoutResult("https://host/r.git", "main", "/workspace/r", NOW),
]
every_value = pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)


def test_every_model_is_tried() -> None:
    """The list of values of these tests holds one of each model."""
    defined = {cls for cls in vars(models).values() if isinstance(cls, type) and attrs.has(cls)}
    assert defined == {type(value) for value in VALUES}


@every_value
def test_values_are_plain_data(value: object) -> None:
    """Each model is immutable, has no other attributes, and survives pickle and copy."""
    name = attrs.fields(type(value))[0].name  # type: ignore[arg-type]
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(value, name, "other")
    assert not hasattr(value, "__dict__")
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(value, protocol)) == value
    assert copy.deepcopy(value) == value


def test_success_is_exit_code_zero() -> None:
    """``success`` is true for 0 alone."""
    assert result(0).success
    assert not result(1).success
    assert not result(137).success


def test_check_returns_or_raises() -> None:
    """``check()`` returns the very result, or raises an error that holds it."""
    good, bad = result(0), result(4, command="make it")
    assert good.check() is good
    with pytest.raises(CommandFailedError, match=r"'make it' failed with exit code 4.*\nerr") as caught:
        bad.check()
    assert caught.value.result is bad


def test_repr_is_bounded_and_shows_no_secret() -> None:
    """The repr of a huge result is short, and that of a command hides URL credentials."""
    huge = result(stdout="x" * 5_000_000, command="git clone https://u:hunter2@h/ " + "y" * 9_000)
    for value in (huge, content(b"z" * 5_000_000), models.Stdout("é" * 99_999, b"\xff" * 99_999)):
        assert len(repr(value)) < 3_000
    assert "5000000 characters" in repr(huge)
    assert "hunter2" not in repr(huge)


@pytest.mark.parametrize(
    ("data", "text", "binary"),
    [
        (b"", "", False),
        ("héllo\r\n".encode(), "héllo\r\n", False),
        (b"\xef\xbb\xbfhi", "hi", False),
        ("\ufeffhé".encode("utf-16-le"), "hé", False),
        ("\ufeffhé".encode("utf-16-be"), "hé", False),
        ("\ufeffhé".encode("utf-32-le"), "hé", False),
        ("\ufeffhé".encode("utf-32-be"), "hé", False),
        (b"caf\xe9", "caf\ufffd", True),
        (b"a\0b", "a\0b", True),
        (b"\xff\xfea", "\ufffd", True),
        ("\ufeffa\0".encode("utf-16-le"), "a\0", True),
        (b"\xc3", "\ufffd", True),
    ],
)
def test_text_and_is_binary(data: bytes, text: str, binary: bool) -> None:
    """A byte order mark is honoured and dropped; what does not decode, or holds NUL, is binary."""
    assert content(data).text == text
    assert content(data).is_binary is binary


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_text_is_never_taken_for_binary(text: str) -> None:
    """Any text without NUL, encoded as UTF-8, is text, wherever its characters lie."""
    read = content(text.encode())
    assert not read.is_binary
    assert read.text == text.removeprefix("\ufeff")


@pytest.mark.parametrize("edge", [1023, 4095, 8191, 65_535])
def test_a_character_over_an_edge_is_text(edge: int) -> None:
    """A character that lies over the edge of a usual sample does not make the content binary."""
    read = content(b"a" * edge + "é".encode() + b"a" * 10)
    assert not read.is_binary
    assert not content(b"a" * edge + "\N{GRINNING FACE}".encode() * 3).is_binary
    assert content(b"a" * edge * 3 + b"\xff").is_binary


@pytest.mark.parametrize(
    ("mode", "shown"), [(0o644, "rw-r--r--"), (0o755, "rwxr-xr-x"), (0, "---------"), (0o4711, "rws--x--x")]
)
def test_permissions_show_the_mode(mode: int, shown: str) -> None:
    """``permissions`` is what ``ls`` shows for ``mode``, unless the caller gave it."""
    assert models.FileInfo("a", "/a", "a", "file", 0, NOW, mode).permissions == shown
    assert models.FileInfo("a", "/a", "a", "file", 0, NOW, mode, "rw-------").permissions == "rw-------"


def test_log_match_holds_the_match() -> None:
    """A pattern's match is there with its groups; a literal search has none."""
    found = re.search(r"port (\d+)", "on port 80")
    match = models.LogMatch("on port 80", found)
    assert match.match is not None
    assert match.match[1] == "80"
    assert models.LogMatch("x").match is None


def test_unset_is_one_object() -> None:
    """UNSET is the only one of its type, is not None, shows as UNSET, and survives pickle and copy."""
    assert list(Unset) == [UNSET]
    assert repr(UNSET) == "UNSET"
    assert pickle.loads(pickle.dumps(UNSET)) is UNSET
    assert copy.deepcopy(UNSET) is UNSET
