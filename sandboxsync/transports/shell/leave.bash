# shellcheck shell=bash
# Sourced before after.bash when the command had a directory of its own: leave.bash STATUS
\builtin cd -- "${__sandboxsync_cwd[0]}" || \builtin cd /
OLDPWD=${__sandboxsync_cwd[1]}
\builtin unset -v __sandboxsync_cwd
\builtin return "$1"
