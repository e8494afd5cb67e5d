"""What a test says that a command does, as an answer of a program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from sandboxsync.errors import InvalidRequestError
from sandboxsync.transports.fake._program import Answer, Step

__all__ = [
    "FakeResult",
    "TimedOutput",
    "answer_of",
    "check_exit_code",
    "check_ports",
    "check_seconds",
    "check_times",
    "data_of",
    "steps",
]

TimedOutput: TypeAlias = "tuple[float, str | bytes] | tuple[float, str | bytes, Literal['stdout', 'stderr']]"
"""Output that comes so many seconds after what was before it; to `stdout`, unless it says `"stderr"`."""


def data_of(value: object) -> bytes:
    """Return text as UTF-8, and bytes as they are. Raises `InvalidRequestError` for anything else."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise InvalidRequestError(f"output is str or bytes, not {type(value).__name__}")


def check_seconds(value: object, name: str = "delay") -> float:
    """Return a finite number of seconds, 0 or more; raises `InvalidRequestError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not (math.isfinite(value) and value >= 0):
        raise InvalidRequestError(f"{name} is a finite number of seconds, 0 or more, not {value!r}")
    return float(value)


def check_exit_code(value: object) -> int:
    """Return a code from 0 to 255; raises `InvalidRequestError` for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise InvalidRequestError(f"an exit code is a number from 0 to 255, not {value!r}")
    return value


def check_times(value: object) -> int | None:
    """Return how many times; raises `InvalidRequestError` for what is no number from 1 on, and not `None`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidRequestError(f"times is a number, 1 or more, not {value!r}")
    return value


@attrs.frozen
class FakeResult:
    """What a function in the place of a program returns to say everything: it prints, takes `delay` seconds, and ends.

    Output may be given as `str`; it is kept as bytes. Raises `InvalidRequestError` for values that are none.
    """

    stdout: bytes = attrs.field(default=b"", converter=data_of)
    stderr: bytes = attrs.field(default=b"", converter=data_of)
    exit_code: int = attrs.field(default=0, converter=check_exit_code)
    delay: float = attrs.field(default=0.0, converter=check_seconds)


def steps(stdout: object, stderr: object, output: Iterable[TimedOutput] | str | bytes) -> list[Step]:
    """Return what is printed: the two streams at once, then what comes in its time."""
    pieces: Iterable[TimedOutput] = [(0.0, output)] if isinstance(output, (str, bytes)) else output
    found = [Step(0.0, "stdout", data_of(stdout)), Step(0.0, "stderr", data_of(stderr))]
    for piece in pieces:
        if len(piece) not in (2, 3):
            raise InvalidRequestError(f"timed output is (seconds, text) or (seconds, text, 'stderr'), not {piece!r}")
        stream = piece[2] if len(piece) == 3 else "stdout"
        if stream not in ("stdout", "stderr"):
            raise InvalidRequestError(f"output goes to 'stdout' or 'stderr', not {stream!r}")
        found.append(Step(check_seconds(piece[0]), stream, data_of(piece[1])))
    return [step for step in found if step.data or step.delay]


def answer_of(returned: object) -> Answer:
    """Take what a function in the place of a program returned. Raises `InvalidRequestError` for what means nothing."""
    match returned:
        case None:
            result = FakeResult()
        case FakeResult():
            result = returned
        case str() | bytes():
            result = FakeResult(returned)
        case (code, stdout, stderr):
            result = FakeResult(stdout, stderr, code)
        case int() if not isinstance(returned, bool):
            result = FakeResult(exit_code=returned)
        case _:
            raise InvalidRequestError(
                "a function in the place of a program returns its output, its exit code, (exit_code, stdout, stderr), "
                f"a FakeResult or None, not {type(returned).__name__}"
            )
    return Answer(steps(result.stdout, result.stderr, ()), result.exit_code, result.delay)


def check_ports(port: int | Iterable[int] | None, status: int) -> Mapping[int, int]:
    """Return the status that each port answers with. Raises `InvalidRequestError` for what is no port or status."""
    ports = [] if port is None else [port] if isinstance(port, int) else list(port)
    if not 100 <= status <= 599:
        raise InvalidRequestError(f"status is that of an HTTP answer, not {status!r}")
    for number in ports:
        if not 1 <= number <= 65535:
            raise InvalidRequestError(f"a port is a number from 1 to 65535, not {number!r}")
    return dict.fromkeys(ports, status)
