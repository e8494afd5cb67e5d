"""F6 and lists: hosted trees beside the local ones of the same sandbox."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from contextlib import closing

import pytest

from sandboxsync import LocalTransport
from sandboxsync.errors import (
    SandboxError,
)
from sandboxsync.testing import skip_unless_able
from sandboxsync.transports.base import CommandRequest, Exited, SessionRef
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host
from tests._hosted_files import LocalRaw
from tests._hosted_transport import LocalExec

MAKE = r"""
mkdir -p t/sub/empty t/.hidden t/$'bad\xff' t/deep; cd t
printf plain >a; printf run >sub/run; chmod 755 sub/run; chmod 640 a; chmod 700 sub/empty; printf h >.hidden/h
ln -s a link; ln -s ../a sub/up; ln -s /nowhere gone; printf '' >nothing; printf '\0\377' >'b '; : >é😀; : >$'new\nline'
printf x >$'bad\xff/f'; : >-rf; : >'--checkpoint=1'; ln a hard; chmod 4755 sub/run; chmod 2750 sub; : >'a\b*?'
mkdir -p deep/$(printf 'd%.0s' {1..120})/$(printf 'e%.0s' {1..120}); : >deep/d*/e*/$(printf 'f%.0s' {1..200})
head -c 300000 /dev/zero >big; touch -d '2001-02-03 04:05:06.123456789' a sub; touch -d '1960-01-01' nothing
: >.sandboxsync-0123456789abcdef01234567.tmp; mkdir .sandboxsync-1123456789abcdef01234567.tmp
: >.sandboxsync-1123456789abcdef01234567.tmp/f; for i in {1..400}; do echo $i >deep/some-file-with-a-name-$i; done
"""


class Both:
    """One sandbox, with its local files and with hosted ones."""

    def __init__(self, inner: LocalTransport) -> None:
        self.inner = inner
        self.near, self.far = SessionRef("trees", None), SessionRef("trees", None)
        self.files = HostedFiles(Host(LocalExec(inner, "trees")), LocalRaw(inner, "trees"))

    def shell(self, script: str) -> str:
        """What a script prints."""
        printed = b""
        with closing(self.inner.run(self.near, CommandRequest(script))) as stream:
            while not isinstance(item := stream.read(), Exited):
                printed += item.data
        return printed.decode("utf-8", "surrogateescape")


@pytest.fixture
def both(request: pytest.FixtureRequest) -> Iterator[Both]:
    """A sandbox of its own."""
    with closing(LocalTransport(isolation="bubblewrap")) as inner:
        skip_unless_able(request, inner)
        yield Both(inner)


def members(chunks: Iterator[bytes]) -> list[tuple[object, ...]]:
    """What an archive holds."""
    with tarfile.open(fileobj=io.BytesIO(b"".join(chunks)), errors="surrogateescape") as tar:
        return [
            (
                member.name,
                member.type,
                member.mode if not member.issym() else 0,
                float(member.mtime),
                member.linkname,
                member.size,
                tar.extractfile(member).read() if member.isreg() else b"",  # type: ignore[union-attr]
                (member.uid, member.uname),
            )
            for member in tar
        ]


@pytest.mark.parametrize("exclude", [[], ["sub"], ["*.x", "deep/", "b*"], ["*"]])
def test_F6_a_tree_goes_out_as_from_a_local_sandbox(both: Both, exclude: list[str]) -> None:
    """The same members in the same order, with the same facts and the same content."""
    both.shell(MAKE)
    near = members(both.inner.read_tree(both.near, "t", exclude))
    assert members(both.files.read_tree(both.far, "t", exclude)) == near
    assert both.shell("ls /run/sandboxsync-host/files | grep -v 'claim$\\|answer$\\|swept'") == ""


def test_F1_lists_are_those_of_a_local_sandbox(both: Both) -> None:
    """Every fact of every entry."""
    both.shell(
        MAKE + "mkfifo fifo; for i in {1..9000}; do : >deep/another-file-with-a-longer-name-$i; done; cd ..; ln -s t l"
    )

    def key(info: object) -> str:
        return str(getattr(info, "path", ""))

    for path in ("t", "./t/../t", "l", "t/deep/.."):
        for recursive in (False, True):
            near = both.inner.list_files(both.near, path, recursive)
            assert sorted(both.files.list_files(both.far, path, recursive), key=key) == sorted(near, key=key)
    for path in ("t", "l", "t/..", "t/a", "l/./sub/..", "/", "t/gone", "t/link"):
        for follow in (True, False):
            if (path, follow) != ("t/gone", True):
                assert both.files.stat(both.far, path, follow) == both.inner.stat(both.near, path, follow)


def archive(*entries: tuple[str, bytes, str | bytes, int]) -> bytes:
    """A tar of entries: name, type, content or link target, mode."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, kind, value, mode in entries:
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.mtime = kind, mode, 1_000_000_000
            if isinstance(value, str):
                info.linkname = value
                tar.addfile(info)
            else:
                info.size = len(value)
                tar.addfile(info, io.BytesIO(value))
    return file.getvalue()


