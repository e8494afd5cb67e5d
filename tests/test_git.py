"""Cloning repositories: real git, over files and over HTTP with a password."""

from __future__ import annotations

import base64
import os
import pickle
import shlex
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import LocalTransport, Sandbox, _git
from sandboxsync._git_source import parse
from sandboxsync._unset import UNSET, Timeout
from sandboxsync.errors import (
    CommandTimeoutError,
    GitAuthenticationError,
    GitBranchNotFoundError,
    GitError,
    GitRepositoryNotFoundError,
    InvalidRequestError,
    SandboxError,
    UnsupportedOperationError,
)
from sandboxsync.models import ExecResult, FileInfo, GitCheckoutResult
from sandboxsync.transports.base import SYSTEM_CLOCK, Capability, CommandRequest, Exited, Output, SessionRef, Transport
from sandboxsync.transports.local.files import Files, resolve

TOKEN = "to/k@n:with %41 'odd' $HOME"
USER = "x-access-token"


def git(*words: str, cwd: Path) -> str:
    """Run git beside the code under test."""
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with three commits, a branch `feature/x` and a tag `v1`."""
    root = tmp_path_factory.mktemp("origin")
    git("init", "-q", "-b", "trunk", "repo", cwd=root)
    for number in range(3):
        (root / "repo/file").write_text(f"{number}\n")
        git("add", ".", cwd=root / "repo")
        git("commit", "-q", "-m", str(number), cwd=root / "repo")
    git("branch", "feature/x", cwd=root / "repo")
    git("tag", "v1", cwd=root / "repo")
    git("clone", "-q", "--bare", "repo", "bare.git", cwd=root)
    return root


class Process:
    """A command of the stub that has been read to its end."""

    started_at = datetime.now(timezone.utc)

    def __init__(self, command: str, cwd: Path) -> None:
        done = subprocess.run(["bash", "-c", command], cwd=cwd, capture_output=True, check=False, timeout=60)
        self.items: list[Output | Exited] = [Exited(done.returncode, 0.0)]

    def read(self) -> Output | Exited:
        return self.items.pop(0)

    def kill(self) -> None:
        """Nothing is left to kill."""

    def close(self) -> None:
        """Nothing is left to close."""


class Machine:
    """The little of a transport, and of a session, that a clone needs."""

    name = "Machine"
    capabilities = frozenset({Capability.NATIVE_PROGRAMS})
    clock = SYSTEM_CLOCK

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cwd = root / "ws"
        self.cwd.mkdir()
        (root / "home").mkdir()
        self.env = {"PATH": os.environ["PATH"], "HOME": str(root / "home")}
        self.grace: int = signal.SIGTERM
        self.commands: list[str] = []

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return Files().stat(resolve(path, str(self.cwd), str(self.root / "ws"), True), follow_symlinks)

    def run(self, ref: SessionRef, request: CommandRequest) -> Process:
        assert ref.session_id is None
        return Process(request.command, self.root)

    def exec(self, command: str, *, env: Mapping[str, str], timeout: Timeout) -> ExecResult:
        self.commands.append(command)
        process = subprocess.Popen(
            ["bash", "-ec", command],
            cwd=self.cwd,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=timeout if isinstance(timeout, float) else 60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, self.grace)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=2)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
            raise CommandTimeoutError(
                "late", command=command, stdout_bytes=out, stderr_bytes=err, stderr=err.decode("utf-8", "replace")
            ) from None
        return ExecResult(
            process.returncode,
            out.decode("utf-8", "replace"),
            err.decode("utf-8", "replace"),
            out,
            err,
            command,
            0.0,
            datetime.now(timezone.utc),
        )

    def checkout(
        self,
        repo_url: str,
        *,
        branch: str | None = None,
        target_dir: str | None = None,
        depth: int | None = None,
        token: str | None = None,
        timeout: Timeout = UNSET,
    ) -> GitCheckoutResult:
        return _git.checkout(
            self.exec,
            cast("Transport", self),
            SessionRef("s", None),
            repo_url,
            branch=branch,
            target_dir=target_dir,
            depth=depth,
            token=token,
            timeout=timeout,
        )

    def made(self) -> list[str]:
        return sorted(os.listdir(self.root / "ws"))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A workspace, a home and a shell."""
    return Machine(tmp_path)


