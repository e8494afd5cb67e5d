"""Tests for wordfreq, run with ``python3 -m unittest``."""

from __future__ import annotations

import unittest

from wordfreq import count, report


class CountTest(unittest.TestCase):
    """What counts as a word, and as the same one."""

    def test_case_does_not_matter(self) -> None:
        assert count("To be, or not to be") == {"to": 2, "be": 2, "or": 1, "not": 1}

    def test_words_may_have_marks_inside(self) -> None:
        assert count("don't re-do 'it'") == {"don't": 1, "re-do": 1, "it": 1}


class ReportTest(unittest.TestCase):
    """What is printed."""

    def test_most_frequent_words_come_first(self) -> None:
        assert report("b a c a b d", limit=3) == "  2 a\n  2 b\n  1 c"


if __name__ == "__main__":
    unittest.main()
