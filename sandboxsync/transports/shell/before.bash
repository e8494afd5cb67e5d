# shellcheck shell=bash
# Sourced before each command, as the file `b` of the session's directory: b STATUS TAG
#
# The file `c` beside it holds the command, the directory to run it in (or nothing) and the values of its variables, each
# ended by a NUL. They travel as data, so nothing in them is ever parsed by this file. Every builtin is called as
# `\builtin NAME`, because users define aliases and functions with the names of builtins.
#
# TAG marks the processes that the command starts: it becomes the soft limit on file locks, which Linux does not use,
# and which a child keeps whatever it does with its session, group or environment. STATUS is what `$?` is to be.
\builtin mapfile -d '' -t __sandboxsync <"${BASH_SOURCE[0]%b}c" || \builtin exit 1
\builtin ulimit -S -x "$2"
\builtin return "$1"
