# shellcheck shell=bash
# Sourced before each command, as the file `b` of the session's directory.
#
# The FIFO `k` beside it says when to begin: a line with the number of texts in the file `c`. A line `s` says nothing; that it
# was taken shows that the shell has come back to this place. The texts, each ended by a NUL, are: the command, the file of
# its standard input, `$?` as it is to be, a tag, a directory to run in (or nothing), the number of texts up to the end of what
# follows now: names and values of variables; and whatever else the command takes from them. They travel as data, so nothing
# in them is ever parsed by this file. Every builtin is called as `\builtin NAME`, because users define aliases and functions
# with the names of builtins.
#
# The tag marks the processes that the command starts: it becomes the soft limit on file locks, which Linux does not use,
# and which a child keeps whatever it does with its session, group or environment.
while \builtin mapfile -t -n 1 __sbx <"${BASH_SOURCE[0]%b}k" && [[ $__sbx == s ]]; do
  ((1))
done
\builtin mapfile -d '' -t -n "$__sbx" __sbx <"${BASH_SOURCE[0]%b}c" || \builtin exit 1
\builtin ulimit -S -x "${__sbx[3]}"
if ((__sbx[5] > 6)); then
  # What after.bash puts back, as text that bash itself makes for the purpose.
  __sbx_old=()
  for ((__sbx_at = 6; __sbx_at < __sbx[5]; __sbx_at += 2)); do
    __sbx_name="${__sbx[__sbx_at]}[@]"
    if [[ -n ${!__sbx_name+set} ]]; then
      __sbx_old+=("${!__sbx_name@A}")
      \builtin unset -v "${__sbx[__sbx_at]}"
    fi
    \builtin export "${__sbx[__sbx_at]}=${__sbx[__sbx_at + 1]}"
  done
  \builtin unset -v __sbx_at __sbx_name
fi
if [[ -n ${__sbx[4]} ]]; then
  __sbx_cwd=("${PWD-/}" "${OLDPWD-}")
  # When it fails it fails again as the command itself, where its message and its status belong.
  # shellcheck disable=SC2016
  \builtin cd -- "${__sbx[4]}" || __sbx[0]='\builtin cd -- "${__sbx[4]}"'
fi
\builtin return "${__sbx[2]}"
