# shellcheck shell=bash
# Sourced after each command, as the file `a0` or `a1` of the session's directory, with the client on standard output.
#
# First the client hears: the exit status, the attributes of our variable (a command that made it read-only has spoilt the
# shell), and the directory. Then the state goes to a file, so that a shell that had to be killed can be replaced by one
# like it. That the client sees this file's standard output closed says that the state is whole.
\builtin printf '%s\0%s\0%s\0' "$?" "${__sandboxsync@a}" "${PWD-}"
\builtin unset -v __sandboxsync
{
  \builtin printf '%s\0' "$BASHOPTS" "$SHELLOPTS"
  \builtin declare -f
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
} 1<>"${BASH_SOURCE[0]}s"
