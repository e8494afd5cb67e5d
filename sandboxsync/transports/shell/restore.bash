# shellcheck shell=bash
# Sourced first in a shell that replaces a killed one: restore.bash STATE DIRECTORY FALLBACK
#
# Functions before aliases, or their bodies would be expanded again; options that change how a shell goes on (errexit,
# nounset …) only at the very end, by restore-options.bash. Read-only variables of bash itself refuse, which is right.
\builtin mapfile -d '' -t __sbx <"$1"
\builtin shopt -u $(IFS=:; \builtin printf '%s ' $BASHOPTS)
\builtin shopt -s $(IFS=:; \builtin printf '%s ' ${__sbx[0]})
\builtin eval "${__sbx[2]}"
\builtin eval "${__sbx[3]}"
\builtin eval "${__sbx[4]}"
\builtin eval "${__sbx[5]}"
\builtin trap - DEBUG ERR RETURN
__sbx_oldpwd=${OLDPWD-}
\builtin cd -- "$2" || \builtin cd -- "$3"
OLDPWD=$__sbx_oldpwd
\builtin unset -v __sbx_oldpwd
