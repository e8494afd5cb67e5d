# shellcheck shell=bash
# Sourced after before.bash when the command has variables or a directory of its own. What is put back by leave.bash is kept
# in __sbx_old as text that bash itself made for the purpose.
__sbx_old=()
for ((__sbx_at = 9; __sbx_at < ${#__sbx[@]}; __sbx_at += 2)); do
  __sbx_name="${__sbx[__sbx_at]}[@]"
  [[ -z ${!__sbx_name+set} ]] || __sbx_old+=("${!__sbx_name@A}")
  \builtin export "${__sbx[__sbx_at]}=${__sbx[__sbx_at + 1]}"
done
\builtin unset -v __sbx_at __sbx_name
if [[ -n ${__sbx[8]} ]]; then
  __sbx_cwd=("${PWD-/}" "${OLDPWD-}")
  # When it fails it fails again as the command itself, where its message and its status belong.
  # shellcheck disable=SC2016
  \builtin cd -- "${__sbx[8]}" || __sbx[0]='\builtin cd -- "${__sbx[8]}"'
fi
\builtin return "${__sbx[6]}"
