# shellcheck shell=bash
# shellcheck disable=SC2034,SC2154 # who sources this shares its names
# Sessions: what host.bash sources for these verbs, and for what makes a session or starts its keeper.

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
  [[ -e $session/shell ]] && read -r pid <"$session/shell" && ! lives "$pid"
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
  if [[ -e $gone/keeper ]] && read -r pid <"$gone/keeper" && lives "$pid"; then
    tell "$gone/queue" '!delete\n'
    [[ ! -p $gone/place/r ]] || tell "$gone/place/r" '\0delete\0\0\0'
    while lives "$pid"; do
      pause 0.005
    done
  fi
  rm -rf -- "$gone"
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

# A keeper for a session that has none: of many who find that, one starts it. Returns when it listens, or the session is
# gone.
wake() {
  local pid started=$SECONDS
  until keeper_lives || [[ ! -e $session ]]; do
    if mark "$session/starting"; then
      if ! keeper_lives; then
        keep keeper.bash "$session/said" "$session"
        pid=$!
        until keeper_lives || ! lives "$pid"; do
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
