# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Sourced first by all others: texts are bytes, and what takes no program to do.

# Programs of the user get what was set before.
if [[ -n ${LC_ALL+set} ]]; then
  lc_all=$LC_ALL
fi
LC_ALL=C
# shellcheck disable=SC2034  # for what sources this
most=$((12 << 20)) # bytes that a call hands out: base64 makes 16 MiB of them, and services cut at 32

# For what is started next: the environment as it was.
as_before() {
  unset -v OLDPWD SHLVL SANDBOXSYNC_WORKSPACE LC_ALL
  [[ -z ${lc_all+set} ]] || export LC_ALL="$lc_all"
}

# A pause of so many seconds without starting a program: nobody ever writes to that FIFO.
pause() {
  read -r -t "$1" -u 9 _ || true
}

# Makes a file that is not there, with a line in it if there is one to say; fails when it is. This is how one of many
# gets to do what is done once.
mark() { # FILE [LINE]
  local failed=0
  set -C
  { printf '%s' "${2+$2$'\n'}" >"$1"; } 2>/dev/null || failed=1
  set +C
  return "$failed"
}

# Microseconds since the epoch.
now() {
  now=${EPOCHREALTIME//[.,]/}
}

# Whether a process runs. One that has ended and was not collected yet does not.
lives() { # PID
  local stat=''
  { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null
  stat=${stat##*) }
  [[ -n $stat && $stat != [ZX]* ]]
}

# Bytes of a file that is not being written, in `size`. A program is started only for a large one.
size_of() { # FILE
  local text=''
  size=0
  [[ -s $1 ]] || return 0
  if IFS= read -r -d '' -n 4096 text <"$1"; then
    size=$(stat -c %s "$1")
  else
    size=${#text}
  fi
}
