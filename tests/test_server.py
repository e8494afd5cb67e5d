"""What the local server promises beside the recorded answers: isolation, limits, many clients, clean ends."""

from __future__ import annotations

import base64
import contextlib
import gc
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import requests

if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") != "1":
    pytest.importorskip("uvicorn")

from sandboxsync.errors import ConfigurationError
from sandboxsync.server import RunningServer, create_bridge_app, create_container_app, running_server
from sandboxsync.server._guard import decode_path
from sandboxsync.server._running import _Serving
from sandboxsync.transports.local import LocalTransport

NO_SESSION = "__DISABLE_SESSION__"


@pytest.fixture(scope="module")
def server(bubblewrap: None) -> Iterator[RunningServer]:
    """A server that the tests of this module share."""
    with running_server() as server:
        yield server


class Client:
    """Asks a server, on connections that are kept."""

    def __init__(self, server: RunningServer) -> None:
        self.server = server
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.mount("http://", requests.adapters.HTTPAdapter(pool_maxsize=64))
        self.key = {"Authorization": f"Bearer {server.api_key}"}
        made = self.http.post(f"{server.url}/v1/sandbox", headers=self.key, timeout=30)
        self.sandbox = f"/v1/sandbox/{made.json()['id']}"

    def bridge(self, method: str, path: str, **options: Any) -> requests.Response:
        """The bridge's answer about a sandbox of this client's own."""
        headers = {**self.key, **options.pop("headers", {})}
        if method == "GET":
            headers["Connection"] = "close"  # after a file that is missing the server closes it without a word
        url = f"{self.server.url}{self.sandbox}{path}"
        return self.http.request(method, url, headers=headers, timeout=60, **options)

    def exec(self, *argv: str, **more: Any) -> tuple[bytes, bytes, int]:
        """What a command without a session printed through the bridge, and its exit code."""
        session = more.pop("session", None)
        headers = {} if session is None else {"Session-Id": session}
        answer = self.bridge("POST", "/exec", json={"argv": argv, **more}, headers=headers)
        assert answer.status_code == 200, answer.text
        printed = {"stdout": b"", "stderr": b""}
        for block in answer.text.split("\n\n")[:-1]:
            event, data = (line.split(": ", 1)[1] for line in block.split("\n"))
            if event in printed:
                printed[event] += base64.b64decode(data)
        assert event == "exit", block
        return printed["stdout"], printed["stderr"], json.loads(data)["exit_code"]

    @contextlib.contextmanager
    def lasting(self) -> Iterator[Iterator[bytes]]:
        """A command that runs while the block does; what is still to come of the lines that tell of it."""
        argv = ["sh", "-c", "echo begun; sleep 300"]
        with self.bridge("POST", "/exec", json={"argv": argv}, stream=True) as answer:
            lines: Iterator[bytes] = answer.iter_lines(chunk_size=1)
            assert [next(lines) for _ in range(3)] == [b"event: stdout", b"data: YmVndW4K", b""]
            yield lines

    def container(self, path: str, /, **body: Any) -> requests.Response:
        """The container's answer to a POST."""
        return self.http.post(f"{self.server.container_url}/api/{path}", json=body, timeout=60)


@pytest.fixture
def client(server: RunningServer) -> Iterator[Client]:
    """A client with a sandbox of its own."""
    client = Client(server)
    yield client
    client.bridge("DELETE", "")
    client.http.close()