class Server(ThreadingHTTPServer):
    """Serves repositories to who has the password, and looks for the token in all argument lists meanwhile."""

    daemon_threads = True

    def __init__(self, root: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.root = root
        self.users = {f"{USER}:{TOKEN}", "user:pa:ss/w@rd", "bare-token:"}
        self.authorizations: list[str] = []
        self.leaks: list[bytes] = []
        self.redirect = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that are killed are part of the tests."""

    def look(self) -> None:
        for process in os.listdir("/proc"):
            if process.isdigit() and int(process) != os.getpid():
                with suppress(OSError):
                    arguments = Path("/proc", process, "cmdline").read_bytes()
                    if TOKEN.encode() in arguments or b"pa:ss" in arguments or b"bare-token" in arguments:
                        self.leaks.append(arguments)


class Handler(BaseHTTPRequestHandler):
    """Hands requests to git's own HTTP program."""

    server: Server

    def log_message(self, format: str, *arguments: object) -> None:
        """Tests print nothing."""

    def do_GET(self) -> None:
        self.server.look()
        path, _, query = self.path.partition("?")
        given = base64.b64decode(self.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        if given:
            self.server.authorizations.append(given)
        if path.startswith("/moved/"):
            self.answer(302, [("Location", self.server.redirect + self.path.removeprefix("/moved"))])
        elif path.startswith("/hang/"):
            time.sleep(30)
        elif path.startswith("/echo/"):
            self.answer(500, [("Content-Type", "text/plain")], f"no: {self.headers} {given} {TOKEN}".encode())
        elif path.startswith("/open/"):
            self.serve(path.removeprefix("/open"), query)
        elif given not in self.server.users:
            self.answer(401, [("WWW-Authenticate", 'Basic realm="x"')], given.encode())
        elif path.startswith("/forbidden/"):
            self.answer(403, [])
        else:
            self.serve(path, query)

    do_POST = do_GET

    def answer(self, status: int, headers: list[tuple[str, str]], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def serve(self, path: str, query: str) -> None:
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.server.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=False
        ).stdout
        head, _, content = answer.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(headers.pop("Status", "200 OK").split()[0])
        self.answer(status, list(headers.items()), content)


@pytest.fixture
def server(origin: Path) -> Iterator[Server]:
    """A server of the repositories, on this machine."""
    with Server(origin) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def all_bytes_below(directory: Path) -> bytes:
    """The content of every file."""
    return b"".join(path.read_bytes() for path in directory.rglob("*") if path.is_file())


class TestClone:
    def test_defaults(self, machine: Machine, origin: Path) -> None:
        """E15: a repository goes to a directory of its name below the session's directory, on its own branch."""
        (machine.root / "ws/sub dir").mkdir()
        machine.cwd = machine.root / "ws/sub dir"
        result = machine.checkout(f"file://{origin}/bare.git")
        assert result.target_dir == str(machine.cwd / "bare")
        assert (result.branch, result.repo_url) == ("trunk", f"file://{origin}/bare.git")
        assert (datetime.now(timezone.utc) - result.timestamp).total_seconds() < 60
        assert (machine.cwd / "bare/file").read_text() == "2\n"

    @pytest.mark.parametrize("scheme", ["file://", ""])
    def test_branch_and_depth(self, machine: Machine, origin: Path, scheme: str) -> None:
        """E15: branch and depth are those of the clone, for a path too, in a target under /workspace."""
        result = machine.checkout(f"{scheme}{origin}/repo", branch="feature/x", depth=1, target_dir="/workspace/p/q")
        assert result.target_dir == str(machine.root / "ws/p/q")
        assert result.branch == "feature/x"
        assert git("rev-list", "--count", "HEAD", cwd=Path(result.target_dir)) == "1\n"

    def test_tag(self, machine: Machine, origin: Path) -> None:
        """E15: for a tag the branch of the result is the short name of its commit."""
        result = machine.checkout(f"{origin}/repo", branch="v1")
        assert result.branch == git("rev-parse", "--short", "v1", cwd=origin / "repo").strip()

    def test_empty_repository(self, machine: Machine) -> None:
        """E15: a repository without commits can be cloned."""
        git("init", "-q", "-b", "none-yet", str(machine.root / "void"), cwd=machine.root)
        assert machine.checkout(str(machine.root / "void")).branch == "none-yet"

    @pytest.mark.parametrize(
        "name",
        ["a b", "a'b", "$(touch pwn)", "-rf", "*", "a\nb", "a\n", "é😀", "deep/er/x", "x/", "./y", ".hidden", "\udcff"],
    )
    def test_any_target(self, machine: Machine, origin: Path, name: str) -> None:
        """F1, F4: a target may have any name; the result is an absolute path that a command can use."""
        result = machine.checkout(f"{origin}/repo", target_dir=name)
        assert os.path.exists(os.path.join(result.target_dir, ".git"))
        assert os.path.samefile(result.target_dir, machine.cwd / name)
        assert result.target_dir == os.path.realpath(machine.cwd / name)
        assert "pwn" not in machine.made()

    def test_empty_target(self, machine: Machine, origin: Path) -> None:
        """E15: an empty directory will do, the session's own too, also through a symlink."""
        (machine.cwd / "empty").mkdir()
        (machine.cwd / "link").symlink_to("empty")
        assert machine.checkout(f"{origin}/repo", target_dir="link").target_dir == str(machine.cwd / "empty")
        machine.cwd = machine.cwd / "own"
        machine.cwd.mkdir()
        assert machine.checkout(f"{origin}/repo", target_dir=".").target_dir == str(machine.cwd)

    def test_odd_environment(self, machine: Machine, origin: Path) -> None:
        """E10: what the session has in its environment for git does not lead the clone astray."""
        machine.env |= {"GIT_DIR": "/nowhere", "GIT_WORK_TREE": "/nowhere", "CDPATH": "/", "LC_ALL": "de_DE.UTF-8"}
        assert machine.checkout(f"{origin}/repo").branch == "trunk"
        with pytest.raises(GitRepositoryNotFoundError):
            machine.checkout(f"{origin}/none", target_dir="x")

    def test_repository_under_workspace(self, machine: Machine, origin: Path) -> None:
        """F5: a repository under /workspace is the one in the workspace."""
        git("clone", "-q", "--bare", f"{origin}/repo", str(machine.cwd / "mine.git"), cwd=machine.root)
        for url in ("/workspace/mine.git", "file:///workspace/mine.git"):
            result = machine.checkout(url, target_dir=f"t{len(url)}")
            assert result.repo_url.endswith(str(machine.cwd / "mine.git"))


class TestFailures:
    def test_missing_repository(self, machine: Machine, origin: Path) -> None:
        """The error says which repository is not there, with git's exit code and words, and nothing is left."""
        for url in (f"file://{origin}/no.git", f"{origin}/no", f"file://{machine.root}/home"):
            with pytest.raises(GitRepositoryNotFoundError) as caught:
                machine.checkout(url, target_dir="a/b/c")
            assert caught.value.context["exit_code"] == 128
            assert "fatal" in str(caught.value.context["stderr"])
            assert caught.value.code == "GIT_REPOSITORY_NOT_FOUND"
        assert machine.made() == []

    def test_missing_branch(self, machine: Machine, origin: Path) -> None:
        """A branch that is not there is told as such, and parents that were made are gone, others not."""
        (machine.cwd / "a").mkdir()
        with pytest.raises(GitBranchNotFoundError, match="'nope'"):
            machine.checkout(f"{origin}/repo", branch="nope", target_dir="a/b/c")
        assert machine.made() == ["a"]
        assert os.listdir(machine.cwd / "a") == []

    def test_empty_target_stays(self, machine: Machine, origin: Path) -> None:
        """An empty directory that was there before is there after a failure, and is empty."""
        (machine.cwd / "x").mkdir()
        with pytest.raises(GitError):
            machine.checkout(f"{origin}/none", target_dir="x")
        assert os.listdir(machine.cwd / "x") == []

    @pytest.mark.parametrize("kind", ["full", "hidden", "file", "dangling"])
    def test_target_in_use(self, machine: Machine, origin: Path, kind: str) -> None:
        """A target that is something but an empty directory raises GitError and stays as it was."""
        target = machine.cwd / "x"
        if kind == "file":
            target.write_text("mine")
        elif kind == "dangling":
            target.symlink_to("nowhere")
        else:
            target.mkdir()
            (target / (".f" if kind == "hidden" else "f")).touch()
        for name in ("x", "/workspace/x"):
            with pytest.raises(GitError, match="not an empty directory"):
                machine.checkout(f"{origin}/repo", target_dir=name)
        assert machine.made() == ["x"]
        assert os.path.islink(target) or target.is_file() or len(os.listdir(target)) == 1

    def test_no_git(self, machine: Machine, origin: Path) -> None:
        """Without git in the sandbox the error says so."""
        (machine.root / "bin").mkdir()
        for program in ("bash", "ls", "rm"):
            found = subprocess.run(["which", program], capture_output=True, text=True, check=True).stdout.strip()
            (machine.root / "bin" / program).symlink_to(found)
        machine.env["PATH"] = str(machine.root / "bin")
        with pytest.raises(GitError, match="not installed") as caught:
            machine.checkout(f"{origin}/repo")
        assert caught.value.context["exit_code"] == 127
        assert machine.made() == []

    def test_no_native_programs(self, machine: Machine, origin: Path) -> None:
        """A transport without native programs is refused before anything is run, and one that has them is named."""
        machine.capabilities = frozenset()
        with pytest.raises(UnsupportedOperationError, match="LocalTransport"):
            machine.checkout(f"{origin}/repo")
        assert machine.commands == []

    @pytest.mark.parametrize(
        "url",
        ["", "-u", "--upload-pack=x", "ext::sh -c id", "fd::0", "a\0b", "a\nb", "ftp://h/x", "https://", "https:///x",
         "https://user:a/b@c:d@host/x", "https://h/x?token=abc", "http://ho st/x", "https://h=x/y"],
    )  # fmt: skip
    def test_bad_urls(self, machine: Machine, url: str) -> None:
        """A URL that git would take for an option, a program or two things raises before anything is run."""
        with pytest.raises(InvalidRequestError):
            machine.checkout(url, target_dir="x")
        assert machine.commands == []

    @pytest.mark.parametrize(
        "options",
        [{"branch": ""}, {"branch": "-x"}, {"branch": "a\0"}, {"depth": 0}, {"depth": True}, {"depth": -1},
         {"token": ""}, {"token": "a\nb"}, {"target_dir": ""}, {"target_dir": "a\0"}],
    )  # fmt: skip
    def test_bad_options(self, machine: Machine, origin: Path, options: dict[str, object]) -> None:
        """Options that make no sense raise before anything is run."""
        with pytest.raises(InvalidRequestError):
            machine.checkout(f"{origin}/repo", **options)  # type: ignore[arg-type]
        assert machine.commands == []

    @pytest.mark.parametrize(
        ("url", "name"),
        [
            ("https://h/a/b.git", "b"),
            ("https://h/a/b.git/", "b"),
            ("git@h:b", "b"),
            ("git@h:a/b.git", "b"),
            ("ssh://git@h:22/~/b.git", "b"),
            ("/srv/b/.git", "b"),
            ("../b", "b"),
            ("https://h/", "h"),
            ("/", None),
            ("..", None),
            ("file:///", None),
        ],
    )
    def test_name(self, machine: Machine, url: str, name: str | None) -> None:
        """E15: the directory is named as git does it; where there is no name, target_dir is asked for."""
        if name is not None:
            assert parse(url, None).name == name
        else:
            with pytest.raises(InvalidRequestError, match="target_dir"):
                machine.checkout(url)


class TestTimeouts:
    @pytest.fixture
    def silent(self) -> Iterator[str]:
        """A server that accepts and says nothing."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/x/repo.git"

    @pytest.mark.parametrize("last", [signal.SIGTERM, signal.SIGKILL])
    @pytest.mark.parametrize("before", [True, False])
    def test_nothing_is_left(self, machine: Machine, silent: str, last: int, before: bool) -> None:
        """T2: after a timeout nothing is left of the clone, even when git had no time to clean up."""
        machine.grace = last
        if before:
            (machine.cwd / "a/b").mkdir(parents=True)
        with pytest.raises(CommandTimeoutError) as caught:
            machine.checkout(silent, target_dir="a/b", timeout=1.0, token=TOKEN)
        assert machine.made() == (["a"] if before else [])
        assert not before or os.listdir(machine.cwd / "a/b") == []
        assert caught.value.command == f"git clone {silent}"
        assert (caught.value.stdout, caught.value.stdout_bytes) == ("", b"")

    def test_late_server(self, server: Server, machine: Machine) -> None:
        """T1, T2: a clone that is stopped after the server was asked leaves nothing and shows no secret."""
        with pytest.raises(CommandTimeoutError) as caught:
            machine.checkout(f"{server.url}/hang/bare.git", token=TOKEN, timeout=1.0)
        assert machine.made() == []
        assert TOKEN not in repr(vars(caught.value))

    @pytest.mark.parametrize("output", [b"", b"new\0/x", b"taken\0", b"junk", b"new\0/x\0"])
    def test_undo_needs_the_whole_word(self, machine: Machine, output: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
        """T2: what a stopped clone did not say in full, or not at all, is not acted on."""
        asked: list[str] = []

        def run(ref: SessionRef, request: CommandRequest) -> Process:
            asked.append(request.command)
            return Process("true", machine.root)

        monkeypatch.setattr(machine, "run", run)
        _git._undo(cast("Transport", machine), SessionRef("s", "x"), output)
        assert len(asked) == (1 if output.startswith(b"new\0/x\0") else 0)


class TestCredentials:
    def check(self, machine: Machine, server: Server, result: GitCheckoutResult) -> None:
        """No secret is in a result, a command, an argument list, or a file of the clone or the home."""
        secrets = (TOKEN, "pa:ss", "pa%3Ass", "bare-token")
        shown = repr(result) + "".join(machine.commands)
        stored = all_bytes_below(machine.root)
        for secret in secrets:
            assert secret not in shown
            assert shlex.quote(secret) not in shown
            assert secret.encode() not in stored
        assert server.leaks == []
        assert server.authorizations

    def test_token(self, machine: Machine, server: Server) -> None:
        """E15: a token of any characters works and appears nowhere."""
        result = machine.checkout(f"{server.url}/bare.git", token=TOKEN)
        assert result.branch == "trunk"
        assert result.repo_url == f"{server.url}/bare.git"
        assert set(server.authorizations) == {f"{USER}:{TOKEN}"}
        self.check(machine, server, result)
        assert git("remote", "get-url", "origin", cwd=Path(result.target_dir)).strip() == result.repo_url

    def test_url_credentials(self, machine: Machine, server: Server) -> None:
        """E15: user and password of the URL work and are taken out of it."""
        url = server.url.replace("://", "://user:pa%3Ass%2Fw%40rd@") + "/bare.git"
        result = machine.checkout(url)
        assert result.repo_url == f"{server.url}/bare.git"
        assert set(server.authorizations) == {"user:pa:ss/w@rd"}
        self.check(machine, server, result)

    def test_token_with_the_user_of_the_url(self, machine: Machine, server: Server) -> None:
        """E15: a token goes with the user of the URL and before its password."""
        server.users.add(f"me:{TOKEN}")
        result = machine.checkout(server.url.replace("://", "://me:wrong@") + "/bare.git", token=TOKEN)
        assert set(server.authorizations) == {f"me:{TOKEN}"}
        self.check(machine, server, result)

    def test_token_as_the_user(self, machine: Machine, server: Server) -> None:
        """E15: a URL with a user alone, which often is a token, works and hides it."""
        result = machine.checkout(server.url.replace("://", "://bare-token@") + "/bare.git")
        self.check(machine, server, result)

    def test_helpers_of_the_sandbox(self, machine: Machine, server: Server) -> None:
        """E15: the credential helpers of the sandbox are neither asked nor told when credentials were given."""
        (machine.root / "home/.gitconfig").write_text("[credential]\n\thelper = store\n")
        result = machine.checkout(f"{server.url}/bare.git", token=TOKEN)
        self.check(machine, server, result)
        stored = server.url.replace("://", f"://user:{'pa%3Ass%2Fw%40rd'}@")
        (machine.root / "home/.git-credentials").write_text(stored + "\n")
        assert machine.checkout(f"{server.url}/bare.git", target_dir="again").branch == "trunk"

    def test_other_hosts_get_nothing(self, machine: Machine, server: Server, origin: Path) -> None:
        """H5: a redirect to another host does not take the credentials along."""
        with Server(origin) as other:
            thread = threading.Thread(target=other.serve_forever, args=(0.01,), daemon=True)
            thread.start()
            server.redirect = other.url
            with pytest.raises(GitAuthenticationError):
                machine.checkout(f"{server.url}/moved/bare.git", token=TOKEN)
            assert machine.checkout(f"{server.url}/moved/open/bare.git", token=TOKEN).branch == "trunk"
            assert other.authorizations == []
            other.shutdown()
            thread.join()

    @pytest.mark.parametrize(
        ("path", "token", "error"),
        [
            ("bare.git", None, GitAuthenticationError),
            ("bare.git", "wr/o@n:g", GitAuthenticationError),
            ("forbidden/bare.git", TOKEN, GitAuthenticationError),
            ("none.git", TOKEN, GitRepositoryNotFoundError),
            ("echo/x.git", TOKEN, GitError),
        ],
    )
    def test_errors_hide_secrets(
        self, machine: Machine, server: Server, path: str, token: str | None, error: type[GitError]
    ) -> None:
        """E15: refused, missing and broken are told apart, and no error shows a secret, nor its pickle."""
        with pytest.raises(error) as caught:
            machine.checkout(f"{server.url}/{path}", token=token)
        assert type(caught.value) is error
        chain: BaseException | None = caught.value
        shown = b""
        while chain is not None:
            shown += repr(vars(chain)).encode() + str(chain).encode() + pickle.dumps(chain)
            chain = chain.__cause__ or chain.__context__
        for secret in filter(None, (token, TOKEN)):
            assert secret.encode() not in shown
            assert base64.b64encode(f"{USER}:{secret}".encode()) not in shown
        assert machine.made() == []
        assert server.leaks == []

    def test_servers_words_are_hidden(self, machine: Machine, server: Server) -> None:
        """E15: a server that repeats the credentials, in its own spelling, does not get them into an error."""
        source = parse("https://h/x", TOKEN)
        pair = base64.b64encode(f"{USER}:{TOKEN}".encode()).decode()
        assert (
            source.hide(f"remote: {TOKEN}, {pair}, to%2Fk%40n%3Awith%20%2541%20%27odd%27%20%24HOME")
            == "remote: ***, ***, ***"
        )

    @given(st.text(min_size=1), st.text())
    def test_any_url_is_taken_apart_or_refused(self, text: str, token: str) -> None:
        """E15: no text for a URL or a token is more than refused, and a password never stays in the URL."""
        for url in (text, f"https://{text}"):
            with suppress(InvalidRequestError):
                parse(url, token or None)
        with suppress(InvalidRequestError):
            # What begins as a port could be one.
            assert text[0].isdigit() or f"user:{text}@" not in parse(f"https://user:{text}@host/x", None).url


class TestOnThisMachine:
    def test_all_of_it(self, origin: Path, server: Server) -> None:
        """E7, E15: on a local sandbox the session keeps its state and environment, whatever becomes of the clone."""
        with LocalTransport() as transport, Sandbox(transport) as sandbox, sandbox.session() as session:
            session.exec("mkdir d && cd d && X=1 && set -e && git() { echo mine; } && alias sh=false")
            result = session.git_checkout(f"{server.url}/bare.git", token=TOKEN, depth=2)
            assert result.target_dir == f"{sandbox.workspace}/d/bare"
            assert session.exec("/usr/bin/env git -C bare rev-list --count HEAD").stdout == "2\n"
            with pytest.raises(GitBranchNotFoundError):
                session.git_checkout(f"{origin}/repo", branch="nope")
            listed = session.exec("pwd; echo $X ${SANDBOXSYNC_GIT_PASSWORD-none}; ls -A")
            assert listed.stdout == f"{sandbox.workspace}/d\n1 none\nbare\n"
        assert server.leaks == []

    def test_timeout(self, server: Server) -> None:
        """T1, T2: a clone that hangs ends in time, and leaves no process and no directory."""
        with LocalTransport() as transport, Sandbox(transport) as sandbox:
            started = time.monotonic()
            with pytest.raises(CommandTimeoutError):
                sandbox.git_checkout(
                    f"{server.url}/hang/bare.git", token=TOKEN, target_dir="/workspace/p/q", timeout=1.5
                )
            assert 1.4 < time.monotonic() - started < 5
            assert sandbox.exec("ls -A").stdout == ""
            port = server.url.rpartition(":")[2]
            assert sandbox.exec(f"pgrep -fc '[:]{port}/hang/bare.git'").stdout == "0\n"

    def test_errors_have_one_root(self) -> None:
        """Each of git's errors is a GitError and a SandboxError with a code of its own."""
        kinds = (GitAuthenticationError, GitRepositoryNotFoundError, GitBranchNotFoundError)
        assert len({kind.code for kind in kinds} | {GitError.code}) == 4
        assert all(issubclass(kind, GitError) and issubclass(kind, SandboxError) for kind in kinds)
