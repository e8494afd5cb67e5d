# shellcheck shell=bash
# shellcheck disable=SC2154  # what sources this has set them
# Writing files, whole or not at all: sourced by files.bash for the verbs that begin with `file_w_`.
#
# The content goes into a temporary file beside the target, whose name it takes at the end. A target that is no regular
# file, or that may be written but not replaced, gets it from a file of ours at the end.

verb_file_w_small() { # SESSION INCARNATION PATH ID BASE64...
  hello "$2"
  locate "$1" "$3"
  once "$4" write_small "${@:4}"
}

write_small() { # ID BASE64...
  local target kind mode temporary said IFS=
  # shellcheck disable=SC2064  # now
  trap "drop '$1'" EXIT
  open_target "$1"
  shift
  said=$(base64 -d <<<"$*" 2>&1 >"$temporary") || fail "$path" "$said"
  commit
}

# What is larger comes in pieces, files that a service puts into a directory which is told here, each with the offset of
# its content as its name. Now and then they are taken together.
verb_file_w_open() { # SESSION INCARNATION PATH ID STAGING
  hello "$2"
  locate "$1" "$3"
  once "$4.open" write_open "$4" "$5"
}

write_open() { # ID STAGING
  local id=$1 staged target kind mode temporary said
  # shellcheck disable=SC2064  # now
  trap "drop '$id'" EXIT
  # Another name than that of the temporary file, which may be in the same directory.
  staged=${2:-$files}/.sandboxsync-${id:12}${id:0:12}.tmp
  open_target "$id" "$staged"
  said=$(umask 077 && mkdir -p -- "$staged" 2>&1) || fail "$staged" "$said"
  printf '%s\0' "$path" "$kind" "$target" "$temporary" "$mode" "$staged" >"$files/$id.state"
  trap - EXIT
  tell_text "$staged"
  printf 'staged %s\n' "$told"
}

