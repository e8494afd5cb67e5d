"""Commands as the APIs run them: without a session as the container does, in one as the transport does."""

from __future__ import annotations

import codecs
import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from importlib import resources
from typing import Literal

import attrs

from sandboxsync.errors import (
    FileError,
    OutputLimitError,
    SandboxError,
    SandboxFileNotFoundError,
    SandboxNotADirectoryError,
)
from sandboxsync.server._workers import Workers
from sandboxsync.transports.base import CommandRequest, CommandStream, Exited, Output, SessionRef, Transport

__all__ = [
    "MISSING",
    "TIMED_OUT",
    "Command",
    "OnText",
    "SpawnError",
    "Texts",
    "milliseconds",
    "run",
    "sessionless",
    "was_stopped",
]

TIMED_OUT = 124
"""The exit code of a command that was stopped at its time limit."""
_LONGEST_ARGUMENT = 131_072
"""Bytes of one argument of a program, its NUL included, that Linux takes."""

OnText = Callable[[Literal["stdout", "stderr"], str], None]


class SpawnError(Exception):
    """The container could not start a shell; the message is what its runtime says then."""


@attrs.frozen
class Command:
    """What to run: `text` in `cwd`, with variables of its own, for `timeout` seconds at most (`None`: no limit)."""

    text: str
    cwd: str | None = None
    env: Mapping[str, str] = attrs.field(factory=dict)
    timeout: float | None = None


class Texts:
    """Decodes what a command prints as the service does: UTF-8, U+FFFD for what is none, no character broken."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": make("replace"), "stderr": make("replace")}

    def __call__(self, output: Output) -> str:
        """The text that is complete with this output; may be empty."""
        return self._decoders[output.stream].decode(output.data)

    def rest(self, stream: Literal["stdout", "stderr"]) -> str:
        """The text of what was left incomplete."""
        return self._decoders[stream].decode(b"", True)


def sessionless(transport: Transport, sandbox_id: str, command: Command) -> CommandStream:
    """Start a command as the container does without a session. Raises `SpawnError`, and what `Transport.run` does.

    It runs by `/bin/bash -c`, without `LANG`, and ends only when nobody holds its output any more. At its limit its
    process group gets TERM, and KILL 5 s later.
    """
    ref = SessionRef(sandbox_id, None)
    _check_spawn(transport, ref, command)
    limit = "" if command.timeout is None else f"{command.timeout:.3f}"
    given = [limit, command.text, *(f"{name}={value}" for name, value in command.env.items())]
    stdin = b"".join(item.encode("utf-8", "replace") + b"\0" for item in given)
    return transport.run(ref, CommandRequest(_script(), cwd=command.cwd, stdin=stdin, timeout=None))


def _check_spawn(transport: Transport, ref: SessionRef, command: Command) -> None:
    if command.cwd is not None:
        try:
            missing = transport.stat(ref, command.cwd, follow_symlinks=True).type != "directory"
        except FileError:
            missing = True
        if missing or not command.cwd.startswith("/"):
            raise SpawnError("ENOENT: no such file or directory, posix_spawn '/bin/bash'")
    arguments = [command.text, *(f"{name}={value}" for name, value in command.env.items())]
    if any(len(argument.encode("utf-8", "replace")) >= _LONGEST_ARGUMENT for argument in arguments):
        raise SpawnError("E2BIG: argument list too long, posix_spawn '/bin/bash'")
    if any("\0" in argument for argument in arguments):
        raise SpawnError("The argument 'args' must be a string without null bytes")


@lru_cache(maxsize=1)
def _script() -> str:
    text = resources.files("sandboxsync.server").joinpath("sessionless.bash").read_text("utf-8")
    return "".join(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))


def run(workers: Workers, stream: CommandStream, on_text: OnText, most: int | None = None) -> Exited:
    """Read a command to its end, whatever becomes of the client. Blocks. Raises what `CommandStream.read` does, and
    `OutputLimitError`, with the command stopped, when it printed more than `most` bytes.
    """
    texts = Texts()
    size = 0
    workers.opened(stream)
    try:
        while isinstance(item := stream.read(), Output):
            size += len(item.data)
            if most is not None and size > most:
                raise OutputLimitError(f"the command wrote more than {most} bytes")
            if text := texts(item):
                on_text(item.stream, text)
    except BaseException as exc:
        stream.close()
        if isinstance(exc, SandboxError):
            _tell_rest(texts, on_text)
        raise
    finally:
        workers.ended(stream)
    _tell_rest(texts, on_text)
    return item


def _tell_rest(texts: Texts, on_text: OnText) -> None:
    names: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")
    for name in names:
        if rest := texts.rest(name):
            on_text(name, rest)


def was_stopped(exited: Exited, command: Command, began: float) -> bool:
    """Whether a command without a session was stopped at its limit. `began`: when it was started (`time.monotonic`)."""
    return command.timeout is not None and exited.exit_code == TIMED_OUT and time.monotonic() - began >= command.timeout


def milliseconds(value: object) -> float | None:
    """A time limit in milliseconds, a number or one in text, as seconds; `None` without one, or for 0 or less."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        number = float(value) / 1000
    except (ValueError, OverflowError):
        return None
    return number if 0 < number < 1e9 and not math.isnan(number) else None


MISSING = (SandboxFileNotFoundError, SandboxNotADirectoryError)
"""What a directory that is not there raises."""