def eventually(condition: Callable[[], bool], seconds: float = 15) -> None:
    """Wait for a condition."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


# Who may ask


def test_the_extra_is_named_when_it_is_missing() -> None:
    """Without starlette the import says what to install."""
    code = "import sys; sys.modules['starlette'] = None; import sandboxsync.server"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "ImportError" in result.stderr
    assert "pip install 'sandboxsync[server]'" in result.stderr


def test_the_package_itself_needs_no_server() -> None:
    """Importing sandboxsync imports nothing of the server."""
    code = "import sys, sandboxsync; sys.exit('starlette' in sys.modules or 'sandboxsync.server' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_key_is_not_shown(server: RunningServer) -> None:
    """The repr of a server holds no key; a key left out is long and random."""
    assert len(server.api_key) >= 32
    assert server.api_key not in repr(server)


def test_an_empty_key_is_refused() -> None:
    """A bridge whose key is empty would let everybody in."""
    with LocalTransport() as transport:
        with pytest.raises(ConfigurationError):
            create_bridge_app(transport, "")


@pytest.mark.parametrize(
    "authorization", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic {key}", "{key}", "Bearer {key}x", "Bearer é"]
)
def test_a_wrong_key_opens_nothing(server: RunningServer, client: Client, authorization: str) -> None:
    """Every route below /v1 answers 401 to it, whether there is such a route or not."""
    headers = {"Authorization": authorization.format(key=server.api_key).encode()}
    for method, path in (("POST", "/v1/sandbox"), ("GET", "/v1/nope"), ("POST", f"{client.sandbox}/exec")):
        answer = requests.request(method, server.url + path, headers=headers, json={"argv": ["true"]}, timeout=30)
        assert (answer.status_code, answer.json()) == (401, {"error": "Unauthorized", "code": "unauthorized"})


def test_the_document_may_be_had_with_the_key_in_its_url(server: RunningServer) -> None:
    """`?token=` is taken there and nowhere else."""
    token = {"token": server.api_key}
    assert requests.get(f"{server.url}/v1/openapi.json", params=token, timeout=30).status_code == 200
    assert requests.get(f"{server.url}/v1/pool/stats", params=token, timeout=30).status_code == 401


def test_the_document_lists_exactly_the_routes(server: RunningServer) -> None:
    """Every operation of it is served, and everything that is served is in it."""
    with LocalTransport() as transport:
        app: Any = create_bridge_app(transport, "key")
        served = {
            (route.path.replace(":path}", "}"), method.lower())
            for route in app._app.routes
            for method in route.methods - {"HEAD"}
        }
    headers = {"Authorization": f"Bearer {server.api_key}"}
    document = requests.get(f"{server.url}/v1/openapi.json", headers=headers, timeout=30).json()
    assert document["openapi"].startswith("3.1")
    told = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert told == served
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))
    for reference in set(json.dumps(document).split('"#/components/schemas/')[1:]):
        assert reference.split('"')[0] in document["components"]["schemas"]


@pytest.mark.parametrize(
    "headers", [{"Host": "evil.example"}, {"Host": "localhost"}, {"Origin": "http://evil.example"}]
)
@pytest.mark.parametrize("origin", ["null", None])
def test_a_foreign_page_is_refused(server: RunningServer, headers: dict[str, str], origin: str | None) -> None:
    """A request by another name of this machine, or from a page of another origin, is answered 403 on every route."""
    sent = {**headers, **({} if origin is None else {"Origin": origin}), "Authorization": f"Bearer {server.api_key}"}
    for url in (f"{server.url}/health", f"{server.url}/v1/pool/stats", f"{server.container_url}/api/ping"):
        assert requests.get(url, headers=sent, timeout=30).status_code == 403
    command = {"command": "true", "sessionId": NO_SESSION}
    assert (
        requests.post(f"{server.container_url}/api/execute", json=command, headers=sent, timeout=30).status_code == 403
    )


def test_the_own_origin_is_let_in(server: RunningServer) -> None:
    """A page that this server itself served could ask."""
    headers = {"Origin": server.container_url}
    assert requests.get(f"{server.container_url}/api/ping", headers=headers, timeout=30).status_code == 200


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
def test_the_container_wants_json_by_name(server: RunningServer, kind: str | None) -> None:
    """What a form of a page can send runs nothing."""
    body = json.dumps({"command": "touch /workspace/forged", "sessionId": NO_SESSION}).encode()
    headers = {} if kind is None else {"Content-Type": kind}
    answer = requests.post(f"{server.container_url}/api/execute", data=body, headers=headers, timeout=30)
    assert answer.status_code == 415
    check = requests.post(f"{server.container_url}/api/exists", json={"path": "/workspace/forged"}, timeout=30)
    assert check.json()["exists"] is False


def test_bodies_are_bounded(server: RunningServer, client: Client) -> None:
    """A body over the limit is refused: of 32 MiB for the bridge, of 128 MiB for the container."""
    answer = client.bridge("POST", "/exec", data=b" " * ((32 << 20) + 1))
    assert answer.status_code == 413
    place = urlsplit(server.container_url)
    with socket.create_connection((str(place.hostname), place.port or 0), timeout=30) as sock:
        head = f"POST /api/execute HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: application/json\r\n"
        sock.sendall(f"{head}Content-Length: {1 << 40}\r\n\r\n".encode())
        with http.client.HTTPResponse(sock) as response:
            response.begin()
            assert (response.status, response.read()) == (413, b"")


# Paths


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("/a%20b", "/a b"),
        ("/%C3%A9%5C", "/é\\"),
        ("/a%3Fb%23%25%26%3b%2F", "/a%3Fb%23%25%26%3b%2F"),
        ("/%C3%A9%2F%20", "/é%2F "),
        ("/%ff/%20", "/%ff/ "),
        ("/a//b", "/a//b"),
        ("/a/./b/../c", "/a/c"),
        ("/a/%2e%2E/b/%2e", "/b/"),
        ("/../..", "/"),
        ("/a/..%2fetc", "/a/..%2fetc"),
    ],
)
def test_paths_are_decoded_as_the_service_does(raw: str, decoded: str) -> None:
    """Escapes of what has a meaning in a URL stay as they are; dot segments are taken out first."""
    assert decode_path(raw) == decoded


def test_names_of_files_in_urls(client: Client) -> None:
    """What is left encoded becomes part of the name; what is raw is the name."""
    for path in ("a%3Fb", "c%25d", "e;f&g+h", "i%20j", "k//l", "m%2Fn"):
        assert client.bridge("PUT", f"/file/workspace/{path}", data=b"x").json() == {"ok": True}
    names = client.exec("find", ".", "-type", "f", cwd="/workspace")[0].decode().split("\n")[:-1]
    assert set(names) == {"./a%3Fb", "./c%25d", "./e;f&g+h", "./i j", "./k/l", "./m%2Fn"}
    assert client.bridge("GET", "/file/workspace/x%0Ay").status_code == 404


def test_dot_segments_do_not_leave_the_workspace(server: RunningServer, client: Client) -> None:
    """Neither plain nor encoded ones."""
    place = urlsplit(server.url)
    for path in ("workspace/../etc/passwd", "workspace/%2e%2e/etc/passwd", "workspace/x/../../etc/passwd"):
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request("GET", f"{client.sandbox}/file/{path}", headers=client.key)
        assert connection.getresponse().status == 403
        connection.close()


# Commands


def test_output_is_complete(client: Client) -> None:
    """Without a session every byte arrives, whatever its size, in order."""
    out, err, code = client.exec("bash", "-c", "seq 1 200000; printf tail >&2")
    assert out == b"".join(b"%d\n" % number for number in range(1, 200001))
    assert (err, code) == (b"tail", 0)


def test_a_result_that_is_too_large_is_an_error_after_all_output(client: Client) -> None:
    """All events come, then an error in place of the exit code."""
    size = (32 << 20) + 1
    answer = client.bridge("POST", "/exec", json={"argv": ["head", "-c", str(size), "/dev/zero"]})
    *events, last = answer.text.split("\n\n")[:-1]
    assert sum(len(base64.b64decode(event.partition("data: ")[2])) for event in events) == size
    assert last.startswith("event: error\n")
    assert "limited to 32MiB" in last


def test_the_container_waits_for_who_holds_the_output(client: Client) -> None:
    """A plain command without a session ends when its pipes are closed, and has what was written until then."""
    began = time.monotonic()
    command = "(sleep 1; echo late) & echo early; exit 3"
    answer = client.container("execute", command=command, sessionId=NO_SESSION, timeoutMs=500).json()
    assert (answer["stdout"], answer["exitCode"]) == ("early\nlate\n", 3)
    assert time.monotonic() - began >= 1
    assert client.exec("sh", "-c", command)[0] == b"early\nlate\n"


@pytest.mark.parametrize("limit", [None, 5000])
@pytest.mark.parametrize("start", ["", "setsid ", "nohup "])
def test_who_lets_go_of_the_output_is_not_waited_for(client: Client, start: str, limit: int | None) -> None:
    """A background program with its output elsewhere delays no answer, and lives on."""
    began = time.monotonic()
    script = f"{start}sh -c 'sleep 1; echo alive >/workspace/daemon; sleep 300' >/dev/null 2>&1 & echo started"
    assert client.exec("sh", "-c", script, timeout_ms=limit)[0] == b"started\n"
    assert client.bridge("GET", "/file/workspace/daemon").content == b"" or time.monotonic() - began > 1
    eventually(lambda: client.bridge("GET", "/file/workspace/daemon").content == b"alive\n")


def test_a_time_limit_ends_the_process_group_alone(client: Client) -> None:
    """What made itself a session of its own outlives the limit, as it does in the service."""
    script = "setsid sh -c 'sleep 1; echo alive >/workspace/escaped' >/dev/null 2>&1 & sleep 60"
    out, err, code = client.exec("sh", "-c", script, timeout_ms=300)
    assert (out, err, code) == (b"", b"Command timed out after 300ms\n", 124)
    eventually(lambda: client.bridge("GET", "/file/workspace/escaped").content == b"alive\n")


def test_a_limit_that_is_not_reached_leaves_nothing(client: Client) -> None:
    """The watch over a command ends with it."""
    for _ in range(5):
        assert client.exec("sh", "-c", "exit 124", timeout_ms=60_000)[2] == 124
    listed = client.exec("sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '")[0]
    assert b"sleep 60" not in listed


def test_a_command_longer_than_an_argument_is_refused_as_by_the_system(client: Client) -> None:
    """131 071 bytes fit; more do not."""
    longest = ": " + "x" * (131_071 - 2)
    assert client.container("execute", command=longest, sessionId=NO_SESSION).json()["exitCode"] == 0
    answer = client.container("execute", command=longest + "x", sessionId=NO_SESSION)
    assert answer.status_code == 500
    assert "E2BIG" in answer.json()["message"]


def test_the_environment_of_a_command_is_data(client: Client) -> None:
    """No value is evaluated, and none reaches the shell that watches the command."""
    env = {"A": "$(touch /workspace/bad)`id`\n'\"", "BASH_ENV": "/workspace/env", "PATH": "/bin:/usr/bin", "IFS": "x"}
    client.container("write", path="/workspace/env", content="echo sourced\n", sessionId=NO_SESSION)
    command = 'printf %s "$A"; test -e /workspace/bad'
    answer = client.container("execute", command=command, env=env, sessionId=NO_SESSION).json()
    assert answer["stdout"] == f"sourced\n{env['A']}"
    assert answer["exitCode"] == 1


def test_arguments_arrive_as_they_are(client: Client) -> None:
    """No word is a keyword, an assignment, an option of the shell or a pattern; a builtin can be run."""
    words = ["a b", "it's", "$HOME", "*", "é\n", "", "-n", "~", "A=1", "!", "#"]
    assert client.exec("printf", "%s|", *words)[0] == "".join(f"{word}|" for word in words).encode()
    assert client.exec("A=1")[2] == 127
    assert client.exec("if")[2] == 127
    assert client.exec("exit", "3")[2] == 3


def test_sessions_keep_their_state_in_order(client: Client) -> None:
    """Through both APIs what a command of a session leaves is there in the next, and output is exact."""
    client.bridge("POST", "/session", json={"id": "s", "env": {"A": "1"}})
    assert client.exec("cd", "/usr", session="s")[2] == 0
    assert client.exec("sh", "-c", "pwd; printf $A", session="s")[0] == b"/usr\n1"
    assert client.exec("exit", "3", session="s")[2] == 3
    assert client.exec("pwd", session="s")[0] == b"/workspace\n"
    for number in range(20):
        client.container("execute", command=f"v=$v,{number}", sessionId="ordered")
    answer = client.container("execute", command="echo $v", sessionId="ordered").json()
    assert answer["stdout"] == "".join(f",{number}" for number in range(20))


@pytest.mark.parametrize("way", ["bridge", "execute", "execute/stream"])
def test_a_command_outlives_its_client(server: RunningServer, client: Client, way: str) -> None:
    """Who disconnects does not end the command, whose end is seen in a file."""
    name = f"/workspace/outlived-{way.replace('/', '-')}"
    script = f"echo begun; sleep 0.7; echo done >{name}"
    if way == "bridge":
        url, path = server.url, f"{client.sandbox}/exec"
    else:
        url, path = server.container_url, f"/api/{way}"
    body = {"argv": ["sh", "-c", script], "command": script, "sessionId": NO_SESSION}
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=30)
    connection.request("POST", path, json.dumps(body), {**client.key, "Content-Type": "application/json"})
    time.sleep(0.3)
    connection.close()

    def is_done() -> bool:
        if way == "bridge":
            return client.bridge("GET", f"/file{name}").content == b"done\n"
        read: dict[str, object] = client.container("read", path=name, sessionId=NO_SESSION).json()
        return read.get("content") == "done\n"

    eventually(is_done)


def test_fifty_commands_run_side_by_side(client: Client) -> None:
    """None waits for another, and each has its own output."""
    client.exec("true")

    def one(number: int) -> bytes:
        return client.exec("sh", "-c", f"sleep 1; echo {number}")[0]

    began = time.monotonic()
    with ThreadPoolExecutor(50) as pool:
        assert list(pool.map(one, range(50))) == [b"%d\n" % number for number in range(50)]
    assert time.monotonic() - began < 25  # one after the other they take 50 s


def test_two_hundred_commands_that_last_block_nothing(client: Client) -> None:
    """While they run, other calls are answered, and one of them ends them all."""
    client.exec("true")
    place = urlsplit(client.server.url)
    body = json.dumps({"argv": ["sleep", "300"]})
    opened = []
    try:
        for _ in range(200):
            connection = http.client.HTTPConnection(place.netloc, timeout=60)
            connection.request("POST", f"{client.sandbox}/exec", body, client.key)
            opened.append(connection)
        for connection in opened:
            assert connection.getresponse().status == 200
        eventually(lambda: client.exec("sh", "-c", "cat /proc/[0-9]*/comm")[0].count(b"sleep\n") == 200, 60)
        assert client.bridge("DELETE", "").status_code == 204
    finally:
        for connection in opened:
            connection.close()
    assert client.exec("sh", "-c", "cat /proc/[0-9]*/comm")[0].count(b"sleep\n") == 0


def test_a_command_too_many_is_refused_and_not_kept_waiting(
    server: RunningServer, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond the bound the answer is 503; other calls pass, and so does a command once another has ended."""
    monkeypatch.setattr("sandboxsync.server._workers.MOST_COMMANDS", 1)
    with client.lasting():
        answer = client.bridge("POST", "/exec", json={"argv": ["true"]})
        assert (answer.status_code, answer.json()["code"]) == (503, "capacity_exceeded")
        assert client.bridge("GET", "/running").json() == {"running": True}
        assert client.bridge("DELETE", "").status_code == 204
    eventually(lambda: client.bridge("POST", "/exec", json={"argv": ["true"]}).status_code == 200)


