"""The examples for web frameworks, by their own tests, in memory and on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

import pytest

import sandboxsync

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LOAD = () if entry_points(group="pytest11", name="sandboxsync") else ("-p", "sandboxsync.testing.plugin")


def skip_without(what: str, there: bool) -> None:
    """Skip, or fail where everything is required, when something is not installed."""
    if not there:
        if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") == "1":
            pytest.fail(f"{what} is not installed")
        pytest.skip(f"{what} is not installed")


def has_fake() -> bool:
    """Whether a `FakeTransport` can be made."""
    try:
        sandboxsync.FakeTransport()
    except (AttributeError, ImportError):
        return False
    return True


@pytest.mark.parametrize("place", ["fake", "local"])
@pytest.mark.parametrize("framework", ["flask", "django"])
def test_the_tests_of_the_example_pass(framework: str, place: str) -> None:
    """All of them pass, without a warning."""
    skip_without(framework, find_spec(framework) is not None)
    skip_without("bashkit", place != "fake" or has_fake())
    arguments = ["-q", "-Werror", "-p", "no:cacheprovider", *LOAD, f"--sandbox={place}", f"{framework}_app"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        # Beside the package of the checkout, so that the one that is to be tested is imported.
        cwd=EXAMPLES,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "8 passed" in result.stdout


@pytest.mark.parametrize("name", ["build.sh", "builds.py"])
def test_what_both_examples_hold_is_the_same(name: str) -> None:
    """Each example is whole, so that it can be copied; what knows no framework is the same in both."""
    assert (EXAMPLES / "flask_app" / name).read_bytes() == (EXAMPLES / "django_app" / name).read_bytes()
