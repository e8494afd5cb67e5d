"""The shell side of a session: what one bash runs before and after each user command, as files of its own.

A session's shell reads its script from a FIFO. For each command the client writes it three lines: `before.bash` and the
`eval` of the command, `after.bash`, and an empty line. When the shell has taken that empty line without having
reported the end, it cannot (`set -n`, `set -r` …), which is how such a shell is recognised. bash reads a FIFO byte by
byte, so the lines are short: the files lie in the session's directory under one-letter names.
"""
