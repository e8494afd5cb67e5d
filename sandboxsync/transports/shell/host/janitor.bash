# shellcheck shell=bash
# Removes what clients have left behind, ten minutes later, whether one comes back or not: janitor.bash BASE WORKSPACE
#
# One at a time; it ends when there is nothing to wait for.
set -u
shopt -s nullglob
base=$1
age=9 # minutes, and then at most one more
here=${BASH_SOURCE[0]%/*}
# shellcheck source=basics.bash
. "$here/basics.bash"
exec 9<>"$base/never"

take_over() {
  local pid
  mark "$base/janitor" "$$" && return
  read -r pid <"$base/janitor" && ! lives "$pid" && rm -f "$base/janitor" && mark "$base/janitor" "$$"
}

# Whether anything is here that has to go some time.
is_needed() {
  local -a all=("$base/jobs/"[!k]* "$base/answers/"* "$base/parts/"* "$base/parts/".[!.]*)
  ((${#all[@]}))
}

sweep() {
  local path out err
  local -a old
  mapfile -d '' -t old < <(find "$base/jobs" -name '*.status' -mmin "+$age" -print0)
  for path in "${old[@]}"; do
    path=${path%.status}
    [[ ! -e $path.where ]] || ! read -r out err _ <"$path.where" || rm -f -- "$out" "$err"
    printf 'taken\n' >"$path"
    rm -f -- "$path".*
  done
  # What says that a job was; and what never became one.
  find "$base/jobs" -name '*.*' -prune -o -type f -size +0 -mmin "+$age" -exec rm -f {} +
  find "$base/answers" "$base/parts" -type f -mmin "+$age" -exec rm -f {} +
}

while take_over; do
  while is_needed; do
    pause 60
    sweep
  done
  rm -f "$base/janitor"
  # Somebody may have relied on it in that moment.
  is_needed || break
done
