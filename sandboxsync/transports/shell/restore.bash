# shellcheck shell=bash
# Sourced first in a shell that replaces a killed one: restore.bash STATE DIRECTORY FALLBACK
#
# Functions before aliases, or their bodies would be expanded again; options that change how a shell goes on (errexit,
# nounset …) only at the very end, by restore-options.bash. Read-only variables of bash itself refuse, which is right.
\builtin mapfile -d '' -t __sandboxsync <"$1"
\builtin shopt -u $(IFS=:; \builtin printf '%s ' $BASHOPTS)
\builtin shopt -s $(IFS=:; \builtin printf '%s ' ${__sandboxsync[0]})
\builtin eval "${__sandboxsync[2]}"
\builtin eval "${__sandboxsync[3]}"
\builtin eval "${__sandboxsync[4]}"
\builtin eval "${__sandboxsync[5]}"
\builtin trap - DEBUG ERR RETURN
__sandboxsync_oldpwd=${OLDPWD-}
\builtin cd -- "$2" || \builtin cd -- "$3"
OLDPWD=$__sandboxsync_oldpwd
\builtin unset -v __sandboxsync_oldpwd
