"""Which names of a tree to leave out: the part of the `.gitignore` language that says so without exceptions.

- A pattern without a slash (`*.log`, `node_modules`) matches a name at any depth.
- One with a slash (`build/out`) begins at the root of the tree. `**` stands for any number of directories, so
  `**/build/out` matches at any depth.
- A slash at the end (`build/`) makes it match directories only, and does not count otherwise.
- `name/**` means what is below `name`, at any depth as `name/` would; the directory itself goes too.
- `*` and `?` match within a name, hidden ones too; `[a-z]`, `[!a-z]` one character of a set; a backslash
  takes the next character literally.
- A directory that matches takes all below it along.

Matching takes time linear in the path for each pattern, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from re import Pattern

import attrs

from .errors import InvalidRequestError

_ANY_DEPTH = None


@attrs.frozen
class _Rule:
    parts: tuple[Pattern[str] | None, ...]
    directories_only: bool

    def matches(self, names: list[str], is_directory: bool) -> bool:
        """Whether the path, or a directory above it, is meant."""
        states = self._skip({0}) - {len(self.parts)}
        for index, name in enumerate(names):
            following = set()
            for state in states:
                part = self.parts[state]
                if part is _ANY_DEPTH:
                    following.add(state)
                elif part.fullmatch(name):
                    following.add(state + 1)
            states = self._skip(following)
            if len(self.parts) in states:
                above = index < len(names) - 1
                if above or is_directory or not self.directories_only:
                    return True
                states.discard(len(self.parts))
            if not states:
                return False
        return False

    def _skip(self, states: set[int]) -> set[int]:
        for state in sorted(states):
            while state < len(self.parts) and self.parts[state] is _ANY_DEPTH:
                state += 1
                states.add(state)
        return states


class Exclude:
    """Patterns of names to leave out; immutable, safe for threads."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        r"""Read *patterns*.

        Raises :class:`InvalidRequestError` for one that is no ``str``, is empty, absolute, holds ``..`` or
        NUL, or begins with ``!`` (exceptions are not offered; ``\\!name`` is a name), and for a single string
        in place of a sequence.
        """
        if isinstance(patterns, (str, bytes)):
            raise InvalidRequestError("exclude is a sequence of patterns, not one string")
        self._rules = tuple(_rule(pattern) for pattern in patterns)

    def __bool__(self) -> bool:
        return bool(self._rules)

    def matches(self, path: str, is_directory: bool) -> bool:
        """Whether *path*, relative to the root of the tree, is left out, by itself or with a directory above
        it.
        """
        names = path.split("/")
        return any(rule.matches(names, is_directory) for rule in self._rules)


def _rule(pattern: object) -> _Rule:
    if not isinstance(pattern, str):
        raise InvalidRequestError(f"an exclude pattern is a str, not {type(pattern).__name__}")
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if not names or "\0" in pattern or pattern.startswith("/") or ".." in names:
        raise InvalidRequestError(f"an exclude pattern names something below the tree: {pattern!r}")
    if pattern.startswith("!"):
        raise InvalidRequestError(f"an exclude pattern cannot make exceptions: {pattern!r}")
    directories_only = pattern.endswith("/")
    anchored = "/" in pattern.rstrip("/")
    if len(names) > 1 and names[-1] == "**":
        while len(names) > 1 and names[-1] == "**":
            names.pop()
        directories_only = directories_only or names != ["**"]
        anchored = len(names) > 1 or pattern.startswith("./")
    if not anchored:
        names.insert(0, "**")
    return _Rule(tuple(_ANY_DEPTH if name == "**" else _name_pattern(name) for name in names), directories_only)


def _name_pattern(glob: str) -> Pattern[str]:
    # "*" up to the next fixed piece is taken as short as possible and never reconsidered: a match exists with
    # that choice if it exists at all, and "*a*a*a*b" cannot take exponential time.
    pieces: list[list[str]] = [[]]
    position = 0
    while position < len(glob):
        char = glob[position]
        position += 1
        if char == "*":
            pieces.append([])
        elif char == "?":
            pieces[-1].append(".")
        elif char == "\\" and position < len(glob):
            pieces[-1].append(re.escape(glob[position]))
            position += 1
        elif char == "[" and (end := _set_end(glob, position)) > 0:
            pieces[-1].append(_set(glob[position:end]))
            position = end + 1
        else:
            pieces[-1].append(re.escape(char))
    first, *rest = ("".join(piece) for piece in pieces)
    text = first
    for index, piece in enumerate(rest):
        if index == len(rest) - 1:
            text += f".*{piece}"
        elif piece:
            text += f"(?=(?P<g{index}>.*?{piece}))(?P=g{index})"
    return re.compile(text, re.DOTALL)


def _set_end(glob: str, start: int) -> int:
    """Return where the ``]`` of a set is, or -1: then its ``[`` is an ordinary character."""
    first = start + 1 if glob[start : start + 1] in ("!", "^") else start
    return glob.find("]", first + 1)


def _set(body: str) -> str:
    negated = body[0] in "!^"
    characters = body[1:] if negated else body
    items, index = [], 0
    while index < len(characters):
        low = characters[index]
        if characters[index + 1 : index + 2] == "-" and index + 2 < len(characters):
            high = characters[index + 2]
            if low <= high:
                items.append(f"{re.escape(low)}-{re.escape(high)}")
            index += 3
        else:
            items.append(re.escape(low))
            index += 1
    if not items:
        return "." if negated else "(?!)"
    return f"[{'^' if negated else ''}{''.join(items)}]"
