"""Which commands a script of a test is about."""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Callable, Sequence
from typing import TypeAlias

import attrs

from sandboxsync.errors import InvalidRequestError

__all__ = ["CommandPattern", "Matcher", "check_name", "matcher"]

CommandPattern: TypeAlias = "str | re.Pattern[str] | Sequence[str]"
"""A text, a text with `*`, `?` or `[`, a compiled pattern, or the first words."""

_NAME = re.compile(r"[\w./+@:%,~^-]+")
# The first word at the beginning of a regular expression, and what shows that it ends there.
_NAME_IN_REGEX = re.compile(r"(?:\^|\\A)?((?:[\w/@:%,~-]|\\[^\w\s])+)(?=\\? |\\[sbZ]|\$|\Z)")

_WORDS = """
. : [ [[ alias bg bind break builtin caller case cd command compgen complete compopt continue coproc declare dirs
disown do done elif else enable esac eval exec exit export fc fg fi for function getopts hash if in jobs let local
logout mapfile popd printf pushd read readarray readonly return select set shift shopt source suspend test then time
times trap type typeset ulimit umask unalias unset until wait while
"""
_OF_THE_SHELL = frozenset(_WORDS.split())
"""What changes the shell itself, or is part of its language."""


@attrs.frozen
class Matcher:
    """A pattern, ready to use. `name` is the first word of all that it matches."""

    name: str
    shown: str
    _matches: Callable[[str, list[str] | None], bool]

    def __str__(self) -> str:
        return self.shown

    def matches(self, words: Sequence[str]) -> bool:
        """Whether it is about this command, given by its words."""
        return self._matches(" ".join(words), list(words))

    def matches_text(self, text: str) -> bool:
        """Whether it is about this shell text, as it is written or by the words it is made of."""
        words = _words(text)
        return self._matches(text, words) or (words is not None and self.matches(words))


def matcher(pattern: CommandPattern | object) -> Matcher:
    """Take a pattern. Raises `InvalidRequestError` for one that is none, or that does not begin with a literal word."""
    if isinstance(pattern, re.Pattern):
        if not isinstance(pattern.pattern, str):
            raise InvalidRequestError("a pattern for a command is one of text, not of bytes")
        found = _NAME_IN_REGEX.match(pattern.pattern)
        if found is None:
            raise InvalidRequestError(f"{pattern.pattern!r} must begin with the literal name of a program, and a space")
        name = re.sub(r"\\(.)", r"\1", found[1])
        return Matcher(name, repr(pattern.pattern), lambda text, words: pattern.fullmatch(text) is not None)
    if isinstance(pattern, str):
        first = pattern.split(" ", 1)[0]
        if any(char in pattern for char in "*?["):
            return Matcher(first, repr(pattern), lambda text, words: fnmatch.fnmatchcase(text, pattern))
        wanted = _words(pattern)
        return Matcher(
            first, repr(pattern), lambda text, words: text == pattern or (words is not None and words == wanted)
        )
    prefix = list(pattern) if isinstance(pattern, Sequence) else []
    if not prefix or not all(isinstance(word, str) for word in prefix):
        raise InvalidRequestError("a command is given by a text, a compiled pattern, or a sequence of words")
    return Matcher(prefix[0], repr(prefix), lambda text, words: words is not None and words[: len(prefix)] == prefix)


def check_name(name: object) -> str:
    """Return the name of a program. Raises `InvalidRequestError` for what is none, or belongs to the shell itself."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidRequestError(f"the first word must be the literal name of a program, not {name!r}")
    if name in _OF_THE_SHELL:
        raise InvalidRequestError(f"{name!r} belongs to the shell itself and cannot be scripted")
    return name


def _words(text: str) -> list[str] | None:
    try:
        return shlex.split(text)
    except ValueError:
        return None