REG, DIR, SYM, LNK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
BEFORE = """
mkdir -p d/kept d/full out; chmod 2755 d/kept; echo o >d/old; echo o >out/f
ln -s ../out d/out; ln -s kept d/dir; ln -s old d/l
find d out -exec touch -h -d @5 {} +
"""


@pytest.mark.parametrize(
    "entries",
    [
        [("new/f", REG, b"x", 0o600), ("new", DIR, b"", 0o500), ("kept/g", REG, b"y" * 30_000, 0o4755)],
        [("out/f", REG, b"x", 0o644)],
        [("dir/f", REG, b"x", 0o644), ("l", REG, b"y", 0o644)],
        [("kept", DIR, b"", 0o711), ("full", DIR, b"", 0o3700), ("out", DIR, b"", 0o755)],
        [("a", SYM, "old", 0o777), ("b", SYM, "kept/../old", 0o777), ("old", SYM, "kept", 0o777)],
        [("a", SYM, "/workspace/d/old", 0o777), ("b", SYM, "out/x", 0o777), ("c", SYM, "/etc", 0o777)],
        [("a", SYM, "b/../..", 0o777), ("b", SYM, "kept", 0o777), ("f", REG, b"x", 0o644)],
        [("f", REG, b"x", 0o640), ("sub/g", LNK, "f", 0o640), ("old", LNK, "f", 0o640)],
        [("g", LNK, "old", 0o640), ("g", REG, b"x", 0o640), ("old", REG, b"y", 0o600)],
        [("g", LNK, "out/f", 0o640)],
        [("g", LNK, "l", 0o640)],
        [("g", LNK, "kept", 0o640)],
        [("kept", REG, b"x", 0o644)],
        [("kept", SYM, "old", 0o644)],
        [("old", DIR, b"", 0o755)],
        [("old/f", REG, b"x", 0o644)],
        [("f", REG, b"1", 0o644), ("f", REG, b"2", 0o600), ("f", SYM, "old", 0o777), ("f", REG, b"3", 0o640)],
        [("s", SYM, "kept", 0o777), ("s/f", REG, b"x", 0o644)],
        [
            ("bad\udcff/é/\n", REG, b"x", 0o644),
            ("-C", REG, b"x", 0o644),
            ("x" * 200 + "/" + "y" * 200, REG, b"", 0o600),
        ],
        [(f"many/{number}", REG, b"x" * number, 0o644) for number in range(300)],
        [],
    ],
)
def test_F6_a_tree_goes_in_as_into_a_local_sandbox(
    both: Both, entries: list[tuple[str, bytes, str | bytes, int]]
) -> None:
    """The same things are made and kept, and the same refused."""
    data = archive(*entries)
    found, errors = [], []
    for write, ref in ((both.inner.write_tree, both.near), (both.files.write_tree, both.far)):
        both.shell("chmod -R u+rwx d; rm -rf d out" + BEFORE)
        error: object = None
        try:
            write(ref, "d", [data[at : at + 10_000] for at in range(0, len(data), 10_000)])
        except SandboxError as exc:
            error = type(exc)
            refused = exc.context.get("refused")
            error = (error, refused) if refused else error
        errors.append(error)
        # The times of symlinks, and of directories that are no members, are when they were made or changed.
        look = "find d out \\( -type f -printf '%P %m %T@ %n\\n' \\) -o -printf '%P %y %m %l\\n' | sort;"
        look += "stat -c %Y d/new d/full 2>/dev/null; find d -type f -exec md5sum {} + | sort"
        found.append(both.shell(look))
    assert errors[1] == errors[0]
    if errors[0] is None or isinstance(errors[0], tuple):
        assert found[1].splitlines() == found[0].splitlines()
    else:
        assert "victim" not in found[1]
    assert both.shell("find / -xdev -name '.sandboxsync-*' 2>/dev/null") == ""
