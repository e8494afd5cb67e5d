# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Sourced by what tells a client of a job: what it printed, and how it ended.


# How the job ended, in the array `ended`: what, exit code, sizes of its output, why, microseconds.
ending() {
  until read -r -a ended <"$job.status"; do
    pause 0.001 # it is being written
  done
}

# Who runs the job, in `keeper`; `-`: it never runs.
find_keeper() {
  until read -r keeper <"$job.claimed"; do
    pause 0.001
  done
}

# Prints bytes of a command's that hold no NUL. Plain text goes as it is, for which no program has to be started.
say() { # TEXT
  local text=$1
  if [[ $text == *[!\ -~$'\n\t']* ]]; then
    printf '%s' "$text" | base64 -w0
    printf '\n'
  else
    text=${text//\\/\\\\}
    printf '=%s\n' "${text//$'\n'/\\n}"
  fi
}

# Prints a file from an offset up to its size.
hand_over() { # FILE FROM SIZE
  (($2 >= $3)) || tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))" | base64 -w 65536
}

# The files of its output, in `out` and `err`, and what fills them; fails while there are none. They are opened as 5 and 6
# for `peek`, unless others than their first bytes are wanted.
out='' err='' opened=''
find_output() {
  [[ -e $job.where ]] && read -r out err out_pump err_pump _ <"$job.where" || return 1
  if ((out_at + err_at == 0)); then
    exec 5<"$out" 6<"$err"
    opened=1
  fi
}

# Prints what has come since, while that is little and without NUL: fails when another way is needed.
peek() {
  local chunk=''
  [[ -n $opened ]] || return 1
  if IFS= read -r -d '' -n 16384 -u 5 chunk; then
    opened=''
    return 1
  fi
  if [[ -n $chunk ]]; then
    say "$chunk"
    ((out_at += ${#chunk}))
  fi
  chunk=''
  if IFS= read -r -d '' -n 16384 -u 6 chunk; then
    opened=''
    return 1
  fi
  if [[ -n $chunk ]]; then
    say "$chunk" >&4
    ((err_at += ${#chunk}))
  fi
}

# For a job that has ended: prints what is left of its output, and how it ended; or a part, and that there is more.
tell_outcome() {
  local -a ended
  ending
  if [[ ${ended[0]} != cancelled ]]; then
    [[ -n $begun ]] || printf 'begun\n'
    [[ -n $out ]] || find_output || true
    if [[ -n $opened && $((ended[2] + ended[3])) -gt $((out_at + err_at)) ]]; then
      peek || true
    fi
    if ((ended[2] - out_at + ended[3] - err_at > most)); then
      hand_over "$out" "$out_at" "$((out_at + most / 2 < ended[2] ? out_at + most / 2 : ended[2]))"
      hand_over "$err" "$err_at" "$((err_at + most / 2 < ended[3] ? err_at + most / 2 : ended[3]))" >&4
      printf '\nagain\n'
      return
    fi
    hand_over "$out" "$out_at" "${ended[2]}"
    hand_over "$err" "$err_at" "${ended[3]}" >&4
  fi
  tell_ending
}

tell_ending() {
  local limit=-
  [[ ! -e $job.deadline ]] || read -r _ limit <"$job.deadline"
  printf '\nended %s %s\n' "${ended[*]}" "$limit"
}
