"""The examples of the service's session documentation word for word: their commands and absolute paths, unchanged.

The programs that they call are small scripts here, and the repository that they clone lies in the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import CommandTimeoutError, DefaultSessionError

pytestmark = pytest.mark.usefixtures("bubblewrap")

PROGRAMS = {
    "npm": 'echo "npm $* in $PWD: ${NODE_ENV-} ${API_URL-} debug=${DEBUG_MODE-unset}"',
    "node": 'echo "node $* on ${PORT-} with key [${ANTHROPIC_API_KEY-}]"; [ -z "${SERVE-}" ] || sleep 600',
    "ai-tool": 'echo "asked: $1 with key [$ANTHROPIC_API_KEY]"; echo "// server" >server.js',
}


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    """A transport that ends with the test."""
    with LocalTransport(isolation="bubblewrap", network=False) as transport:
        yield transport


@pytest.fixture
def sandbox(transport: LocalTransport) -> Sandbox:
    """A sandbox that is as an image might have made it: with programs and the directories of the examples."""
    sandbox = Sandbox(transport, env={"PATH": "/opt/bin:/usr/local/bin:/usr/bin:/bin"})
    for name, script in PROGRAMS.items():
        sandbox.write_file(f"/opt/bin/{name}", f"#!/bin/sh\n{script}\n")
    made = sandbox.get_session("image").exec(
        "chmod +x /opt/bin/* && mkdir -p /app /build /test /workspace/prod /workspace/test /workspace/project1"
    )
    assert made.success
    sandbox.delete_session("image")
    return sandbox


def test_separate_workflow_environments(sandbox: Sandbox) -> None:
    """`/workspace/prod` and `/workspace/test` build in parallel, each with its environment."""
    prod_session = sandbox.create_session(
        id="prod",
        env={"NODE_ENV": "production", "API_URL": "https://api.example.com"},
        cwd="/workspace/prod",
    )
    test_session = sandbox.create_session(
        id="test",
        env={"NODE_ENV": "test", "API_URL": "http://localhost:3000", "DEBUG_MODE": None},
        cwd="/workspace/test",
    )
    with ThreadPoolExecutor() as pool:
        prod, test = pool.map(lambda session: session.exec("npm run build").stdout, [prod_session, test_session])
    assert prod == "npm run build in /workspace/prod: production https://api.example.com debug=unset\n"
    assert test == "npm run build in /workspace/test: test http://localhost:3000 debug=unset\n"


def test_a_session_with_a_default_command_timeout(sandbox: Sandbox) -> None:
    """Five seconds for every command, three for one."""
    session = sandbox.create_session(command_timeout=5)
    with pytest.raises(CommandTimeoutError, match="after 5 s"):
        session.exec("sleep 10")
    with pytest.raises(CommandTimeoutError, match="after 3 s"):
        session.exec("sleep 10", timeout=3)


def test_a_repository_is_cloned_and_built_by_two_requests(sandbox: Sandbox, transport: LocalTransport) -> None:
    """The second request finds the session by its id, as the first left it."""
    image = sandbox.get_session("image")
    made = image.exec(
        "git config --global url./srv/.insteadOf https://github.com/user/ && git config --global user.name x && "
        "git config --global user.email x && git init -q /tmp/repo && cd /tmp/repo && echo '{}' >package.json && "
        "git add . && git commit -qm first && git clone -q --bare . /srv/repo.git"
    )
    assert made.success, made.stderr
    session = sandbox.create_session(id="build")
    assert session.exec("git clone https://github.com/user/repo.git").success
    assert session.exec("cd repo && npm install").stdout.startswith("npm install in /workspace/repo")
    session = Sandbox(transport, id=sandbox.id).get_session("build")
    session.exec("cd ..")
    result = session.exec("cd repo && npm run build")
    assert result.stdout.startswith("npm run build in /workspace/repo")


def test_the_default_session(sandbox: Sandbox, transport: LocalTransport) -> None:
    """It keeps `cd /app` and what was exported; without one, the next command is back in `/workspace`."""
    sandbox.exec("cd /app")
    assert sandbox.exec("pwd").stdout == "/app\n"
    sandbox.exec("export MY_VAR=hello")
    assert sandbox.exec("echo $MY_VAR").stdout == "hello\n"
    without = Sandbox(transport, id=sandbox.id, enable_default_session=False)
    without.exec("cd /app")
    assert without.exec("pwd").stdout == "/workspace\n"
    with pytest.raises(DefaultSessionError, match="Cannot delete default session"):
        sandbox.delete_session("default")


def test_sessions_made_on_first_use(sandbox: Sandbox) -> None:
    """An id that does not exist works, also that of a deleted session, whose variable is gone."""
    assert sandbox.exec("echo hello", session_id="new-session").stdout == "hello\n"
    assert sandbox.exec("pwd", session_id="new-session").stdout == "/workspace\n"
    session = sandbox.create_session(id="temp", env={"MY_VAR": "value"})
    assert session.exec("echo $MY_VAR").stdout == "value\n"
    sandbox.delete_session("temp")
    assert sandbox.exec("echo $MY_VAR", session_id="temp").stdout == "\n"


def test_sessions_for_separate_workflows(sandbox: Sandbox) -> None:
    """`/build` and `/test`, outside of the workspace, are directories of the sandbox like any other."""
    build_session = sandbox.create_session(id="build", env={"NODE_ENV": "production"}, cwd="/build")
    test_session = sandbox.create_session(id="test", env={"NODE_ENV": "test"}, cwd="/test")
    assert build_session.exec("npm run build").stdout.startswith("npm run build in /build: production")
    assert test_session.exec("npm test").stdout.startswith("npm test in /test: test")
    session = sandbox.create_session(id="ci", command_timeout=30)
    assert session.exec("npm test").success


def test_what_sessions_have_for_themselves_and_what_they_share(sandbox: Sandbox) -> None:
    """Variables and directories are a session's own; `/workspace/file.txt` and processes are everybody's."""
    session1 = sandbox.create_session(env={"API_KEY": "key-1"})
    session2 = sandbox.create_session(env={"API_KEY": "key-2"})
    assert (session1.exec("echo $API_KEY").stdout, session2.exec("echo $API_KEY").stdout) == ("key-1\n", "key-2\n")
    session1.exec("export MY_VAR=hello")
    assert session2.exec("echo $MY_VAR").stdout == "\n"
    session1.exec("cd /workspace/project1")
    assert session2.exec("pwd").stdout == "/workspace\n"
    session1.write_file("/workspace/file.txt", "data")
    assert session2.read_file("/workspace/file.txt").text == "data"
    session1.start_process("node server.js", env={"SERVE": "1"})
    assert [process.command for process in session2.list_processes()] == ["node server.js"]
    session1.exec("rm -rf /workspace/*")
    assert session2.list_files("/workspace") == []
    assert session2.exec("pwd").stdout == "/workspace\n"


def test_keys_for_one_phase_only(sandbox: Sandbox) -> None:
    """What writes the code has the key, what runs it has not."""
    dev_session = sandbox.create_session(id="dev", env={"ANTHROPIC_API_KEY": "secret"})
    assert dev_session.exec('ai-tool "build a web server"').stdout == "asked: build a web server with key [secret]\n"
    app_session = sandbox.create_session(id="app", env={"PORT": "3000"})
    assert app_session.exec("node server.js").stdout == "node server.js on 3000 with key []\n"


def test_user_data_in_a_sandbox_of_its_own(sandbox: Sandbox, transport: LocalTransport) -> None:
    """`rm -rf /workspace/*` in the sandbox of one user touches nobody else's."""
    sandbox.write_file("/workspace/file.txt", "data")
    user_sandbox = Sandbox(transport, id="user-123")
    user_sandbox.write_file("/workspace/file.txt", "theirs")
    user_sandbox.exec("rm -rf /workspace/*")
    assert sandbox.read_text("/workspace/file.txt") == "data"
