# shellcheck shell=bash
# Sourced by after.bash, as the file `x`, when enter.bash was by before.bash, which set the variables.
# shellcheck disable=SC2154
for ((__sbx_at = 7; __sbx_at < __sbx[6]; __sbx_at += 2)); do
  \builtin unset -v "${__sbx[__sbx_at]}"
done
for __sbx_at in "${__sbx_old[@]}"; do
  \builtin eval "$__sbx_at"
done
\builtin unset -v __sbx_at __sbx_old
if [[ -n ${__sbx[5]} ]]; then
  \builtin cd -- "${__sbx_cwd[0]}" || \builtin cd / || \builtin true
  OLDPWD=${__sbx_cwd[1]}
  \builtin unset -v __sbx_cwd
fi
