"""E12 to E15: whose turn it is, and what is seen while a command runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, SessionBusyError
from sandboxsync.models import Completed, Stderr, Stdout
from sandboxsync.transports.base import Capability

from ._tools import (
    eventually,
    file_exists,
    in_real_time,
    in_threads,
    long_sleep,
    requires,
    running,
    start,
    unique,
    within,
)


class OrderRules:
    """Rules E12 to E15."""

    def test_E12_commands_of_a_session_run_one_at_a_time(self, session: Session) -> None:
        """No two overlap, whoever asked for them."""
        script = 'echo "$ME" >> log; sleep 0.03; echo "$ME" >> log; echo "$ME"'
        results = in_threads(8, lambda i: session.exec(script, env={"ME": str(i)}).stdout)
        assert results == [f"{i}\n" for i in range(8)]
        lines = session.read_text("log").split()
        assert lines[::2] == lines[1::2]
        assert sorted(lines[::2]) == [str(i) for i in range(8)]

    def test_E12_they_run_in_the_order_asked(self, sandbox: Sandbox, session: Session) -> None:
        """First come, first served."""
        first = start(lambda: session.exec("touch begun; until test -e go; do sleep 0.02; done"))
        eventually(lambda: file_exists(sandbox, "begun"))
        calls = []
        for number in range(6):
            calls.append(start(lambda number=number: session.exec(f"echo {number} >> order")))  # type: ignore[misc]
            # There is no way to see that a call stands in line.
            time.sleep(0.1)
        sandbox.write_file("go", "")
        for call in (first, *calls):
            assert call.result(20).exit_code == 0
        assert session.read_text("order").split() == ["0", "1", "2", "3", "4", "5"]

    @in_real_time
    def test_E12_sessions_run_in_parallel(self, sandbox: Sandbox) -> None:
        """Each of three sessions waits for what the others do."""
        script = 'touch "seen$ME"; until test -e seen0 -a -e seen1 -a -e seen2; do sleep 0.02; done; echo $ME'
        results = in_threads(
            3, lambda i: sandbox.exec(script, session_id=f"s{i}", env={"ME": str(i)}, timeout=20).stdout
        )
        assert results == ["0\n", "1\n", "2\n"]

    def test_E12_any_thread_may_use_the_objects(self, sandbox: Sandbox) -> None:
        """Sixteen threads share one `Sandbox`: commands, files and lists each give their own."""

        def mixed(number: int) -> None:
            name = f"f{number}"
            for round_ in range(5):
                text = f"{number}-{round_}\n"
                sandbox.write_file(name, text)
                assert sandbox.exec(f"cat {name}").stdout == text
                assert sandbox.exec(f"cat {name}", session_id=f"s{number % 4}").stdout == text
                assert sandbox.read_text(name) == text
                assert name in [info.name for info in sandbox.list_files()]

        in_threads(16, mixed)

    @pytest.mark.parametrize("command", ["seq 20000; seq 20000 >&2", "printf 'é€😀%.0s' {1..3000}", "true"])
    def test_E13_on_output_sees_all_before_exec_returns(self, session: Session, command: str) -> None:
        """Joined, the pieces are the result, in order and on the calling thread."""
        pieces: dict[str, list[str]] = {"stdout": [], "stderr": []}
        result = session.exec(command, on_output=lambda stream, text: pieces[stream].append(text))
        assert {name: "".join(texts) for name, texts in pieces.items()} == {
            "stdout": result.stdout,
            "stderr": result.stderr,
        }
        assert all(all(texts) for texts in pieces.values())

    @requires(Capability.OS_PROCESSES)
    def test_E13_what_on_output_raises_ends_the_command(self, sandbox: Sandbox, session: Session) -> None:
        """It reaches the caller as it is, and nothing of the command runs on."""
        job = long_sleep()

        def refuse(stream: str, text: str) -> None:
            raise LookupError(f"{stream} {text}")

        session.exec("V=kept")
        with within(3), pytest.raises(LookupError, match="stdout hello"):
            session.exec(f"printf hello; {job}", on_output=refuse)
        eventually(lambda: not running(sandbox, job), 2)
        assert session.exec("echo $V").stdout == "kept\n"

    @pytest.mark.parametrize("redirect", ["", " >&2"])
    @in_real_time
    def test_E14_output_is_seen_at_once(self, session: Session, redirect: str) -> None:
        """What is written without a line end is there 100 ms later, while the command still runs."""
        kind = Stderr if redirect else Stdout
        leads: list[float] = []
        # The machine may be busy: one quiet moment in ten proves it.
        while len(leads) < 10 and not any(lead > 0.4 for lead in leads):
            with session.exec_stream(f"printf a{redirect}; sleep 0.5; printf b{redirect}") as stream:
                seen = {}
                for event in stream:
                    seen[event.text if isinstance(event, kind) else type(event)] = time.monotonic()
            leads.append(seen["b"] - seen["a"])
        assert leads[-1] > 0.4, leads

    @in_real_time
    def test_E14_callbacks_see_output_at_once(self, sandbox: Sandbox, session: Session) -> None:
        """A command can wait for what the caller does when it sees a prompt."""

        def answer(stream: str, text: str) -> None:
            if "password? " in text:
                sandbox.write_file("answer", "secret")

        script = "printf 'password? '; until test -e answer; do sleep 0.02; done; cat answer"
        result = session.exec(script, on_output=answer, timeout=20)
        assert result.stdout == "password? secret"

    def test_E15_other_calls_do_not_wait_for_a_command(self, sandbox: Sandbox, session: Session) -> None:
        """Files, processes, lists and logs answer while the session is busy."""
        process = session.start_process("echo log; sleep 60")
        with session.exec_stream("sleep 60"):
            with within(3):
                session.write_file("f", "x")
                assert session.read_text("f") == "x"
                assert session.exists("f")
                session.mkdir("d")
                session.rename_file("f", "d/f")
                assert [info.path for info in session.list_files("d")] == [f"{sandbox.workspace}/d/f"]
                session.delete_file("d/f")
                assert session.start_process("true").wait_for_exit(20) == 0
                assert process.id in [found.id for found in session.list_processes()]
                assert process.wait_for_log("log", timeout=10).line == "log"
                assert sandbox.list_sessions() == [session.id]
                session.kill_process(process.id)

    @in_real_time
    def test_E15_they_see_the_session_as_its_last_command_left_it(self, session: Session) -> None:
        """Its directory and exports, not what the running command has changed so far."""
        session.exec("mkdir -p d/e; cd d; export A=1; B=plain")
        with session.exec_stream("cd e; export A=2 B; echo changed; sleep 60; true") as stream:
            assert any(isinstance(event, Stdout) for event in (next(stream), next(stream)))
            assert session.write_file("f", "x").path.endswith("/d/f")
            process = session.start_process('echo "$A [$B] ${PWD##*/}"')
            assert process.wait_for_exit(20) == 0
            assert process.logs().stdout == "1 [] d\n"
            stream.kill()

    def test_E15_they_follow_each_command(self, session: Session) -> None:
        """After every command that changed them, directory and exports are the new ones."""
        for name in ("one", "two"):
            session.exec(f"mkdir {name}; cd {name}; export A={name}; unset B; export C")
            session.write_file("f", name)
            process = session.start_process('echo "$A ${PWD##*/}"; cat f')
            process.wait_for_exit(20)
            assert process.logs().stdout == f"{name} {name}\n{name}"

    def test_E15_a_call_that_would_wait_for_itself_raises(self, sandbox: Sandbox, session: Session) -> None:
        """Inside its own `on_output`, or with an open stream: `SessionBusyError` at once, and nothing is harmed."""
        attempts: list[Callable[[], object]] = [
            lambda: session.exec("true"),
            lambda: session.exec("true", timeout=5),
            lambda: session.exec_stream("true"),
            lambda: session.set_env_vars({"A": "1"}),
            lambda: sandbox.exec("true", session_id=session.id),
        ]
        if Capability.NATIVE_PROGRAMS in sandbox.transport.capabilities:
            attempts.append(lambda: session.git_checkout("https://git.invalid/x.git"))

        def attempt_all() -> None:
            for attempt in attempts:
                with within(1), pytest.raises(SessionBusyError):
                    attempt()
            assert session.write_file("f", "x").size == 1
            assert sandbox.exec("echo other").stdout == "other\n"

        seen: list[str] = []

        def callback(stream: str, text: str) -> None:
            seen.append(text)
            attempt_all()

        assert session.exec("printf a", on_output=callback).stdout == "a"
        assert seen == ["a"]
        with session.exec_stream("echo b; sleep 0.1") as stream:
            attempt_all()
            events = list(stream)
        assert isinstance(events[-1], Completed)
        assert session.exec("echo ok").stdout == "ok\n"

    def test_E15_another_thread_waits_for_its_turn(self, sandbox: Sandbox, session: Session) -> None:
        """A call from elsewhere is served when the stream has ended."""
        with session.exec_stream("until test -e go; do sleep 0.02; done; echo first >> order") as stream:
            call = start(lambda: session.exec("echo second >> order"))
            with pytest.raises(CommandTimeoutError) as caught:
                start(lambda: session.exec("echo never >> order", timeout=0.3)).result(20)
            assert not caught.value.started
            sandbox.write_file("go", "")
            assert stream.result().exit_code == 0
        assert call.result(20).exit_code == 0
        assert session.read_text("order") == "first\nsecond\n"

    def test_E15_upload_and_download_do_not_wait(self, session: Session, tmp_path: Path) -> None:
        """Nor do the calls that are made of file calls."""
        local = tmp_path / unique("file")
        local.write_text("x")
        with session.exec_stream("sleep 60"):
            with within(2):
                session.upload(local, "up")
                session.download("up", tmp_path / "down")
        assert (tmp_path / "down").read_text() == "x"
