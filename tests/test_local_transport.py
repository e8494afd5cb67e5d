"""What only the local transport promises: its options, its supervisor, how it replaces a shell."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxsync import LocalTransport, Sandbox, Session, Stdout
from sandboxsync.errors import (
    CommandTimeoutError,
    ConfigurationError,
    ProcessNotFoundError,
    SessionTerminatedError,
)


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    """A transport that ends with the test."""
    with LocalTransport() as transport:
        yield transport


@pytest.fixture
def sandbox(transport: LocalTransport) -> Sandbox:
    """A sandbox of it."""
    return Sandbox(transport)


@pytest.fixture
def session(sandbox: Sandbox) -> Session:
    """A session of it."""
    return sandbox.create_session()


def _eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[1])


def _stop(session: Session) -> None:
    with pytest.raises(CommandTimeoutError):
        session.exec("while :; do :; done", timeout=0.2)


# Options


def test_a_system_without_bash_is_said_in_one_line() -> None:
    """`ConfigurationError`, before anything is started."""
    with pytest.raises(ConfigurationError, match="needs bash") as caught:
        LocalTransport(bash="no-such-bash")
    assert "\n" not in str(caught.value)


def test_a_program_that_is_no_bash_is_refused() -> None:
    """Neither another program nor an old bash is taken."""
    with pytest.raises(ConfigurationError, match=r"4\.4"):
        LocalTransport(bash="/bin/true")


def test_another_platform_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """On Windows it says that it needs a POSIX system with bash."""
    monkeypatch.setattr(sys, "platform", "win32")
    with pytest.raises(ConfigurationError, match="POSIX system with bash") as caught:
        LocalTransport()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("workspace", ["", "/no/such/directory", __file__, "a\0b", 5])
def test_a_workspace_must_be_a_directory(workspace: object) -> None:
    """Anything else is a `ConfigurationError`."""
    with pytest.raises(ConfigurationError):
        LocalTransport(workspace)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", ["PATH", [1], [None]])
def test_inherit_env_takes_names(names: object) -> None:
    """A string would be taken letter by letter."""
    with pytest.raises(ConfigurationError):
        LocalTransport(inherit_env=names)  # type: ignore[arg-type]


def test_S13_inherit_env_names_what_comes_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the caller's variables only those that are named, and only if they are set."""
    monkeypatch.setenv("WANTED", "w")
    monkeypatch.setenv("UNWANTED", "u")
    with LocalTransport(inherit_env=("WANTED", "MISSING")) as transport:
        result = Sandbox(transport).exec('echo "${WANTED-no} ${UNWANTED-no} ${MISSING-no}"')
    assert result.stdout == "w no no\n"


def test_a_workspace_that_was_given_stays(tmp_path: Path) -> None:
    """One sandbox whatever the id; its files are there afterwards, and programs had time to end in order."""
    with LocalTransport(tmp_path) as transport:
        first, second = Sandbox(transport, id="a"), Sandbox(transport, id="b")
        assert first.workspace == second.workspace == str(tmp_path.resolve())
        first.write_file("f", "x")
        process = second.start_process("trap 'echo bye > bye; exit' TERM; echo up; while :; do sleep 0.05; done")
        process.wait_for_log("up", timeout=10)
        first.destroy()
    assert (tmp_path / "f").read_text() == "x"
    assert (tmp_path / "bye").read_text() == "bye\n"


