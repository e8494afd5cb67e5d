"""Commands without a session: each a bash of its own that starts in the workspace (S3)."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from typing import TYPE_CHECKING

from sandboxsync.errors import FileError
from sandboxsync.transports.base import CommandRequest, Environment, Exited
from sandboxsync.transports.local._channel import Supervisor, SupervisorGoneError, memory_file
from sandboxsync.transports.local._running import Running, StreamName

if TYPE_CHECKING:
    from sandboxsync.transports.local._sandbox import LocalSandbox

__all__ = ["start_single"]


def start_single(
    sandbox: LocalSandbox, env: Environment, request: CommandRequest, timeout: float | None
) -> SingleCommand:
    """Start it and return its stream. `timeout` in seconds. See `Transport.run`."""
    cwd = sandbox.workspace if request.cwd is None else sandbox.resolve(request.cwd, sandbox.workspace)
    command = request.command
    try:
        sandbox.paths.check_directory(cwd)
    except FileError:
        # Let bash say why, as it does in a session, and run nothing (E7).
        command, cwd = r"\builtin cd -- " + shlex.quote(cwd), sandbox.workspace
    script = sandbox.next_place().rstrip("/")
    tag = sandbox.tag_of(sandbox.next_owner())
    with contextlib.ExitStack() as ours, contextlib.ExitStack() as theirs:
        stdout, stdout_end = _pipe(ours, theirs)
        stderr, stderr_end = _pipe(ours, theirs)
        stdin = os.open(os.devnull, os.O_RDONLY) if request.stdin is None else memory_file(request.stdin)
        theirs.callback(os.close, stdin)
        started = sandbox.spawn(
            sandbox.shell_command(command, script),
            sandbox.environment(env, request.env),
            cwd,
            tag,
            (stdin, stdout_end, stderr_end),
            timeout,
        )
        os.close(started.pidfd)
        ours.pop_all()
    pipes: dict[int, StreamName] = {stdout: "stdout", stderr: "stderr"}
    script = sandbox.ground.here + script
    return SingleCommand(sandbox.supervisor, pipes, timeout, started.key, tag, script)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose reading end is closed with `ours`, and whose writing end with `theirs`."""
    reading, writing = os.pipe()
    ours.callback(os.close, reading)
    theirs.callback(os.close, writing)
    return reading, writing


class SingleCommand(Running):
    """A command without a session: a process that is its own shell, by the supervisor's key for it."""

    def __init__(
        self,
        supervisor: Supervisor,
        pipes: dict[int, StreamName],
        timeout: float | None,
        key: int,
        tag: int,
        script: str,
    ) -> None:
        super().__init__(supervisor, pipes, timeout, None)
        self._script = script
        self._key = key
        self._tag = tag
        try:
            self._ask_verdict(key)
        except SupervisorGoneError:
            self._finish(self._restarted())

    def kill(self) -> None:
        if self._over:
            return
        end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
        try:
            self._supervisor.answer(end)
        except SupervisorGoneError:
            return

    def abandon(self) -> None:
        if not self._over:
            end = {"do": "end", "low": self._tag, "high": self._tag, "reason": "killed", "number": signal.SIGTERM}
            with contextlib.suppress(SupervisorGoneError):
                self._supervisor.tell(end)
                self._supervisor.tell({"do": "forget", "key": self._key})
            for fd in self._pipes:
                os.close(fd)
            self._over = True
            if self._verdict is not None:
                self._verdict.close()

    def _told(self, fd: int) -> None:
        try:
            verdict = self._take_verdict()
        except SupervisorGoneError:
            self._finish(self._restarted())
            return
        self._finish(self._outcome(verdict) or Exited(verdict["exit_code"], self._duration()))

    def _silence(self) -> None:
        return

    def _release(self) -> None:
        if self._released:
            return
        self._released = True
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._script)  # there only for a command that was too long for an argument
        with contextlib.suppress(SupervisorGoneError):
            self._supervisor.tell({"do": "forget", "key": self._key})
