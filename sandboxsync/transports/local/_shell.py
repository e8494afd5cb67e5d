"""A running bash of a session, and the directory through which it is spoken to.

Files of the directory: `l` the lines that the shell runs, `k` the FIFO that says when there is a command, `c` and `i`
the command and its standard input, `o` and `e` the FIFOs of its output, `b` and `a` the scripts before and after it,
`n` and `x` those for its variables and directory, `r` and `s` the FIFOs of what the shell reports and of the states
after its commands.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import resource
import select
import shlex
import signal
import struct
import termios
import threading
from collections.abc import Iterable

import attrs

from sandboxsync._atomic import write_all
from sandboxsync.transports.base import CommandRequest
from sandboxsync.transports.local._channel import Supervisor
from sandboxsync.transports.local._ground import Ground

__all__ = ["FIRST_VALUE", "Place", "Report", "Shell", "is_readable"]

FIRST_VALUE = 7
"""Index in the array `__sbx` of what comes after the fixed texts: see `before.bash`."""
_REPORT_FIELDS = 4
_STATE_FIELDS = 4
_FEWEST_DESCRIPTORS = 16
"""bash puts what it saves of redirected descriptors at 10 and above."""
_LARGE_STATE = 1 << 14
"""Bytes of a state from which it might not fit into a FIFO (64 KiB) beside another."""
_BATCH = 256
"""Commands for which lines are put down at a time."""
_CHUNK = 1 << 16
_LOOK = 250
"""Milliseconds between looks at a shell that says nothing, for signs that it never will."""
_TEXT = ("utf-8", "surrogateescape")


class Place:
    """The directory of a session's shells."""

    def __init__(self, ground: Ground, name: str) -> None:
        """Make it in the directory of the ground; the name ends with a slash."""
        self.directory = directory = ground.here + name
        self.inside = ground.inside + name
        """The directory as the shell sees it."""
        self._paths = ground.paths
        self._scripts = ground.inside + "scripts/"
        self._used = False
        with self._paths.acting():
            os.mkdir(directory, 0o700)
            for fifo in "krsoe":
                os.mkfifo(directory + fifo, 0o600)
            for script, link in (("before", "b"), ("enter", "n"), ("leave", "x"), ("after", "a")):
                os.link(f"{ground.here}scripts/{script}.bash", directory + link)
        at = shlex.quote(self.inside)
        # The status of `before.bash` is `$?` for the command; as part of a list it does not end a shell with errexit.
        # The traps are not cleared by the second file, because a sourced file gets back those its caller had.
        self._lines = (
            rf'\builtin . {at}b&&((1));\builtin eval "$__sbx" <"${{__sbx[1]}}" >{at}o 2>{at}e'
            "\n"
            rf"\builtin . {at}a >{at}r;\builtin trap - DEBUG ERR RETURN"
            "\n"
        ).encode(*_TEXT) * _BATCH

    def renew_for_a_shell(self) -> None:
        """Put new FIFOs in the place of those that another shell was spoken to through. What was written to one that
        was killed, and what it wrote, may still lie in them.
        """
        if self._used:
            for name in "krs":
                self.renew(name)
        self._used = True

    def write_lines(self, restoring: bytes) -> None:
        """Put down what a new shell runs: `restoring`, then the lines for `_BATCH` commands."""
        self._write("l", restoring + self._lines, os.O_TRUNC)

    def add_lines(self) -> int:
        """Put down the lines for `_BATCH` more commands; returns how many bytes of `l` are over."""
        self._write("l", self._lines, os.O_APPEND)
        return max(0, os.stat(self.directory + "l").st_size - 2 * len(self._lines))

    def trim(self, supervisor: Supervisor, done: int) -> None:
        """Give back the space of the lines that are over."""
        fd = os.open(self.directory + "l", os.O_WRONLY | os.O_CLOEXEC)
        try:
            supervisor.tell({"do": "trim", "length": done}, fd)
        finally:
            os.close(fd)

    def _write(self, name: str, data: bytes, flags: int) -> None:
        """Write to a file. Cutting it before (`os.O_TRUNC`) costs as much as a whole command on some file systems."""
        with self._paths.acting():
            fd = os.open(self.directory + name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | flags, 0o600)
        try:
            write_all(fd, data)
        finally:
            os.close(fd)

    def write_command(self, request: CommandRequest, cwd: str, values: Iterable[str], status: int, tag: int) -> int:
        """Put a command down; returns the number of texts. `status` is `$?` before it. Raises `OSError`."""
        source = "/dev/null"
        if request.stdin is not None:
            source = self.inside + "i"
            self._write("i", request.stdin, os.O_TRUNC)
        enter = self.inside + "n" if cwd or request.env else ""
        end = FIRST_VALUE + 2 * len(request.env)
        texts = [request.command, source, str(status), str(tag), enter, cwd, str(end)]
        for name, value in request.env.items():
            texts += name, value
        texts += values
        self._write("c", "\0".join([*texts, ""]).encode(*_TEXT), 0)
        return len(texts)

    def restoring_lines(self, state: bytes, directory: str, fallback: str) -> bytes:
        """The lines that make a new shell like the one whose state this is."""
        self._write("state", state, os.O_TRUNC)
        arguments = (self._scripts + "restore.bash", self.inside + "state", directory, fallback)
        words = " ".join(map(shlex.quote, arguments))
        return (
            f"\\builtin . {words}\n"
            '\\builtin eval "\\\\builtin set -- ${__sbx[0]}"\n'
            f"\\builtin . {shlex.quote(self._scripts + 'restore-options.bash')}\n"
        ).encode(*_TEXT)

    def open(self, name: str) -> int:
        """The reading end of a FIFO, which does not block. Only a newly opened one shows when this command's writers
        have gone: an older one shows that of the last command's.
        """
        return os.open(self.directory + name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def fifos(self) -> list[str]:
        """The FIFOs that must not end while the shell lives, whoever opens and closes them."""
        return [self.inside + name for name in "krs"]

    def signal(self, word: str) -> None:
        """Write a line to `k`. When the shell has ended nothing comes of it; who waits for its answer finds that."""
        try:
            fd = os.open(self.directory + "k", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as exc:
            if exc.errno in (errno.ENXIO, errno.ENOENT):
                return
            raise
        try:
            os.write(fd, f"{word}\n".encode())
        except BrokenPipeError:
            return
        finally:
            os.close(fd)

    def has_unread_signal(self) -> bool:
        """Whether a line in `k` has not been taken by the shell."""
        fd = self.open("k")
        try:
            return bool(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0])
        finally:
            os.close(fd)

    def renew(self, name: str) -> None:
        """Put a new FIFO in the place of one that a background job holds. In a directory that is gone, none."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.directory + name)
            with self._paths.acting():
                os.mkfifo(self.directory + name, 0o600)

    def remove(self) -> None:
        """Remove the directory. What is gone already (the sandbox was ended) is no error."""
        try:
            for entry in os.listdir(self.directory):
                os.unlink(self.directory + entry)
            os.rmdir(self.directory)
        except FileNotFoundError:
            return


@attrs.frozen
class Report:
    """What a shell says at the end of a command."""

    status: int
    spoilt: bool
    directory: str


class Shell:
    """A running bash: the supervisor's key for it, its pid, a pidfd, and the reading end of its reports.

    The supervisor keeps the FIFO of the reports from ending.
    """

    def __init__(self, place: Place, key: int, pid: int, pidfd: int, reports: int, state: bytes | None) -> None:
        self.place = place
        self.key = key
        self.pid = pid
        self.pidfd = pidfd
        self.reports = reports
        self.state = state
        """The state after the last command whose state was read; that which it started from before."""
        self._commands_left = _BATCH
        self._asked = False
        self._states_due = 0
        self._heard = b""
        self._seen = b""
        self._taking = threading.Lock()
        self._closed = False
        self._here = 0

    def start(self, texts: int) -> int:
        """Begin with the command that was put down as so many texts; returns how many bytes of `l` are over."""
        done = 0
        self._commands_left -= 1
        if self._commands_left < 2:
            done = self.place.add_lines()
            self._commands_left += _BATCH
        self._asked = False
        self.place.signal(str(texts))
        return done

    def is_astray(self) -> bool:
        """Whether the shell waits for another command without having reported the end of this one.

        Asks the first time, and knows the second time or later, so it is for who has waited for a while already.
        """
        if not self._asked:
            self._asked = True
            self.place.signal("s")
            return False
        return not self.place.has_unread_signal() and not self.has_report()

    def kill(self) -> None:
        """SIGKILL for it, where its supervisor cannot do that."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def resume(self) -> None:
        """Let it go on if something has stopped it, for which nobody else would."""
        try:
            with open(f"/proc/{self._pid_here()}/stat", "rb") as file:
                if file.read().rpartition(b") ")[2][:1] == b"T":
                    signal.pidfd_send_signal(self.pidfd, signal.SIGCONT)
        except (FileNotFoundError, ProcessLookupError):
            return

    def _pid_here(self) -> int:
        """Its pid as this process sees it: an isolated sandbox has numbers of its own. Raises `ProcessLookupError`."""
        if not self._here:
            with open(f"/proc/self/fdinfo/{self.pidfd}", "rb") as file:
                self._here = int(file.read().partition(b"\nPid:")[2].split()[0])
        if self._here <= 0:
            raise ProcessLookupError
        return self._here

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not is_readable(self.pidfd)

    def has_report(self) -> bool:
        """Whether it has begun to report."""
        return bool(self._heard) or is_readable(self.reports)

    def report(self) -> Report | None:
        """Read what is there; the report once it is complete. Does not block. Raises `ValueError` for nonsense."""
        try:
            self._heard += os.read(self.reports, _CHUNK)
        except BlockingIOError:
            return None
        # Before the first NUL there may be a trace of the report, if the user turned it to standard output.
        fields = self._heard.split(b"\0", _REPORT_FIELDS)
        if len(fields) <= _REPORT_FIELDS:
            return None
        _, status, attributes, directory, self._heard = fields
        self._states_due += 1
        spoilt = bool(attributes.translate(None, b"ax")) or self._lacks_descriptors()
        return Report(int(status), spoilt, os.fsdecode(directory))

    def _lacks_descriptors(self) -> bool:
        """Whether `ulimit -n` left it too few for the redirections of another command."""
        try:
            pid = self._pid_here()
            try:
                soft = resource.prlimit(pid, resource.RLIMIT_NOFILE)[0]
            except PermissionError:
                # It has another user, and not every administrator may ask then; anybody may read it.
                with open(f"/proc/{pid}/limits", "rb") as file:
                    soft = int(file.read().partition(b"Max open files")[2].split()[0])
        except (ProcessLookupError, FileNotFoundError):
            return False
        return soft < _FEWEST_DESCRIPTORS

    def collect(self, always: bool = False) -> None:
        """Take the states it has written by now, before they fill the FIFO; only then, unless `always`.

        Waits for the rest of one that is too large for the FIFO.
        """
        if always or self.state is None or self._states_due * len(self.state) > _LARGE_STATE:
            with self._taking:
                if self._closed:
                    return
                fd = self.place.open("s")
                try:
                    self._take_states(fd)
                finally:
                    os.close(fd)
            if self._states_due and len(self._seen) > _LARGE_STATE:
                self.settle()

    def settle(self) -> bool:
        """Wait until the state after the last report has come; `False` when the shell ended or went astray instead."""
        if not self._states_due:
            return True
        # Held while waiting, so that the pieces of a state stay in order; bounded, because the shell is writing it.
        with self._taking:
            if self._closed:
                return False
            fd = self.place.open("s")
            try:
                poll = select.poll()
                poll.register(fd, select.POLLIN)
                poll.register(self.pidfd, select.POLLIN)
                while True:
                    self._take_states(fd)
                    if not self._states_due:
                        return True
                    events = dict(poll.poll(_LOOK))
                    if not events:
                        self.resume()
                    if not events.get(fd, 0) & select.POLLIN and (events or self.is_astray()):
                        return False
            finally:
                os.close(fd)

    def _take_states(self, fd: int) -> None:
        parts = [self._seen]
        try:
            while data := os.read(fd, _CHUNK):
                parts.append(data)
                if len(data) < _CHUNK:
                    break
        except BlockingIOError:
            pass  # all that is there was read
        self._seen = b"".join(parts)
        while self._seen.count(b"\0") >= _STATE_FIELDS:
            *fields, self._seen = self._seen.split(b"\0", _STATE_FIELDS)
            self.state = b"\0".join([*fields, b""])
            self._states_due -= 1

    def close(self) -> None:
        """Let go of the descriptors; the process is not touched."""
        with self._taking:
            self._closed = True
            os.close(self.pidfd)
            os.close(self.reports)


def is_readable(fd: int) -> bool:
    """Whether there is something to be read at once."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))
