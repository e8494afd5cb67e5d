"""The server answers as the service did, whose recorded answers lie in `wire/`: status, framing, shape and values."""

from __future__ import annotations

import base64
import http.client
import io
import json
import os
import re
import select
import socket
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import pytest

if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") != "1":
    pytest.importorskip("uvicorn")

from sandboxsync.server import RunningServer, running_server

RECORDINGS = Path(__file__).parent / "wire"
KEY = "test-key"

SAME, VALUES, ANSWER, FRAMING = "same", "other values", "another answer", "another framing"

_RUN = "a random id, or one of another run"
_LINE = "the shell of a session counts its lines otherwise"
_RIGHT = "sessions are right where the service's are not"
_SHORT = "a short answer of events is chunked as a longer one is"
_QUOTES = "what is told of the failure is not the JavaScript engine's"
_DUMP = "of a session only what clients use is told, not the whole inner object"

DIFFERENCES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "bridge": {
        "sandbox-create-with-body": (VALUES, _RUN),
        "pool-stats": (VALUES, "only sandboxes that were used are counted"),
        "pool-stats-end": (VALUES, "a sandbox that was destroyed is counted no more"),
        "session-create-no-id": (VALUES, _RUN),
        "session-create-bad-json": (VALUES, _RUN),
        "exec-session-printf": (VALUES, f"{_RIGHT}: no newline is added"),
        "exec-session-binary": (VALUES, f"{_RIGHT}: NUL is kept"),
        "exec-session-timeout-ignored": (VALUES, f"{_RIGHT}: timeout_ms holds"),
        "exec-session-cd-2": (VALUES, f"{_RIGHT}: cd lasts"),
        "exec-session-not-found": (VALUES, _LINE),
    },
    "container": {
        "bad-json-execute": (VALUES, _QUOTES),
        "session-create": (ANSWER, _DUMP),
        "session-create-no-id": (ANSWER, _DUMP),
        "session-create-bad-json": (ANSWER, _DUMP),
        "session-create-command-timeout": (ANSWER, _DUMP),
        "exec-not-found-s": (VALUES, _LINE),
        "exec-sigkill-s": (VALUES, _LINE),
        "stream-not-found-s": (VALUES, _LINE),
        "exec-syntax-error-s": (ANSWER, f"{_RIGHT}: a syntax error is a result"),
        "exec-unterminated-quote-s": (ANSWER, f"{_RIGHT}: a syntax error is a result"),
        "exec-timeout-autocreated-s-next": (ANSWER, f"{_RIGHT}: a time limit is for its own command"),
        "exec-env-newline-s": (VALUES, f"{_RIGHT}: a newline in a variable is kept"),
        "exec-env-number-s": (VALUES, _QUOTES),
        "process-logs-custom-id-s": (VALUES, "logs are there at once, not only when their reader has caught up"),
        "process-get-timeout-s": (ANSWER, f"{_RIGHT}: a time limit holds for a process of a session"),
        "read-stream-n": (FRAMING, _SHORT),
        "read-stream-empty-n": (FRAMING, _SHORT),
        "read-stream-missing-n": (FRAMING, _SHORT),
        "read-stream-dir-n": (FRAMING, _SHORT),
        "port-watch-unknown-process": (FRAMING, _SHORT),
    },
}
"""Every difference between a recorded answer and ours: what differs, and why."""

_BEFORE: Mapping[str, str] = {
    "process-logs-custom-id-s": "sleep 0.45",
    "process-get-timeout-s": "sleep 0.9",
    "process-get-timeout-n": "sleep 0.9",
    "list-files-n": "ln -s a.txt /workspace/rec/fn/ln; printf h >/workspace/rec/fn/.hid",
}
"""Commands of the recorder between two exchanges: how long it waited, and what it made."""
_RACES = frozenset({"process-get-running-s", "process-get-running-n", "process-stream-live-s", "process-stream-live-n"})
"""Exchanges that are only repeated, as a busy machine may be too late for the same answer."""
_IDS = re.compile(r"proc_\d{13}_\w{6}|session_\d{13}_\w{12}|\b[a-z2-7]{26}\b")
_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z?"), "TIME"),
    (re.compile(r'"pid":\d+'), '"pid":0'),
)


