# shellcheck shell=bash
# Sourced first in a shell that replaces a killed one: restore.bash STATE DIRECTORY FALLBACK
#
# The state holds variables, aliases, traps and umask before the functions, so that none of these is in the way of the
# others. Aliases are not expanded meanwhile, or the bodies of functions would be expanded again. Read-only variables of
# bash itself refuse, which is right.
\builtin mapfile -d '' -t __sbx <"$1"
\builtin shopt -u expand_aliases
\builtin shopt -s extglob
\builtin eval "${__sbx[3]}"
\builtin trap - DEBUG ERR RETURN
__sbx_oldpwd=${OLDPWD-}
\builtin cd -- "$2" || \builtin cd -- "$3" || \builtin true
OLDPWD=$__sbx_oldpwd
\builtin unset -v __sbx_oldpwd
