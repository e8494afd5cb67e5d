# shellcheck shell=bash
# Tells a client of a job that has not ended at once: watch.bash BASE JOB OUT ERR SESSION
#
# Waits until its turn has come, then prints what it prints as it comes, from these offsets on, and how it ended. When it
# has printed much, or for long, it says `again` and leaves the rest to the next call. SESSION is the directory of the
# session whose queue, open as 7, the job waits in; nothing when somebody else sees to that. 4 is for standard error.
set -u
here=${BASH_SOURCE[0]%/*}
# shellcheck disable=SC2034 # for what is sourced here
base=$1 job=$2 out_at=$3 err_at=$4 session=$5
begun=''
# shellcheck source=basics.bash
. "$here/basics.bash"
# shellcheck source=outcome.bash
. "$here/outcome.bash"

due=$((SECONDS + 15)) # for the next sign that there is somebody
sign() {
  if ((SECONDS >= due)); then
    printf .
    due=$((SECONDS + 15))
  fi
}

# A job whose turn does not come before its time is over never runs; nor does one whose session is gone.
wait_in_line() {
  local when='' now looks=0 step=.002
  [[ ! -e $job.deadline ]] || read -r when _ <"$job.deadline"
  until [[ -e $job.claimed ]]; do
    now
    if [[ -n $when ]] && ((now > when)); then
      cancel timeout
    elif [[ -n $session && ! /dev/fd/7 -ef $session/queue ]]; then
      cancel deleted
    fi
    sign
    ((++looks < 50)) || step=.02
    pause "$step"
  done
}

cancel() { # WHY
  ! mark "$job.claimed" - || printf 'cancelled 0 0 0 %s 0\n' "$1" >"$job.status"
}

# A keeper that was killed tells of no end.
look_after() {
  local size out_size
  lives "$keeper" || [[ -e $job.status ]] || ! mark "$job.lost" || {
    [[ -n $out ]] || find_output || true
    size_of "$out"
    out_size=$size
    size_of "$err"
    printf 'died 137 %s %s - 0\n' "$out_size" "$size" >"$job.status"
  }
}

# Follows a job that runs; fails when the next call is to go on.
watch() {
  local until=$((SECONDS + 200)) stopped='' looks=0 step=.005
  local -a streams=()
  until [[ -e $job.status ]]; do
    ((++looks % 25)) || look_after
    [[ -n $out ]] || find_output || true
    if [[ ${#streams[@]} -eq 0 && -n $out && (-s $out || -s $err) ]]; then
      if ! peek; then
        stream "$out" "$out_at" "$out_pump" 2 &
        streams=("$!")
        stream "$err" "$err_at" "$err_pump" 3 >&4 &
        streams+=("$!")
      fi
    fi
    sign
    if ((SECONDS >= until)) || [[ -e $job.again.$$ ]]; then
      stopped=1
      stop "${streams[@]}"
      break
    fi
    ((looks < 40)) || step=.02
    pause "$step"
  done
  if ((${#streams[@]})); then
    wait "${streams[@]}" 2>/dev/null
    if [[ -e $job.again.$$ ]]; then
      stopped=1
      rm -f -- "$job.again.$$"
    fi
    streamed=1
  fi
  [[ -z $stopped ]]
}

# Ends processes of ours with what they have started.
stop() {
  local pid below
  for pid; do
    below=
    [[ ! -e /proc/$pid/task/$pid/children ]] || read -r below <"/proc/$pid/task/$pid/children"
    # shellcheck disable=SC2086  # numbers
    kill "$pid" $below 2>/dev/null
  done
}

# Prints a file while it grows, until its job has ended, or `most` was printed: FILE OFFSET PUMP FIELD-OF-ITS-SIZE
stream() {
  local at=$2 first=$2 size chunk padding whole=''
  local -a ended
  while :; do
    if [[ -e $job.status ]]; then
      ending
      size=${ended[$4]} whole=1
    else
      size=$(stat -c %s "$1")
    fi
    if ((size - first > most)); then
      hand_over "$1" "$at" "$((first + most))"
      : >"$job.again.$$"
      return
    fi
    hand_over "$1" "$at" "$size"
    ((at >= size)) || at=$size
    [[ -z $whole ]] || return
    # Until the next lull: each piece is handed on when it comes. It ends with what fills the file.
    exec 3< <(exec tail -c "+$((at + 1))" -s 0.03 --pid="$3" -f "$1" 2>/dev/null)
    while chunk=$(dd bs=49152 count=1 status=none <&3 | base64 -w0) && [[ -n $chunk ]]; do
      printf '%s\n' "$chunk"
      padding=${chunk##*[!=]}
      ((at += ${#chunk} * 3 / 4 - ${#padding}))
      # A full piece: there is more of it than this way is good for.
      ((${#chunk} < 65536)) || break
    done
    # Its next write ends it, or the end of what fills the file.
    exec 3<&-
    if [[ -z $chunk ]]; then
      until [[ -e $job.status ]]; do
        pause 0.005
      done
    fi
  done
}

wait_in_line
find_keeper
streamed=''
if [[ $keeper != - ]]; then
  printf '\nbegun\n'
  begun=1
  if ! watch; then
    printf '\nagain\n'
    exit
  fi
fi
if [[ -n $streamed ]]; then
  ending
  tell_ending
else
  tell_outcome
fi