def test_nothing_is_started_before_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making a transport and a sandbox starts no process."""
    LocalTransport().close()  # which asks bash for its version, once
    monkeypatch.setattr(os, "posix_spawn", lambda *_, **__: pytest.fail("started"))
    with LocalTransport() as transport:
        Sandbox(transport)


def test_after_close_calls_raise(transport: LocalTransport) -> None:
    """A closed transport hosts nothing any more; closing again is no error."""
    sandbox = Sandbox(transport)
    sandbox.exec("true")
    transport.close()
    transport.close()
    with pytest.raises(ConfigurationError):
        sandbox.exec("true")


# What a session costs


def test_a_session_is_one_process_few_descriptors_and_no_thread(session: Session) -> None:
    """At most 4 descriptors of ours, also while a command runs."""
    session.sandbox.exec("true")
    before = len(os.listdir("/proc/self/fd"))
    threads = threading.active_count()
    pid = int(session.exec("echo $$").stdout)
    idle = len(os.listdir("/proc/self/fd")) - before
    assert Path(f"/proc/{pid}/task/{pid}/children").read_text() == ""
    with session.exec_stream("read -r _ <&0; sleep 60", stdin=b"x") as stream:
        next(stream)
        running = len(os.listdir("/proc/self/fd")) - before
    assert idle <= running <= 4
    assert threading.active_count() == threads


def test_a_session_goes_on_for_thousands_of_commands(session: Session) -> None:
    """The lines that its shell runs never run out, and those that were run take no room."""
    for number in range(1200):
        assert session.exec(f"echo {number}").stdout == f"{number}\n"
    (lines,) = Path(session.sandbox.workspace).parent.glob("s*/l")
    assert lines.stat().st_blocks * 512 < lines.stat().st_size / 2


# What a timeout leaves


def test_T3_a_state_larger_than_a_pipe_is_kept(session: Session) -> None:
    """Commands go on, and a stopped one costs nothing of it."""
    session.exec("for ((i = 0; i < 3000; i++)); do declare v$i=value_of_$i_xxxxxxxxxxxxxxxxxxxxxxx; done; last=$v2999")
    for _ in range(3):
        assert session.exec("echo ok").stdout == "ok\n"
    _stop(session)
    assert session.exec('[[ -n $v0 && $v2999 == "$last" ]] && echo kept').stdout == "kept\n"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30), max_size=5)
)
def test_T3_any_value_is_restored_exactly(session: Session, values: list[str]) -> None:
    """Variables, arrays, positional parameters and aliases hold the same text after the shell was replaced."""
    session.set_env_vars({"E": "".join(values)})
    session.exec(["set", "--", *values])
    session.exec('plain=$E; array=("$@"); unset map; declare -A map; map[$E]=x; alias name="$E"')
    look = 'printf "%s\\0" "$E" "$plain" "${array[@]}" "$#" "$@" "${!map[@]}" "${BASH_ALIASES[name]}"'
    before = session.exec(look).stdout_bytes
    with session.exec_stream("sleep 60") as stream:
        next(stream)
    assert session.exec(look).stdout_bytes == before


def test_T3_functions_with_the_names_of_builtins_are_restored(session: Session) -> None:
    """Also those that would get in the way of restoring."""
    names = ("declare", "alias", "trap", "umask", "cd", "shopt", "set", "eval", "mapfile", "read", "unset", "printf")
    for name in names:
        session.exec(f"{name}() {{ echo my {name}; }}")
    session.exec("export -f cd; ll() { echo LL; }")
    session.exec("x=1")
    _stop(session)
    for name in names:
        assert session.exec(name).stdout == f"my {name}\n"
    assert session.exec('bash -c cd; echo "$x"').stdout == "my cd\n1\n"


def test_T3_bodies_of_functions_are_not_expanded_again(session: Session) -> None:
    """An alias made after a function does not get into it."""
    session.exec("f() { hello; }; hello() { echo function; }")
    session.exec("alias hello='echo alias'")
    _stop(session)
    assert session.exec("f").stdout == "function\n"
    assert session.exec("hello").stdout == "alias\n"


def test_T2_jobs_of_earlier_commands_end_with_the_session(session: Session) -> None:
    """They live on when the shell is replaced, and not when the session is deleted."""
    pid = int(session.exec("sleep 300 & echo $!").stdout)
    _stop(session)
    session.exec("true")
    os.kill(pid, 0)
    session.delete()
    _eventually(lambda: not os.path.exists(f"/proc/{pid}"))


# The supervisor


def test_a_killed_supervisor_is_a_restart(transport: LocalTransport) -> None:
    """Commands in flight and the next call say so; then all works afresh, and nothing of the old life stays."""
    sandbox = Sandbox(transport)
    session, other = sandbox.create_session(), sandbox.create_session()
    shell = int(session.exec("echo $$").stdout)
    other.exec("true")
    process = sandbox.start_process("sleep 60")
    root = Path(sandbox.workspace).parent
    errors: list[SessionTerminatedError] = []

    def run() -> None:
        with pytest.raises(SessionTerminatedError) as caught:
            session.exec("echo begun; sleep 60")
        errors.append(caught.value)

    thread = threading.Thread(target=run)
    thread.start()
    _eventually(lambda: bool(Path(f"/proc/{shell}/task/{shell}/children").read_text()))
    os.kill(_parent(shell), signal.SIGKILL)
    thread.join(10)
    with pytest.raises(SessionTerminatedError) as caught:
        other.exec("true")
    assert caught.value.code == "SANDBOX_RESTARTED"
    assert [(error.code, error.stdout) for error in errors] == [("SANDBOX_RESTARTED", "begun\n")]
    assert other.exec("echo afresh").stdout == "afresh\n"
    with pytest.raises(ProcessNotFoundError):
        process.refresh()
    _eventually(lambda: not os.path.exists(f"/proc/{shell}"))
    _eventually(lambda: not os.path.exists(f"/proc/{process.pid}"))
    assert not root.exists()


def test_a_supervisor_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its own words are in the error."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with LocalTransport() as transport, pytest.raises(Exception, match="No such file or directory"):
        Sandbox(transport).exec("true")


def test_C5_files_without_permissions_are_removed(transport: LocalTransport) -> None:
    """Directories that their user locked are gone too."""
    sandbox = Sandbox(transport)
    sandbox.exec("mkdir -p a/b; touch a/b/c; chmod 0 a/b a")
    root = Path(sandbox.workspace).parent
    sandbox.destroy()
    assert not root.exists()


def test_C4_it_starts_in_a_program_that_ignores_its_children() -> None:
    """Neither an ignored SIGCHLD nor a closed standard input is in the way."""
    program = (
        "import signal, os; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.close(0)\n"
        "from sandboxsync import LocalTransport, Sandbox\n"
        "with LocalTransport() as t: print(Sandbox(t).exec('trap - CHLD; sleep 0.01; echo $?').stdout)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("0\n\n", "")


def test_a_job_may_write_for_ever(session: Session) -> None:
    """E4: what holds the pipes of a command that has ended neither blocks nor reaches another one."""
    pid = int(session.exec("yes >&2 & echo $!").stdout)
    for _ in range(20):
        assert session.exec("echo clean").stdout == "clean\n"
    assert os.path.exists(f"/proc/{pid}")


def test_jobs_that_end_with_their_command_do_not_spoil_the_session(session: Session) -> None:
    """Whenever a job lets go of the pipes: before, while or after the end of its command is looked at."""
    for number in range(300):
        assert session.exec(f"(exit 9) & (exit {number % 7})").exit_code == number % 7


FEW_DESCRIPTORS = """
import os, resource
from sandboxsync import LocalTransport, Sandbox
from sandboxsync.errors import SandboxUnavailableError
with LocalTransport() as transport:
    sandbox = Sandbox(transport, enable_default_session=False)
    session = sandbox.create_session()
    session.exec("true")
    held = len(os.listdir("/proc/self/fd"))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    for more in range(8):
        resource.setrlimit(resource.RLIMIT_NOFILE, (held - 1 + more, hard))
        for run in (sandbox.exec, session.exec, lambda text: session.exec(text, timeout=30)):
            try:
                assert run("echo ok").stdout == "ok\\n"
            except SandboxUnavailableError:
                continue
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    assert session.exec("echo ok").stdout == sandbox.exec("echo ok").stdout == "ok\\n"
    assert len(os.listdir("/proc/self/fd")) == held
