# shellcheck shell=bash
# Sourced first in a shell that replaces a killed one: restore.bash STATE DIRECTORY FALLBACK
#
# Variables, aliases, traps and umask come first, while no function of the user can get in between; functions after them
# without expanding aliases, or their bodies would be expanded again. Read-only variables of bash itself refuse, which is
# right.
\builtin mapfile -d '' -t __sbx <"$1"
\builtin shopt -u expand_aliases
\builtin eval "${__sbx[2]}"
\builtin eval "${__sbx[3]}"
\builtin trap - DEBUG ERR RETURN
__sbx_oldpwd=${OLDPWD-}
\builtin cd -- "$2" || \builtin cd -- "$3"
OLDPWD=$__sbx_oldpwd
\builtin shopt -s extglob
\builtin eval "${__sbx[4]}"
while IFS=' ' \builtin read -r __sbx_declare __sbx_flags __sbx_name; do
  \builtin declare "$__sbx_flags" "$__sbx_name" >/dev/null
done <<<"${__sbx[5]}"
\builtin unset -v __sbx_oldpwd __sbx_declare __sbx_flags __sbx_name