@pytest.mark.parametrize(
    "body",
    [b"[" * 100_000, b'{"argv": NaN}', b'"\\ud800"', b"\xff", b'{"argv": ["true"], "timeout_ms": 1e999}', b"1" * 5000],
)
def test_odd_json_breaks_nothing(server: RunningServer, client: Client, body: bytes) -> None:
    """It is refused, or taken for what it says, and never an unexpected failure."""
    assert client.bridge("POST", "/exec", data=body).status_code in (200, 400)
    headers = {"Content-Type": "application/json"}
    answer = requests.post(f"{server.container_url}/api/execute", data=body, headers=headers, timeout=30)
    assert answer.json()["code"] in ("INTERNAL_ERROR", "COMMAND_EXECUTION_ERROR")


def test_half_of_a_surrogate_pair_becomes_a_replacement(client: Client) -> None:
    """Text that no encoding can hold is passed on as JavaScript would."""
    headers = {"Content-Type": "application/json"}
    assert client.bridge("POST", "/exec", data=b'{"argv": ["echo", "\\ud83d"]}', headers=headers).status_code == 200
    body = b'{"command": "echo a\\ud83db", "sessionId": "__DISABLE_SESSION__"}'
    answer = client.http.post(f"{client.server.container_url}/api/execute", data=body, headers=headers, timeout=30)
    assert answer.json()["stdout"] == "a\ufffdb\n"


