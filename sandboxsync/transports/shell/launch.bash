# shellcheck shell=bash
# Runs bash with the exported environment of a session: launch.bash STATE COUNT NAME=VALUE... BASH ARGUMENT...
# STATE is a file that after.bash wrote; COUNT pairs are set on top of it.
\builtin mapfile -d '' -t __sbx <"$1"
{
  \builtin eval "${__sbx[2]}"
  \builtin eval "${__sbx[3]}"
} >/dev/null 2>&1
__sbx_count=$2
\builtin shift 2
while ((__sbx_count-- > 0)); do
  \builtin declare -x "$1"
  \builtin shift
done
\builtin exec -a bash -- "$@"
