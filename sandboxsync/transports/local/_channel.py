"""The client's side of the supervisor: start it, ask it, end it. See `_supervisor.py` for what it does."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import sys
import threading
from typing import Any

from sandboxsync.errors import ConfigurationError, SandboxUnavailableError

__all__ = ["Pending", "Supervisor", "SupervisorGoneError"]

_PROGRAM = os.path.join(os.path.dirname(__file__), "_supervisor.py")
_LARGE = 48 * 1024
"""Bytes from which a request travels in a memory file: a datagram must fit the socket's buffer."""


class SupervisorGoneError(Exception):
    """The supervisor has ended, and with it everything in the sandbox."""


class Pending:
    """An answer to come."""

    def __init__(self, reply: socket.socket, supervisor: Supervisor) -> None:
        self._reply = reply
        self._supervisor = supervisor

    def fileno(self) -> int:
        """To poll: readable when the answer is there."""
        return self._reply.fileno()

    def result(self, timeout: float | None = None) -> tuple[dict[str, Any], list[int]] | None:
        """The answer and the descriptors that came with it; `None` when `timeout` seconds passed.

        Raises `SupervisorGoneError`, and `SandboxUnavailableError` when the request was lost.
        """
        if timeout is not None:
            poll = select.poll()
            poll.register(self._reply, select.POLLIN)
            if not poll.poll(timeout * 1000):
                return None
        try:
            data, fds, _, _ = socket.recv_fds(self._reply, 1 << 20, 4, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            data, fds = b"", []
        self.close()
        if not data:
            if self._supervisor.is_there():
                raise SandboxUnavailableError(
                    "the supervisor of the sandbox could not take a request: too many open files"
                )
            raise SupervisorGoneError
        answer: dict[str, Any] = json.loads(data)
        return answer, fds

    def close(self) -> None:
        """Stop waiting for it."""
        self._reply.close()


class Supervisor:
    """A running supervisor. Any thread may ask; in a forked child it is of no use and must be `forget`ten."""

    def __init__(self, root: str, directories: list[str]) -> None:
        """Start it, and let it make `root` with `directories` in it. Blocks until it is ready (about 20 ms).

        Raises `SandboxUnavailableError` with what it said when it cannot start.
        """
        # Re-entrant: a stream that is dropped may be collected, and end its command, in the middle of anything.
        self._lock = threading.RLock()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket: socket.socket | None = ours
        parent = os.pidfd_open(os.getpid())
        said, says = os.pipe()
        try:
            self.pid = _spawn([_interpreter(), "-I", "-S", _PROGRAM, root, *directories], theirs.fileno(), parent, says)
        finally:
            theirs.close()
            os.close(parent)
            os.close(says)
        self._said: int | None = said
        try:
            self.ask({"do": "ping"}).result()
        except SupervisorGoneError:
            message = self._last_words()
            self.close()
            raise SandboxUnavailableError(f"the supervisor of a local sandbox did not start: {message}") from None
        except BaseException:
            self.close()
            raise

    def tell(self, message: dict[str, object], *fds: int) -> None:
        """Send a request that has no answer. Raises `SupervisorGoneError`."""
        data = json.dumps(message).encode()
        held: list[int] = []
        if len(data) > _LARGE:
            held.append(os.memfd_create("request", os.MFD_CLOEXEC))
            with open(held[0], "wb", closefd=False) as file:
                file.write(data)
            data = b"@"
        try:
            # Held while sending: a datagram to a process on this machine, and the descriptor must not be closed (and
            # its number used anew) in between.
            with self._lock:
                if self._socket is None:
                    raise SupervisorGoneError
                socket.send_fds(self._socket, [data], [*fds, *held])
        except ConnectionError:
            raise SupervisorGoneError from None
        finally:
            for fd in held:
                os.close(fd)

    def ask(self, message: dict[str, object], *fds: int) -> Pending:
        """Send a request and return its answer to come. Raises `SupervisorGoneError`."""
        try:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as exc:
            raise SandboxUnavailableError(f"cannot ask the sandbox's supervisor: {exc}") from exc
        with theirs:
            try:
                self.tell({**message, "reply": True}, theirs.fileno(), *fds)
            except BaseException:
                ours.close()
                raise
        return Pending(ours, self)

    def answer(self, message: dict[str, object], *fds: int) -> dict[str, Any]:
        """Ask, wait, return the answer; for requests that answer at once."""
        result = self.ask(message, *fds).result()
        assert result is not None  # no timeout was given
        return result[0]

    def is_there(self) -> bool:
        """Whether it has not ended."""
        with self._lock:
            if self._socket is None:
                return False
            poll = select.poll()
            poll.register(self._socket, 0)  # the hang-up alone
            return not poll.poll(0)

    def close(self) -> None:
        """Let it end everything and wait until it is gone. Idempotent."""
        with self._lock:
            sock, self._socket = self._socket, None
        if sock is None:
            return
        # End-of-file on the channel is the request to end.
        sock.shutdown(socket.SHUT_RDWR)
        sock.close()
        self._last_words()
        try:
            os.waitpid(self.pid, 0)
        except ChildProcessError:
            return  # reaped by somebody else, or children are not waited for in this program

    def forget(self) -> None:
        """In a forked child: let go of descriptors; the supervisor is the parent's."""
        sock, self._socket = self._socket, None
        said, self._said = self._said, None
        if sock is not None:
            sock.close()
        if said is not None:
            os.close(said)

    def _last_words(self) -> str:
        """What it wrote to standard error; blocks until it has ended. Closes that pipe."""
        said, self._said = self._said, None
        if said is None:
            return ""
        with open(said, "rb") as pipe:
            return pipe.read().decode(errors="replace").strip()


def _spawn(argv: list[str], channel: int, parent: int, says: int) -> int:
    """Start a program with `channel` and `parent` as its descriptors 3 and 4, and default signals."""
    high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16) for fd in (channel, parent, says)]
    try:
        return os.posix_spawn(
            argv[0],
            argv,
            {"LANG": "C.UTF-8"},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_DUP2, high[2], 2),
                (os.POSIX_SPAWN_DUP2, high[0], 3),
                (os.POSIX_SPAWN_DUP2, high[1], 4),
            ],
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    except OSError as exc:
        raise ConfigurationError(f"cannot start {argv[0]}: {exc.strerror}") from exc
    finally:
        for fd in high:
            os.close(fd)


def _interpreter() -> str:
    """A Python to run the supervisor with. `sys.executable` may be a server that embeds Python, or nothing."""
    import shutil

    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (
        sys.executable,
        os.path.join(sys.exec_prefix, "bin", version),
        os.path.join(sys.base_exec_prefix, "bin", version),
        shutil.which(version),
        shutil.which("python3"),
    ):
        if candidate and os.path.basename(candidate).startswith("python") and os.access(candidate, os.X_OK):
            return candidate
    raise ConfigurationError("LocalTransport needs a python3 program to watch over its sandboxes, and found none")