# Files, processes, ports


def test_a_large_file_passes_in_pieces(client: Client) -> None:
    """40 MiB are read as they were made, by stream through both APIs; a plain read refuses them."""
    make = "head -c 41943040 /dev/urandom >{0}; sha256sum <{0}"
    digest = client.exec("sh", "-c", make.format("/workspace/large.bin"))[0].split()[0].decode()
    import hashlib

    assert hashlib.sha256(client.bridge("GET", "/file/workspace/large.bin").content).hexdigest() == digest
    command = make.format("/workspace/large.bin")
    digest = client.container("execute", command=command, sessionId=NO_SESSION).json()["stdout"].split()[0]
    events = client.container("read/stream", path="/workspace/large.bin", sessionId=NO_SESSION).text.split("\n\n")[:-1]
    told = [json.loads(event.removeprefix("data: ")) for event in events]
    data = b"".join(base64.b64decode(event["data"]) for event in told if event["type"] == "chunk")
    assert hashlib.sha256(data).hexdigest() == digest
    assert told[-1] == {"type": "complete", "bytesRead": 41943040}
    answer = client.container("read", path="/workspace/large.bin", sessionId=NO_SESSION)
    assert (answer.status_code, answer.json()["code"]) == (413, "FILE_TOO_LARGE")


