"""The table of cases names tests that exist, and every case that has a test is in it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import sandboxsync

TESTS = Path(__file__).resolve().parent.parent
TABLE = TESTS.parent / "docs" / "cases.md"
CASES = 125
REASONS = {"with terminals", "with code contexts", "with watching"}


def names_of_tests() -> set[str]:
    """The names of all test functions, of the suite too."""
    files = [*TESTS.rglob("*.py"), *(Path(sandboxsync.__file__).parent / "testing").glob("*.py")]
    return {
        node.name
        for file in files
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


@pytest.fixture(scope="module")
def table() -> dict[str, str]:
    """The last column by case."""
    rows = re.findall(r"^\| ([A-Z]{2}\d\d) \| .* \| ([^|]+) \|$", TABLE.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) == len(dict(rows))
    return dict(rows)


def test_each_case_has_a_test_or_a_reason(table: dict[str, str]) -> None:
    """Names in the table are those of tests, and reasons are among the known ones."""
    existing = names_of_tests()
    assert len(table) == CASES
    for case, cell in table.items():
        names = re.findall(r"`(\w+)`", cell)
        assert names or cell in REASONS, case
        assert [name for name in names if name not in existing] == [], case


def test_each_test_of_a_case_is_in_the_table(table: dict[str, str]) -> None:
    """A test that is named after a case is found from there."""
    for name in names_of_tests():
        match = re.match(r"test_([A-Z]{2}\d\d)_", name)
        if match:
            assert f"`{name}`" in table[match[1]], name
