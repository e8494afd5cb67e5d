# shellcheck shell=bash
# Sourced after before.bash when the command has a directory of its own: enter.bash STATUS
__sandboxsync_cwd=("${PWD-/}" "${OLDPWD-}")
# When it fails it fails again as the command itself, where its message and its status belong.
# shellcheck disable=SC2016
\builtin cd -- "${__sandboxsync[1]}" || __sandboxsync[0]='\builtin cd -- "${__sandboxsync[1]}"'
\builtin return "$1"