def test_what_fits_into_a_frame_is_written(client: Client) -> None:
    """The largest body that the service takes arrives; one of a kibibyte more does not."""
    size = 12287 << 10
    assert client.bridge("PUT", "/file/workspace/large", data=bytes(size)).json() == {"ok": True}
    assert client.exec("stat", "-c", "%s", "large")[0] == b"%d\n" % size
    assert client.bridge("PUT", "/file/workspace/large", data=bytes(size + 1024)).status_code == 502
    assert client.bridge("POST", "/hydrate", data=bytes(size + 1024)).status_code == 502
    assert client.bridge("POST", "/hydrate", data=bytes((32 << 20) + 1)).status_code == 400


def test_text_is_read_as_lossily_as_by_the_service(client: Client) -> None:
    """A byte order mark is dropped, what is no UTF-8 becomes U+FFFD, and other content is left alone."""
    for content, read in (
        (b"\xef\xbb\xbfa\r\n", b"a\r\n"),
        (b"caf\xe9", b"caf\xef\xbf\xbd"),
        (bytes(range(256)), bytes(range(256))),
    ):
        assert client.bridge("PUT", "/file/workspace/text", data=content).ok
        assert client.bridge("GET", "/file/workspace/text").content == read
        encoded = base64.b64encode(content).decode()
        client.container("write", path="/workspace/text", content=encoded, encoding="base64")
        exact = client.container("read", path="/workspace/text", encoding="base64").json()["content"]
        assert base64.b64decode(exact) == content


