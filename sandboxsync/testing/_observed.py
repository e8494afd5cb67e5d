"""What a test had run: a transport that passes every call on and notes the commands and the end of their output."""

from __future__ import annotations

import time
from collections import deque
from typing import Any

import attrs

from sandboxsync._redact import redact
from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import (
    CommandRequest,
    CommandStream,
    Exited,
    Output,
    SessionRef,
    Transport,
)

COMMANDS = 10
"""How many commands a journal keeps."""

TAIL = 2_000
"""How many characters of a command, and of the end of each of its outputs, are shown."""


class Tail:
    """The end of an output."""

    def __init__(self) -> None:
        self._data = b""
        self._size = 0

    def add(self, data: bytes) -> None:
        """Take what comes next."""
        self._size += len(data)
        # A character has four bytes at most.
        self._data = (self._data + data)[-4 * TAIL :]

    def lines(self) -> list[str]:
        """Return the end as lines, below one that says how much is missing, if anything is."""
        # Redacted before it is cut: half a credential no longer looks like one.
        text = redact(self._data.decode("utf-8", "replace"))[-TAIL:]
        missing = self._size - len(text.encode())
        return [*([f"... ({missing} bytes before)"] if missing > 0 else []), *text.splitlines()]


@attrs.define(eq=False)
class Command:
    """One command: what was asked for, and what came of it so far."""

    sandbox_id: str
    session_id: str | None
    text: str
    outcome: str = ""
    _outputs: dict[str, Tail] = attrs.field(factory=lambda: {"stdout": Tail(), "stderr": Tail()})
    _asked_at: float = attrs.field(factory=time.monotonic)

    def take(self, item: Output | Exited) -> None:
        """Note what its stream gave."""
        if isinstance(item, Output):
            self._outputs[item.stream].add(item.data)
        else:
            self.end(f"exit code {item.exit_code}", item.duration)

    def fail(self, error: BaseException) -> None:
        """Note the error that it ended with."""
        name = type(error).__name__
        self.end(f"{name}: {str(error).partition(chr(10))[0]}" if isinstance(error, SandboxError) else name)

    def end(self, outcome: str, duration: float | None = None) -> None:
        """Note its end, unless that came before. Without a duration it is the time since the command was asked for."""
        if not self.outcome:
            seconds = time.monotonic() - self._asked_at if duration is None else duration
            self.outcome = f"{outcome}, {seconds:.2f} s"

    def lines(self, with_sandbox: bool) -> list[str]:
        """Return it as lines of a report."""
        text = redact(self.text)
        first, *more = (text if len(text) <= TAIL else f"{text[:TAIL]}...").splitlines() or [""]
        session = "no session" if self.session_id is None else f"session {self.session_id!r}"
        place = f"{session} of sandbox {self.sandbox_id!r}" if with_sandbox else session
        shown = [f"$ {first}", *(f"> {line}" for line in more), f"  {place}: {self.outcome or 'still runs'}"]
        for name, tail in self._outputs.items():
            shown += [f"  {name} | {line}" for line in tail.lines()]
        return shown


class Journal:
    """The last commands of a test, in the order they were asked for. Any thread may add one."""

    def __init__(self) -> None:
        self._commands: deque[Command] = deque(maxlen=COMMANDS)
        self._count = 0

    def add(self, command: Command) -> None:
        """Take a command; the oldest one makes room."""
        self._commands.append(command)
        self._count += 1

    def __str__(self) -> str:
        """Return the commands as a section of a report, empty without any. No I/O: what ran them may be gone."""
        commands = list(self._commands)
        with_sandbox = len({command.sandbox_id for command in commands}) > 1
        earlier = self._count - len(commands)
        lines = [f"... ({earlier} earlier)"] if earlier else []
        for command in commands:
            lines += command.lines(with_sandbox)
        # Not every report can hold a lone surrogate, which a command may.
        return "\n".join(lines).encode("utf-8", "backslashreplace").decode()


class ObservedStream:
    """A `CommandStream` that tells a `Command` what is read from it."""

    def __init__(self, stream: CommandStream, command: Command) -> None:
        self.started_at = stream.started_at
        self._stream = stream
        self._command = command

    def read(self) -> Output | Exited:
        """Read on."""
        __tracebackhide__ = True
        try:
            item = self._stream.read()
        except BaseException as error:
            self._command.fail(error)
            raise
        self._command.take(item)
        return item

    def kill(self) -> None:
        """End the command."""
        self._stream.kill()

    def close(self) -> None:
        """Give up the rest."""
        self._stream.close()
        self._command.end("closed before its end was read")

    def abandon(self) -> None:
        """Have the command end soon."""
        self._stream.abandon()
        self._command.end("dropped before its end was read")


class Observed:
    """A transport with its commands noted in a journal. All else of it is reached as if this object were that one.

    It has no public names of its own, so that it hides none. `_used` says whether any method was asked for.
    """

    def __init__(self, inner: Transport, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal
        self._used = False

    @property  # type: ignore[misc]  # it is not to be set
    def __class__(self) -> Any:
        # Code under test may ask with isinstance what it was given.
        return type(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        self._used = self._used or callable(value)
        return value

    def __enter__(self) -> Observed:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._inner.close()

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        """Start a command and return its stream."""
        __tracebackhide__ = True
        self._used = True
        command = Command(ref.sandbox_id, ref.session_id, request.command)
        self._journal.add(command)
        try:
            stream = self._inner.run(ref, request)
        except BaseException as error:
            command.fail(error)
            raise
        return ObservedStream(stream, command)
