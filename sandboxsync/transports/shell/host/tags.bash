# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Sourced by the keepers: finding processes by their tag (see ../before.bash) and ending them, pumps.
# shellcheck source=basics.bash
. "${BASH_SOURCE[0]%/*}/basics.bash"

# A number that no other owner has, as high as a tag needs it.
new_owner() {
  owner=$(((RANDOM << 20 ^ RANDOM << 10 ^ RANDOM) & ((1 << 34) - 1) | 1))
}

# The processes whose tag is from LOW to HIGH, as keys of `found` with their parents as values.
declare -A found
find_tagged() {
  local path line soft stat=''
  local -a lines
  found=()
  for path in /proc/[0-9]*; do
    lines=()
    { mapfile -t lines <"$path/limits"; } 2>/dev/null
    for line in "${lines[@]}"; do
      [[ $line == 'Max file locks'* ]] || continue
      soft=${line#'Max file locks'}
      soft=${soft##+( )}
      soft=${soft%% *}
      [[ $soft == +([0-9]) ]] || break
      ((soft >= $1 && soft <= $2)) || break
      { IFS= read -r stat <"$path/stat"; } 2>/dev/null || break
      stat=${stat##*) }
      [[ $stat == [ZX]* ]] && break
      stat=${stat#* }
      found[${path#/proc/}]=${stat%% *}
      break
    done
  done
}

# Ends what has a tag from LOW to HIGH: SIGNAL, after two seconds SIGKILL; returns when all are gone, or after seven.
end_tagged() {
  local low=$1 high=$2 signal=$3 pid kill_at give_up now
  local -a due later
  local -A signalled=() warned=() asked
  now
  kill_at=$((now + 2000000))
  give_up=$((now + 7000000))
  [[ $signal != KILL ]] || kill_at=$now
  while :; do
    find_tagged "$low" "$high"
    ((${#found[@]})) || return 0
    now
    ((now < give_up)) || return 1
    # What a process starts that has got the signal already belongs to how it cleans up.
    warned=() asked=()
    for pid in "${!signalled[@]}"; do
      warned[$pid]=1
    done
    # Parents first: one that sees its child end would go on with what comes next.
    due=("${!found[@]}")
    while ((${#due[@]})); do
      later=()
      for pid in "${due[@]}"; do
        if [[ -n ${found[${found[$pid]}]-} && -z ${asked[${found[$pid]}]-} ]]; then
          later+=("$pid")
          continue
        fi
        asked[$pid]=1
        if ((now >= kill_at)); then
          kill -KILL "$pid" 2>/dev/null
        elif [[ -z ${signalled[$pid]-} ]]; then
          signalled[$pid]=1
          if [[ -z ${warned[${found[$pid]}]-} ]]; then
            kill "-$signal" "$pid" 2>/dev/null
            kill -CONT "$pid" 2>/dev/null
          fi
        fi
      done
      # Pids that were given anew may make a ring of what was seen.
      ((${#later[@]} < ${#due[@]})) || break
      due=("${later[@]}")
    done
    pause 0.01
  done
}

# Pumps: what fills the files of a command from its pipes.

# Starts one: PIPE FILE. `pump` is its pid.
start_pump() {
  : >"$2"
  cat <"$1" >"$2" 2>/dev/null 5<&- 6<&- 8<&- 9<&- &
  pump=$!
  disown "$pump"
}

is_empty() { # PIPE
  local both empty=1
  exec {both}<>"$1"
  ! read -r -t 0 -u "$both" || empty=
  exec {both}<&-
  [[ -n $empty ]]
}

# Waits until a pump has all that was written before now, and lets what others write later go nowhere: PID PIPE FILE.
# `held` says whether somebody still writes. `size` is what the file holds of the command; -1: nobody opened the pipe.
end_pump() {
  local before='' stat='' reading writing looks=0 steps=0 step=.0003
  held=
  while { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null && stat=${stat##*) } && [[ $stat != [ZX]* ]]; do
    if [[ ! /proc/$1/fd/0 -ef $2 ]]; then
      # It is being let in, or is ending; or sleeps because nobody has opened the pipe.
      if [[ $stat == S* ]] && ((++looks > 60)); then
        kill -KILL "$1" 2>/dev/null
        size=-1
        return 0
      fi
    else
      if [[ $stat == S* ]] && is_empty "$2" && { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null &&
        [[ ${stat##*) } == S* ]]; then
        # It sleeps with the pipe open and empty: somebody holds that.
        held=1
        break
      fi
      # A job that writes without end: a pipe holds 64 KiB.
      size=$(stat -c %s "$3")
      before=${before:-$size}
      if ((size > before + 131072)); then
        held=1
        break
      fi
    fi
    ((++steps < 10)) || step=.002
    pause "$step"
  done
  if [[ -n $held ]]; then
    kill -STOP "$1" 2>/dev/null
    # Does not wait, because this writes itself for a moment.
    # shellcheck disable=SC2094
    exec {writing}<>"$2" {reading}<"$2"
    cat <&"$reading" >/dev/null 2>&1 5<&- 6<&- 8<&- 9<&- {writing}<&- &
    disown "$!"
    exec {writing}<&- {reading}<&-
    kill -KILL "$1" 2>/dev/null
  fi
  size_of "$3"
}