def test_the_log_of_a_process_is_followed_to_its_kill(client: Client) -> None:
    """What came before is told at once, and the kill is its end."""
    url = f"{client.server.container_url}/api/process"
    started = client.container("process/start", command="echo begin; sleep 300", sessionId=NO_SESSION).json()
    place = f"{url}/{started['processId']}"
    eventually(lambda: client.http.get(f"{place}/logs", timeout=30).json()["stdout"] == "begin\n")
    with client.http.get(f"{place}/stream", stream=True, timeout=30) as answer:
        lines = (line for line in answer.iter_lines() if line)
        told = [json.loads(next(lines).removeprefix(b"data: ")) for _ in range(2)]
        assert [event["type"] for event in told] == ["process_info", "stdout"]
        assert client.http.delete(place, timeout=30).status_code == 200
        last = json.loads(next(lines).removeprefix(b"data: "))
    assert (last["exitCode"], last["data"]) == (143, "Process killed with exit code 143")
    listed = client.http.get(f"{url}/list", params={"status": "killed"}, timeout=30).json()["processes"]
    assert started["processId"] in [process["id"] for process in listed]


def test_ports_are_watched(client: Client) -> None:
    """A port that answers is told, and so is the end of the process that should have opened it."""

    def watch(**body: Any) -> list[dict[str, Any]]:
        answer = client.container("port-watch", interval=50, **body)
        return [json.loads(event.removeprefix("data: ")) for event in answer.text.split("\n\n")[:-1]]

    port = urlsplit(client.server.url).port
    assert watch(port=port, mode="http", path="/health")[1] == {"type": "ready", "port": port, "statusCode": 200}
    assert watch(port=port, mode="tcp")[1] == {"type": "ready", "port": port}
    with socket.create_server(("127.0.0.1", 0)) as free:
        unused = free.getsockname()[1]
    process = client.container("process/start", command="sleep 0.3; exit 5", sessionId=NO_SESSION).json()["processId"]
    told = watch(port=unused, mode="tcp", processId=process)
    assert told[1] == {"type": "process_exited", "port": unused, "exitCode": 5}


