# shellcheck shell=bash
# Sourced after before.bash when the command has a directory of its own.
__sbx_cwd=("${PWD-/}" "${OLDPWD-}")
# When it fails it fails again as the command itself, where its message and its status belong.
# shellcheck disable=SC2016
\builtin cd -- "${__sbx[8]}" || __sbx[0]='\builtin cd -- "${__sbx[8]}"'
\builtin return "${__sbx[6]}"
