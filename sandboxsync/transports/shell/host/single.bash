# shellcheck shell=bash
# Keeps a program of its own: single.bash BASE WORKSPACE command|process JOB DIRECTORY
#
# A command without a session is a bash that starts in the workspace with the variables of the file `.made`. A background process starts
# in the directory and with the environment of a session, and all that it prints goes into the files.
set -u
shopt -s extglob nullglob
here=${BASH_SOURCE[0]%/*}
base=$1 workspace=$2 kind=$3 job=$4 directory=$5
unset SANDBOXSYNC_WORKSPACE
# shellcheck source=tags.bash
. "$here/tags.bash"
mark "$job.claimed" "$BASHPID" || exit 0
mkfifo "$job.r"
exec 6<>"$job.r" 9<>"$base/never"
mapfile -d '' -t texts <"$job.in"
made=()
[[ ! -e $job.made ]] || mapfile -d '' -t made <"$job.made"
input=/dev/null deadline='' end=''
[[ ! -e $job.stdin ]] || input=$job.stdin
[[ ! -e $job.deadline ]] || read -r deadline _ <"$job.deadline"
now
began=$now
new_owner
tag=$((owner << 28))
if [[ $kind == command ]]; then
  mkfifo "$job.o" "$job.e"
  start_pump "$job.o" "$job.out"
  out_pump=$pump
  start_pump "$job.e" "$job.err"
  err_pump=$pump
  out=$job.o err=$job.e
  printf '%s %s %s %s %s\n' "$job.out" "$job.err" "$out_pump" "$err_pump" "$job.r" >"$job.where"
else
  out=$job.out err=$job.err
  : >"$out"
  : >"$err"
fi
# Job control, or it and all that it starts would ignore SIGINT for good.
set -m
(
  set +m
  exec <"$input" >>"$out" 2>>"$err" 6<&- 9<&-
  as_before
  ulimit -S -x "$tag"
  for pair in "${made[@]}"; do
    if [[ $pair == *=* ]]; then
      export "${pair?}"
    else
      unset -v "$pair"
    fi
  done
  for ((i = 0; i < texts[3]; i++)); do
    export "${texts[4 + 2 * i]}=${texts[5 + 2 * i]}"
  done
  cd -- "$directory" || exit 1
  if [[ $kind == command && -n ${texts[2]} ]]; then
    [[ ${texts[2]} == /* ]] || texts[2]=$workspace/${texts[2]}
    cd -- "${texts[2]}" || exit 1
  fi
  unset -v OLDPWD
  # By its path: PATH may be the user's.
  run=("$BASH" --norc --noprofile -O expand_aliases -c)
  if [[ -e $job.state ]]; then
    pairs=()
    for ((i = 0; i < texts[3]; i++)); do
      pairs+=("${texts[4 + 2 * i]}=${texts[5 + 2 * i]}")
    done
    run=("$BASH" --norc --noprofile -O extglob "$here/launch.bash" "$job.state" "${#pairs[@]}" "${pairs[@]}" "${run[@]}")
  fi
  if ((${#texts[0]} > 100000)); then
    # shellcheck disable=SC2016
    exec -a bash "${run[@]}" \
      '\builtin mapfile -d "" -t __sbx <"$1"; \builtin shift; \builtin eval "${__sbx[0]}"' bash "$job.in"
  fi
  exec -a bash "${run[@]}" "${texts[0]}"
) &
program=$!
set +m
signal=TERM looks=0 step=.002
[[ $kind == command ]] || printf '%s %s %s %s %s\n' "$out" "$err" "$program" "$program" "$job.r" >"$job.where"
while lives "$program"; do
  # Looked for before it is read: see keeper.bash.
  if read -r -t 0 -u 6 && IFS= read -r -d '' -t 2 -u 6 text && [[ $text == kill* ]]; then
    end=killed
    [[ $text == kill ]] || signal=${text#kill}
  elif [[ -n $deadline ]] && now && ((now >= deadline)); then
    end=timeout
  fi
  if [[ -n $end ]]; then
    [[ $signal != 9 ]] || signal=KILL
    end_tagged "$tag" "$tag" "$signal"
    break
  fi
  ((++looks < 8)) || step=.02
  pause "$step"
done
wait "$program" 2>/dev/null
code=$?
if [[ $end == killed && $code != 137 ]]; then
  signal=${signal/TERM/15}
  code=$((128 + ${signal/KILL/9}))
fi
if [[ $kind == command ]]; then
  end_pump "$out_pump" "$job.o" "$job.out"
  out=$((size < 0 ? 0 : size))
  end_pump "$err_pump" "$job.e" "$job.err"
  err=$((size < 0 ? 0 : size))
  rm -f "$job.o" "$job.e"
else
  out=$(stat -c %s "$out")
  err=$(stat -c %s "$err")
fi
now
rm -f -- "$job".{r,state,in,made,stdin}
printf '%s %s %s %s - %s\n' "${end:-exited}" "$code" "$out" "$err" "$((now - began))" >"$job.status"