def test_the_workspace_goes_out_and_in_as_a_tar(client: Client) -> None:
    """What `persist` gives, `hydrate` takes, in another sandbox; plain and zipped; without what is excluded."""
    import gzip

    client.exec("sh", "-c", "mkdir -p d/e; echo 1 >d/e/f; echo 2 >'a b'; chmod 700 'a b'; ln -s f d/e/l; echo 3 >x")
    tar = client.bridge("POST", "/persist", params={"excludes": "x"}).content
    for body in (tar, gzip.compress(tar)):
        other = Client(client.server)
        assert other.bridge("POST", "/hydrate", data=body).json() == {"ok": True}
        out = other.exec("sh", "-c", "cat d/e/l 'a b'; stat -c %a 'a b'; ls")[0]
        assert out == b"1\n2\n700\na b\nd\n"
        other.bridge("DELETE", "")


def test_a_destroyed_sandbox_starts_afresh(client: Client) -> None:
    """Its files are gone, and a command that runs meanwhile ends with an error event."""
    client.bridge("PUT", "/file/workspace/f", data=b"x")
    with client.lasting() as lines:
        assert client.bridge("DELETE", "").status_code == 204
        assert next(lines) == b"event: error"
    assert client.bridge("GET", "/file/workspace/f").content == b""


def test_an_answer_in_which_nothing_comes_is_cut(bubblewrap: None) -> None:
    """Its body ends as if complete, without the event that is due; the command goes on."""
    with LocalTransport(isolation="bubblewrap") as transport:
        app = create_container_app(transport, "one", silence=0.5)
        with _Serving([app], transport) as (port,):
            url = f"http://127.0.0.1:{port}/api"
            command = "echo a; sleep 1.5; echo b >f"
            body = {"command": command, "sessionId": NO_SESSION}
            answer = requests.post(f"{url}/execute/stream", json=body, timeout=30)
            assert [line.count('"complete"') for line in answer.text.split("\n\n")[:-1]] == [0, 0]
            read = {"path": "f", "sessionId": NO_SESSION}
            eventually(lambda: requests.post(f"{url}/read", json=read, timeout=30).json().get("content") == "b\n")
            body["command"] = "for i in 1 2 3 4 5 6; do echo $i; sleep 0.2; done"
            answer = requests.post(f"{url}/execute/stream", json=body, timeout=30)
            assert '"complete"' in answer.text


