"""Every transport passes the whole suite, and the suite has a test for every rule."""

from __future__ import annotations

import configparser
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import sandboxsync.transports
from sandboxsync.testing import TransportSuite
from sandboxsync.transports.base import Transport

LAST_RULES = {"S": 18, "E": 15, "T": 8, "P": 6, "F": 6, "C": 6}
"""The groups of rules that hold on every transport, with the number of the last one."""


class TestConformance(TransportSuite):
    """The suite, on each transport of `conftest.CHOSEN`."""

    @pytest.fixture(autouse=True)
    def over_http(self, transport_source: str) -> None:
        """What a service is like: further away, and shared by processes."""
        if "HTTPTransport" in transport_source:
            self.forks_share_sessions = True
            self.sessions_made, self.threads_used = 200, 100


def suite_tests() -> list[str]:
    """The names of the suite's tests."""
    return [name for name in dir(TransportSuite) if name.startswith("test_")]


def transport_classes() -> Iterator[type]:
    """Every class in the packages of transports that is a transport."""
    package = sandboxsync.transports
    for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        for value in vars(importlib.import_module(found.name)).values():
            if isinstance(value, type) and value.__module__ == found.name and value is not Transport:
                members = [name for name in vars(Transport) if not name.startswith("_")]
                if Transport in value.__mro__ or all(hasattr(value, name) for name in members):
                    yield value


def test_every_rule_has_a_test() -> None:
    """No rule of S, E, T, P, F and C is without a test that is named after it."""
    seen = {match[1] for name in suite_tests() if (match := re.match(r"test_([A-Z]\d+)_", name))}
    rules = {f"{group}{number}" for group, last in LAST_RULES.items() for number in range(1, last + 1)}
    assert sorted(rules - seen) == []
    assert sorted(seen - rules) == []


def test_every_test_says_what_is_required() -> None:
    """Each has a docstring of one sentence or two."""
    for name in suite_tests():
        text = getattr(TransportSuite, name).__doc__
        assert text, name
        assert "\n" not in text, name


def test_no_test_hides_another() -> None:
    """The groups of the suite share no name of a test."""
    names = [name for group in TransportSuite.__bases__ for name in vars(group) if name.startswith("test_")]
    assert len(names) == len(set(names)) == len(suite_tests())


def test_no_transport_is_left_out(transports: Mapping[str, str]) -> None:
    """Every transport class of the package is in the list that the suite runs on."""
    classes = {value.__name__ for value in transport_classes()}
    assert "LocalTransport" in classes
    missing = [name for name in classes if not any(f".{name}(" in source for source in transports.values())]
    assert missing == []


def test_no_transport_is_left_out_by_tox(transports: Mapping[str, str]) -> None:
    """The suite runs on every transport of the list in some environment of tox, and each Python says on which."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read(Path(__file__).parent.parent / "tox.ini", encoding="utf-8")
    settings = "\n".join(parser[section]["set_env"] for section in ("testenv", "testenv:http"))
    said = re.findall(r"^(?:(\w+): )?SANDBOXSYNC_TRANSPORTS = (\S+)$", settings, re.MULTILINE)
    pythons = [name for name in parser["tox"]["env_list"].split(", ") if name.startswith("py")]
    assert sorted(python for python, _ in said if python) == sorted(pythons)
    assert {name for _, names in said for name in names.split(",")} == set(transports)
