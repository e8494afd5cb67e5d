"""What is particular to local sandboxes: the environment they start from, and where they are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandboxsync import LocalTransport, Sandbox


def variables(sandbox: Sandbox) -> dict[str, str]:
    """The environment that a command has."""
    pairs = sandbox.exec("env -0").stdout.split("\0")
    return dict(pair.split("=", 1) for pair in pairs if pair)


@pytest.mark.parametrize("default", [True, False], ids=["session", "no session"])
def test_S13_the_environment_is_clean(monkeypatch: pytest.MonkeyPatch, default: bool) -> None:
    """A private HOME and TMPDIR, the caller's PATH, a fixed LANG and TERM, what the shell sets, and no more."""
    monkeypatch.setenv("SECRET", "x")
    with LocalTransport() as transport, Sandbox(transport, enable_default_session=default) as sandbox:
        seen = variables(sandbox)
        assert set(seen) <= {"HOME", "TMPDIR", "PATH", "LANG", "TERM", "PWD", "OLDPWD", "SHLVL", "_"}
        assert (seen["PATH"], seen["LANG"], seen["TERM"]) == (os.environ["PATH"], "C.UTF-8", "dumb")
        for name in ("HOME", "TMPDIR"):
            directory = Path(seen[name])
            assert list(directory.iterdir()) == []
            assert directory != Path(os.environ.get(name, "/"))
            assert not directory.is_relative_to(sandbox.workspace)
        process = sandbox.start_process("env -0")
        process.wait_for_exit(20)
        assert "SECRET" not in process.logs().stdout


def test_sandboxes_are_private_and_apart() -> None:
    """Each id has a directory of its own that nobody else may enter, whatever the id looks like."""
    with LocalTransport() as transport:
        sandboxes = [Sandbox(transport, name) for name in (".", "..", "a", "A", "-", "a:b", "tmp")]
        for sandbox in sandboxes:
            sandbox.write_file("name", sandbox.id)
        assert [sandbox.read_text("name") for sandbox in sandboxes] == [sandbox.id for sandbox in sandboxes]
        places = {Path(sandbox.workspace).parent for sandbox in sandboxes}
        assert len(places) == len(sandboxes)
        for place in places:
            assert stat.S_IMODE(place.stat().st_mode) & 0o077 == 0
            assert place.resolve() == place
    assert not any(place.exists() for place in places)
