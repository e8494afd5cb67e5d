"""Cases about files and commands that span them; the rows are in `docs/cases.md`."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import InvalidRequestError, OutputDecodeError
from sandboxsync.testing import requires
from sandboxsync.transports.base import Capability

PNG = b"\x89PNG\r\n\x1a\n"


def test_FI01_bytes_need_no_encoding(sandbox: Sandbox) -> None:
    """Content is what it is; a codec that is no text encoding is refused and the file untouched."""
    sandbox.write_file("f", base64.b64encode(PNG).decode())
    assert sandbox.read_bytes("f") == base64.b64encode(PNG)
    for encoding in ("base64", "hex", "no-such"):
        with pytest.raises(InvalidRequestError):
            sandbox.write_file("f", "eA==", encoding=encoding)
        with pytest.raises(InvalidRequestError):
            sandbox.read_text("f", encoding=encoding)
    assert sandbox.read_bytes("f") == base64.b64encode(PNG)
    sandbox.write_file("f", PNG)
    assert sandbox.exec("wc -c < f").stdout.strip() == "8"


@pytest.mark.parametrize(
    ("name", "data", "is_binary"),
    [
        ("a.xlsx", b"PK\x03\x04\x14\0\x06\0\xff\xfe<xml/>", True),
        ("a.docx", b"PK\x03\x04\x14\0\x06\0\xff\xfe<xml/>", True),
        ("a.svg", b"<svg xmlns='http://www.w3.org/2000/svg'/>", False),
        ("a.json", b'{"a": 1}', False),
        ("a.unknown", b"a\0b", True),
        ("noname", b"text", False),
        ("utf-16.txt", "é".encode("utf-16"), False),
        ("bom.txt", b"\xef\xbb\xbf\xc3\xa9", False),
    ],
)
def test_FI02_content_is_never_guessed_into_damage(sandbox: Sandbox, name: str, data: bytes, is_binary: bool) -> None:
    """The bytes come back whatever the name says, and text is what decodes."""
    sandbox.write_file(name, data)
    read = sandbox.read_file(name)
    assert (read.content, read.size, read.is_binary) == (data, len(data), is_binary)
    if "é".encode("utf-16") == data or data.startswith(b"\xef\xbb\xbf"):
        assert read.text == "é"


def test_FI10_binary_files_are_no_text(sandbox: Sandbox) -> None:
    """Bytes stay bytes, and `read_text` says that they are none."""
    data = bytes(range(256)) * 100
    sandbox.write_file("f", data)
    assert sandbox.read_bytes("f") == data
    with pytest.raises(OutputDecodeError) as caught:
        sandbox.read_text("f")
    assert isinstance(caught.value, UnicodeError)
    assert sandbox.read_text("f", encoding="latin-1").encode("latin-1") == data


@requires(Capability.NATIVE_PROGRAMS)
def test_EQ04_a_heredoc_for_a_program(session: Session) -> None:
    """A list of commands that ends in a heredoc is one command."""
    result = session.exec("echo test && python3 <<'EOF'\nprint('0')\nprint(\"it's $HOME\")\nEOF")
    assert (result.stdout, result.stderr, result.exit_code) == ("test\n0\nit's $HOME\n", "", 0)


def test_EQ13_expansion_happens_inside(sandbox: Sandbox) -> None:
    """The sandbox's shell expands text, nobody expands arguments."""
    home = sandbox.exec("printf %s ~").stdout
    assert sandbox.exec('echo $((1 + 1)) $HOME "$(echo a)" `echo b`').stdout == f"2 {home} a b\n"
    assert sandbox.exec(["echo", "$(id)", "`id`", "$HOME"]).stdout == "$(id) `id` $HOME\n"


def test_WB07_patterns_work_at_every_depth(sandbox: Sandbox, tmp_path: Path) -> None:
    """Names are excluded at the top, one level down and three."""
    sandbox.exec(
        "mkdir t; cd t; for d in . a a/b/c; do"
        " mkdir -p $d/node_modules/x $d/.cache/y; touch $d/node_modules/x/f $d/.cache/y/f $d/x.log $d/keep; done; cd .."
    )
    kept = ["a", "a/b", "a/b/c", "a/b/c/keep", "a/keep", "keep"]
    for number, patterns in enumerate((["**/node_modules", "*.log", "**/.cache"], ["node_modules", "*.log", ".cache"])):
        sandbox.download("t", tmp_path / str(number), exclude=patterns)
        root = tmp_path / str(number)
        assert sorted(str(path.relative_to(root)) for path in root.rglob("*")) == kept
    sandbox.download("t", tmp_path / "below", exclude=["**/.cache/**", "node_modules/**", "**/*.log"])
    seen = sorted(str(path.relative_to(tmp_path / "below")) for path in (tmp_path / "below").rglob("*"))
    assert not [name for name in seen if name.endswith(".log") or ".cache/" in name]
    assert "node_modules/x" not in seen


def test_WB05_what_was_restored_stays(sandbox: Sandbox) -> None:
    """A workspace that was put back outlives every session that there was, and can be written to."""
    archive = io.BytesIO()
    with sandbox.session() as session:
        session.exec("mkdir -p d/e; echo kept > d/e/f")
        session.persist(archive)
        session.exec("rm -r d")
        session.hydrate(io.BytesIO(archive.getvalue()))
    for name in sandbox.list_sessions():
        if name != "default":
            sandbox.delete_session(name)
    assert sandbox.read_text("d/e/f") == "kept\n"
    assert sandbox.write_file("d/e/f", "new").size == 3
