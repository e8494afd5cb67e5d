"""Cassettes: what their JSON holds comes back as it was, without secrets and without made-up ids."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync._archive import pack
from sandboxsync.errors import ConfigurationError, FileError, SandboxError, SandboxFileNotFoundError
from sandboxsync.models import FileInfo
from sandboxsync.testing._cassette import LARGEST, Call, Encoder, asked_of, number_ids
from sandboxsync.testing._cassette_decoder import Decoder
from sandboxsync.testing._cassette_file import load, write
from sandboxsync.testing._cassette_tree import build_tree, list_tree
from sandboxsync.testing._secrets import MARK, Secrets
from sandboxsync.testing._spool import SMALL, Spool, Taken, bytes_of
from sandboxsync.transports.base import CommandRequest, Exited, Output, ProcessInfo, SessionRef
from tests.test_errors import make, tree, whole

BEGAN = datetime(2024, 5, 1, tzinfo=timezone.utc)
MADE_UP = "session-0123456789ab"
PLACES = {MADE_UP: "⟨session 1⟩"}

# Names of files are text too, with surrogates for bytes that are no UTF-8.
TEXT = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF))
)
TIMES = st.datetimes(datetime(1990, 1, 1), datetime(2200, 1, 1), timezones=st.just(timezone.utc))


def encoder(*redact: Any, ids: dict[str, str] = PLACES) -> Encoder:
    """An encoder that hides what is given."""
    return Encoder(Secrets(redact), ids, BEGAN)


DECODER = Decoder({place: id for id, place in PLACES.items()}, BEGAN)


def through_file(value: Any) -> Any:
    """What is read again of JSON that was written."""
    return json.loads(json.dumps(value))


@given(TEXT)
def test_text_comes_back(text: str) -> None:
    """Any text, in one line or several, with what looks like a place for an id."""
    for given_text in (text, f"⟨session 1⟩{text}⟨⟨", f"{text}{MADE_UP}⟨{MADE_UP}⟩\n\n{text}"):
        encoded = encoder()._value(given_text)
        assert MADE_UP not in json.dumps(encoded)
        assert DECODER.text(through_file(encoded)) == given_text


@given(st.one_of(st.binary(), st.text(st.characters(exclude_categories=["Cs"])).map(str.encode)))
def test_bytes_come_back(data: bytes) -> None:
    """Any bytes, be they text or not."""
    assert DECODER.content(through_file(encoder().content([data]))) == data


@given(TIMES)
def test_times_come_back(time: datetime) -> None:
    """To the microsecond, before the recording and after."""
    assert DECODER.time(through_file(encoder()._value(time))) == time


@given(
    st.builds(
        FileInfo,
        name=TEXT,
        path=TEXT,
        relative_path=TEXT,
        type=st.sampled_from(["file", "directory", "symlink", "other"]),
        size=st.integers(0),
        modified_at=TIMES,
        mode=st.integers(0, 0o7777),
    ),
    st.builds(
        ProcessInfo,
        id=TEXT,
        pid=st.none() | st.integers(1),
        command=TEXT,
        status=st.sampled_from(["running", "completed"]),
        start_time=TIMES,
        end_time=st.none() | TIMES,
        exit_code=st.none() | st.integers(0, 255),
        session_id=st.none() | TEXT,
    ),
)
def test_results_come_back(info: FileInfo, process: ProcessInfo) -> None:
    """What is known of files and processes, alone and in lists."""
    for name, value in (("stat", info), ("list_files", [info, info]), ("list_processes", [process])):
        answer = through_file(encoder().answer(name, {"returned": value}))
        assert DECODER.returned(name, answer["returned"]) == value


@given(
    st.lists(
        st.tuples(
            st.floats(0, 100).map(lambda at: round(at, 3)),
            st.one_of(
                st.builds(Output, st.sampled_from(["stdout", "stderr"]), st.binary(min_size=1)),
                st.builds(Exited, st.integers(0, 255), st.floats(0, 100).map(lambda took: round(took, 3))),
            ),
        )
    )
)
def test_events_come_back(events: list[tuple[float, Any]]) -> None:
    """Each at its time, cut as it was."""
    raw = [(at, (item.stream, item.data) if isinstance(item, Output) else item) for at, item in events]
    answer = through_file(encoder().answer("run", {"events": raw}))
    assert DECODER.events(answer["events"]) == events
    assert ("incomplete" in answer) == (not any(isinstance(item, Exited) for _, item in events))


@pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)
def test_errors_come_back(cls: type[SandboxError]) -> None:
    """Every class, with every field set and with none that can be left out."""
    for error in (make(cls), cls("plain") if cls.__name__ != "CommandFailedError" else make(cls)):
        again = DECODER.error(through_file(encoder()._value(error)))
        expected, seen = whole(error), whole(again)
        # JSON has no tuples.
        for state in (expected, seen):
            state["context"] = json.dumps(state["context"])
        assert seen == expected


def test_an_error_of_another_package_comes_back_as_its_kind() -> None:
    """A class that a transport made for itself becomes the one it is made from."""

    class OddError(SandboxFileNotFoundError):
        pass

    again = DECODER.error(encoder()._value(OddError("odd", filename="/x")))
    assert (type(again), str(again)) == (SandboxFileNotFoundError, "odd")
    assert isinstance(again, FileError)
    assert (again.filename, again.strerror) == ("/x", "No such file or directory")


def test_a_call_shows_what_was_asked() -> None:
    """By name, without what was left out; a timeout of `None` is not left out."""
    ref = SessionRef("box", None, {"A": "1"})
    asked = asked_of("run", (ref, CommandRequest("ls\npwd", {"B": "2"}, timeout=None, stdin=b"x")))
    assert encoder().asked("run", asked) == {
        "call": "run",
        "sandbox": "box",
        "session": None,
        "sandbox_env": {"A": "1"},
        "command": ["ls\n", "pwd"],
        "env": {"B": "2"},
        "stdin": "x",
        "timeout": None,
    }


def test_large_content_is_known_by_its_sum() -> None:
    """What was written is kept up to 64 KiB, of more the size and the SHA-256."""
    for size in (LARGEST, LARGEST + 1):
        taken = Taken([b"x" * size], bytes)
        list(taken)
        content = encoder().asked("write_file", {"content": taken})["content"]
        data = b"x" * size
        large = {"sha256": hashlib.sha256(data).hexdigest(), "size": size}
        assert content == (large if size > LARGEST else data.decode())


def test_trees_are_listed(tmp_path: Path) -> None:
    """A tar is shown by its members, and one of the same members is made of them."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("text\n")
    (tmp_path / "d" / "f").chmod(0o750)
    (tmp_path / "link").symlink_to("d/f")
    (tmp_path / "binary").write_bytes(b"\xff")
    answer = encoder().answer("read_tree", {"pieces": list(pack(str(tmp_path))), "whole": True})
    shown = {entry["name"]: entry for entry in answer["tree"]}
    assert shown["d/f"].items() >= {"type": "file", "mode": "0750", "content": "text\n"}.items()
    assert shown["link"].items() >= {"type": "symlink", "target": "d/f"}.items()
    assert shown["binary"]["content"] == {"base64": [base64.b64encode(b"\xff").decode()]}
    assert list_tree(DECODER.pieces(through_file(answer), 1000)) == list_tree(pack(str(tmp_path)))


