"""The shell side of a session: what one bash runs before and after each user command, as files of its own.

A session's shell reads its script from a regular file that consists of the same two lines again and again: source
`before.bash`, which waits for a command, and `eval` it; source `after.bash`, which reports. So user commands run at the
top level of a shell, as in `bash -c`, and nothing of them is ever spliced into a script. (From a pipe bash would read
the lines byte by byte, which costs more than the rest; in a loop `break` would have another meaning.)
"""
