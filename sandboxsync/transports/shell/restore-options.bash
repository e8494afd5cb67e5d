# shellcheck shell=bash
# Sourced last in a shell that replaces a killed one: the options of `set` as they were.
for __sbx_option in braceexpand hashall interactive-comments; do
  \builtin set +o "$__sbx_option"
done
IFS=: \builtin read -r -a __sbx <<<"${__sbx[1]}"
for __sbx_option in "${__sbx[@]}"; do
  \builtin set -o "$__sbx_option"
done
\builtin unset -v __sbx __sbx_option