def test_what_is_no_tree_is_kept_as_it_is() -> None:
    """Half a tar, or a member that is no file, directory or link."""
    half = build_tree([{"name": "f", "type": "file", "mode": 0o644, "time": BEGAN, "content": b"x"}])[:600]
    assert list_tree([half]) is None
    answer = encoder().answer("read_tree", {"pieces": [half], "whole": False})
    assert answer.keys() == {"content", "incomplete"}
    assert b"".join(DECODER.pieces(answer, 100)) == half


# Ids


def test_made_up_ids_are_numbered() -> None:
    """In the order of their first use; given ones, and those that answers brought, stay."""
    calls = [
        Call("workspace", 1, {"sandbox": "sabcdefghijklmnop2345"[:20]}),
        Call("list_sessions", 1, {"sandbox": "named"}, {"returned": ["session-aaaaaaaaaaaa", MADE_UP]}),
        Call("run", 1, {"sandbox": "named", "session": "session-aaaaaaaaaaaa"}),
        Call("create_session", 1, {"sandbox": "named", "session": MADE_UP}),
        Call("start_process", 1, {"sandbox": "named", "session": "mine", "process": "proc-bbbbbbbbbbbb"}),
        Call("start_process", 1, {"sandbox": "named", "session": MADE_UP, "process": "proc-cccccccccccc"}),
    ]
    assert number_ids(calls) == {
        "sabcdefghijklmnop234": "⟨sandbox 1⟩",
        MADE_UP: "⟨session 1⟩",
        "proc-bbbbbbbbbbbb": "⟨process 1⟩",
        "proc-cccccccccccc": "⟨process 2⟩",
    }


# Secrets


