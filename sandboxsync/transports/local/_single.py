"""Commands without a session: each a bash of its own that starts in the workspace (S3)."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from sandboxsync.transports.base import CommandRequest, Environment
from sandboxsync.transports.local._command import SingleCommand

if TYPE_CHECKING:
    from sandboxsync.transports.local._sandbox import LocalSandbox

__all__ = ["start_single"]


def start_single(
    sandbox: LocalSandbox, env: Environment, request: CommandRequest, timeout: float | None
) -> SingleCommand:
    """Start it and return its stream. `timeout` in seconds. See `Transport.run`."""
    cwd = sandbox.workspace if request.cwd is None else sandbox.resolve(request.cwd, sandbox.workspace)
    command = request.command
    if not _can_enter(cwd):
        # Let bash say why, as it does in a session, and run nothing (E7).
        command, cwd = r"\builtin cd -- " + shlex.quote(cwd), sandbox.workspace
    script = sandbox.next_place().rstrip("/")
    tag = sandbox.next_owner() << 32
    stdout, stdout_end = os.pipe()
    stderr, stderr_end = os.pipe()
    stdin = _input(request.stdin)
    try:
        started = sandbox.spawn(
            sandbox.shell_command(command, script),
            sandbox.environment(env, request.env),
            cwd,
            tag,
            (stdin, stdout_end, stderr_end),
            timeout,
        )
    except BaseException:
        os.close(stdout)
        os.close(stderr)
        raise
    finally:
        for fd in (stdin, stdout_end, stderr_end):
            os.close(fd)
    os.close(started.pidfd)
    return SingleCommand(sandbox.supervisor, {stdout: "stdout", stderr: "stderr"}, timeout, started.key, tag, script)


def _can_enter(directory: str) -> bool:
    try:
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _input(data: bytes | None) -> int:
    """A descriptor to read the data from; of nothing at all, the null device."""
    if data is None:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    fd = os.memfd_create("stdin", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
