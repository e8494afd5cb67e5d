# shellcheck shell=bash
# Sourced before each command, as the file `b` of the session's directory: b COUNT
#
# The file `c` beside it holds COUNT texts, each ended by a NUL: the command, the files of its standard input, output and
# error, `a` and the file it reports to, `$?` as it is to be, a tag, a directory to run in (or nothing), and the names and
# values of variables. They travel as data, so nothing in them is ever parsed by this file. Every builtin is called as
# `\builtin NAME`, because users define aliases and functions with the names of builtins.
#
# The tag marks the processes that the command starts: it becomes the soft limit on file locks, which Linux does not use,
# and which a child keeps whatever it does with its session, group or environment.
\builtin mapfile -d '' -t -n "$1" __sbx <"${BASH_SOURCE[0]%b}c" || \builtin exit 1
\builtin ulimit -S -x "${__sbx[7]}"
\builtin return "${__sbx[6]}"