def test_values_are_hidden_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The value of this process and those of environments, wherever they are; under its name any value."""
    monkeypatch.setenv("TOKEN", "hunter2")
    secrets = Secrets(["TOKEN", "UNSET_HERE"])
    secrets.learn({"TOKEN": "other-one", "PATH": "/bin"})
    assert secrets.text("hunter2 other-one /bin") == f"{MARK} {MARK} /bin"
    assert secrets.environment({"TOKEN": "x", "A": "hunter2!", "B": None, "UNSET_HERE": ""}) == {
        "TOKEN": MARK,
        "A": f"{MARK}!",
        "B": None,
        "UNSET_HERE": "",
    }


def test_matches_are_hidden() -> None:
    """Of patterns, of overlapping ones as one; an empty match is none."""
    secrets = Secrets([re.compile(r"sk-\w+"), re.compile(r"k-\w+ \w"), re.compile("z*")])
    assert secrets.text("a sk-abc def") == f"a {MARK}ef"


def test_the_credentials_of_git_are_always_hidden() -> None:
    """Nobody has to know under which name `git_checkout` passes them on."""
    secrets = Secrets()
    secrets.learn({"SANDBOXSYNC_GIT_PASSWORD": "hunter2"})
    assert secrets.text("got hunter2") == f"got {MARK}"


@given(st.lists(st.binary(max_size=6), max_size=6), st.integers(0), st.data())
def test_secrets_that_are_cut_are_hidden(pieces: list[bytes], seed: int, data: st.DataObject) -> None:
    """However the bytes come, the rest of each piece stays what it was, and none is added or lost."""
    whole_text = b"".join(pieces) + "é sk-123456 ".encode() + b"\xc3 sk-9 \xff"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole_text)), max_size=8)))
    cut = [whole_text[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole_text)], strict=True)]
    hidden = Secrets([re.compile(r"sk-\d+")]).pieces(cut)
    assert len(hidden) == len(cut)
    assert b"".join(hidden) == re.sub(rb"sk-\d+", MARK.encode(), whole_text)


def test_a_secret_cut_by_two_events_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is hidden in the first; an event of which nothing is left is left out."""
    monkeypatch.setenv("TOKEN", "hunter2")
    raw = [(0.1, ("stdout", b"a hun")), (0.2, ("stderr", b"x")), (0.3, ("stdout", b"ter")), (0.4, ("stdout", b"2 b"))]
    assert encoder("TOKEN").answer("run", {"events": raw})["events"] == [
        {"at": 0.1, "stdout": f"a {MARK}"},
        {"at": 0.2, "stderr": "x"},
        {"at": 0.4, "stdout": " b"},
    ]


