# shellcheck shell=bash
# What a client asks of the host in a sandbox: sourced by find.bash with VERB ARGUMENT...
#
# The host keeps sessions, commands and background processes in files of a directory of its own, `base`, which is this
# user's alone. Every session has a keeper (keeper.bash), which runs its commands one after the other; every command
# without a session and every background process has one too (single.bash). What a client is told comes from files, so a
# client may go away at any moment, and another may go on from the byte where it was.
#
# Answers are lines on standard output, the first of which is `sbx` and the incarnation of this host; a line that begins
# with `!` is a refusal. What a command prints comes in base64 lines, its standard output and error each on that of this
# program. A dot may stand anywhere between, and means only that the command still runs.
#
# A text of the user's comes as an argument behind `=`, or in base64 behind `~`, or in a file of parts behind `@`. It goes
# into files as it is, and is never part of a script.
#
# The files of a job, all of which begin with its id: nothing more is the mark that it was delivered, `.in` its texts,
# `.deadline` when its time is over, `.claimed` the mark of who runs or cancels it, `.where` the files of its output, what
# fills them, and the FIFO that ends it, `.status` how it ended.
set -u
shopt -s extglob nullglob
here=${BASH_SOURCE[0]%/*}
jobs=$base/jobs
most=$((12 << 20)) # bytes that a call hands out: base64 makes 16 MiB of them, and services cut at 32
# shellcheck source=tags.bash
. "$here/tags.bash"

die() {
  printf '!%s\n' "$*"
  exit 0
}

hello() {
  local incarnation
  read -r incarnation <"$base/incarnation"
  printf 'sbx %s\n' "$incarnation"
  if [[ -n $1 && $1 != "$incarnation" ]]; then
    die restarted
  fi
}

# The texts of arguments, in the array `texts`.
take() {
  local argument name
  texts=()
  for argument; do
    case $argument in
      =*) texts+=("${argument:1}") ;;
      *)
        if [[ $argument == ~* ]]; then
          argument=$(printf '%s' "${argument:1}" | base64 -d && printf .)
        else
          name=$base/parts/${argument:1}
          argument=$(cat -- "$name" && printf .)
          rm -f -- "$name"
        fi
        texts+=("${argument%.}")
        ;;
    esac
  done
}

verb_part() { # NAME BASE64: more of an argument that is too long for one
  hello ''
  printf '%s' "$2" | base64 -d >>"$base/parts/$1"
}

# Sessions

verb_create() { # ID INCARNATION TEXT...: directory, time, NAME=VALUE or NAME...
  local session=$base/sessions/s_$1 directory
  hello "$2"
  shift 2
  take "$@"
  directory=${texts[0]:-$workspace}
  [[ $directory == /* ]] || directory=$workspace/$directory
  [[ -e $directory ]] || die missing "$directory"
  [[ -d $directory ]] || die no-directory "$directory"
  [[ -x $directory ]] || die forbidden "$directory"
  if has_died; then
    end_session || true
  fi
  make_session "${texts[@]}" || die exists
}

# Makes the directory of a session; fails when it is there.
make_session() {
  local new
  new=$(mktemp -d "$base/sessions/.new.XXXXXXXX")
  printf '%s\0' "$@" >"$new/made"
  mkfifo "$new/queue"
  mkdir "$new/place"
  # Onto a directory that is not empty it fails.
  if ! mv -T -- "$new" "$session" 2>/dev/null; then
    rm -rf -- "$new"
    return 1
  fi
}

# Whether the shell of a session ended by itself, and no other was started.
has_died() {
  local pid
  [[ ! -e $session/died ]] || return 0
  [[ -e $session/shell ]] && read -r pid <"$session/shell" && ! kill -0 "$pid" 2>/dev/null
}

verb_set() { # ID INCARNATION TEXT...: NAME=VALUE or NAME, for the shells that come
  local session=$base/sessions/s_$1
  hello "$2"
  shift 2
  take "$@"
  printf '%s\0' "${texts[@]}" >>"$session/made"
}

verb_delete() { # ID INCARNATION
  local session=$base/sessions/s_$1
  hello "$2"
  end_session || die no-session
}

# Takes a session out of the list, and lets its keeper end it. Fails when somebody else was first.
end_session() {
  local pid gone=$base/sessions/.gone.$BASHPID.$RANDOM
  mv -T -- "$session" "$gone" 2>/dev/null || return 1
  : >"$gone/deleted"
  if [[ -e $gone/keeper ]] && read -r pid <"$gone/keeper" && kill -0 "$pid" 2>/dev/null; then
    tell "$gone/queue" '!delete\n'
    [[ ! -p $gone/place/r ]] || tell "$gone/place/r" '\0delete\0\0\0'
    while kill -0 "$pid" 2>/dev/null; do
      pause 0.005
    done
  fi
  rm -rf -- "$gone"
}

# Writes to a FIFO that its keeper holds open, without waiting should that have ended: FIFO FORMAT TEXT...
tell() {
  # shellcheck disable=SC2059  # the format is one of ours
  printf "${@:2}" 1<>"$1"
}

verb_list() { # INCARNATION
  local path
  hello "$1"
  for path in "$base"/sessions/s_*; do
    printf '%s\n' "${path##*/s_}"
  done
}

