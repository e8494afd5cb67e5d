# shellcheck shell=bash
# Sourced by before.bash, as the file `n`, when the command has variables or a directory of its own: the array holds the
# directory (or nothing), the number of texts up to the end of what follows, and names and values of variables.
# What leave.bash puts back is kept as text that bash itself makes for the purpose.
__sbx_old=()
for ((__sbx_at = 7; __sbx_at < __sbx[6]; __sbx_at += 2)); do
  __sbx_name="${__sbx[__sbx_at]}[@]"
  if [[ -n ${!__sbx_name+set} ]]; then
    __sbx_old+=("${!__sbx_name@A}")
    \builtin unset -v "${__sbx[__sbx_at]}"
  fi
  \builtin export "${__sbx[__sbx_at]}=${__sbx[__sbx_at + 1]}"
done
\builtin unset -v __sbx_at __sbx_name
if [[ -n ${__sbx[5]} ]]; then
  __sbx_cwd=("${PWD-/}" "${OLDPWD-}")
  # When it fails it fails again as the command itself, where its message and its status belong.
  # shellcheck disable=SC2016
  \builtin cd -- "${__sbx[5]}" || __sbx[0]='\builtin cd -- "${__sbx[5]}"'
fi
