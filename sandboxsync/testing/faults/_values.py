"""The faults of a proxy, as values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Literal, TypeAlias

import attrs

from sandboxsync.errors import ConfigurationError

__all__ = [
    "Answer",
    "Drop",
    "Fault",
    "HangUp",
    "Silence",
    "Slow",
    "Split",
    "Stall",
    "Truncate",
    "Twice",
    "check_fault",
    "settled",
]

Amount: TypeAlias = int | range
"""A number, or a range that one is drawn from each time the fault strikes."""


def _check_amount(fault: object, field: object, value: Any) -> None:
    if isinstance(value, range):
        if not value or min(value) < 0:
            raise ConfigurationError(f"after needs a range of numbers of at least 0, not {value!r}")
    elif isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigurationError(f"after must be a number of bytes of at least 0, or a range of them, not {value!r}")


def _check_choice(*choices: str) -> Callable[[object, attrs.Attribute[Any], Any], None]:
    def check(fault: object, field: attrs.Attribute[Any], value: object) -> None:
        if value not in choices:
            raise ConfigurationError(f"{field.name} must be one of {', '.join(map(repr, choices))}, not {value!r}")

    return check


def _check_seconds(fault: object, field: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigurationError(f"{field.name} must be a number of seconds of at least 0, not {value!r}")


def _sizes(value: int | Sequence[int]) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value)


def _check_sizes(fault: object, field: object, value: tuple[object, ...]) -> None:
    if not value or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in value):
        raise ConfigurationError(f"sizes must be numbers of bytes of at least 1, not {value!r}")


def _check_status(fault: object, field: object, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise ConfigurationError(f"a status of an answer is a number from 200 to 599, not {value!r}")


def _encoded(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _checked_headers(value: Mapping[str, str]) -> dict[str, str]:
    for name, text in value.items():
        if not f"{name}{text}".isprintable() or name.lower() in ("content-length", "transfer-encoding"):
            raise ConfigurationError(f"not a header for an answer: {name!r}: {text!r}")
    return dict(value)


_PART = _check_choice("answer", "body")


@attrs.frozen
class Drop:
    """Break the answer off after so many bytes: the connection is closed, or reset.

    Counted are all bytes of the answer, from the first of its status line on; with `part="body"` those of its body
    alone, without the framing of chunks. An answer of fewer bytes arrives whole, and its connection stays open.
    """

    after: Amount = attrs.field(validator=_check_amount)
    part: Literal["answer", "body"] = attrs.field(default="answer", validator=_PART, kw_only=True)
    reset: bool = attrs.field(default=False, kw_only=True)


@attrs.frozen
class HangUp:
    """End the connection without an answer.

    `before` is `"reading"` (the head of the request was read, its body was not), `"forwarding"` (all of it was read,
    the server has seen nothing of it) or `"answering"` (the server began to answer). The connection is reset, or just
    closed with `reset=False`; the system resets it anyway where bytes have come that were not read.
    """

    before: Literal["reading", "forwarding", "answering"] = attrs.field(
        validator=_check_choice("reading", "forwarding", "answering")
    )
    reset: bool = attrs.field(default=True, kw_only=True)


@attrs.frozen
class Stall:
    """Hold the answer after so many bytes, counted as in `Drop`, and then go on with it.

    That is after `seconds`, or when `FaultProxy.release` is called, or never.
    """

    after: Amount = attrs.field(default=0, validator=_check_amount)
    part: Literal["answer", "body"] = attrs.field(default="answer", validator=_PART, kw_only=True)
    seconds: float | None = attrs.field(default=None, validator=attrs.validators.optional(_check_seconds), kw_only=True)


@attrs.frozen
class Silence:
    """Read the request, and do nothing more: the server sees nothing of it, and no answer ever comes."""


@attrs.frozen
class Split:
    """Send the answer in segments of these sizes, in turn; left out, each byte is one.

    Who reads slowly may find several of them at once.
    """

    sizes: tuple[int, ...] = attrs.field(default=(1,), converter=_sizes, validator=_check_sizes)


@attrs.frozen
class Slow:
    """Send the answer, or its head or body alone, slowly: so many bytes at once, and `pause` seconds before each."""

    pause: float = attrs.field(validator=_check_seconds)
    size: int = attrs.field(default=1, validator=lambda fault, field, value: _check_sizes(fault, field, (value,)))
    part: Literal["answer", "head", "body"] = attrs.field(
        default="answer", validator=_check_choice("answer", "head", "body"), kw_only=True
    )


@attrs.frozen
class Twice:
    """Deliver the request two times, one after the other, and give back the second answer. The first is read whole."""


@attrs.frozen
class Truncate:
    """End the body of the answer after so many bytes as if that were all: HTTP is right, what it carries is not."""

    after: Amount = attrs.field(validator=_check_amount)


@attrs.frozen
class Answer:
    """Answer in the place of the server, which sees the request only with `forward`: then what it answers is lost.

    An answer has a `Content-Length` and whatever is in `headers`.
    """

    status: int = attrs.field(default=503, validator=_check_status)
    body: bytes = attrs.field(default=b"", converter=_encoded)
    headers: Mapping[str, str] = attrs.field(factory=dict, converter=_checked_headers, hash=False)
    forward: bool = attrs.field(default=False, kw_only=True)

    @classmethod
    def page(cls, status: int = 502, text: str = "Bad gateway", *, forward: bool = False) -> Answer:
        """Return the answer of something that stands before the server: a page of HTML."""
        html = f"<!DOCTYPE html>\n<html><head><title>{text}</title></head><body><h1>{text}</h1></body></html>\n"
        return cls(status, html.encode(), {"Content-Type": "text/html; charset=utf-8"}, forward=forward)


Fault: TypeAlias = Drop | HangUp | Stall | Silence | Split | Slow | Twice | Truncate | Answer


def check_fault(value: object) -> None:
    """Raise `ConfigurationError` for what is not a fault."""
    if not isinstance(value, (Drop, HangUp, Stall, Silence, Split, Slow, Twice, Truncate, Answer)):
        raise ConfigurationError(f"not a fault: {value!r}")


def settled(fault: Fault, random: Random) -> Fault:
    """Return the fault with a number where it has a range."""
    if isinstance(fault, (Drop, Stall, Truncate)) and isinstance(fault.after, range):
        return attrs.evolve(fault, after=random.choice(fault.after))
    return fault
