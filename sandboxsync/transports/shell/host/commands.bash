# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Commands: what host.bash sources for these verbs.
# shellcheck source=outcome.bash
. "$here/outcome.bash"

# With MAKE the session is made if it is not there: so many of the texts are what it is made from, the others the job.
verb_run() { # SESSION JOB INCARNATION TAKEN MAKE COUNT TEXT... STDIN TEXT...
  local session='' job=$jobs/$2 taken=$4 make=$5
  hello "$3"
  [[ -z $1 ]] || session=$base/sessions/s_$1
  [[ -z $session || -n $make || -d $session || -e $job ]] || die no-session
  if mark "$job"; then
    shift 5
    deliver_to_shell "$@"
  else
    session='' # who came first sees to it
  fi
  forget "$taken"
  follow 0 0
}

# A job is taken to its session's keeper, or gets one of its own. The queue stays open here: it shows whether the session
# is the same still.
deliver_to_shell() { # COUNT TEXT... STDIN TEXT...
  local pid
  local -a made
  take "${@:2:$1}"
  made=("${texts[@]}")
  shift "$(($1 + 1))"
  take "${@:2}"
  if [[ -z $session ]]; then
    ((${#made[@]} == 2)) || printf '%s\0' "${made[@]:2}" >"$job.made"
    deliver "$1"
    keep single.bash "$base/said" command "$job" "$workspace"
    return
  fi
  # Of many who find none, one makes it.
  until [[ -p $session/queue ]] && { exec 7<>"$session/queue"; }; do
    if [[ -z $make ]]; then
      ! mark "$job.claimed" - || printf 'cancelled 0 0 0 deleted 0\n' >"$job.status"
      return
    fi
    # shellcheck source=sessions.bash
    . "$here/sessions.bash"
    make_session "${made[@]}" || true
  done
  deliver "$1"
  if ! keeper_lives; then
    # shellcheck source=sessions.bash
    . "$here/sessions.bash"
    wake
  fi
  printf '%s\n' "${job##*/}" >&7
}

keeper_lives() {
  local pid
  [[ -e $session/keeper ]] && read -r pid <"$session/keeper" && kill -0 "$pid" 2>/dev/null
}

# Puts down what a job is. Its texts: the command, its time (`call SECONDS` or `default SECONDS`, a word in place of seconds
# if there is no limit), its directory, how many variables, their names and values, and whatever else the command takes
# from them.
deliver() { # STDIN
  local time=${texts[1]}
  local -a own
  case $1 in
    -) ;;
    @*)
      cat -- "$base/parts/${1:1}".* >"$job.stdin"
      rm -f -- "$base/parts/${1:1}".*
      ;;
    *) printf '%s' "${1:1}" | base64 -d >"$job.stdin" ;;
  esac
  if [[ $time == default* && -n $session ]]; then
    mapfile -d '' -t own <"$session/made"
    [[ -z ${own[1]} ]] || time=${own[1]}
  fi
  set_deadline "${time#* }"
  printf '%s\0' "${texts[@]}" >"$job.in"
}

# Notes when so many seconds from now are over; a word is no limit.
set_deadline() { # SECONDS
  local now whole=${1%.*} part=000000
  [[ $1 != [a-z]* ]] || return 0
  now
  [[ $1 != *.* ]] || part=${1#*.}000000
  printf '%s %s\n' "$((now + 10#${whole:-0} * 1000000 + 10#${part:0:6}))" "$1" >"$job.deadline"
}

verb_follow() { # JOB INCARNATION OUT ERR
  local session='' job=$jobs/$1
  hello "$2"
  follow "$3" "$4"
}

# Prints what a job has printed from these offsets on, and at its end how it ended.
follow() { # OUT ERR
  local out_at=$1 err_at=$2 begun='' step looks=0
  [[ -e $job && ! -s $job ]] || die no-job
  for step in .0005 .0005 .001 .001 .001 .001 .001 .002 .002 .002; do
    if [[ -e $job.status ]]; then
      tell_outcome
      return
    fi
    # The end of a short command is near.
    if ((++looks > 4)) && { [[ -n $out ]] || find_output; } && [[ -s $out || -s $err ]]; then
      [[ -e $job.status ]] || break
    fi
    pause "$step"
  done
  # Another program, whose arguments hold nothing of the user's.
  exec "$BASH" "$here/watch.bash" "$base" "$job" "$1" "$2" "$session"
}

verb_kill() { # JOB INCARNATION
  local job=$jobs/$1
  hello "$2"
  # Should it be delivered yet, it does not run.
  if ! mark "$job" killed && [[ ! -s $job ]]; then
    end_job kill
  fi
}

# Ends a job, by a word that its keeper knows, and returns when it has ended; one that has not begun never does.
end_job() { # WORD
  local fifo keeper
  if mark "$job.claimed" -; then
    printf 'cancelled 0 0 0 killed 0\n' >"$job.status"
    return
  fi
  find_keeper
  until [[ -e $job.status ]]; do
    if [[ -e $job.where ]] && read -r _ _ _ _ fifo <"$job.where"; then
      [[ -p $fifo ]] || return 0
      tell "$fifo" '\0%s\0%s\0\0' "$1" "${job##*/}"
      until [[ -e $job.status || ! -p $fifo ]] || ! lives "$keeper"; do
        pause 0.005
      done
      return
    fi
    lives "$keeper" || return 0
    pause 0.002
  done
}

verb_forget() { # INCARNATION JOBS
  hello "$1"
  forget "$2"
}

# Removes the files of jobs whose results were taken. What is left of a job says that it was, so that a late delivery does
# not run it.
forget() { # ID,ID...
  local id out err
  local -a ids gone=()
  IFS=, read -r -a ids <<<"$1"
  for id in "${ids[@]}"; do
    [[ -e $jobs/$id ]] || continue
    printf 'taken\n' >"$jobs/$id"
    gone+=("$jobs/$id".*)
    if [[ -e $jobs/$id.where ]] && read -r out err _ <"$jobs/$id.where"; then
      gone+=("$out" "$err")
    fi
  done
  if ((${#gone[@]})); then
    rm -f -- "${gone[@]}" >/dev/null 4>&- 7>&- &
  fi
}
