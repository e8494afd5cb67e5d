# shellcheck shell=bash
# Sourced before after.bash when the command had variables or a directory of its own: leave.bash STATUS
for ((__sbx_at = 9; __sbx_at < ${#__sbx[@]}; __sbx_at += 2)); do
  \builtin unset -v "${__sbx[__sbx_at]}"
done
for __sbx_at in "${__sbx_old[@]}"; do
  \builtin eval "$__sbx_at"
done
\builtin unset -v __sbx_at __sbx_old
if [[ -n ${__sbx[8]} ]]; then
  \builtin cd -- "${__sbx_cwd[0]}" || \builtin cd /
  OLDPWD=${__sbx_cwd[1]}
  \builtin unset -v __sbx_cwd
fi
\builtin return "$1"
