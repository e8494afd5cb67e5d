"""The imports of the package point one way: façade to seam, implementation to seam, never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import sandboxsync

ROOT = Path(sandboxsync.__file__).parent
PACKAGE = "sandboxsync"
SEAM = f"{PACKAGE}.transports.base"

FACADE = {
    "_client",
    "_collect",
    "_commands",
    "_files",
    "_git",
    "_offers",
    "_operations",
    "_process",
    "_processes",
    "_sandbox",
    "_sandbox_commands",
    "_sandbox_files",
    "_session",
    "_stream",
    "_transfer",
    "_waiting",
}
"""What is composed over the seam; `_connect` and `__init__` stand above it."""

ABOVE = {PACKAGE, f"{PACKAGE}._connect", f"{PACKAGE}.testing", f"{PACKAGE}.server", f"{PACKAGE}.cli"}


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def imports(module: str) -> Iterator[str]:
    """Every module of the package that a file imports, at its top, late, or for types only."""
    path = FILES[module]
    package = module if path.stem == "__init__" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            source = ".".join(part for part in (base, node.module) if part)
            if source.split(".")[0] != PACKAGE:
                continue
            for alias in node.names:
                submodule = f"{source}.{alias.name}"
                yield submodule if submodule in FILES else source


def kind(module: str) -> str:
    """The layer that a module belongs to."""
    if module in ABOVE or any(module.startswith(f"{top}.") for top in ABOVE - {PACKAGE}):
        return "above"
    if module in (SEAM, f"{PACKAGE}.transports"):
        return "seam"
    if module.startswith(f"{PACKAGE}.transports."):
        name = module.split(".")[2]
        # What is no package of its own, or is private, is shared by the implementations.
        shared = name.startswith("_") or not (ROOT / "transports" / name / "_transport.py").exists()
        return "shared" if shared else f"implementation {name}"
    return "facade" if module.split(".")[1] in FACADE else "base"


def allowed(importer: str, imported: str) -> bool:
    """Whether one layer may import another."""
    if importer == "above" or importer == imported:
        return True
    return imported in {
        "base": ("base",),
        "seam": ("base", "seam"),
        "facade": ("base", "seam"),
        "shared": ("base", "seam"),
    }.get(importer, ("base", "seam", "shared"))


@pytest.mark.parametrize("module", FILES)
def test_imports_point_one_way(module: str) -> None:
    """The façade imports of the transports only the seam, an implementation neither façade nor sibling."""
    wrong = [name for name in imports(module) if not allowed(kind(module), kind(name))]
    assert wrong == []


def test_the_check_sees_a_wrong_arrow() -> None:
    """The layers are told apart, so that the test above can fail."""
    assert kind(f"{PACKAGE}._sandbox") == "facade"
    assert kind(f"{PACKAGE}.errors") == "base"
    assert kind(f"{PACKAGE}.transports.local._session") == "implementation local"
    assert not allowed("facade", "implementation local")
    assert not allowed("implementation local", "facade")
    assert not allowed("implementation local", "implementation fake")
    assert not allowed("implementation local", "above")
    assert not allowed("base", "seam")
    assert f"{PACKAGE}.transports.local" in set(imports(f"{PACKAGE}._connect"))
    assert SEAM in set(imports(f"{PACKAGE}._stream"))


def test_facade_modules_exist() -> None:
    """The list of the façade's modules names files; one that is missing there may not import the seam."""
    assert {f"{PACKAGE}.{name}" for name in FACADE} <= set(FILES)


def test_the_facade_names_no_implementation() -> None:
    """No module of the façade holds the class name of a transport, but in its documentation."""
    names = {"LocalTransport", "FakeTransport", "HTTPTransport"}
    for module in FILES:
        if kind(module) != "facade":
            continue
        tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        assert not used & names, module


def test_only_the_seam_uses_no_package_but_attrs() -> None:
    """The seam itself stays light: attrs and the values are all it imports of others."""
    assert {name.removeprefix(f"{PACKAGE}.") for name in imports(SEAM)} <= {"_clock", "_unset", "errors", "models"}
