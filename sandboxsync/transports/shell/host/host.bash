# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# What a client asks of the host in a sandbox: sourced by find.bash with VERB ARGUMENT...
#
# The host keeps sessions, commands and background processes in files of a directory of its own, `base`, which is this
# user's alone. Every session has a keeper (keeper.bash), which runs its commands one after the other; every command
# without a session and every background process has one too (single.bash). What a client is told comes from files, so a
# client may go away at any moment, and another may go on from the byte where it was. What a client leaves behind goes
# after ten minutes (janitor.bash).
#
# Answers are lines on standard output, the first of which is `sbx` and the incarnation of this host; a line that begins
# with `!` is a refusal. What a command prints comes in base64 lines, or as text behind `=`, its standard output and error
# each on that of this program. A dot may stand anywhere else, and means only that the command still runs.
#
# A text of the user's comes as an argument behind `=`, or in base64 behind `~`, or in files of parts behind `@`. It goes
# into files as it is, and is never part of a script. Arguments can be read by all users of the sandbox, so no program
# that runs for long has a text among them.
#
# Every call may come again, because its answer was lost: what changes something comes by `once`, but for `run`, `kill`
# and `part`, which see to it themselves. A program that was started runs on when its client goes.
#
# The files of a job, all of which begin with its id: nothing more is the mark that it was delivered, `.in` its texts,
# `.made` the environment of one that has no session, `.deadline` when its time is over and how much it was, `.claimed`
# the pid of the keeper that runs it (`-`: it never runs), `.where` the files of its output, what fills them, and the FIFO
# that ends it, `.status` how it ended.
set -u
shopt -s extglob nullglob
here=${BASH_SOURCE[0]%/*}
jobs=$base/jobs
# shellcheck source=basics.bash
. "$here/basics.bash"

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
          argument=$(cat -- "$name".* && printf .)
          rm -f -- "$name".*
        fi
        texts+=("${argument%.}")
        ;;
    esac
  done
}

verb_part() { # NAME.NUMBER BASE64: more of an argument that is too long for one
  local new=$base/parts/.new.$$
  hello ''
  base64 -d <<<"$2" >"$new"
  mv -- "$new" "$base/parts/$1"
}

# Does what is asked, and says to whoever asks the same again what it said then.
verb_once() { # REQUEST VERB ARGUMENT...
  local answer=$base/answers/$1 said
  local -a lines=()
  if mark "$answer"; then
    said=$("verb_$2" "${@:3}")
    printf '%s\nend\n' "$said" >"$answer.said"
  fi
  until [[ -e $answer.said ]] && mapfile -t lines <"$answer.said" && [[ ${#lines[@]} -gt 0 && ${lines[-1]} == end ]]; do
    pause 0.005
  done
  printf '%s\n' "${lines[@]::${#lines[@]}-1}"
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

# Writes to a FIFO that its keeper holds open, without waiting should that have ended: FIFO FORMAT TEXT...
tell() {
  # shellcheck disable=SC2059  # the format is one of ours
  printf "${@:2}" 1<>"$1"
}

# Starts a program that outlives this one: SCRIPT LOG ARGUMENT...
keep() {
  local script=$1 log=$2
  shift 2
  # Job control, or it and all that comes from it would ignore SIGINT for good; and this program's group may be ended.
  set -m
  (
    set +m
    as_before
    exec "$BASH" "$here/$script" "$base" "$workspace" "$@" </dev/null >/dev/null 2>>"$log" 4>&- 7>&- 9<&-
  ) &
  set +m
}

# Whatever is left here goes in time.
keep_clean() {
  local pid
  if ! { [[ -e $base/janitor ]] && read -r pid <"$base/janitor" && kill -0 "$pid" 2>/dev/null; }; then
    keep janitor.bash "$base/said"
  fi
}

# The bytes of a file from an offset up to another, if there are any.
rest() { # FILE FROM TO
  ((${3} > ${2})) || return 0
  tail -c "+$(($2 + 1))" "$1" | head -c "$(($3 - $2))" | base64 -w 65536
}

workspace=$SANDBOXSYNC_WORKSPACE
# What programs here complain of is not for the client, which takes standard error for a command's.
exec 9<>"$base/never" 4>&2 2>>"$base/said"
verb=$1
[[ $verb != once ]] || verb=$3
case $verb in
  run | follow | kill | forget)
    # shellcheck source=commands.bash
    . "$here/commands.bash"
    ;;
  create | set | delete | list | where)
    # shellcheck source=sessions.bash
    . "$here/sessions.bash"
    ;;
  file_*)
    # shellcheck source=files.bash
    . "$here/files.bash"
    ;;
  end)
    # shellcheck source=end.bash
    . "$here/end.bash"
    ;;
  part) ;;
  *)
    # shellcheck source=processes.bash
    . "$here/processes.bash"
    ;;
esac
case $1 in
  run | once | part) keep_clean ;;
esac
verb_"$1" "${@:2}"
