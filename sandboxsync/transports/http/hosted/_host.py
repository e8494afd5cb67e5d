"""The client's side of the host in a sandbox: put it there, ask it, read its answers. See `shell/host/host.bash`."""

from __future__ import annotations

import base64
import functools
import hashlib
import logging
import secrets
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib import resources
from typing import Literal, Protocol

from sandboxsync._clock import SYSTEM_CLOCK, Clock
from sandboxsync.errors import ProtocolError, SandboxUnavailableError, StreamInterruptedError, TransportError
from sandboxsync.transports.http._retry import DEFAULT_POLICY, RetryPolicy
from sandboxsync.transports.http.hosted._patience import Patience

__all__ = ["Answer", "Host", "HostRefusedError", "PlainAnswer", "PlainExec", "packed"]

_SCRIPTS = (
    "before.bash",
    "enter.bash",
    "leave.bash",
    "after.bash",
    "restore.bash",
    "restore-options.bash",
    "launch.bash",
    "host/basics.bash",
    "host/commands.bash",
    "host/end.bash",
    "host/files-tree.bash",
    "host/files-write.bash",
    "host/files.bash",
    "host/host.bash",
    "host/janitor.bash",
    "host/keeper.bash",
    "host/outcome.bash",
    "host/processes.bash",
    "host/sessions.bash",
    "host/single.bash",
    "host/tags.bash",
    "host/watch.bash",
)
_log = logging.getLogger("sandboxsync.hosted")

_LONGEST_ARGUMENT = 20_000
"""Bytes of one argument. All of them become one argument of a shell, quoted, which Linux cuts at 131,071."""
_PART = 84_000
"""Bytes that are sent ahead at a time."""


class PlainAnswer(Protocol):
    """What a program prints that runs in the sandbox, as text that may have lost all that is not UTF-8."""

    @abstractmethod
    def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | int:
        """Return what came next, or the exit code, which comes last. Blocks. Raises `TransportError` when it broke."""

    @abstractmethod
    def close(self) -> None:
        """Stop reading. Idempotent; the program may go on."""


class PlainExec(Protocol):
    """The one thing that a service must be able to do."""

    @abstractmethod
    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        """Start a program with these arguments. Raises `TransportError`; what was not delivered has not run."""


class HostRefusedError(Exception):
    """The host says no; the reason is the message."""


def packed(text: str) -> str:
    """A text of the user's as an argument: as it is, or in base64 where a text channel would not keep it."""
    if text.isprintable() or text.encode("utf-8", "replace").decode() == text:
        return f"={text}"
    return "~" + base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


@functools.cache
def _scripts() -> tuple[str, list[str]]:
    """The version of the host, which is told by its content, and the arguments that install it."""
    arguments: list[str] = []
    digest = hashlib.sha256()
    for name in _SCRIPTS:
        text = _script(name)
        digest.update(f"{name}\0{text}\0".encode())
        arguments += [name.rpartition("/")[2], base64.b64encode(text.encode()).decode()]
    return digest.hexdigest()[:16], arguments


