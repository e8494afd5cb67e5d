# shellcheck shell=bash
# Runs bash with the exported environment of a session: launch.bash STATE COUNT NAME=VALUE... BASH ARGUMENT...
# STATE is what after.bash wrote; COUNT pairs are set on top of it.
\builtin mapfile -d '' -t __sbx <"$1"
__sbx_count=$2
\builtin shift 2
{
  \builtin eval "${__sbx[3]}"
  # Signals that the session ignores would be ignored for good by the program.
  for ((__sbx_at = 0; __sbx_at < 65; __sbx_at++)); do
    \builtin trap - "$__sbx_at"
  done
} >/dev/null 2>&1
while ((__sbx_count-- > 0)); do
  \builtin declare -x "$1"
  \builtin shift
done
\builtin exec -a bash -- "$@"
