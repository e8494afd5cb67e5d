# shellcheck shell=bash
# Sourced last in a shell that replaces a killed one: the options of `shopt` and `set` as they were. Some of them change
# how a shell goes on (errexit, nounset …), so nothing comes after them. The state is in the array of restore.bash.
# shellcheck disable=SC2154
IFS=: \builtin read -r -a __sbx_set <<<"$BASHOPTS"
\builtin shopt -u "${__sbx_set[@]}"
IFS=: \builtin read -r -a __sbx_set <<<"${__sbx[1]}"
\builtin shopt -s "${__sbx_set[@]}"
for __sbx_option in braceexpand hashall interactive-comments; do
  \builtin set +o "$__sbx_option"
done
IFS=: \builtin read -r -a __sbx_set <<<"${__sbx[2]}"
for __sbx_option in "${__sbx_set[@]}"; do
  \builtin set -o "$__sbx_option"
done
\builtin unset -v __sbx __sbx_set __sbx_option
