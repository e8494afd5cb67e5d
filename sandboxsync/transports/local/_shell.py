"""A running bash of a session, and the directory through which it is spoken to.

Files of the directory: `j` the FIFO that the shell reads its script from, `r` the FIFO of its reports, `o` and `e` those of
a command's output, `c` and `i` the command and its standard input, `b`, `a0`, `a1` the scripts around it, `a0s` and `a1s`
in turn the state after it.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import struct
import termios
from collections.abc import Iterable

import attrs

__all__ = ["STATE_FIELDS", "Place", "Report", "Shell", "is_readable"]

STATE_FIELDS = 7
"""Parts of a state file, each ended by a NUL: see `after.bash`."""
_LOOK = 250
"""Milliseconds between looks at a shell that says nothing, for signs that it never will."""
_TEXT = ("utf-8", "surrogateescape")


class Place:
    """The directory of a session's shells, and the lines that name it."""

    def __init__(self, scripts: str, directory: str) -> None:
        """Make it. Both paths end with a slash; `scripts` holds the files of `sandboxsync.transports.shell`."""
        self.directory = directory
        os.mkdir(directory, 0o700)
        for fifo in "jroe":
            os.mkfifo(directory + fifo, 0o600)
        for script, name in (("before.bash", "b"), ("after.bash", "a0"), ("after.bash", "a1")):
            os.link(scripts + script, directory + name)
        at = shlex.quote(directory)
        self._scripts = scripts
        self._before = rf"\builtin . {at}b "
        self._enter = rf"&&\:;\builtin . {shlex.quote(scripts + 'enter.bash')} "
        # `command`, so that variables set for one command are exported to what it runs.
        self._eval = r'\builtin command eval "${__sandboxsync[0]}" <'
        self._null = f"/dev/null >{at}o 2>{at}e\n"
        self._stdin = f"{at}i >{at}o 2>{at}e\n"
        self._leave = rf'\builtin . {shlex.quote(scripts + "leave.bash")} "$?"&&\:;'
        self._after = rf"\builtin . {at}a"
        # Not in the file: a sourced file gets back the traps that its caller had.
        self._clear = f" >{at}r;\\builtin trap - DEBUG ERR RETURN\n\n"

    def write_command(self, command: str, cwd: str, values: Iterable[str], stdin: bytes | None) -> None:
        """Put down what the next lines will run."""
        _write(self.directory + "c", "\0".join([command, cwd, *values, ""]).encode(*_TEXT))
        if stdin is not None:
            _write(self.directory + "i", stdin)

    def lines(self, status: int, tag: int, job: int, names: Iterable[str], cwd: bool, stdin: bool) -> bytes:
        """The lines that run the command in `c`. `status` is `$?` before it."""
        prefix = "".join(f'{name}="${{__sandboxsync[{index}]}}" ' for index, name in enumerate(names, 2))
        enter, leave = (f"{self._enter}{status}", self._leave) if cwd else ("", "")
        source = self._stdin if stdin else self._null
        return (
            rf"{self._before}{status} {tag}{enter}&&\:;{prefix}{self._eval}{source}"
            f"{leave}{self._after}{job & 1}{self._clear}"
        ).encode(*_TEXT)

    def restoring_lines(self, state: str, directory: str, fallback: str) -> bytes:
        """The lines that make a new shell like the one that wrote a state file."""
        words = " ".join(map(shlex.quote, (self._scripts + "restore.bash", state, directory, fallback)))
        return (
            f"\\builtin . {words}\n"
            '\\builtin eval "\\\\builtin set -- ${__sandboxsync[6]}"\n'
            f"\\builtin . {shlex.quote(self._scripts + 'restore-options.bash')}\n"
        ).encode(*_TEXT)

    def state(self, job: int) -> str:
        """The file that holds the state after a job. Two in turn, so that one can be read while the other is made."""
        return f"{self.directory}a{job & 1}s"

    def open(self, name: str) -> int:
        """The reading end of a FIFO, which does not block. Only a newly opened one shows when this command's writers
        have gone: an older one shows that of the last command's."""
        return os.open(self.directory + name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)

    def open_script(self) -> tuple[int, int]:
        """Both ends of the FIFO that a shell reads its script from. It ends when nobody holds the writing end."""
        reading = self.open("j")
        os.set_blocking(reading, True)
        return reading, os.open(self.directory + "j", os.O_WRONLY | os.O_CLOEXEC)

    def send(self, lines: bytes) -> None:
        """Let the shell run lines. Does nothing when no shell is there any more."""
        try:
            fd = os.open(self.directory + "j", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # ENXIO: nobody reads; who waits for the shell's answer finds its end
        try:
            os.set_blocking(fd, True)
            _write_all(fd, lines)
        except BrokenPipeError:
            return
        finally:
            os.close(fd)

    def has_unread(self) -> bool:
        """Whether some of what was sent is still to be read by the shell."""
        fd = self.open("j")
        try:
            return bool(struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0\0\0\0"))[0])
        finally:
            os.close(fd)

    def renew(self, name: str) -> None:
        """Put a new FIFO in the place of one that a background job holds."""
        os.unlink(self.directory + name)
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
    """A running bash: its pid, a pidfd, and while it has something to say the FIFO of its reports."""

    def __init__(self, place: Place, pid: int, pidfd: int) -> None:
        self.place = place
        self.pid = pid
        self.pidfd = pidfd
        self.reports: int | None = None
        self._heard = b""

    def is_alive(self) -> bool:
        """Whether the process runs."""
        return not is_readable(self.pidfd)

    def listen(self) -> int:
        """Open the FIFO of reports for the next command; returns its descriptor."""
        self.reports = self.place.open("r")
        return self.reports

    def has_report(self) -> bool:
        """Whether it has said something that was not read."""
        return self.reports is not None and is_readable(self.reports)

    def report(self) -> Report | None:
        """Read what is there; the report once it is complete. Does not block."""
        assert self.reports is not None
        try:
            self._heard += os.read(self.reports, 65536)
        except BlockingIOError:
            return None
        fields = self._heard.split(b"\0")
        if len(fields) < 4:
            return None
        self._heard = b""
        return Report(int(fields[0]), b"r" in fields[1], os.fsdecode(fields[2]))

    def settle(self) -> bool:
        """Wait until it has written its state out; `False` when it ended or went astray instead."""
        if self.reports is None:
            return True
        poll = select.poll()
        poll.register(self.reports, 0)  # the hang-up alone
        poll.register(self.pidfd, select.POLLIN)
        while not (events := poll.poll(_LOOK)):
            if not self.place.has_unread() and not poll.poll(0):
                return False
        os.close(self.reports)
        self.reports = None
        return self.pidfd not in dict(events)

    def close(self) -> None:
        """Let go of the descriptors; the process is not touched."""
        os.close(self.pidfd)
        if self.reports is not None:
            os.close(self.reports)
            self.reports = None


def is_readable(fd: int) -> bool:
    """Whether there is something to be read at once."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return any(event & select.POLLIN for _, event in poll.poll(0))


def _write(path: str, data: bytes) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        _write_all(fd, data)
    finally:
        os.close(fd)


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
