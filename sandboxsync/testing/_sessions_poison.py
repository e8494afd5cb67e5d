"""S10 and S11: no command can poison a session."""

from __future__ import annotations

import os
from contextlib import suppress

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import CommandTimeoutError, OutputLimitError, SandboxError, SessionTerminatedError
from sandboxsync.transports.base import Capability

from ._oddities import ODDITIES, SIGNALS, SYNTAX_ERRORS
from ._tools import SLACK, requires, requires_for, within


def assert_usable(session: Session, may_end: bool = False) -> None:
    """The next `echo ok` prints just that; if *may_end*, one more shell may have ended instead."""
    with within(3):
        try:
            result = session.exec("echo ok", timeout=10)
        except SessionTerminatedError:
            assert may_end
            result = session.exec("echo ok", timeout=10)
    assert (result.stdout, result.exit_code) == ("ok\n", 0)
    assert session.exec("echo again", timeout=10).stdout == "again\n"


class PoisonRules:
    """Rules S10 and S11."""

    @pytest.mark.parametrize("command", ODDITIES)
    def test_S10_no_command_poisons_its_session(self, session: Session, command: str) -> None:
        """After any oddity the next `echo ok` prints just that, unless the oddity ended the shell, and said so."""
        with within(4 + SLACK):
            try:
                session.exec(command, timeout=3 + SLACK)
            except SessionTerminatedError:
                pass
            except CommandTimeoutError as error:
                raise AssertionError("the command hung") from error
        # `set -t` asks the shell to end after one more command.
        assert_usable(session, may_end=command == "set -t")

    @requires(Capability.OS_PROCESSES)
    @pytest.mark.parametrize("command", SIGNALS)
    def test_S10_no_signal_poisons_a_session(self, session: Session, command: str) -> None:
        """Nor does a signal to the shell, be it one that stops it."""
        with within(5), suppress(SessionTerminatedError, CommandTimeoutError):
            session.exec(command, timeout=1)
        assert_usable(session)

    @requires(Capability.OS_PROCESSES)
    def test_S10_a_signal_to_its_process_group_does_not_poison(self, sandbox: Sandbox, session: Session) -> None:
        """`kill 0` reaches what belongs to the session, and nobody else."""
        look = "read -r _ _ _ _ group _ < /proc/$$/stat; echo $group"
        groups = [caller.exec(look).stdout.strip() for caller in (session, sandbox)]
        # The signal below would reach the tests themselves, or another session.
        assert len({*groups, str(os.getpgrp())}) == 3
        with within(5), suppress(SessionTerminatedError, CommandTimeoutError):
            session.exec("kill -9 0", timeout=1)
        assert_usable(session)
        assert sandbox.exec("echo ok").stdout == "ok\n"

    @requires(Capability.OS_PROCESSES)
    def test_S10_endless_recursion_ends_the_shell_at_most(self, session: Session) -> None:
        """A shell that overflows its stack has ended, as after any signal."""
        with within(20), suppress(SessionTerminatedError):
            session.exec("ulimit -c 0; ulimit -Ss 1024; f() { f; }; f", timeout=20)
        assert_usable(session)

    @requires(Capability.OS_PROCESSES)
    def test_S10_too_little_memory_ends_the_shell_at_most(self, session: Session) -> None:
        """A shell that can get no more memory may end, now or in the next command, and says so."""
        with within(5), suppress(SessionTerminatedError):
            session.exec("ulimit -Sv 10000; x=$(printf '%010000000d' 1)", timeout=5)
        assert_usable(session, may_end=True)

    def test_S10_all_options_at_once(self, session: Session) -> None:
        """Each option of `set -o`, switched on or off alone, leaves the session usable."""
        names = session.exec("set -o | cut -f1").stdout.split()
        assert "errexit" in names
        for name in names:
            for switch in ("-o", "+o"):
                with suppress(SessionTerminatedError):
                    session.exec(f"set {switch} {name}", timeout=5)
                assert_usable(session, may_end=name == "onecmd")

    @pytest.mark.parametrize("command", ["sleep 30", "while :; do :; done", "cat <(sleep 30)", "read x < fifo"])
    @requires_for(["read x < fifo"], Capability.OS_PROCESSES)
    def test_S10_a_timeout_does_not_poison(self, session: Session, command: str) -> None:
        """Nor does a command that is stopped at its timeout."""
        session.exec("mkfifo fifo")
        with pytest.raises(CommandTimeoutError), within(3):
            session.exec(command, timeout=0.3)
        assert_usable(session)

    @pytest.mark.parametrize("command", ["while :; do echo noise; done", "yes", "seq 100000; sleep 30"])
    def test_S10_an_output_limit_does_not_poison(self, session: Session, command: str) -> None:
        """Nor does one that printed too much."""
        with pytest.raises(OutputLimitError) as caught, within(3):
            session.exec(command, max_output=1000)
        assert len(caught.value.stdout_bytes) == 1000
        assert_usable(session)

    def test_S10_a_broken_stream_does_not_poison(self, session: Session) -> None:
        """Nor does a stream that is left, closed or killed half-way, again and again."""
        for number in range(12):
            with session.exec_stream("while :; do echo noise; sleep 0.01; done") as stream:
                next(stream)
                if number % 4 == 1:
                    stream.kill()
                elif number % 4 == 2:
                    stream.close()
                elif number % 4 == 3:
                    next(stream)
            assert_usable(session)

    def test_S10_an_exception_of_the_caller_does_not_poison(self, session: Session) -> None:
        """Nor does an exception raised while output is handed over."""

        def refuse(stream: str, text: str) -> None:
            raise LookupError(text)

        with pytest.raises(LookupError), within(3):
            session.exec("echo noise; sleep 30", on_output=refuse)
        assert_usable(session)

    def test_S10_bad_requests_do_not_poison(self, sandbox: Sandbox, session: Session) -> None:
        """Nor do calls that fail before or after they reach the session."""
        for attempt in (
            lambda: session.exec(""),
            lambda: session.exec("true", timeout=0),
            lambda: session.exec("true", env={"A B": "x"}),
            lambda: session.exec("printf '\\xff'", errors="strict"),
            lambda: session.exec("false", check=True),
            lambda: session.read_file("no-such-file"),
            lambda: session.start_process("true", cwd="no-such-directory"),
        ):
            with pytest.raises(SandboxError):
                attempt()
            assert_usable(session)
        assert [process.status for process in sandbox.list_processes()] == []

    @pytest.mark.parametrize("command", SYNTAX_ERRORS)
    @requires_for(["echo ${"], Capability.NATIVE_PROGRAMS)
    def test_S11_a_syntax_error_is_a_result(self, session: Session, command: str) -> None:
        """Exit code 2, the shell's message on stderr, and a session that lives on."""
        session.exec("V=kept")
        with within(2):
            result = session.exec(command)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr
        assert session.exec("echo $V").stdout == "kept\n"

    @requires(Capability.NATIVE_PROGRAMS)
    def test_S11_what_comes_before_the_error_runs(self, session: Session) -> None:
        """As in a script, the lines above the wrong one have run."""
        result = session.exec("echo a\n)\necho b")
        assert (result.exit_code, result.stdout) == (2, "a\n")
        assert session.exec("echo $?").stdout == "2\n"
