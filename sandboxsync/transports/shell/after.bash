# shellcheck shell=bash
# Sourced after each command, as the file `a` of the session's directory, with the client on standard output.
#
# First the client hears, between NULs: the exit status, the attributes of our variable (a command that gave it others has
# spoilt the shell), and the directory.
#
# Then the state goes to the FIFO `s`, with which a shell that had to be killed is replaced by one like it. It has a FIFO of
# its own because nobody waits for it: written line by line as bash does it would wake the client with every line.
__sbx[2]=$?
if \builtin test "${__sbx[2]}" = 2 && ! \builtin command eval ')'; then
  # A syntax error within `[[` leaves bash 5.2 unable to parse another `[[` or `((`; one more error outside mends that.
  \builtin true
fi
[[ -z ${__sbx[4]} ]] || \builtin . "${BASH_SOURCE[0]%a}x"
\builtin eval '' || \builtin exit 1
\builtin printf '\0%s\0%s\0%s\0' "${__sbx[2]}" "${__sbx@a}" "${PWD-}"
\builtin unset -v __sbx
{
  (($#)) && \builtin printf '%s ' "${@@Q}"
  \builtin printf '\0%s\0%s\0' "$BASHOPTS" "$SHELLOPTS"
  \builtin declare -p
  \builtin alias -p
  \builtin trap -p
  \builtin umask -p
  \builtin declare -pf
  \builtin printf '\0'
} >"${BASH_SOURCE[0]%a}s"