@functools.cache
def _script(name: str) -> str:
    """A script without its comments, which would be read with every call."""
    text = resources.files("sandboxsync.transports.shell").joinpath(name).read_text("utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))


class Host:
    """The host of one sandbox. Any thread may ask."""

    def __init__(
        self,
        plain: PlainExec,
        workspace: str = "/workspace",
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.workspace = workspace
        self.policy = policy
        self.clock = clock
        self._plain = plain
        self._installing = threading.Lock()

    def patience(self, policy: RetryPolicy | None = None) -> Patience:
        """What one call tries again with."""
        return Patience(policy or self.policy, self.clock)

    def ask(
        self,
        verb: str,
        *arguments: str,
        met: Callable[[str], None] | None = None,
        patience: Patience | None = None,
    ) -> list[str]:
        """Ask something that is answered at once, and may come twice; returns the lines of the answer.

        `met` is told the incarnation that answers. Installs the host if need be. Raises `HostRefusedError`, what `met`
        raises, and `TransportError` when the sandbox cannot be reached or what it says makes no sense.
        """
        patience = patience or self.patience()
        while True:
            try:
                answer = self.open(verb, *arguments)
                try:
                    if met is not None:
                        met(answer.incarnation)
                    return answer.rest()
                finally:
                    answer.close()
            except TransportError as exc:
                if not patience.bear(exc):
                    raise
                _log.warning("%s: asking again after %s", verb, exc)

    def ask_once(self, verb: str, *arguments: str, met: Callable[[str], None] | None = None) -> list[str]:
        """As `ask`, for what must not be done twice."""
        return self.ask("once", secrets.token_hex(8), verb, *arguments, met=met)

    def open(self, verb: str, *arguments: str, install: bool = True) -> Answer:
        """Ask, and return the answer as it comes, after its first line.

        Without `install`, a sandbox that has no host refuses as one that has lost its state.
        """
        if verb != "part":
            arguments = tuple(self._shortened(arguments))
        for attempt in range(2):
            answer = self._start(verb, arguments)
            try:
                answer.begin()
                return answer
            except _MissingHost:
                answer.close()
                if not install:
                    raise HostRefusedError("restarted") from None
                if attempt:
                    raise SandboxUnavailableError("the sandbox loses what is put into it") from None
                self._install()
            except BaseException:
                answer.close()
                raise
        raise AssertionError("the loop returns or raises")

    def _start(self, verb: str, arguments: Sequence[str]) -> Answer:
        version, _ = _scripts()
        argv = ["bash", "-c", _script("host/find.bash"), "host", version, self.workspace, verb, *arguments]
        return Answer(self._plain.exec(argv))

    def _shortened(self, arguments: Sequence[str]) -> list[str]:
        """Send what is too long ahead, in parts; the argument is the name of a file then."""
        short = []
        for argument in arguments:
            data = argument.encode("utf-8", "surrogateescape")
            if len(data) > _LONGEST_ARGUMENT:
                data = base64.b64decode(argument[1:]) if argument.startswith("~") else data[1:]
                argument = f"@{self._send_parts(data)}"
            short.append(argument)
        return short

    def _send_parts(self, data: bytes) -> str:
        name = secrets.token_hex(8)
        for number, at in enumerate(range(0, len(data), _PART)):
            self.ask("part", f"{name}.{number:06}", base64.b64encode(data[at : at + _PART]).decode())
        return name

    def _install(self) -> None:
        version, files = _scripts()
        with self._installing:
            argv = ["bash", "-c", _script("host/install.bash"), "host", version, self.workspace, *files]
            answer = Answer(self._plain.exec(argv))
            try:
                said = answer.line()
            finally:
                answer.close()
        if said != "sbx installed":
            raise SandboxUnavailableError(f"cannot put the session host into the sandbox: {said or answer.said()}")


class _MissingHost(Exception):
    pass


class Answer:
    """What the host says: lines on standard output, and of the other stream lines too. One thread reads."""

    def __init__(self, plain: PlainAnswer) -> None:
        self._plain = plain
        self._waiting: dict[Literal["stdout", "stderr"], bytes] = {"stdout": b"", "stderr": b""}
        self._lines: list[tuple[Literal["stdout", "stderr"], str]] = []
        self._said = b""
        self._exit_code: int | None = None

    def begin(self) -> None:
        """Read the first line. Raises `HostRefusedError` and `ProtocolError`."""
        first = self.line()
        if first is None:
            raise StreamInterruptedError(
                f"the session host ended with exit code {self._exit_code}: {self.said()!r}", retryable=True
            )
        if first == "!missing":
            raise _MissingHost
        if not first.startswith("sbx"):
            raise ProtocolError(f"the sandbox answers what no session host says: {first[:200]!r}")
        self.incarnation = first[4:]

    def said(self) -> str:
        """What it printed to standard error."""
        return self._said.decode(errors="replace")[:200]

    def line(self) -> str | None:
        """The next line of standard output, `None` at the end. Raises `HostRefusedError` for what it refuses."""
        while (item := self.next()) is not None:
            stream, line = item
            if stream == "stdout":
                if line.startswith("!") and line != "!missing":
                    raise HostRefusedError(line[1:])
                return line
        return None

    def next(self) -> tuple[Literal["stdout", "stderr"], str] | None:
        """The next line of either stream; `None` at the end of both. Blocks. Raises `TransportError`."""
        while not self._lines:
            if self._exit_code is not None:
                return None
            item = self._plain.read()
            if isinstance(item, int):
                self._exit_code = item
                if self._waiting["stdout"]:
                    raise StreamInterruptedError(
                        "the answer of the session host ends in the middle of a line", retryable=True
                    )
                return None
            stream, data = item
            if stream == "stderr" and len(self._said) < 1000:
                self._said += data
            *lines, self._waiting[stream] = (self._waiting[stream] + data).split(b"\n")
            self._lines += [(stream, line.decode("ascii", "replace")) for line in lines]
        return self._lines.pop(0)

    def parts(self) -> list[tuple[Literal["stdout", "stderr"], str]]:
        """What has come of lines whose ends have not."""
        return [(stream, data.decode("ascii", "replace")) for stream, data in self._waiting.items()]

    def rest(self) -> list[str]:
        """The lines of standard output up to the end. Raises `TransportError` when that is not the host's own."""
        lines = []
        while (line := self.line()) is not None:
            lines.append(line)
        self.check()
        return lines

    def check(self) -> None:
        """Raise `StreamInterruptedError` when the end was not the host's own."""
        if self._exit_code != 0:
            raise StreamInterruptedError(f"the session host was ended: exit code {self._exit_code}", retryable=True)

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._plain.close()
