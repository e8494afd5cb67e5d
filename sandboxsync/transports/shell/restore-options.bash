# shellcheck shell=bash
# Sourced last in a shell that replaces a killed one: the options of `set` as they were.
for __sandboxsync_option in braceexpand hashall interactive-comments; do
  \builtin set +o "$__sandboxsync_option"
done
IFS=: \builtin read -r -a __sandboxsync <<<"${__sandboxsync[1]}"
for __sandboxsync_option in "${__sandboxsync[@]}"; do
  \builtin set -o "$__sandboxsync_option"
done
\builtin unset -v __sandboxsync __sandboxsync_option
