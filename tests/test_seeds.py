"""The examples of the service's session documentation, as Python; absolute paths are below the workspace."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, DefaultSessionError
from sandboxsync.transports.base import Transport

BUILD = (
    'mkdir -p out && echo "$NODE_ENV for ${API_URL-nobody} debug=${DEBUG_MODE-unset}" > out/result && cat out/result\n'
)


@pytest.fixture
def project(sandbox: Sandbox) -> Sandbox:
    """A sandbox with the directories of the examples; `sh npm.sh` stands for `npm run build`."""
    for name in ("app", "build", "prod", "test", "project1"):
        sandbox.mkdir(name)
        sandbox.write_file(f"{name}/npm.sh", BUILD)
    return sandbox


def test_separate_workflow_environments_in_parallel(project: Sandbox) -> None:
    """Two sessions with their own env and directory build side by side; an undefined value is skipped."""
    workspace = project.workspace
    prod_session = project.create_session(
        id="prod",
        env={"NODE_ENV": "production", "API_URL": "https://api.example.com"},
        cwd=f"{workspace}/prod",
    )
    test_session = project.create_session(
        id="test",
        env={"NODE_ENV": "test", "API_URL": "http://localhost:3000", "DEBUG_MODE": None},
        cwd=f"{workspace}/test",
    )
    with ThreadPoolExecutor() as pool:
        prod_call = pool.submit(prod_session.exec, "sh npm.sh")
        test_call = pool.submit(test_session.exec, "sh npm.sh")
    assert prod_call.result().stdout == "production for https://api.example.com debug=unset\n"
    assert test_call.result().stdout == "test for http://localhost:3000 debug=unset\n"
    assert project.read_text("prod/out/result") == prod_call.result().stdout


def test_a_session_with_a_default_command_timeout(sandbox: Sandbox) -> None:
    """Every command of the session ends at its timeout; that of a command overrides it."""
    session = sandbox.create_session(command_timeout=0.5)
    with pytest.raises(CommandTimeoutError) as caught:
        session.exec("sleep 10")
    assert caught.value.timeout == 0.5
    with pytest.raises(CommandTimeoutError) as caught:
        session.exec("sleep 10", timeout=0.3)
    assert caught.value.timeout == 0.3
    assert session.exec("sleep 0.7; echo done", timeout=30).stdout == "done\n"


def test_a_session_is_resumed_by_its_id(sandbox: Sandbox, transport: Transport) -> None:
    """Another request gets the session back with its environment and directory."""
    session = sandbox.create_session(id="build")
    session.exec("mkdir repo && echo 'echo built $MODE > made' > repo/build.sh; export MODE=fast")
    session.exec("cd repo && sh build.sh")
    resumed = Sandbox(transport, id=sandbox.id).get_session("build")
    result = resumed.exec('cat made && sh build.sh && echo "${PWD##*/} $MODE"')
    assert result.stdout == "built fast\nrepo fast\n"


def test_a_temporary_session_is_deleted_whatever_happens(sandbox: Sandbox) -> None:
    """`finally: delete_session` cleans up, and says what it deleted."""
    temp_session = sandbox.create_session(id="temp-task")
    results = []
    with pytest.raises(LookupError):
        try:
            temp_session.exec("echo heavy task", check=True)
            raise LookupError
        finally:
            results.append(sandbox.delete_session("temp-task"))
    result = results[0]
    assert (result.success, result.session_id) == (True, "temp-task")
    assert abs((datetime.now(timezone.utc) - result.timestamp).total_seconds()) < 300
    assert sandbox.list_sessions() == []


def test_environment_variables_are_set_and_unset(transport: Transport) -> None:
    """`set_env_vars` sets what has a value and unsets what has none; the commands that follow see it."""
    with Sandbox(transport, "user-123", on_exit="destroy") as sandbox:
        sandbox.write_file("script.sh", 'echo "$API_KEY $DATABASE_URL $NODE_ENV ${OLD_TOKEN-unset}"\n')
        sandbox.exec("export OLD_TOKEN=old")
        sandbox.set_env_vars({"API_KEY": "key", "DATABASE_URL": "db://x", "NODE_ENV": "production", "OLD_TOKEN": None})
        assert sandbox.exec("sh script.sh").stdout == "key db://x production unset\n"


def test_the_default_session_keeps_state(project: Sandbox) -> None:
    """Directory and exported variables stay from one command to the next."""
    app = f"{project.workspace}/app"
    project.exec(f"cd {app}")
    assert project.exec("pwd").stdout == f"{app}\n"
    project.exec("export MY_VAR=hello")
    assert project.exec("echo $MY_VAR").stdout == "hello\n"


def test_without_a_default_session_nothing_is_inherited(project: Sandbox, transport: Transport) -> None:
    """With `enable_default_session=False` the second command is back in the workspace."""
    sandbox = Sandbox(transport, id=project.id, enable_default_session=False)
    sandbox.exec(f"cd {project.workspace}/app")
    assert sandbox.exec("pwd").stdout == f"{project.workspace}\n"


def test_a_session_is_made_on_first_use(sandbox: Sandbox) -> None:
    """An id that does not exist is a session with defaults."""
    assert sandbox.exec("echo hello", session_id="new-session").stdout == "hello\n"
    assert sandbox.list_sessions() == ["new-session"]
    assert sandbox.exec("pwd", session_id="new-session").stdout == f"{sandbox.workspace}\n"


def test_a_deleted_session_is_made_again_with_defaults(sandbox: Sandbox) -> None:
    """The id works, and the variable is not set."""
    session = sandbox.create_session(id="temp", env={"MY_VAR": "value"})
    assert session.exec("echo $MY_VAR").stdout == "value\n"
    sandbox.delete_session("temp")
    assert sandbox.exec("echo $MY_VAR", session_id="temp").stdout == "\n"


def test_sessions_for_separate_workflows(project: Sandbox) -> None:
    """Each has a shell, an environment and a directory of its own."""
    workspace = project.workspace
    build_session = project.create_session(id="build", env={"NODE_ENV": "production"}, cwd=f"{workspace}/build")
    test_session = project.create_session(id="test", env={"NODE_ENV": "test"}, cwd=f"{workspace}/test")
    assert build_session.exec("sh npm.sh").stdout.startswith("production ")
    assert test_session.exec("sh npm.sh").stdout.startswith("test ")
    build_session.exec("export MY_VAR=hello")
    assert test_session.exec("echo $MY_VAR").stdout == "\n"
    build_session.exec(f"cd {workspace}/project1")
    assert build_session.exec("pwd").stdout == f"{workspace}/project1\n"
    assert test_session.exec("pwd").stdout == f"{workspace}/test\n"


def test_sessions_have_their_own_variables(sandbox: Sandbox) -> None:
    """What `create_session` was given belongs to that session."""
    session1 = sandbox.create_session(env={"API_KEY": "key-1"})
    session2 = sandbox.create_session(env={"API_KEY": "key-2"})
    assert session1.exec("echo $API_KEY").stdout == "key-1\n"
    assert session2.exec("echo $API_KEY").stdout == "key-2\n"


@pytest.fixture
def pair(sandbox: Sandbox) -> tuple[Session, Session]:
    """Two sessions of one sandbox."""
    return sandbox.create_session(), sandbox.create_session()


def test_sessions_share_files(pair: tuple[Session, Session]) -> None:
    """What one writes the other reads, and deleting affects both."""
    session1, session2 = pair
    path = f"{session1.sandbox.workspace}/file.txt"
    session1.write_file(path, "data")
    assert session2.read_file(path).text == "data"
    session1.exec(f"rm -rf {session1.sandbox.workspace}/*")
    assert not session2.exists(path)


def test_sessions_share_processes(pair: tuple[Session, Session]) -> None:
    """What one starts the other sees, and may kill."""
    session1, session2 = pair
    process = session1.start_process("echo listening; sleep 600")
    assert [seen.command for seen in session2.list_processes()] == ["echo listening; sleep 600"]
    assert process.wait_for_log("listening", timeout=30).line == "listening"
    session2.kill_process(process.id)
    assert process.refresh().status == "killed"


def test_keys_of_one_phase_are_not_in_the_next(sandbox: Sandbox) -> None:
    """Code written with a secret at hand runs in a session without it."""
    dev_session = sandbox.create_session(id="dev", env={"ANTHROPIC_API_KEY": "secret"})
    dev_session.exec("echo 'echo \"port $PORT key [$ANTHROPIC_API_KEY]\"' > server.sh")
    assert dev_session.exec("sh server.sh").stdout == "port  key [secret]\n"
    app_session = sandbox.create_session(id="app", env={"PORT": "3000"})
    assert app_session.exec("sh server.sh").stdout == "port 3000 key []\n"


def test_the_default_session_cannot_be_deleted(sandbox: Sandbox) -> None:
    """The error says what to do instead, word for word."""
    sandbox.exec("V=kept")
    with pytest.raises(DefaultSessionError) as caught:
        sandbox.delete_session("default")
    assert str(caught.value) == "Cannot delete default session. Use sandbox.destroy() instead."
    assert sandbox.exec("echo $V").stdout == "kept\n"


def test_the_methods_that_sessions_have(session: Session) -> None:
    """All methods of the table are bound to the session."""
    for name in (
        *("exec", "exec_stream", "set_env_vars", "terminal", "git_checkout"),
        *("start_process", "list_processes", "kill_process", "kill_all_processes"),
        *("get_process_logs", "stream_process_logs"),
        *("write_file", "read_file", "mkdir", "delete_file", "rename_file", "move_file"),
        *("create_code_context", "run_code", "list_code_contexts", "delete_code_context"),
    ):
        assert callable(getattr(session, name)), name
