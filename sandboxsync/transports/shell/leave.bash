# shellcheck shell=bash
# Sourced before after.bash when the command had a directory of its own: leave.bash STATUS
\builtin cd -- "${__sbx_cwd[0]}" || \builtin cd /
OLDPWD=${__sbx_cwd[1]}
\builtin unset -v __sbx_cwd
\builtin return "$1"
