"""What a program of the fake is: a Python function in the place of an executable file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

if TYPE_CHECKING:
    from sandboxsync.transports.fake._shell import Shell

__all__ = ["Answer", "Invocation", "Notes", "Program", "Step", "complaint"]


@attrs.define(eq=False)
class Notes:
    """What the programs of one command leave for whoever started it."""

    failure: BaseException | None = None
    """What a function raised first that stands for a program."""


@attrs.frozen
class Invocation:
    """One call of a program: its arguments, without its name, and all that it is given."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    stdin: bytes
    shell: Shell


@attrs.frozen
class Step:
    """Output that comes `delay` seconds after what was before it."""

    delay: float
    stream: Literal["stdout", "stderr"]
    data: bytes


@attrs.frozen
class Answer:
    """What a program does: its steps, then `delay` seconds of nothing, then its end.

    `exit_code=None` never ends by itself. `ports` are open from the last step to the end; each answers HTTP with its
    status. `done` is called after that with the exit code, or `None` when it was stopped before.
    """

    steps: Sequence[Step] = ()
    exit_code: int | None = 0
    delay: float = 0.0
    ports: Mapping[int, int] = attrs.field(factory=dict)
    done: Callable[[int | None], None] = lambda exit_code: None


@attrs.frozen
class Program:
    """A function and what it needs. `blocks`: it may take its time, since somebody else wrote it."""

    function: Callable[[Invocation], Answer]
    reads_stdin: bool = False
    blocks: bool = False
    is_live: bool = False
    """Whether its output is to be seen while it runs."""


def complaint(message: str, exit_code: int = 1) -> Answer:
    """The answer of a program that was called wrongly."""
    return Answer([Step(0.0, "stderr", f"{message}\n".encode("utf-8", "surrogateescape"))], exit_code)
