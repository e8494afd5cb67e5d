"""Count the words of a text."""

from __future__ import annotations

import re
from collections import Counter

WORD = re.compile(r"\w+(?:['-]\w+)*")


def count(text: str) -> Counter[str]:
    """Return how often each word occurs, whatever its case."""
    return Counter(word.lower() for word in WORD.findall(text))


def report(text: str, limit: int = 3) -> str:
    """Return the most frequent words, one a line; equally frequent ones by the alphabet."""
    ranked = sorted(count(text).items(), key=lambda item: (-item[1], item[0]))
    return "\n".join(f"{number:3} {word}" for word, number in ranked[:limit])