verb_where() { # SESSION INCARNATION: the directory of a session, in base64
  local directory
  hello "$2"
  find_directory "$1"
  printf '%s' "$directory" | base64 -w0
  printf '\n'
}

# What relative paths of a session, if there is one, start from: in `directory`.
find_directory() { # SESSION
  local session=$base/sessions/s_$1
  local -a made
  directory=$workspace
  [[ -n $1 ]] || return 0
  if [[ -e $session/cwd ]]; then
    IFS= read -r -d '' directory <"$session/cwd"
  elif [[ -e $session/made ]]; then
    mapfile -d '' -t made <"$session/made"
    directory=${made[0]:-$workspace}
    [[ $directory == /* ]] || directory=$workspace/$directory
  fi
}

# Commands

verb_run() { # SESSION JOB INCARNATION COUNT TEXT... STDIN TEXT...: so many texts make the session, the others the job
  local id=$2 session='' input
  local -a made
  hello "$3"
  take "${@:5:$4}"
  made=("${texts[@]}")
  if [[ -n $1 ]]; then
    session=$base/sessions/s_$1
    # Of many who find none, one makes it.
    [[ -d $session ]] || make_session "${made[@]}" || true
  fi
  shift "$((4 + $4))"
  input=$1
  shift
  take "$@"
  if deliver "$jobs/$id" "$input"; then
    if [[ -n $session ]]; then
      wake
      tell "$session/queue" '%s\n' "$id"
    else
      keep single.bash "$base/said" command "$jobs/$id" "$workspace" "${made[@]:2}"
    fi
  fi
  follow "$jobs/$id" 0 0
}

# Puts a job down, once, whoever asks again. Its texts: the command, its time (`call SECONDS` or `default SECONDS`, a word
# in place of seconds if there is no limit), its directory, how many variables, their names and values, and whatever else
# the command takes from them.
deliver() { # JOB STDIN
  local time job=$1
  local -a made
  mark "$job" || return 1
  case $2 in
    -) ;;
    @*) mv -- "$base/parts/${2:1}" "$job.stdin" ;;
    *) printf '%s' "${2:1}" | base64 -d >"$job.stdin" ;;
  esac
  time=${texts[1]}
  if [[ $time == default* && -n $session && -e $session/made ]]; then
    mapfile -d '' -t made <"$session/made"
    [[ -z ${made[1]} ]] || time=${made[1]}
  fi
  set_deadline "${time#* }" "$job"
  printf '%s\0' "${texts[@]}" >"$job.in"
}

# Notes when so many seconds from now are over; a word is no limit.
set_deadline() { # SECONDS JOB
  local now whole=${1%.*} part=000000
  [[ $1 != [a-z]* ]] || return 0
  now
  [[ $1 != *.* ]] || part=${1#*.}000000
  printf '%s\n' "$((now + 10#${whole:-0} * 1000000 + 10#${part:0:6}))" >"$2.deadline"
}

# Starts a keeper that outlives this program: SCRIPT LOG ARGUMENT...
keep() {
  local script=$1 log=$2
  shift 2
  # Job control, or it and all that comes from it would ignore SIGINT for good; and this program's group may be ended.
  set -m
  bash "$here/$script" "$base" "$workspace" "$@" </dev/null >/dev/null 2>>"$log" 4>&- 9<&- &
  set +m
}

# A keeper for a session that has none: of many who find that, one starts it. Returns when it listens.
wake() {
  local pid started=$SECONDS
  until keeper_lives; do
    if mark "$session/starting"; then
      if ! keeper_lives; then
        keep keeper.bash "$session/said" "$session"
        pid=$!
        until keeper_lives || ! kill -0 "$pid" 2>/dev/null; do
          pause 0.002
        done
      fi
      rm -f "$session/starting"
    elif ((SECONDS - started > 5)); then
      rm -f "$session/starting" # whoever began has been killed
      started=$SECONDS
    else
      pause 0.005
    fi
  done
}

keeper_lives() {
  local pid
  [[ -e $session/keeper ]] && read -r pid <"$session/keeper" && kill -0 "$pid" 2>/dev/null
}

verb_follow() { # JOB INCARNATION OUT ERR
  hello "$2"
  follow "$jobs/$1" "$3" "$4"
}

verb_kill() { # JOB INCARNATION
  hello "$2"
  end_job "$jobs/$1" kill
}

# Ends a job, by a word that its keeper knows, and returns when it has ended; one that has not begun never does.
end_job() { # JOB WORD
  local job=$1 fifo
  [[ -e $job ]] || die no-job
  if mark "$job.claimed"; then
    printf 'cancelled 0 0 0 killed 0\n' >"$job.status"
    return
  fi
  until [[ -e $job.status ]]; do
    if [[ -e $job.where ]] && read -r _ _ _ _ fifo <"$job.where"; then
      [[ -p $fifo ]] || return 0
      tell "$fifo" '\0%s\0%s\0\0' "$2" "${job##*/}"
      until [[ -e $job.status || ! -p $fifo ]]; do
        pause 0.005
      done
      return
    fi
    pause 0.002
  done
}

verb_forget() { # INCARNATION JOB...
  hello "$1"
  shift
  local id out err
  for id; do
    if [[ -e $jobs/$id.where ]]; then
      read -r out err _ <"$jobs/$id.where"
      rm -f -- "$out" "$err" "$jobs/$id".*
    fi
  done
  # What is left of a job says that it was, so that a late delivery does not run it.
  find "$jobs" -mindepth 1 -maxdepth 1 -mmin +10 ! -path '*.out' ! -path '*.err' -delete 2>/dev/null
}

# Prints what a job has printed from these offsets on, and at its end how it ended. When it has printed much, or for
# long, it says so and leaves the rest to the next call.
follow() { # JOB OUT ERR
  local job=$1 out_at=$2 err_at=$3 step status live=''
  local -a ended
  [[ -e $job ]] || die no-job
  until [[ -e $job.claimed ]]; do
    expire
    pause 0.001
  done
  printf 'begun\n'
  for step in .001 .001 .001 .002 .002 .003 .005 .01; do
    [[ ! -e $job.status ]] || break
    pause "$step"
  done
  if [[ ! -e $job.status ]] && ! follow_live "$out_at" "$err_at"; then
    printf '\nagain\n'
    return
  fi
  if [[ -z $live ]]; then
    ending
    [[ ! -e $job.where ]] || read -r out err _ <"$job.where"
    if ((ended[2] - out_at + ended[3] - err_at > most)); then
      rest "$out" "$out_at" "$((out_at + most / 2 < ended[2] ? out_at + most / 2 : ended[2]))"
      rest "$err" "$err_at" "$((err_at + most / 2 < ended[3] ? err_at + most / 2 : ended[3]))" >&4
      printf '\nagain\n'
      return
    fi
    ((ended[2] <= out_at)) || rest "$out" "$out_at" "${ended[2]}"
    ((ended[3] <= err_at)) || rest "$err" "$err_at" "${ended[3]}" >&4
  fi
  read -r status <"$job.status"
  printf '\nended %s\n' "$status"
}

# How the job ended, in the array `ended`: what, exit code, sizes of its output, why, microseconds.
ending() {
  until read -r -a ended <"$job.status"; do
    pause 0.001 # it is being written
  done
}

# A command whose turn does not come before its time is over never runs.
expire() {
  local when now
  [[ -e $job.deadline ]] || return 0
  read -r when <"$job.deadline"
  now
  if ((now > when)) && mark "$job.claimed"; then
    printf 'cancelled 0 0 0 timeout 0\n' >"$job.status"
  fi
}

# Follows a job that runs; fails when it did not end, and the next call is to go on.
follow_live() { # OUT ERR
  local until=$((SECONDS + 200)) due=$((SECONDS + 15)) stopped= out err out_pump err_pump
  local -a streams
  until [[ -e $job.status ]] || { [[ -e $job.where ]] && read -r out err out_pump err_pump _ <"$job.where"; }; do
    pause 0.005
  done
  [[ -n ${err_pump-} ]] || return 0
  live=1
  stream "$out" "$1" "$out_pump" 2 &
  streams=("$!")
  stream "$err" "$2" "$err_pump" 3 >&4 &
  streams+=("$!")
  until [[ -e $job.status ]]; do
    pause 0.02
    if ((SECONDS >= due)); then
      printf .
      due=$((SECONDS + 15))
    fi
    if ((SECONDS >= until)) || [[ -e $job.again.$$ ]]; then
      stopped=1
      stop "${streams[@]}"
      break
    fi
  done
  wait "${streams[@]}" 2>/dev/null
  if [[ -e $job.again.$$ ]]; then
    stopped=1
    rm -f -- "$job.again.$$"
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

# The bytes of a file from an offset up to another, if there are any.
rest() {
  ((${3} > ${2})) || return 0
  tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))" | base64 -w 65536
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
      rest "$1" "$at" "$((first + most))"
      : >"$job.again.$$"
      return
    fi
    rest "$1" "$at" "$size"
    at=$size
    [[ -z $whole ]] || return
    # Until the next lull: each piece is handed on when it comes. It ends with what fills the file.
    exec 3< <(exec tail -c "+$((at + 1))" -s 0.03 --pid="$3" -f "$1" 2>/dev/null)
    while chunk=$(dd bs=49152 count=1 status=none <&3 | base64 -w0) && [[ -n $chunk ]]; do
      printf '%s\n' "$chunk"
      padding=${chunk##*[!=]}
      ((at += ${#chunk} / 4 * 3 - ${#padding}))
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

# Background processes, whose files are those of jobs, with `.info` beside them

verb_start() { # ID SESSION INCARNATION AUTO COUNT TEXT... TEXT...: so many texts make the session, the others the process
  local id=$1 name=${2:--} auto=$4 session='' process=$base/processes/p_$1 directory=$workspace now state='' said
  local -a made
  hello "$3"
  take "${@:6:$5}"
  made=("${texts[@]}")
  if [[ -n $2 ]]; then
    session=$base/sessions/s_$2
    [[ -d $session ]] || make_session "${made[@]}" || true
    mapfile -d '' -t made <"$session/made"
    directory=${made[0]:-$workspace}
    [[ $directory == /* ]] || directory=$workspace/$directory
    [[ ! -e $session/cwd ]] || IFS= read -r -d '' directory <"$session/cwd"
  fi
  shift "$((5 + $5))"
  take "$@"
  if [[ -n ${texts[2]} ]]; then
    [[ ${texts[2]} == /* ]] || texts[2]=$directory/${texts[2]}
    [[ -e ${texts[2]} ]] || die missing "${texts[2]}"
    [[ -d ${texts[2]} ]] || die no-directory "${texts[2]}"
    directory=${texts[2]}
  fi
  [[ -d $directory ]] || directory=$workspace
  [[ ! -e $process.status ]] || rm -f -- "$process" "$process".*
  said=${texts[0]}
  if [[ -n $session && -e $session/place/s ]]; then
    state=$process.state
  fi
  deliver "$process" - || die in-use
  [[ -z $state ]] || cp -- "$session/place/s" "$state"
  now
  printf '%s %s %s %s\n' "$now" "$name" "$auto" "$(printf '%s' "$said" | base64 -w0)" >"$process.info"
  keep single.bash "$base/said" process "$process" "$directory" "${made[@]:2}"
  until [[ -e $process.where || -e $process.status ]]; do
    pause 0.001
  done
  show_process "$id"
}

# One line of what is known: ID PID START SESSION AUTO COMMAND END, the last as in `.status`, with when it was.
show_process() { # ID
  local process=$base/processes/p_$1 start session auto command pid=- status=running ended
  [[ -e $process.info ]] && read -r start session auto command <"$process.info" || return 1
  [[ ! -e $process.where ]] || read -r _ _ pid _ _ <"$process.where"
  if [[ -e $process.status ]]; then
    until read -r status <"$process.status"; do
      pause 0.001
    done
  fi
  printf 'process %s %s %s %s %s %s %s\n' "$1" "$pid" "$start" "$session" "$auto" "$command" "$status"
}

verb_processes() { # INCARNATION
  local path
  hello "$1"
  for path in "$base"/processes/p_*.info; do
    path=${path##*/p_}
    show_process "${path%.info}"
  done
}

verb_process() { # ID INCARNATION SECONDS: waits for its end, at most so long
  local until=$SECONDS step=0.005
  hello "$2"
  ((until += $3))
  until [[ -e $base/processes/p_$1.status || ! -e $base/processes/p_$1.info ]] || ((SECONDS >= until)); do
    pause "$step"
    step=0.03
  done
  show_process "$1" || die no-process
}

verb_signal() { # ID INCARNATION SIGNAL
  local process=$base/processes/p_$1 pid
  hello "$2"
  [[ -e $process.info ]] || die no-process
  [[ ! -e $process.status ]] || return 0
  case $3 in
    2 | 3 | 9 | 15) end_job "$process" "kill$3" ;;
    *)
      read -r _ _ pid _ <"$process.where"
      kill "-$3" "$pid"
      ;;
  esac
}

verb_drop() { # ID INCARNATION: the record of a process that has ended
  local process=$base/processes/p_$1
  hello "$2"
  [[ -e $process.status ]] || die running
  rm -f -- "$process" "$process".*
}

verb_log() { # ID INCARNATION OUT ERR: what is there now
  local process=$base/processes/p_$1
  hello "$2"
  [[ -e $process.info ]] || die no-process
  local out err status=''
  # Before the sizes: what was written before the end is in them then.
  if [[ -e $process.status ]]; then
    until read -r status <"$process.status"; do
      pause 0.001
    done
  fi
  out=$(stat -c %s "$process.out") err=$(stat -c %s "$process.err")
  printf 'sizes %s %s%s\n' "$out" "$err" "${status:+ $status}"
  rest "$process.out" "$3" "$((out - $3 > most / 2 ? $3 + most / 2 : out))"
  rest "$process.err" "$4" "$((err - $4 > most / 2 ? $4 + most / 2 : err))" >&4
}

# The end of everything here

verb_end() { # INCARNATION: sessions, commands, processes; who knew them is told that all was restarted
  local session job new
  hello "$1"
  new=$(mktemp "$base/.new.XXXXXXXX")
  head -c 8 /dev/urandom | base64 >"$new"
  mv -f -- "$new" "$base/incarnation"
  for session in "$base"/sessions/s_*; do
    end_session || true
  done
  for job in "$jobs"/*.where "$base"/processes/*.where; do
    job=${job%.where}
    [[ -e $job.status ]] || end_job "$job" kill
  done
  rm -f -- "$base"/processes/* "$jobs"/*
}

workspace=$SANDBOXSYNC_WORKSPACE
# What programs here complain of is not for the client, which takes standard error for a command's.
exec 9<>"$base/never" 4>&2 2>>"$base/said"
verb=$1
shift
# shellcheck source=files.bash
[[ $verb != file_* ]] || . "$here/files.bash"
"verb_$verb" "$@"