def test_secrets_in_bytes_and_trees_are_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before they become base64, or a sum; a tree stays one that can be unpacked."""
    monkeypatch.setenv("TOKEN", "hunter2")
    encoded = encoder("TOKEN").content([b"\xff hunter2"])
    assert DECODER.content(encoded) == b"\xff " + MARK.encode()
    tar = build_tree([{"name": "f", "type": "file", "mode": 0o644, "time": BEGAN, "content": b"is hunter2"}])
    answer = encoder("TOKEN").answer("read_tree", {"pieces": [tar], "whole": True})
    listed = list_tree(DECODER.pieces(answer, 100))
    assert listed is not None
    assert listed[0]["content"] == b"is <redacted>"


@pytest.mark.parametrize(
    "bad", ["TOKEN", [""], [1], [re.compile(b"x")], [re.compile("hunter2")], [re.compile(r"a\-b")]]
)
def test_bad_redactions_are_refused(bad: Any) -> None:
    """Also a pattern that is the secret itself: it would be written into the cassette."""
    with pytest.raises(ConfigurationError):
        Secrets(bad)


# The file


def test_the_file_can_be_read_by_a_person(tmp_path: Path) -> None:
    """A value is broken over lines only where it does not fit on one; odd names are escaped."""
    path = tmp_path / "deep" / "c.json"
    write(str(path), {"cassette": 1}, [{"asked": {"call": "ping", "sandbox": "é"}, "answer": {"returned": "x" * 90}}])
    assert path.read_text("utf-8") == (
        '{\n  "cassette": 1,\n  "calls": [\n    {\n      "asked": {"call": "ping", "sandbox": "é"},\n'
        f'      "answer": {{\n        "returned": "{"x" * 90}"\n      }}\n    }}\n  ]\n}}\n'
    )
    write(str(path), {"cassette": 1}, [{"name": "\udcff"}])
    assert json.loads(path.read_text("utf-8"))["calls"] == [{"name": "\udcff"}]
    assert [entry.name for entry in path.parent.iterdir()] == ["c.json"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    """The old cassette is whole, the error is raised, and nothing half is left."""
    path = tmp_path / "c.json"
    path.write_text("old")

    def calls() -> Any:
        yield {}
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write(str(path), {}, calls())
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


HEAD = {"cassette": 1, "transport": "T", "capabilities": ["BULK"], "began": BEGAN.isoformat()}
GOOD: dict[str, Any] = {**HEAD, "redact": {"names": [], "patterns": []}, "calls": []}


def call(name: str = "ping", **answer: Any) -> dict[str, Any]:
    """A call of the sandbox `s`."""
    return {"asked": {"call": name, "sandbox": "s"}, "answer": answer}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "No such file"),
        ("{", "cannot be read"),
        (b"\xff", "cannot be read"),
        ("[]", "no cassette"),
        ("{}", "no cassette"),
        ({**GOOD, "cassette": 2}, "version 2; this sandboxsync reads 1"),
        ({**HEAD, "calls": []}, "redact"),
        ({**GOOD, "capabilities": ["FLY"]}, "FLY"),
        ({**GOOD, "began": "yesterday"}, "yesterday"),
        ({**GOOD, "redact": {"names": [], "patterns": [{"pattern": "(", "flags": 0}]}}, "damaged"),
        ({**GOOD, "calls": [call(returned=None), {"asked": 1}]}, r"after calls\[0\], line \d+"),
        ({**GOOD, "calls": [call("fly", returned=None)]}, r"calls\[0\].*fly"),
        ({**GOOD, "calls": [call(answer=1)]}, "no answer"),
        ({**GOOD, "calls": [call(error={"class": "NoError", "message": ""})]}, "NoError"),
        ({**GOOD, "calls": [call("stat", returned={"mode": "9"})]}, "damaged"),
        ({**GOOD, "calls": [call("run", started_at=0, events=[{"at": 0}])]}, "not an event"),
        ({**GOOD, "calls": [call("read_file", content={"base64": "!"})]}, "damaged"),
    ],
)
def test_what_is_no_cassette_is_refused(tmp_path: Path, text: Any, reason: str) -> None:
    """With the reason, and where it lies in the file."""
    path = tmp_path / "c.json"
    if isinstance(text, bytes):
        path.write_bytes(text)
    elif text is not None:
        path.write_text(text if isinstance(text, str) else json.dumps(text, indent=1))
    with pytest.raises(ConfigurationError, match=reason) as caught:
        load(str(path))
    assert str(path) in str(caught.value)


def test_the_line_of_each_call_is_known(tmp_path: Path) -> None:
    """However the file was formatted."""
    path = tmp_path / "c.json"
    data = {**GOOD, "calls": [call(returned=None), call("workspace", returned="/w")]}
    for text in (json.dumps(data), json.dumps(data, indent=2), json.dumps(data, indent=None).replace(",", "\n,")):
        path.write_text(text)
        found = [entry.line for entry in load(str(path)).entries]
        assert found == [text.count("\n", 0, match.start()) + 1 for match in re.finditer(r'{\s*"asked"', text)]


# Pieces that are kept


def test_large_pieces_are_kept_outside_memory() -> None:
    """Each comes back as it was."""
    spool = Spool()
    pieces = [b"small", b"x" * SMALL, b"", b"y" * (3 * SMALL)]
    kept = [spool.keep(piece) for piece in pieces]
    assert [isinstance(piece, bytes) for piece in kept] == [True, False, True, False]
    assert [bytes_of(piece) for piece in kept] == pieces


def test_a_full_disk_makes_no_call_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be kept on the disk is kept in memory."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("sandboxsync.testing._spool.write_all", full)
    assert Spool().keep(b"x" * SMALL) == b"x" * SMALL


def test_content_is_handed_on_as_it_comes() -> None:
    """One piece at a time; it is whole once all were taken."""
    taken = Taken((bytes([n]) for n in range(3)), bytes)
    pieces = iter(taken)
    assert (next(pieces), taken.pieces, taken.whole) == (b"\0", [b"\0"], False)
    assert list(pieces) == [b"\1", b"\2"]
    assert taken.whole


def test_a_time_before_the_recording_is_a_date() -> None:
    """One after it began is a number of seconds: the same in each recording, or nearly."""
    assert encoder()._value(BEGAN - timedelta(seconds=1)) == "2024-04-30T23:59:59+00:00"
    assert encoder()._value(BEGAN + timedelta(seconds=1.5)) == 1.5
