"""Report the words of standard input."""

import sys

from wordfreq import report

print(report(sys.stdin.read()))
