# shellcheck shell=bash
# Sourced after each command, as the file `a` of the session's directory, with the client on standard output.
#
# First the client hears, between NULs: the exit status, the attributes of our variable (a command that made it read-only
# has spoilt the shell), and the directory. It is said by way of `eval`, so that a shell that lost it says nothing.
#
# Then the state goes to the FIFO `s`, with which a shell that had to be killed is replaced by one like it. It has a FIFO of
# its own because nobody waits for it: written line by line as bash does it would wake the client with every line.
\builtin eval '\builtin printf "\0%s\0%s\0%s\0" "$?" "${__sbx@a}" "${PWD-}"'
\builtin unset -v __sbx
{
  \builtin printf '%s\0' "$BASHOPTS" "$SHELLOPTS"
  \builtin declare -f
  \builtin printf '\0'
  \builtin declare -F
  \builtin printf '\0'
  \builtin declare -p
  \builtin printf '\0'
  \builtin alias -p
  \builtin printf '\0'
  \builtin trap -p
  \builtin umask -p
  \builtin printf '\0'
  \builtin printf '%s ' "${@@Q}"
  \builtin printf '\0'
} >"${BASH_SOURCE[0]%a}s"