# The end


def _descriptors() -> Counter[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the one that lists them
            found.append(os.readlink(f"/proc/self/fd/{name}").partition(":")[0])
    return Counter(found)


def _children() -> set[str]:
    tasks = Path("/proc/self/task").glob("*/children")
    return {pid for task in tasks for pid in task.read_text().split()}


def test_nothing_is_left_after_the_block(bubblewrap: None) -> None:
    """No thread, descriptor or process stays, whatever was running and whoever was connected."""
    with running_server() as warm:
        requests.get(f"{warm.url}/health", timeout=30)
    gc.collect()
    threads, descriptors, children = set(threading.enumerate()), _descriptors(), _children()
    with running_server() as server:
        client = Client(server)
        client.exec("true")
        client.container("process/start", command="sleep 300")
        place = urlsplit(server.container_url)
        opened = [http.client.HTTPConnection(place.netloc, timeout=30) for _ in range(5)]
        bodies = (
            ("execute", {"command": "sleep 300", "sessionId": NO_SESSION}),
            ("execute", {"command": "sleep 300", "sessionId": "s"}),
            ("execute/stream", {"command": "yes", "sessionId": NO_SESSION}),  # which nobody reads
            ("port-watch", {"port": 1, "mode": "tcp"}),
            ("execute/stream", {"command": "sleep 300", "sessionId": NO_SESSION}),
        )
        for connection, (path, body) in zip(opened, bodies, strict=True):
            connection.request("POST", f"/api/{path}", json.dumps(body), {"Content-Type": "application/json"})
        opened[-1].close()
        time.sleep(0.5)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    for connection in opened:
        connection.close()
    client.http.close()
    # Of the server that the module shares, connections may end meanwhile.
    eventually(lambda: set(threading.enumerate()) <= threads)
    assert _children() <= children
    gc.collect()
    eventually(lambda: not _descriptors() - descriptors)
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{server.url}/health", timeout=5)


def test_the_block_ends_what_raised(bubblewrap: None) -> None:
    """An exception of the block comes through, and the server is gone."""
    with pytest.raises(ZeroDivisionError):
        with running_server() as server:
            raise ZeroDivisionError
    with pytest.raises(requests.ConnectionError):
        requests.get(f"{server.url}/health", timeout=5)


def test_two_servers_know_nothing_of_each_other(bubblewrap: None) -> None:
    """Their keys, ports and sandboxes are apart, and the end of one leaves the other."""
    with running_server() as first:
        client = Client(first)
        client.bridge("PUT", "/file/workspace/f", data=b"first")
        with running_server() as second:
            other = Client(second)
            other.sandbox = client.sandbox
            assert len({first.url, first.container_url, second.url, second.container_url}) == 4
            assert other.bridge("GET", "/file/workspace/f").content == b""
            answer = requests.get(f"{second.url}/v1/pool/stats", headers=client.key, timeout=30)
            assert answer.status_code == 401
            other.http.close()
        assert client.bridge("GET", "/file/workspace/f").content == b"first"
        client.http.close()


def test_the_container_cannot_be_reached_through_the_bridge(server: RunningServer, client: Client) -> None:
    """Its sandbox has an id that the bridge refuses."""
    answer = requests.get(f"{server.url}/v1/sandbox/container-0/running", headers=client.key, timeout=30)
    assert answer.status_code == 400


def test_sandboxes_without_isolation_can_be_served() -> None:
    """`isolation="none"` works where bubblewrap does not; paths below /workspace mean the sandbox's directory."""
    with running_server(isolation="none") as server:
        client = Client(server)
        assert client.bridge("PUT", "/file/workspace/f", data=b"x").ok
        out, _, code = client.exec("sh", "-c", "cat f; exit 4")
        assert (out, code) == (b"x", 4)
        client.http.close()
