"""The examples of the README and of the documentation, as they are printed there."""

from __future__ import annotations

import contextlib
import doctest
import inspect
import io
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import attrs
import pytest

from sandboxsync import LocalTransport, Sandbox, SandboxError, errors
from sandboxsync.transports.base import Transport

CHECKOUT = Path(__file__).resolve().parent.parent
PAGES = [CHECKOUT / "README.md", *sorted((CHECKOUT / "docs").glob("**/*.md"))]
FENCE = re.compile(r"^( *)(`{3,})([^\n`]*)\n(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Block:
    """A fenced block: the words after the fence, its text, the line that it begins in, and what comes after it."""

    info: str
    text: str
    line: int
    expected: str | None = None

    @property
    def language(self) -> str:
        """The first word."""
        return self.info.partition(" ")[0]

    @property
    def file(self) -> str | None:
        """The name under which the block is saved, in place of being run: ``python file=NAME``."""
        match = re.fullmatch(r"python file=(\S+)", self.info)
        return match[1] if match else None

    @property
    def unrun(self) -> str | None:
        """Why the block is not run: ``python no-run: REASON``."""
        match = re.fullmatch(r"python no-run: *(\S.*)", self.info)
        return match[1] if match else None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page; a ``text`` block right after a ``python`` one is what that prints."""
    text = page.read_text(encoding="utf-8")
    blocks: list[Block] = []
    end = -1
    for match in FENCE.finditer(text):
        indent = match[1]
        body = "".join(line.removeprefix(indent) for line in match[4].splitlines(keepends=True))
        info = match[3].strip()
        if info == "text" and blocks and blocks[-1].info == "python" and not text[end : match.start()].strip():
            blocks[-1] = attrs.evolve(blocks[-1], expected=body)
        else:
            blocks.append(Block(info, body, text.count("\n", 0, match.start()) + 2))
        end = match.end()
    return blocks


def with_python(pages: list[Path]) -> list[Path]:
    """The pages that have something to run."""
    return [page for page in pages if any(block.language == "python" for block in blocks_of(page))]


def shows(expected: str, printed: str) -> bool:
    """Whether a page shows what was printed: blank lines do not count, and `...` stands for anything."""
    want, got = ("".join(f"{line}\n" for line in text.splitlines() if line.strip()) for text in (expected, printed))
    return doctest.OutputChecker().check_output(want, got, doctest.ELLIPSIS)


def name_of(page: Path) -> str:
    """The page as it is named in the checkout."""
    return page.relative_to(CHECKOUT).as_posix()


@pytest.fixture
def namespace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What the blocks of a page share; the files that they save can be imported, and what they made is ended."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("SANDBOX_URL", "SANDBOX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    known = set(sys.modules)
    values: dict[str, Any] = {"__name__": "__docs__"}
    yield values
    for value in values.values():
        if isinstance(value, (LocalTransport, Sandbox)):
            value.close()
            if isinstance(value, Sandbox):
                value.transport.close()
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.parametrize("page", with_python(PAGES), ids=name_of)
def test_examples(page: Path, namespace: dict[str, Any], request: pytest.FixtureRequest) -> None:
    """Each Python block runs after those before it on its page, and prints what the text block after it says."""
    if page.name == "isolation.md":
        request.getfixturevalue("bubblewrap")
    for block in blocks_of(page):
        if block.language != "python" or block.unrun:
            continue
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
            continue
        assert block.info == "python", f"{name_of(page)}:{block.line}: what does {block.info!r} mean?"
        # With the line numbers of the page in tracebacks.
        code = compile("\n" * (block.line - 1) + block.text, str(page), "exec", dont_inherit=True)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(code, namespace)
        if block.expected is not None:
            same = shows(block.expected, printed.getvalue())
            assert same, f"{name_of(page)}:{block.line} prints\n{printed.getvalue()}in place of\n{block.expected}"


def test_blocks_that_are_not_run_are_few() -> None:
    """Nearly all examples are proved."""
    blocks = [block for page in PAGES for block in blocks_of(page) if block.language == "python"]
    assert blocks
    assert len([block for block in blocks if block.unrun]) <= len(blocks) // 10


def test_the_quickstart_runs_from_anywhere(tmp_path: Path) -> None:
    """`examples/quickstart.py` builds and tests its project, from any directory, and ends with exit code 0."""
    program = CHECKOUT / "examples" / "quickstart.py"
    result = subprocess.run([sys.executable, str(program)], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (result.returncode, result.stderr) == (0, ""), result.stdout + result.stderr
    summary = result.stdout.split("\n\n")[-1]
    assert "wordfreq-1.4.2.pyz" in summary
    assert "TESTED=yes in tests" in summary
    assert list(tmp_path.iterdir()) == []


def test_the_commands_of_the_readme_are_those_of_ci() -> None:
    """`.ci/run` runs what the README says: the quickstart, then tox."""
    commands = [block.text for block in blocks_of(CHECKOUT / "README.md") if block.info == "console"]
    assert commands == ["$ pip install . && python examples/quickstart.py\n", "$ tox\n"]
    script = (CHECKOUT / ".ci" / "run").read_text(encoding="utf-8")
    install = script.index("pip install --quiet . && python examples/quickstart.py\n")
    assert re.search(r'/bin/tox" run\b', script[install:])


def test_every_page_can_be_found() -> None:
    """Links between the pages, the README and other files lead somewhere, and each page is in the table of contents."""
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{name_of(page)} links to {target}"
    index = (CHECKOUT / "docs" / "index.md").read_text(encoding="utf-8")
    for page in PAGES[1:]:
        name = page.relative_to(CHECKOUT / "docs").with_suffix("").as_posix()
        assert name == "index" or re.search(rf"^{re.escape(name)}$", index, re.MULTILINE), f"{name} is in no toctree"


TREE = {
    value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, SandboxError) and not name.startswith("_")
}


def parent_mro(parent: type | None) -> tuple[type, ...]:
    """What a class gets from its parent in the tree."""
    return () if parent is None else parent.__mro__


def test_the_tree_of_errors_is_the_real_one() -> None:
    """`docs/errors.md` draws each exception once, below its base and with the builtin that it also is."""
    (tree,) = (block.text for block in blocks_of(CHECKOUT / "docs" / "errors.md") if "└──" in block.text)
    above: list[type] = []
    drawn: list[type] = []
    for line in tree.splitlines():
        match = re.match(r"([│ ├└─]*)(\w+)(?: \((\w+)\))?(?: (\[P\]))?", line)
        assert match, line
        depth, cls = len(match[1]) // 4, getattr(errors, match[2])
        del above[depth:]
        parent = next((base for base in cls.__mro__[1:] if base in TREE), None)
        assert parent is (above[-1] if above else None), line
        builtins = [base for base in cls.__mro__ if base.__module__ == "builtins" and base not in parent_mro(parent)]
        assert match[3] == (builtins[0].__name__ if parent and builtins else None), line
        assert bool(match[4]) == issubclass(cls, errors._PartialOutput), line
        above.append(cls)
        drawn.append(cls)
    assert set(drawn) == TREE
    assert len(drawn) == len(TREE)


WORKED = CHECKOUT / "docs" / "writing-a-transport.md"
ITS_TESTS = CHECKOUT / "docs" / "testing-a-transport.md"
HOW_TO = CHECKOUT / "docs" / "testing.md"
LOAD = () if entry_points(group="pytest11", name="sandboxsync") else ("-p", "sandboxsync.testing.plugin")
"""What loads the plugin: the entry point of an installed package, or its name in a checkout."""


def run_pytest(directory: Path, pages: list[Path], *arguments: str) -> str:
    """Save the files of pages and run pytest on them; return what it says, after it has passed."""
    for page in pages:
        for block in blocks_of(page):
            if block.file:
                (directory / block.file).write_text(block.text, encoding="utf-8")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-Werror", "-p", "no:cacheprovider", *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), *filter(None, sys.path)])},
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_worked_transport_has_the_methods_of_the_protocol() -> None:
    """It takes what the protocol says, by the same names."""
    (text,) = (block.text for block in blocks_of(WORKED) if block.file == "audit_transport.py")
    namespace: dict[str, Any] = {"__name__": "audit_transport"}
    exec(compile(text, str(WORKED), "exec", dont_inherit=True), namespace)
    for name, method in vars(Transport).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            ours = inspect.signature(getattr(namespace["AuditTransport"], name))
            assert list(ours.parameters) == list(inspect.signature(method).parameters), name


def test_the_worked_transport_passes_the_suite(tmp_path: Path) -> None:
    """The suite runs on somebody else's transport with fifteen lines. Some groups of it stand for all."""
    (text,) = (block.text for block in blocks_of(ITS_TESTS) if block.file == "test_audit_transport.py")
    assert len(text.splitlines()) <= 15
    some = ("-k", "S4_ or S8_ or F3_ or capabilit")
    assert "passed" in run_pytest(tmp_path, [WORKED, ITS_TESTS], *some, "test_audit_transport.py")


def test_tests_of_ones_own_are_added_to_the_suite(tmp_path: Path) -> None:
    """The tests of `docs/testing-a-transport.md` that need a capability run where it is there."""
    said = run_pytest(tmp_path, [WORKED, ITS_TESTS], "-k", "test_own_", "test_image.py")
    assert re.search(r"^3 passed", said, re.MULTILINE), said


@pytest.mark.parametrize("place", ["fake", "local"])
def test_the_how_to_about_testing_is_tested(tmp_path: Path, place: str) -> None:
    """The tests of `docs/testing.md` pass in memory and on this machine."""
    said = run_pytest(tmp_path, [HOW_TO], *LOAD, f"--sandbox={place}")
    assert re.search(r"^8 passed", said, re.MULTILINE), said
