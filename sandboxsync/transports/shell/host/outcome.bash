# shellcheck shell=bash
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
  local text=''
  (($2 < $3)) || return 0
  if (($2 == 0 && $3 < 4096)) && ! IFS= read -r -d '' -n 4096 text <"$1" && [[ ${#text} -eq $3 ]]; then
    say "$text"
  else
    tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))" | base64 -w 65536
  fi
}

# For a job that has ended: prints what is left of its output from these offsets on, and how it ended; or a part, and that
# there is more.
tell_outcome() { # OUT ERR
  local out='' err=''
  local -a ended
  ending
  if [[ ${ended[0]} != cancelled ]]; then
    [[ -n $begun ]] || printf 'begun\n'
    [[ ! -e $job.where ]] || read -r out err _ <"$job.where"
    if ((ended[2] - $1 + ended[3] - $2 > most)); then
      hand_over "$out" "$1" "$(($1 + most / 2 < ended[2] ? $1 + most / 2 : ended[2]))"
      hand_over "$err" "$2" "$(($2 + most / 2 < ended[3] ? $2 + most / 2 : ended[3]))" >&4
      printf '\nagain\n'
      return
    fi
    hand_over "$out" "$1" "${ended[2]}"
    hand_over "$err" "$2" "${ended[3]}" >&4
  fi
  tell_ending
}

tell_ending() {
  local limit=-
  [[ ! -e $job.deadline ]] || read -r _ limit <"$job.deadline"
  printf '\nended %s %s\n' "${ended[*]}" "$limit"
}
