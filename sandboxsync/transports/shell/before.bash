# shellcheck shell=bash
# Sourced before each command, as the file `b` of the session's directory.
#
# The FIFO `k` beside it says when to begin: a line with the number of texts in the file `c`. A line `s` says nothing;
# that it was taken shows that the shell has come back to this place. The texts, each ended by a NUL, are: the command,
# the file of its standard input, `$?` as it is to be, a tag, the file `n` if there is something to prepare (else nothing),
# what that needs, and whatever else the command takes from them. They travel as data, so nothing in them is ever parsed
# by this file. Every builtin is called as `\builtin NAME`, because users define aliases and functions with their names.
#
# The tag marks the processes that the command starts: it becomes the soft limit on file locks, which Linux does not use,
# and which a child keeps whatever it does with its session, group or environment.
while \builtin mapfile -t -n 1 __sbx <"${BASH_SOURCE[0]%b}k" && [[ ${__sbx[0]} == s ]]; do
  ((1))
done
\builtin mapfile -d '' -t -n "${__sbx[0]}" __sbx <"${BASH_SOURCE[0]%b}c" || \builtin exit 1
\builtin ulimit -S -x "${__sbx[3]}"
[[ -z ${__sbx[4]} ]] || \builtin . "${__sbx[4]}"
\builtin return "${__sbx[2]}"