# The state of a write: `path`, `kind`, `target`, `temporary`, `mode`, `staged`.
load() { # ID
  local -a state=()
  [[ ! -e $files/$1.state ]] || mapfile -d '' -t state <"$files/$1.state"
  ((${#state[@]})) || die lost
  path=${state[0]} kind=${state[1]} target=${state[2]} temporary=${state[3]} mode=${state[4]} staged=${state[5]}
  printf '%s\n' "$EPOCHSECONDS" >"$files/$1.alive"
}

verb_file_w_take() { # INCARNATION ID OFFSET SIZE...: pieces one after the other, the first of which begins there
  hello "$1"
  once "$2.$3" write_take "${@:2}"
}

write_take() { # ID OFFSET SIZE...
  local path kind target temporary mode staged
  load "$1"
  take_pieces "${@:2}"
}

take_pieces() { # OFFSET SIZE...
  local at=$1 size said
  local -a pieces=() sizes=()
  shift
  for size; do
    pieces+=("$staged/$at")
    ((at += size))
  done
  ((${#pieces[@]})) || return 0
  mapfile -t sizes < <(stat -c %s -- "$temporary" "${pieces[@]}" 2>/dev/null)
  ((${#sizes[@]})) || die lost
  if ((sizes[0] < at)); then
    [[ ${sizes[*]:1} == "$*" ]] || die pieces
    # Of one who was killed there may be some.
    ((sizes[0] == ${pieces[0]##*/})) || truncate -s "${pieces[0]##*/}" -- "$temporary"
    said=$(cat -- "${pieces[@]}" 2>&1 >>"$temporary") || fail "$path" "$said"
  fi
  rm -f -- "${pieces[@]}"
}

verb_file_w_commit() { # INCARNATION ID OFFSET SIZE...: takes the last pieces
  hello "$1"
  once "$2.commit" write_commit "${@:2}"
}

write_commit() { # ID OFFSET SIZE...
  local path kind target temporary mode staged
  load "$1"
  # shellcheck disable=SC2064  # now
  trap "drop '$1'" EXIT
  take_pieces "${@:2}"
  commit
}

verb_file_w_abort() { # INCARNATION ID
  hello "$1"
  # A delivery that is late opens nothing.
  if mark "$files/$2.open.claim"; then
    printf '!lost\nend\n' >"$files/$2.open.answer"
  fi
  drop "$2"
}

# Finds the target of `path` and makes the file that takes the content: ID, and what else to note. `kind` is how it gets
# there: `rename`, or `copy` of what cannot be replaced, or `through` for what is no regular file.
open_target() { # ID PATH...
  local said
  local -a facts
  find_target "$path"
  mode='' kind=rename temporary=${target%/*}/.sandboxsync-$1.tmp
  if [[ ! -e $target ]]; then
    note "$1" "$temporary" "${@:2}"
    { : >"$temporary"; } 2>/dev/null || fail "$path" "$({ : >"$temporary"; } 2>&1)"
    return
  fi
  [[ ! -d $target ]] || fail "$path" 'Is a directory'
  if [[ ! -f $target ]]; then
    kind=through
  elif [[ ! -w $target ]]; then
    fail "$path" 'Permission denied'
  else
    note "$1" "$temporary" "${@:2}"
    umask 077
    if { : >"$temporary"; } 2>/dev/null; then
      mapfile -t facts < <(stat -c '%u:%g %a' -- "$target" "$temporary")
      mode=${facts[0]#* }
      if [[ ${facts[0]% *} == "${facts[1]% *}" ]] || chown "${facts[0]% *}" -- "$temporary" 2>/dev/null; then
        return
      fi
      rm -f -- "$temporary"
    fi
    kind=copy
  fi
  temporary=$files/$1.data
  note "$1" "$temporary" "${@:2}"
  : >"$temporary"
}

# Where a path leads once its last part is no symlink, in `target`; its parents are made.
find_target() {
  local parent link said count
  target=$1
  for ((count = 0; count < 40; count++)); do
    [[ $target != */ ]] || fail "$1" 'Is a directory'
    parent=${target%/*}
    if [[ -L $target ]]; then
      IFS= read -r -d '' link < <(readlink -z -- "$target")
      [[ $link == /* ]] || link=$parent/$link
      target=$link
    elif [[ -e $target || -d ${parent:-/} ]]; then
      return
    elif ! said=$(mkdir -p -- "$parent" 2>&1); then
      [[ $said != *': File exists' ]] || said='Not a directory'
      fail "$1" "$said"
    fi
  done
  fail "$1" 'Too many levels of symbolic links'
}

# Puts the content in its place, and tells what is there then.
commit() {
  local said
  if [[ $kind == rename ]]; then
    # Not earlier: a write takes the setuid bit away.
    [[ -z $mode ]] || chmod "$mode" -- "$temporary"
    if ! said=$(mv -f -T -- "$temporary" "$target" 2>&1); then
      case $mode:$said in
        [0-9]*': Permission denied' | [0-9]*': Operation not permitted' | [0-9]*': Read-only file system' | \
          [0-9]*': Device or resource busy') kind=copy ;;
        *) fail "$path" "$said" ;;
      esac
    fi
  fi
  case $kind in
    copy) copy_into ;;
    through) put_through ;;
  esac
  info "$path" follow
}

copy_into() {
  local said before size
  before=$(stat -c %s -- "$target") size=$(stat -c %s -- "$temporary")
  # Space first: the old content must survive a full disk.
  if ((size > before)) && ! said=$(head -c "$((size - before))" /dev/zero 2>&1 >>"$target"); then
    truncate -s "$before" -- "$target"
    fail "$path" "$said"
  fi
  said=$(dd if="$temporary" of="$target" bs=1M conv=notrunc status=none 2>&1) || fail "$path" "$said"
  truncate -s "$size" -- "$target"
}

put_through() {
  local said holder=
  if [[ -p $target ]]; then
    # Opening one that nobody reads would block for ever; what opens it without waiting holds it for the other.
    dd of="$target" oflag=nonblock conv=notrunc,nocreat status=none <&9 >/dev/null 2>"$temporary.said" &
    holder=$!
    until [[ /proc/$holder/fd/1 -ef $target ]]; do
      if ! kill -0 "$holder" 2>/dev/null; then
        said=$(<"$temporary.said")
        rm -f -- "$temporary.said"
        fail "$path" "$said"
      fi
      pause 0.002
    done
    rm -f -- "$temporary.said"
  fi
  said=$(cat -- "$temporary" 2>&1 >"$target") || fail "$path" "${said:-Broken pipe}"
  [[ -z $holder ]] || kill "$holder"
}
