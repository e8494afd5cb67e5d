"""A session: what it is made from, the shell it keeps alive, and how that is replaced."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from sandboxsync._unset import Timeout, Unset
from sandboxsync.errors import (
    CommandTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    SessionDestroyedError,
    SessionError,
    SessionTerminatedError,
    file_error,
)
from sandboxsync.transports._turn import Turn
from sandboxsync.transports.base import CommandRequest, Environment, Exited, SessionSpec
from sandboxsync.transports.local._channel import SupervisorGoneError
from sandboxsync.transports.local._command import SessionCommand
from sandboxsync.transports.local._running import StreamName
from sandboxsync.transports.local._shell import FIRST_VALUE, Place, Report, Shell

if TYPE_CHECKING:
    from sandboxsync.transports.local._sandbox import LocalSandbox

__all__ = ["LocalSession"]


class LocalSession:
    """What a sandbox keeps of a session. Its shell starts with the first command and is replaced when it ended."""

    def __init__(self, sandbox: LocalSandbox, session_id: str, spec: SessionSpec, directory: str) -> None:
        self.id = session_id
        self.turn = Turn()
        self.env: dict[str, str | None] = dict(spec.env)
        self.command_timeout = spec.command_timeout
        self.directory = directory
        """Where its commands run now: the shell's directory when its last command ended."""
        self._start_directory = directory
        self._sandbox = sandbox
        self._owner = sandbox.next_owner()
        self._job = 0
        self._status = 0
        self._place: Place | None = None
        self._shell: Shell | None = None
        self._died = False
        self._state: bytes | None = None
        self._current: SessionCommand | None = None

    def has_died(self) -> bool:
        """Whether its shell ended by itself and no other was started."""
        shell = self._shell
        return self._died if shell is None else not shell.is_alive()

    # Commands

    def run(self, request: CommandRequest, values: Sequence[str] = ()) -> SessionCommand:
        """Start a command when its turn comes. See `Transport.run`.

        `values` come after those of the request's own variables in the array that the command is taken from.
        """
        began = time.monotonic()
        timeout = self._limit(request)
        self._wait_for_turn(timeout)
        try:
            shell = self._ready_shell()
            left = None if timeout is None else timeout - (time.monotonic() - began)
            if left is not None and left <= 0:
                raise CommandTimeoutError(
                    f"the session was not ready within {timeout:g} s; the command was not started",
                    timeout=timeout,
                    started=False,
                )
            return self._start(shell, request, values, timeout, left)
        except BaseException as exc:
            self.turn.release()
            if isinstance(exc, SupervisorGoneError):
                raise self._sandbox.gone() from None
            if isinstance(exc, OSError) and not isinstance(exc, SandboxError):
                raise SandboxUnavailableError(f"cannot run a command here now: {exc}") from exc
            raise

    def _wait_for_turn(self, timeout: float | None) -> None:
        current = self._current
        if current is not None and current.abandoned:
            current.close()
        if not self.turn.acquire(timeout, self._look):
            raise CommandTimeoutError(
                f"the session was busy for {timeout:g} s; the command was not started", timeout=timeout, started=False
            )

    def _look(self) -> None:
        """See whether a command that nobody reads has ended, for those who wait for its session."""
        current = self._current
        if current is not None:
            current.look()

    def _limit(self, request: CommandRequest) -> float | None:
        if not isinstance(request.timeout, Unset):
            return request.timeout
        if not isinstance(self.command_timeout, Unset):
            return self.command_timeout
        return request.default_timeout

    def _start(
        self,
        shell: Shell,
        request: CommandRequest,
        values: Sequence[str],
        timeout: float | None,
        left: float | None,
    ) -> SessionCommand:
        place = shell.place
        self._job += 1
        tag = self._sandbox.tag_of(self._owner, self._job)
        shell.collect()
        cwd = "" if request.cwd is None else self._sandbox.resolve(request.cwd, self.directory)
        try:
            texts = place.write_command(request, cwd, values, self._status, tag)
        except OSError as exc:
            raise file_error(exc, place.directory) from exc
        pipes: dict[int, StreamName] = {}
        begun = False
        try:
            if left is not None:
                self._arm(shell, tag, left)
            pipes[place.open("o")] = "stdout"
            pipes[place.open("e")] = "stderr"
            done = shell.start(texts)
            begun = True
            if done:
                place.trim(self._sandbox.supervisor, done)
            command = SessionCommand(self._sandbox.supervisor, pipes, timeout, self, shell, tag, left is not None)
        except BaseException as exc:
            for fd in pipes:
                os.close(fd)
            if isinstance(exc, OSError) and not begun:
                # Refused by the system before the shell heard of it, so the shell is as it was.
                with contextlib.suppress(SupervisorGoneError):
                    self._sandbox.supervisor.tell({"do": "disarm", "tag": tag})
            else:
                self._give_up(shell)
            raise
        self._current = command
        return command

    def _give_up(self, shell: Shell) -> None:
        """Something went wrong while a command was handed to the shell: take another one, with the state before it."""
        shell.settle()
        tag = self._sandbox.tag_of(self._owner, self._job)
        end: dict[str, object] = {"do": "end", "low": tag, "high": tag, "number": signal.SIGKILL, "reason": "killed"}
        with contextlib.suppress(SupervisorGoneError):
            self._sandbox.supervisor.answer({**end, "at_once": shell.pid})
        self.shell_ended(shell, restore=True)

    def _arm(self, shell: Shell, tag: int, seconds: float) -> None:
        """Have the supervisor end the command when the time is over, whoever reads it or not (T8)."""
        if not shell.settle() and shell.is_alive():
            raise self.spoilt()
        request: dict[str, object] = {"do": "arm", "pid": shell.pid, "tag": tag, "seconds": seconds, "at_once": True}
        self._sandbox.supervisor.tell(request, shell.reports)

    def set_env(self, changes: Environment, timeout: Timeout) -> None:
        """See `Transport.set_session_env`."""
        if self._shell is not None or self._state is not None:
            values = {name: value for name, value in changes.items() if value is not None}
            words = [rf'\builtin export {name}="${{__sbx[{index}]}}"' for index, name in enumerate(values, FIRST_VALUE)]
            words += [rf"\builtin unset -v {name}" for name, value in changes.items() if value is None]
            command = self.run(CommandRequest(" && ".join(words) or ":", timeout=timeout), list(values.values()))
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

    def release(self, command: SessionCommand) -> None:
        """A command gives the turn back."""
        if self._current is command:
            self._current = None
        self.turn.release()

    def command_ended(self, report: Report) -> None:
        """A command has ended and the shell goes on."""
        self._status = report.status
        if report.directory.startswith("/"):
            self.directory = report.directory

    def renew_pipes(self, names: Iterable[StreamName]) -> None:
        """Background jobs hold these pipes: the next command gets others."""
        for name in names:
            self._its_place().renew("o" if name == "stdout" else "e")

    # The shell

    def _its_place(self) -> Place:
        if self._place is None:
            self._place = Place(self._sandbox.ground, self._sandbox.next_place())
        return self._place

    def _ready_shell(self) -> Shell:
        """The shell, alive and done with all before; a new one if there is none. The turn is held."""
        shell = self._shell
        if shell is None:
            shell = self._shell = self._start_shell()
        elif not shell.is_alive():
            result = self._sandbox.supervisor.answer({"do": "wait", "key": shell.key})
            self.shell_ended(shell, restore=False)
            raise self.terminated(result["exit_code"])
        return shell

    def _start_shell(self) -> Shell:
        sandbox = self._sandbox
        place = self._its_place()
        directory = self._start_directory
        if self._state is not None or not sandbox.paths.is_dir(directory):
            directory = sandbox.workspace
        if self._state is None:
            self.directory = directory
        restoring = b""
        if self._state is not None:
            restoring = place.restoring_lines(self._state, self.directory, sandbox.workspace)
        place.write_lines(restoring)
        place.renew_for_a_shell()
        reports = place.open("r")
        try:
            started = sandbox.spawn(
                [sandbox.bash, "--norc", "--noprofile", "-O", "expand_aliases"],
                sandbox.environment(self.env),
                directory,
                sandbox.tag_of(self._owner),
                script=place.inside + "l",
                fifos=place.fifos(),
            )
        except BaseException:
            os.close(reports)
            raise
        self._died = False
        return Shell(place, started.key, started.pid, started.pidfd, reports, self._state)

    def snapshot(self) -> tuple[bytes | None, str]:
        """The state after the last command that ended, as `after.bash` writes it, and the directory. Waits for no turn.

        The state is `None` when no command has ended yet: then what the session is made from holds.
        """
        shell = self._shell
        if shell is not None:
            shell.settle()
        return (self._state if shell is None else shell.state), self.directory

    # Ends

    def shell_ended(self, shell: Shell, restore: bool) -> None:
        """The shell is gone. With `restore` the next one continues where it was before its last command."""
        if self._shell is not shell:
            return
        self._shell = None
        if restore:
            with contextlib.suppress(FileNotFoundError):
                shell.collect(always=True)
            self._state = shell.state
        shell.close()
        try:
            self._sandbox.supervisor.tell({"do": "forget", "key": shell.key})
            if not restore:
                self._died = True
                self._state = None
                self._status = 0
                self.directory = self._start_directory
                self._sandbox.supervisor.tell(self._end(signal.SIGTERM, "ended"))
                self._owner = self._sandbox.next_owner()
        except SupervisorGoneError:
            return  # everything has ended

    def spoilt(self) -> SandboxError:
        """The shell lives but cannot be worked with. End it, and say so."""
        shell = self._shell
        if shell is not None:
            try:
                self._sandbox.supervisor.answer(self._end(signal.SIGKILL, "spoilt", shell.pid))
            except SupervisorGoneError:
                return self._sandbox.gone()
            self.shell_ended(shell, restore=False)
        return SessionTerminatedError(
            f"session {self.id!r}: the command left its shell in a state that no other command can run in",
            session_id=self.id,
        )

    def terminated(self, exit_code: int) -> SessionTerminatedError:
        """The error for a shell that ended by itself."""
        return SessionTerminatedError(
            f"the shell of session {self.id!r} ended (exit code {exit_code})", session_id=self.id, exit_code=exit_code
        )

    def delete(self) -> None:
        """End the shell, its jobs and what runs in it; those who wait get `SessionDestroyedError`."""
        idle = self.turn.take()
        self.turn.close(lambda: SessionDestroyedError(f"session {self.id!r} was deleted", session_id=self.id))
        shell = self._shell
        # An idle shell gets SIGTERM, so that its EXIT trap runs; a busy one must not go on with its command.
        at_once = None if idle or shell is None else shell.pid
        try:
            self._sandbox.supervisor.answer(self._end(signal.SIGTERM, "deleted", at_once))
        except SupervisorGoneError:
            return
        finally:
            if idle and shell is not None:
                self.shell_ended(shell, restore=True)
            if self._place is not None:
                self._place.remove()

    def _end(self, number: int, reason: str, at_once: int | None = None) -> dict[str, object]:
        low, high = self._sandbox.range_of(self._owner)
        return {"do": "end", "low": low, "high": high, "number": number, "reason": reason, "at_once": at_once}

    def sandbox_ended(self) -> None:
        """The sandbox was destroyed: wake who waits, let go of the shell. A command in flight does so by itself."""
        idle = self.turn.take()
        self.turn.close(self._sandbox.gone)
        # Or the two would hold each other, and descriptors of the sandbox, until the collector comes.
        self._current = None
        shell = self._shell
        # A busy one is let go of by its command, whose reader sees its end.
        if idle and shell is not None:
            self._shell = None
            shell.kill()  # dead already, unless the supervisor was killed
            shell.close()

    def abandon(self) -> None:
        """In a forked child: keep what the session is made from, and nothing that is the parent's."""
        shell, self._shell = self._shell, None
        if shell is not None:
            shell.close()
        self.turn = Turn()
        self._state = None
        self._current = None
        self._status = 0
        self._place = None
        self.directory = self._start_directory
