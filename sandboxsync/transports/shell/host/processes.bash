# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Background processes: what host.bash sources for these verbs. Their files are those of jobs with the names `p_ID,` (an id
# may hold dots), and `.info` with what else is known.
# shellcheck source=commands.bash
. "$here/commands.bash"

verb_start() { # ID SESSION INCARNATION AUTO COUNT TEXT... TEXT...: so many texts make the session, the others the process
  local id=$1 name=${2:--} auto=$4 session='' job=$base/processes/p_$1, directory now said
  local -a made
  hello "$3"
  take "${@:6:$5}"
  made=("${texts[@]}")
  if [[ -n $2 ]]; then
    session=$base/sessions/s_$2
    if [[ ! -d $session ]]; then
      # shellcheck source=sessions.bash
      . "$here/sessions.bash"
      make_session "${made[@]}" || true
    fi
    mapfile -d '' -t made <"$session/made"
  fi
  find_directory "$2"
  shift "$((5 + $5))"
  take "$@"
  if [[ -n ${texts[2]} ]]; then
    [[ ${texts[2]} == /* ]] || texts[2]=$directory/${texts[2]}
    [[ -e ${texts[2]} ]] || die missing "${texts[2]}"
    [[ -d ${texts[2]} ]] || die no-directory "${texts[2]}"
    directory=${texts[2]}
  fi
  [[ -d $directory ]] || directory=$workspace
  [[ ! -e $job.status ]] || rm -f -- "$job" "$job".*
  said=${texts[0]}
  mark "$job" || die in-use
  [[ -z $session || ! -e $session/place/s ]] || cp -- "$session/place/s" "$job.state"
  ((${#made[@]} <= 2)) || printf '%s\0' "${made[@]:2}" >"$job.made"
  deliver -
  now
  printf '%s %s %s %s\n' "$now" "$name" "$auto" "$(printf '%s' "$said" | base64 -w0)" >"$job.info"
  keep single.bash "$base/said" process "$job" "$directory"
  until [[ -e $job.where || -e $job.status ]]; do
    pause 0.001
  done
  show_process "$id"
}

# One line of what is known: ID PID START SESSION AUTO COMMAND END, the last as in `.status`, with when it was.
show_process() { # ID
  local job=$base/processes/p_$1, start session auto command pid=- status=running
  local -a ended
  [[ -e $job.info ]] && read -r start session auto command <"$job.info" || return 1
  if [[ -e $job.where ]]; then
    until read -r _ _ pid _ <"$job.where"; do
      pause 0.001
    done
  fi
  if [[ -e $job.status ]]; then
    ending
    status=${ended[*]}
  fi
  printf 'process %s %s %s %s %s %s %s\n' "$1" "$pid" "$start" "$session" "$auto" "$command" "$status"
}

verb_processes() { # INCARNATION
  local path
  hello "$1"
  for path in "$base"/processes/p_*,.info; do
    path=${path##*/p_}
    show_process "${path%,.info}"
  done
}

verb_process() { # ID INCARNATION SECONDS: waits for its end, at most so long
  local until=$SECONDS step=0.005
  hello "$2"
  ((until += $3))
  until [[ -e $base/processes/p_$1,.status || ! -e $base/processes/p_$1,.info ]] || ((SECONDS >= until)); do
    pause "$step"
    step=0.03
  done
  show_process "$1" || die no-process
}

verb_signal() { # ID INCARNATION SIGNAL
  local job=$base/processes/p_$1, pid
  hello "$2"
  [[ -e $job.info ]] || die no-process
  [[ ! -e $job.status ]] || return 0
  case $3 in
    2 | 3 | 9 | 15) end_job "kill$3" ;;
    *)
      read -r _ _ pid _ <"$job.where"
      kill "-$3" "$pid"
      ;;
  esac
}

verb_drop() { # ID INCARNATION: the record of a process that has ended
  local job=$base/processes/p_$1,
  hello "$2"
  [[ -e $job.status ]] || die running
  rm -f -- "$job" "$job".*
}

verb_log() { # ID INCARNATION OUT ERR: what is there now
  local job=$base/processes/p_$1,
  hello "$2"
  [[ -e $job.info ]] || die no-process
  local out err status=''
  local -a ended
  # Before the sizes: what was written before the end is in them then.
  if [[ -e $job.status ]]; then
    ending
    status=${ended[*]}
  fi
  out=$(stat -c %s "$job.out") err=$(stat -c %s "$job.err")
  printf 'sizes %s %s%s\n' "$out" "$err" "${status:+ $status}"
  rest "$job.out" "$3" "$((out - $3 > most / 2 ? $3 + most / 2 : out))"
  rest "$job.err" "$4" "$((err - $4 > most / 2 ? $4 + most / 2 : err))" >&4
}