"""


def test_without_descriptors_calls_fail_and_lose_nothing() -> None:
    """At each limit a call works or raises `SandboxUnavailableError`; sessions and descriptors are as before."""
    done = subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS], capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")


def test_T2_what_a_handler_of_term_starts_is_let_run(session: Session) -> None:
    """The programs of a clean-up are not ended one by one; the clean-up as a whole has its 2 seconds."""
    clean_up = "for i in 1 2 3 4 5 6 7 8; do sleep 0.05; touch done$i; done; exit"
    script = f"trap '{clean_up}' TERM; echo up; while :; do sleep 0.02; done"
    with session.exec_stream(["bash", "-c", script]) as stream:
        assert any(event == Stdout("up\n", b"up\n") for event in (next(stream), next(stream)))
    assert session.exec("ls").stdout.split() == [f"done{number}" for number in range(1, 9)]


def test_T3_a_shell_hears_nothing_that_was_meant_for_another(sandbox: Sandbox, session: Session) -> None:
    """A shell that is killed before it has heard of its command leaves the next one neither that nor a wrong end."""
    session.exec("A=kept")
    pid = int(session.exec("echo $$").stdout)
    place = os.path.dirname(os.path.realpath(f"/proc/{pid}/fd/0"))
    # As somebody does who has not yet let go of them.
    held = [os.open(f"{place}/{name}", os.O_RDWR | os.O_NONBLOCK) for name in "krs"]
    try:
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(CommandTimeoutError):
            session.exec("touch stale; sleep 60", timeout=0.05)
        # In a busy moment it was let go on in time, and has run.
        ran = sandbox.exists("stale")
        assert session.exec("echo $A", timeout=20).stdout == "kept\n"
        assert sandbox.exists("stale") == ran
    finally:
        for fd in held:
            os.close(fd)


def test_S10_a_shell_that_is_stopped_while_it_writes_its_state_goes_on(session: Session) -> None:
    """Whoever stopped it: a call takes no longer than its timeout, and a bit."""
    session.exec("for ((i = 0; i < 2000; i++)); do declare v$i=xxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done")
    for _ in range(3):
        os.kill(int(session.exec("echo $$").stdout), signal.SIGSTOP)
        started = time.monotonic()
        assert session.exec("echo ok", timeout=20).stdout == "ok\n"
        assert time.monotonic() - started < 10