@attrs.frozen
class Got:
    """An answer: status, headers with names in lower case, body, and whether the connection was closed after it."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    closed: bool


def load(api: str) -> list[dict[str, Any]]:
    """The recorded exchanges with an API, in their order."""
    lines = (RECORDINGS / f"server-{api}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def data_of(body: Any) -> bytes:
    """The bytes of a recorded body."""
    if body is None:
        return b""
    if isinstance(body, str):
        return body.encode()
    if body.keys() == {"base64"}:
        return base64.b64decode(body["base64"])
    if body.keys() == {"size", "note"}:
        return bytes(body["size"])
    return json.dumps(body).encode()


def ask(url: str, method: str, path: str, headers: Mapping[str, str], body: bytes | None) -> Got:
    """Send a request as it is, on a connection of its own, and read the answer."""
    place = urlsplit(url)
    assert place.port is not None
    with socket.create_connection((str(place.hostname), place.port), timeout=30) as sock:
        lines = [f"{method} {path} HTTP/1.1", f"Host: {place.netloc}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [] if body is None else [f"Content-Length: {len(body)}"]
        sock.sendall("\r\n".join([*lines, "", ""]).encode() + (body or b""))
        with http.client.HTTPResponse(sock, method=method) as response:
            response.begin()
            data = response.read()
            told = {name.lower(): value for name, value in response.getheaders()}
            closed = bool(select.select([sock], [], [], 0.03)[0]) and sock.recv(1) == b""
            return Got(response.status, told, data, closed)


def shape(value: Any) -> Any:
    """The names and types of a JSON value; of a list, those of its first item."""
    if isinstance(value, dict):
        return {name: shape(item) for name, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return type(value).__name__


def events(body: str) -> list[Any]:
    """The events of a stream; pieces of the same output are put together, as how it is cut is chance."""
    printed = {"stdout": b"", "stderr": b""}
    told: list[Any] = []
    for block in body.split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        kind = fields.get("event")
        if kind in printed:
            printed[kind] += base64.b64decode(fields["data"])
            continue
        data = json.loads(fields["data"])
        if kind is None and data["type"] in printed:
            printed[data["type"]] += data["data"].encode()
        else:
            told.append([kind, data])
    return [*([name, data.decode()] for name, data in printed.items() if data), *told]


def content(body: bytes, kind: str) -> Any:
    """A body in a form that can be compared."""
    if kind.startswith("application/json"):
        value = json.loads(body)
        if isinstance(value, dict) and isinstance(value.get("files"), list):
            value["files"].sort(key=lambda info: str(info["absolutePath"]))
            for info in value["files"]:
                info["size"] = 0 if info["type"] == "directory" else info["size"]
        return value
    if kind.startswith("text/event-stream"):
        return events(body.decode())
    if body[257:262] == b"ustar":
        with tarfile.open(fileobj=io.BytesIO(body)) as tar:
            return sorted(f"{member.name} {member.mode:o}" for member in tar)
    return body.decode("latin-1")


def compare(recorded: dict[str, Any], got: Got, known: Mapping[str, str]) -> str:
    """What kind of difference there is."""

    def masked(body: bytes) -> bytes:
        text = body.decode("utf-8", "surrogateescape")
        for old, new in known.items():
            text = text.replace(old, new)
        for pattern, instead in _MASKS:
            text = pattern.sub(instead, text)
        return text.encode("utf-8", "surrogateescape")

    answer = recorded["response"]
    kind = answer["headers"].get("content-type", "")
    if answer["status"] != got.status or kind != got.headers.get("content-type", ""):
        return ANSWER
    want, have = content(masked(data_of(answer["body"])), kind), content(masked(got.body), kind)
    if shape(want) != shape(have):
        return ANSWER
    if want != have:
        return VALUES
    framing = [name in answer["headers"] for name in ("content-length", "transfer-encoding")]
    if framing != [name in got.headers for name in ("content-length", "transfer-encoding")]:
        return FRAMING
    return SAME if (recorded["connection_after"] == "closed") == got.closed else FRAMING


def replay(api: str, url: str) -> Iterator[tuple[str, dict[str, Any], Got]]:
    """Ask again what was asked; yields the kind of difference, the exchange, and our answer."""
    known: dict[str, str] = {}
    for recorded in load(api):
        if recorded["name"] in _BEFORE:
            prepare = {"command": _BEFORE[recorded["name"]], "sessionId": "__DISABLE_SESSION__"}
            ask(url, "POST", "/api/execute", {"Content-Type": "application/json"}, json.dumps(prepare).encode())
        request = recorded["request"]
        path, body = request["path"], data_of(request["body"])
        for old, new in known.items():
            path, body = path.replace(old, new), body.replace(old.encode(), new.encode())
        got = ask(url, request["method"], path, request["headers"], None if request["body"] is None else body)
        told = data_of(recorded["response"]["body"]).decode("latin-1")
        for old, new in zip(_IDS.findall(told), _IDS.findall(got.body.decode("latin-1")), strict=False):
            if recorded["name"] != "sandbox-create-with-body":
                known.setdefault(old, new)
        yield compare(recorded, got, known), recorded, got


@pytest.fixture(scope="module")
def server(bubblewrap: None) -> Iterator[RunningServer]:
    """A server with the key and the files that the recordings were made with."""
    with running_server(api_key=KEY) as server:
        headers = {"Content-Type": "application/json"}
        body = json.dumps({"path": "/workspace/rec", "recursive": True}).encode()
        assert ask(server.container_url, "POST", "/api/mkdir", headers, body).status == 200
        yield server


@pytest.mark.parametrize("api", ["bridge", "container"])
def test_answers_are_those_that_were_recorded(server: RunningServer, api: str) -> None:
    """Each answer is the service's, but for the differences that are listed; and those do differ."""
    wrong = []
    count = 0
    for found, recorded, got in replay(api, server.url if api == "bridge" else server.container_url):
        count += 1
        name = recorded["name"]
        expected = DIFFERENCES[api].get(name, (SAME, ""))[0]
        if found != expected and name not in _RACES:
            answer = recorded["response"]
            wrong.append(f"{name}: {found}, not {expected}\n  {answer}\n  {got}"[:3000])
    assert not wrong, "\n".join(wrong)
    assert count >= 100


@pytest.mark.parametrize("api", ["bridge", "container"])
def test_every_listed_difference_is_of_a_recording(api: str) -> None:
    """The table names exchanges that are replayed, each with a reason."""
    assert DIFFERENCES[api].keys() <= {recorded["name"] for recorded in load(api)}
    assert all(reason for _, reason in DIFFERENCES[api].values())
