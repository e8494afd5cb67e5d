# shellcheck shell=bash
# Keeps a session: runs its commands one after the other in one bash, and replaces that: keeper.bash BASE WORKSPACE
# DIRECTORY
#
# Files of the directory: `made` what the session was made from, `queue` the FIFO of the names of jobs, `cwd` where the
# shell is, `place` what the shell is spoken to through (see ../before.bash), with the FIFOs `k`, `r`, `o`, `e` and the
# state after the last command in the file `s`.
#
# The place is reached by relative paths, because the directory gets another name when the session is deleted.
set -u
shopt -s extglob nullglob
here=${BASH_SOURCE[0]%/*}
base=$1 workspace=$2
cd -- "$3" || exit 1
at=$PWD/place/
unset SANDBOXSYNC_WORKSPACE
# shellcheck source=tags.bash
. "$here/tags.bash"

mapfile -d '' -t made <made
directory=${made[0]:-$workspace}
[[ $directory == /* ]] || directory=$workspace/$directory
start=$directory
shell='' state='' status=0 left=0 number=0
new_owner
# A keeper that was killed leaves its shell, and pumps that wait at pipes of that name.
# shellcheck disable=SC2094  # the file is read, the variable is not it
[[ ! -s shell ]] || ! read -r shell <shell || kill -KILL "$shell" 2>/dev/null
shell=
rm -f place/[kroe]
mkfifo place/k place/r place/o place/e
ln -f -t place "$here"/place/*
exec 5<>place/k 6<>place/r 8<>queue 9<>"$base/never"
printf '%s\n' "$BASHPID" >keeper
printf -v quoted '%q' "$at"
once="\\builtin . ${quoted}b&&((1));\\builtin eval \"\$__sbx\" <\"\${__sbx[1]}\" >${quoted}o 2>${quoted}e
\\builtin . ${quoted}a >${quoted}r;\\builtin trap - DEBUG ERR RETURN
"
through_out='' through_err=''
batch=''
for ((i = 0; i < 64; i++)); do
  batch+=$once
done

tag_of() { # JOB
  tag=$((owner << 28 | $1))
}

start_shell() {
  local restore='' pair i
  local -a parts
  mapfile -d '' -t made <made
  [[ -d $start ]] || start=$workspace
  if [[ -n $state ]]; then
    mapfile -d '' -t parts <place/s
    if ((${#parts[@]} >= 4)); then
      # shellcheck disable=SC2016
      printf -v restore '\\builtin . %q %q %q %q\n\\builtin eval "\\\\builtin set -- ${__sbx[0]}"\n\\builtin . %q\n' \
        "$here/restore.bash" "${at}s" "$directory" "$workspace" "$here/restore-options.bash"
    fi
  fi
  if [[ -z $restore ]]; then
    directory=$start
    status=0
  fi
  printf '%s' "$restore$batch" >place/l
  left=64
  tag_of 0
  # Job control, or the shell and all that it starts would ignore SIGINT for good.
  set -m
  (
    set +m
    as_before
    ulimit -S -x "$tag"
    cd -- "$start" 2>/dev/null || cd -- "$workspace" || cd /
    for ((i = 2; i < ${#made[@]}; i++)); do
      pair=${made[i]}
      if [[ $pair == *=* ]]; then
        export "${pair?}"
      else
        unset -v "$pair"
      fi
    done
    unset -v OLDPWD
    exec -a bash "$BASH" --norc --noprofile -O expand_aliases <"${at}l" >/dev/null 2>&1 5<&- 6<&- 8<&- 9<&-
  ) &
  shell=$!
  set +m
  printf '%s\n' "$shell" >shell
  [[ ! -e died ]] || rm -f died
}

# A fresh shell next time; with `keep`, one like the one that was.
shell_ended() { # keep|lose
  shell=
  : >shell
  if [[ $1 == lose ]]; then
    local low high
    : >died
    tag_of 0
    low=$tag high=$((tag | (1 << 28) - 1))
    (end_tagged "$low" "$high" TERM) 5<&- 6<&- 8<&- &
    state='' status=0 directory=$start
    new_owner
  fi
  fields=()
  rm -f place/k place/r
  mkfifo place/k place/r
  exec 5<>place/k 6<>place/r
}

# Waits so many seconds for something on `r`, of which it takes the first byte, the NUL that a message begins with.
#
# A read that times out in the moment when something comes may lose that: so it waits for nothing else, and `listen` does
# not count on it.
wait_for_message() {
  local first
  IFS= read -r -d '' -n 1 -t "$1" -u 6 first || return 1
  # Else a trace of the report, which the user may have turned to standard output.
  [[ -n $first ]] || fields=('')
}

# The next message, if it has come: three texts in `message`.
message=()
fields=()
listen() {
  local text
  while read -r -t 0 -u 6; do
    IFS= read -r -d '' -t 2 -u 6 text || return 1
    [[ ${#fields[@]} -gt 0 || $text != @(+([0-9])|kill*|delete) ]] || fields=('')
    fields+=("$text")
    if ((${#fields[@]} == 4)); then
      message=("${fields[@]:1}")
      fields=()
      return 0
    fi
  done
  return 1
}

# Whether the shell waits for a command, though it has one and has not reported its end.
is_astray() {
  local file
  # It has not even heard of the command.
  ! read -r -t 0 -u 5 || return 1
  for file in "/proc/$shell/fd/"*; do
    [[ ! $file -ef place/k ]] || return 0
  done
  return 1
}

# A shell that has lost its way may wait for a reader of its output that has come and gone. With one it finds its end.
let_through() {
  if [[ -z $through_out ]] && ! { lives "$out_pump" && lives "$err_pump"; }; then
    exec {through_out}<>place/o {through_err}<>place/e
  fi
}

# Whether limits leave the shell too few descriptors for the redirections of another command, or files too small for its
# state. Says in `why` which.
is_limited() {
  local line
  local -a all=()
  { mapfile -t all <"/proc/$shell/limits"; } 2>/dev/null
  if ((${#all[@]} == 0)); then
    # It has ended, perhaps by SIGXFSZ as it wrote its state.
    why=files
    wait "$shell"
    (($? != 153)) || return 0
  fi
  for line in "${all[@]}"; do
    case $line in
      'Max open files'*)
        line=${line#'Max open files'}
        line=${line##+( )} why=descriptors
        ((${line%% *} >= 16)) || return 0
        ;;
      'Max file size'*)
        line=${line#'Max file size'}
        line=${line##+( )} why=files
        [[ $line == unlimited* ]] || ((${line%% *} >= 1 << 20)) || return 0
        ;;
    esac
  done
  why=-
  return 1
}

# Pumps for the next command, before it comes.
out_file='' err_file='' out_pump='' err_pump='' files=0
make_pumps() {
  if [[ -z $out_pump ]]; then
    out_file=$base/jobs/k$BASHPID.$((++files)).out
    start_pump place/o "$out_file"
    out_pump=$pump
  fi
  if [[ -z $err_pump ]]; then
    err_file=$base/jobs/k$BASHPID.$((++files)).err
    start_pump place/e "$err_file"
    err_pump=$pump
  fi
}

# Tells how a job ended: WHAT CODE OUT ERR WHY
tell_end() {
  local now
  now
  : >"$job.in"
  [[ ! -e $job.stdin ]] || : >"$job.stdin"
  printf '%s\0' "$directory" >cwd
  printf '%s %s\n' "$*" "$((now - began))" >"$job.status"
}

run_job() {
  local -a texts
  local input=/dev/null enter='' kind='' why=- code=0 looks=0 astray=0 deadline='' out err now
  now
  began=$now
  if [[ -e $job.deadline ]]; then
    read -r deadline _ <"$job.deadline"
    if ((now >= deadline)); then
      tell_end cancelled 0 0 0 timeout
      return
    fi
  fi
  if [[ -n $shell ]] && ! lives "$shell"; then
    wait "$shell"
    code=$?
    shell_ended lose
    tell_end died "$code" 0 0 -
    return
  fi
  mapfile -d '' -t texts <"$job.in"
  [[ ! -e $job.stdin ]] || input=$job.stdin
  [[ -z ${texts[2]} || ${texts[2]} == /* ]] || texts[2]=$directory/${texts[2]}
  [[ -z ${texts[2]} && ${texts[3]} == 0 ]] || enter=${at}n
  [[ -n $shell ]] || start_shell
  make_pumps
  number=$(((number + 1) & ((1 << 28) - 1)))
  tag_of "$number"
  printf '%s\0' "${texts[0]}" "$input" "$status" "$tag" "$enter" "${texts[2]}" "$((7 + 2 * texts[3]))" \
    "${texts[@]:4}" >place/c
  printf '%s %s %s %s %s\n' "$out_file" "$err_file" "$out_pump" "$err_pump" "${PWD}/place/r" >"$job.where"
  if ((--left < 2)); then
    printf '%s' "$batch" >>place/l
    left=$((left + 64))
  fi
  printf '%s\n' "$((7 + ${#texts[@]} - 4))" >&5
  while :; do
    if listen; then
      case ${message[0]} in
        kill)
          [[ ${message[1]} == "${job##*/}" ]] || continue
          kind=killed code=143
          ;;
        delete) kind=deleted ;;
        *)
          kind=exited code=${message[0]}
          if [[ -n ${message[1]//[ax]/} ]]; then
            kind=spoilt why=variable
          elif is_limited; then
            kind=spoilt
          else
            status=$code
            [[ ${message[2]} != /* ]] || directory=${message[2]}
            state=1
          fi
          ;;
      esac
      break
    fi
    if ! lives "$shell"; then
      # It may have reported, and ended then.
      ! read -r -t 0 -u 6 || continue
      wait "$shell"
      kind=died code=$?
      break
    fi
    if [[ -n $deadline ]] && now && ((now >= deadline)); then
      kind=timeout
      break
    fi
    # Twice, for it may be about to begin.
    if ((++looks % 25 == 24)); then
      let_through
      is_astray && ((++astray)) || astray=0
      if ((astray > 1)) && ! read -r -t 0 -u 6; then
        kind=spoilt why=astray
        break
      fi
    fi
    wait_for_message 0.02
  done
  if [[ -n $through_out ]]; then
    exec {through_out}<&- {through_err}<&-
    through_out=''
  fi
  case $kind in
    timeout | killed)
      kill -KILL "$shell" 2>/dev/null
      end_tagged "$tag" "$tag" TERM
      wait "$shell" 2>/dev/null
      shell_ended keep
      ;;
    deleted | spoilt)
      kill -KILL "$shell" 2>/dev/null
      wait "$shell" 2>/dev/null
      shell_ended lose
      ;;
    died) shell_ended lose ;;
  esac
  end_pump "$out_pump" place/o "$out_file"
  out=$size out_pump=''
  renew place/o
  end_pump "$err_pump" place/e "$err_file"
  err=$size err_pump=''
  renew place/e
  if [[ $kind == exited ]] && ((out < 0 || err < 0)); then
    kind=spoilt why=unopened:$out:$err
    kill -KILL "$shell" 2>/dev/null
    wait "$shell" 2>/dev/null
    shell_ended lose
  fi
  tell_end "$kind" "$code" "$((out < 0 ? 0 : out))" "$((err < 0 ? 0 : err))" "$why"
  make_pumps
}

# A pipe that a background job holds is its alone from now on.
renew() {
  if [[ -n $held ]]; then
    rm -f "$1"
    mkfifo "$1"
  fi
}

# Whether nobody has given up a job that was in the queue; then its files may be gone.
is_wanted() {
  [[ -e $job && ! -s $job ]]
}

finish() {
  local low high now
  [[ -z $shell ]] || kill -TERM "$shell" 2>/dev/null
  tag_of 0
  low=$tag high=$((tag | (1 << 28) - 1))
  end_tagged "$low" "$high" TERM
  [[ -z $out_pump$err_pump ]] || kill -KILL $out_pump $err_pump 2>/dev/null
  [[ -z $out_pump ]] || rm -f -- "$out_file"
  [[ -z $err_pump ]] || rm -f -- "$err_file"
  while read -r -t 0 -u 8 && IFS= read -r -u 8 id; do
    cancel "$id"
  done
  exit 0
}

cancel() { # JOB
  job=$base/jobs/$1
  now
  began=$now
  ! is_wanted || ! mark "$job.claimed" - || tell_end cancelled 0 0 0 deleted
}

while :; do
  IFS= read -r -u 8 id
  if [[ $id == '!delete' || -e deleted ]]; then
    cancel "$id"
    finish
  fi
  job=$base/jobs/$id
  if is_wanted && mark "$job.claimed" "$BASHPID"; then
    run_job
  fi
done
