# shellcheck shell=bash
# Runs bash with the exported environment of a session: launch.bash STATE COUNT NAME=VALUE... BASH ARGUMENT...
# STATE is what after.bash wrote; COUNT pairs are set on top of it.
\builtin mapfile -d '' -t __sbx <"$1"
__sbx_count=$2
\builtin shift 2
{
  \builtin eval "${__sbx[2]}"
  \builtin eval "${__sbx[4]}"
  while IFS=' ' \builtin read -r __sbx_declare __sbx_flags __sbx_name; do
    \builtin declare "$__sbx_flags" "$__sbx_name"
  done <<<"${__sbx[5]}"
} >/dev/null 2>&1
while ((__sbx_count-- > 0)); do
  \builtin declare -x "$1"
  \builtin shift
done
\builtin exec -a bash -- "$@"
