"""What must not be in a cassette: values of variables by name, and whatever matches a pattern."""

from __future__ import annotations

import os
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from sandboxsync._git_source import PASSWORD
from sandboxsync.errors import ConfigurationError

MARK = "<redacted>"
"""What stands in the place of a secret."""

Redact: TypeAlias = "Iterable[str | re.Pattern[str]]"

# Without a special character, or with escaped ones alone: the pattern is the secret itself.
_LITERAL = re.compile(r"(?:[^\\.^$*+?{}\[\]|()]|\\\W)*")


class Secrets:
    """Finds secrets in text and bytes, and puts `MARK` in their place. No I/O; safe for threads.

    A name stands for the value of that variable in this process when the object is made, and for every value that the
    variable has in an environment shown to `learn`. Credentials that `git_checkout` hands to git are always secret.

    Raises `ConfigurationError` for what is neither a name nor a pattern for text, and for a pattern that is itself the
    text to hide: patterns are written into the cassette.
    """

    def __init__(self, redact: Redact = ()) -> None:
        items = list(redact) if not isinstance(redact, (str, re.Pattern)) else [None]
        for item in items:
            if isinstance(item, re.Pattern) and isinstance(item.pattern, str):
                if _LITERAL.fullmatch(item.pattern):
                    raise ConfigurationError(
                        "a pattern of redact is the secret itself, and would be written into the cassette: "
                        "give the name of a variable that holds it"
                    )
            elif not isinstance(item, str) or not item:
                raise ConfigurationError("redact takes a sequence of names of variables and compiled patterns for text")
        self.names = sorted({item for item in items if isinstance(item, str)})
        self.patterns = [item for item in items if isinstance(item, re.Pattern)]
        self._secret_names = frozenset([*self.names, PASSWORD])
        self._values: frozenset[str] = frozenset()
        self.learn(os.environ)

    def learn(self, env: Mapping[str, str | None]) -> None:
        """Take the values that the names have in *env* for secrets, from now on and everywhere."""
        new = {value for name in self._secret_names if (value := env.get(name))} - self._values
        if new:
            self._values |= new

    def environment(self, env: Mapping[str, str | None]) -> dict[str, str | None]:
        """Return a copy of *env* without secrets; a value that has one of the names is hidden whole."""
        return {
            self.text(name): MARK if value and name in self._secret_names else value and self.text(value)
            for name, value in env.items()
        }

    def text(self, text: str) -> str:
        """Return *text* without secrets."""
        spans = self._spans(text)
        if not spans:
            return text
        edges = [0, *(edge for span in spans for edge in span), len(text)]
        return MARK.join(text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True))

    def pieces(self, pieces: Sequence[bytes]) -> list[bytes]:
        """Return as many pieces without secrets: one that is cut by two pieces is hidden in the first."""
        # What is no UTF-8 is kept: each of its bytes becomes a character, and a byte again.
        text = b"".join(pieces).decode("utf-8", "surrogateescape") if self._values or self.patterns else ""
        spans = self._spans(text)
        if not spans:
            return list(pieces)
        ends = list(accumulate(map(len, pieces)))
        left = [bytearray() for _ in pieces]
        seen = offset = 0
        for start, end in [*spans, (len(text), len(text))]:
            shown = memoryview(text[seen:start].encode("utf-8", "surrogateescape"))
            while shown:
                index = bisect_right(ends, offset)
                part = shown[: ends[index] - offset]
                left[index] += part
                offset += len(part)
                shown = shown[len(part) :]
            if end > start:
                left[bisect_right(ends, offset)] += MARK.encode()
                offset += len(text[start:end].encode("utf-8", "surrogateescape"))
            seen = end
        return [bytes(piece) for piece in left]

    def _spans(self, text: str) -> list[tuple[int, int]]:
        """Where the secrets are: in order, not empty, without overlaps."""
        found = [match.span() for pattern in self.patterns for match in pattern.finditer(text) if match[0]]
        for value in self._values:
            start = text.find(value)
            while start >= 0:
                found.append((start, start + len(value)))
                start = text.find(value, start + 1)
        spans: list[tuple[int, int]] = []
        for start, end in sorted(found):
            if spans and start < spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            else:
                spans.append((start, end))
        return spans
