"""The client's side of the supervisor: start it, ask it, end it. See `_supervisor.py` for what it does."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import json
import marshal
import os
import resource
import select
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from importlib.util import MAGIC_NUMBER
from typing import Any

from sandboxsync.errors import ConfigurationError, SandboxUnavailableError
from sandboxsync.transports.local._tags import all_of

__all__ = [
    "Pending",
    "Supervisor",
    "SupervisorGoneError",
    "bare_environment",
    "interpreter",
    "memory_file",
    "program",
    "spawn",
]

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
    """A running supervisor. Any thread may ask. A forked child must `forget` it, or `attach` itself to it."""

    def __init__(self, start: Callable[[int, int, int], int]) -> None:
        """Start it. Blocks until it is ready (20 ms; isolated, 60).

        `start` starts the program with the given descriptors for its channel, a pidfd of this process, and what it
        says, and returns its pid. Raises `SandboxUnavailableError` with what it said when it cannot start.
        """
        # Re-entrant: a stream that is dropped may be collected, and end its command, in the middle of anything.
        self._lock = threading.RLock()
        self._attached: int | None = None
        with contextlib.ExitStack() as kept, contextlib.ExitStack() as passed:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            kept.callback(ours.close)
            passed.callback(theirs.close)
            parent = os.pidfd_open(os.getpid())
            passed.callback(os.close, parent)
            said, says = os.pipe()
            kept.callback(os.close, said)
            passed.callback(os.close, says)
            self.pid = start(theirs.fileno(), parent, says)
            kept.pop_all()
        self._socket: socket.socket | None = ours
        self._said: int | None = said
        try:
            result = self.ask({"do": "hello"}).result()
            assert result is not None  # no timeout was given
            self.given = result[1]
            """Descriptors that it handed over, which are the caller's to close."""
        except SupervisorGoneError:
            message = self._last_words()
            self.close()
            raise SandboxUnavailableError(f"the supervisor of a local sandbox did not start: {message}") from None
        except BaseException:
            self.close()
            raise

    def attach(self) -> tuple[int, int]:
        """In a forked child: get a channel of its own; what it starts ends with it. Returns its numbers, of which the
        first is for tags, and the second is never given twice.

        Raises `SupervisorGoneError`, and `SandboxUnavailableError` when there are too many.
        """
        self._lock = threading.RLock()
        inherited = self._socket
        if inherited is None:
            raise SupervisorGoneError
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = os.pidfd_open(os.getpid())
        try:
            answer = self.answer({"do": "attach"}, theirs.fileno(), process)
            if answer["client"] is None:
                raise SandboxUnavailableError("too many forked processes use this sandbox")
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            os.close(process)
        self._socket = ours
        self._attached = answer["client"]
        inherited.close()
        if self._said is not None:
            os.close(self._said)
            self._said = None
        return answer["client"], answer["serial"]

    def tell(self, message: dict[str, object], *fds: int) -> None:
        """Send a request that has no answer. Raises `SupervisorGoneError`."""
        data = json.dumps(message).encode()
        held: list[int] = []
        if len(data) > _LARGE:
            held.append(memory_file(data))
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
        """Let it end everything that this process started, and wait until that is gone. Idempotent."""
        if self._attached is not None:
            low, high = all_of(self._attached)
            with contextlib.suppress(SupervisorGoneError):
                self.answer({"do": "end", "low": low, "high": high, "reason": "destroyed", "number": signal.SIGKILL})
        with self._lock:
            sock, self._socket = self._socket, None
        if sock is None:
            return
        if self._attached is not None:
            sock.close()
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


def memory_file(data: bytes) -> int:
    """A descriptor, the caller's to close, from which the data is read."""
    fd = os.memfd_create("sandboxsync", os.MFD_CLOEXEC)
    with open(fd, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


@functools.cache
def program(name: str) -> bytes:
    """One of the programs beside this file, for `interpreter()` to run: compiled, which saves half of its start, or
    the source when that is not our version of Python.
    """
    with open(os.path.join(os.path.dirname(__file__), name), "rb") as file:
        source = file.read()
    if not _is_ours(interpreter()):
        return source
    return MAGIC_NUMBER + bytes(12) + marshal.dumps(compile(source, name, "exec", dont_inherit=True))


def _is_ours(python: str) -> bool:
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    return python == sys.executable or os.path.basename(python) == version


def spawn(argv: Sequence[str], channel: int, parent: int, says: int, others: Mapping[int, int] = {}) -> int:
    """Start a program with `channel` and `parent` as its descriptors 3 and 4, and default signals.

    Of the other descriptors it has those that `others` maps from its numbers to ours, and none else. Returns its pid.
    Raises `ConfigurationError`.
    """
    wanted = {2: says, 3: channel, 4: parent, **others}
    with contextlib.ExitStack() as stack:
        high = {}
        for number, fd in wanted.items():
            try:
                high[number] = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 16)
            except OSError as exc:  # EINVAL, where not even 16 may be open
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from exc
            stack.callback(os.close, high[number])
        try:
            return os.posix_spawn(
                argv[0],
                list(argv),
                bare_environment(),
                file_actions=[
                    (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                    (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                    *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
                    *((os.POSIX_SPAWN_DUP2, fd, number) for number, fd in high.items()),
                ],
                setsid=True,
                setsigmask=(),
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        except OSError as exc:
            if exc.errno in (errno.EMFILE, errno.ENFILE):
                raise
            raise ConfigurationError(f"cannot start {argv[0]}: {exc.strerror}") from exc


def bare_environment() -> dict[str, str]:
    """What our own programs get of the environment."""
    env = {"LANG": "C.UTF-8"}
    if "LD_LIBRARY_PATH" in os.environ:
        # Some builds of Python find their own library only by it.
        env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    return env


def _inheritable() -> list[int]:
    """Descriptors that a program would inherit, but for the standard ones, and those above the limit, which it has to
    close itself.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError):  # that of the directory itself is closed by now
            if 2 < fd < limit and os.get_inheritable(fd):
                found.append(fd)
    return found


def interpreter() -> str:
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
