"""A session of the fake: what it is made from, its shell, and how that is replaced."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sandboxsync._unset import Timeout, Unset
from sandboxsync.errors import (
    CommandTimeoutError,
    SessionDestroyedError,
    SessionError,
    SessionTerminatedError,
)
from sandboxsync.transports._turn import Turn
from sandboxsync.transports.base import CommandRequest, Environment, Exited, SessionSpec
from sandboxsync.transports.fake._command import FakeCommand
from sandboxsync.transports.fake._shell import Cut, Died, Ended, Settings, Shell, Stopped

if TYPE_CHECKING:
    from sandboxsync.transports.fake._sandbox import FakeSandbox

__all__ = ["FakeSession"]


class FakeSession:
    """What a sandbox keeps of a session. Its shell starts with the first command and is replaced when it ended."""

    def __init__(self, sandbox: FakeSandbox, session_id: str, spec: SessionSpec, directory: str) -> None:
        self.id = session_id
        self.turn = Turn()
        self.env: dict[str, str | None] = dict(spec.env)
        self.command_timeout = spec.command_timeout
        self.directory = directory
        """Where its commands run now: the shell's directory when its last command ended."""
        self.exported: Mapping[str, str] = sandbox.environment(self.env)
        """The environment of its programs when its last command ended."""
        self._start_directory = directory
        self._sandbox = sandbox
        self._shell: Shell | None = None
        self._died = False
        self._current: FakeCommand | None = None

    def has_died(self) -> bool:
        """Whether its shell ended by itself and no other was started."""
        return self._died

    # Commands

    def run(self, request: CommandRequest, begin: Callable[[FakeCommand], None] = lambda command: None) -> FakeCommand:
        """Start a command when its turn comes. See `Transport.run`. `begin` is called with it before it runs."""
        clock = self._sandbox.engine.clock
        timeout = self._limit(request)
        until = None if timeout is None else clock.monotonic() + timeout
        self._wait_for_turn(timeout, until)
        try:
            left = None if until is None else until - clock.monotonic()
            if timeout is not None and left is not None and left <= 0:
                raise _busy(timeout)
            shell = self._ready_shell()
            return self._start(shell, request, timeout, left, begin)
        except BaseException:
            self.turn.release()
            raise

    def _limit(self, request: CommandRequest) -> float | None:
        if not isinstance(request.timeout, Unset):
            return request.timeout
        if not isinstance(self.command_timeout, Unset):
            return self.command_timeout
        return request.default_timeout

    def _wait_for_turn(self, timeout: float | None, until: float | None) -> None:
        clock = self._sandbox.engine.clock

        def look() -> None:
            if self._current is not None and self._current.is_over():
                self._end_turn(self._current)
            if timeout is not None and until is not None and clock.monotonic() >= until:
                raise _busy(timeout)

        if not self.turn.acquire(timeout, look):
            assert timeout is not None
            raise _busy(timeout)

    def _start(
        self,
        shell: Shell,
        request: CommandRequest,
        timeout: float | None,
        left: float | None,
        begin: Callable[[FakeCommand], None],
    ) -> FakeCommand:
        sandbox = self._sandbox
        command = FakeCommand(sandbox.engine, request.command, request.stdin, timeout, self._terminated)
        command.on_over = lambda: self._end_turn(command)
        begin(command)
        self._current = command
        cwd = None if request.cwd is None else sandbox.resolve(request.cwd, self.directory)
        if cwd is not None and command.fails_in(request.cwd, sandbox.directory_problem(cwd)):
            return command
        command.on_ended = self._command_ended
        command.settings = Settings(request.env, cwd)
        command.start(shell, left)
        return command

    def _command_ended(self, command: FakeCommand, how: Cut | Died | Ended | Stopped) -> None:
        """Note what the next command starts from."""
        shell = self._shell
        if shell is None:
            return
        if isinstance(how, Died):
            self._lose_shell()
        elif isinstance(how, Ended):
            self.directory, self.exported = shell.directory, shell.env

    def _lose_shell(self) -> None:
        """The shell ended by itself: the next one starts as the first did."""
        self._shell = None
        self._died = True
        self.directory = self._start_directory
        self.exported = self._sandbox.environment(self.env)

    def _end_turn(self, command: FakeCommand) -> None:
        if self._current is command:
            self._current = None
            self.turn.release()

    def _terminated(self, how: Died) -> SessionTerminatedError:
        if how.spoilt:
            return SessionTerminatedError(
                f"session {self.id!r}: the command left its shell in a state that no other command can run in",
                session_id=self.id,
            )
        return SessionTerminatedError(
            f"the shell of session {self.id!r} ended (exit code {how.exit_code})",
            session_id=self.id,
            exit_code=how.exit_code,
        )

    def set_env(self, changes: Environment, timeout: Timeout) -> None:
        """See `Transport.set_session_env`."""
        words = []
        for name, value in changes.items():
            words.append(f"builtin unset -v {name}" if value is None else f"builtin export {name}={shlex.quote(value)}")
        command = self.run(CommandRequest(" && ".join(words) or ":", timeout=timeout))
        said = b""
        try:
            while not isinstance(item := command.read(), Exited):
                said += item.data
        finally:
            command.close()
        if item.exit_code != 0:
            raise SessionError(
                f"session {self.id!r} refused to change its environment: {said.decode(errors='replace').strip()}",
                session_id=self.id,
            )
        self.env.update(changes)

    # The shell

    def _ready_shell(self) -> Shell:
        """The shell, alive; a new one if there is none. The turn is held."""
        shell = self._shell
        if shell is not None and shell.died is not None:
            self._lose_shell()
            raise self._terminated(shell.died)
        if shell is None:
            if self._sandbox.directory_problem(self.directory) is not None:
                self.directory = self._sandbox.workspace
            shell = self._shell = self._sandbox.new_shell(self.env, self.directory, self.id)
            self._died = False
        return shell

    # Ends

    def delete(self) -> None:
        """End the shell, its jobs and what runs in it; those who wait get `SessionDestroyedError`."""
        self._end(lambda: SessionDestroyedError(f"session {self.id!r} was deleted", session_id=self.id))

    def sandbox_ended(self) -> None:
        """The sandbox was destroyed: end all, and wake who waits."""
        self._end(self._sandbox.gone)

    def _end(self, reason) -> None:  # type: ignore[no-untyped-def]
        self.turn.close(reason)
        current, shell = self._current, self._shell
        if current is not None and not current.is_over():
            current.stop(reason())
            current.wait()
        if shell is not None:
            shell.end()

    def abandon(self) -> None:
        """In a forked child: keep what the session is made from, and nothing that is the parent's."""
        self.turn = Turn()
        self._shell = None
        self._died = False
        self._current = None
        self.directory = self._start_directory
        self.exported = self._sandbox.environment(self.env)


def _busy(timeout: float) -> CommandTimeoutError:
    return CommandTimeoutError(
        f"the session was busy for {timeout:g} s; the command was not started", timeout=timeout, started=False
    )
