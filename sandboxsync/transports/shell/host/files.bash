# shellcheck shell=bash
# shellcheck disable=SC2154  # what sources this has set them
# Files: what host.bash sources for the verbs that begin with `file_`.
#
# A path comes as `take` reads it, below the session's directory when it is relative. Texts are told as they are behind
# `=`, or in base64 behind `~`. What the system refuses is told as `!file WORDS PATH`, in the words of the C locale with
# `_` between them.
#
# What one call makes for a later one, or for its own end, is noted before it is made, in ID.left, with the time of its
# last use in ID.alive: what a client that went away has left is removed by whoever comes an hour later. Names that
# users may see are those that no listing and no archive holds: `.sandboxsync-ID.tmp`, with an ID of 24 hex digits.
export LC_ALL=C
files=$base/files
hex='[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]'
ours=.sandboxsync-$hex$hex$hex$hex.tmp

# Refuses, for what a program said: PATH SAID
fail() {
  local words=${2##*: }
  case $2 in
    'mv: cannot overwrite directory '*) words='Is a directory' ;;
    'mv: cannot overwrite non-directory '*) words='Not a directory' ;;
    'mv: cannot move '*' to a subdirectory of itself, '*) words='Invalid argument' ;;
  esac
  tell_text "$1"
  die "file ${words// /_} $told"
}

# A text for an answer, in `told`.
tell_text() {
  told="=$1"
  [[ $1 != *[!\ -~]* ]] || told="~$(printf '%s' "$1" | base64 -w0)"
}

# Once only, however often the call is delivered: ID FUNCTION ARGUMENT... An answer that was given is given again.
once() {
  local id=$1 answer=$files/$1.answer pid started=$SECONDS said
  local -a lines=()
  shift
  if ! mark "$files/$id.claim"; then
    until [[ -e $answer ]]; do
      pid=
      read -r pid <"$files/$id.claim" || true
      if [[ -n $pid ]]; then
        # Whoever began may have been killed.
        kill -0 "$pid" 2>/dev/null || [[ -e $answer ]] || break
      elif ((SECONDS - started > 2)); then
        break
      fi
      pause 0.005
    done
  fi
  if [[ ! -e $answer ]]; then
    printf '%s\n' "$$" >"$files/$id.claim"
    said=$("$@")
    printf '%s\nend\n' "$said" >"$answer"
  fi
  until mapfile -t lines <"$answer" && [[ ${#lines[@]} -gt 1 && ${lines[-1]} == end ]]; do
    pause 0.002 # it is being written
  done
  printf '%s\n' "${lines[@]:0:${#lines[@]}-1}"
}

# Notes what is to be removed, should nobody come back: ID PATH...
note() {
  printf '%s\0' "${@:2}" >"$files/$1.left"
  printf '%s\n' "$EPOCHSECONDS" >"$files/$1.alive"
}

# Removes what was noted, also under longer IDs that begin so.
drop() { # ID
  local note
  local -a all=("$files/$1"*.{left,alive,state,data}) left=()
  for note in "$files/$1"*.left; do
    mapfile -d '' -t left <"$note"
    all+=("${left[@]}")
  done
  ((${#all[@]} == 0)) || rm -rf -- "${all[@]}"
}

# Removes what nobody has used for an hour, and answers that are ten minutes old; looks every five.
sweep() {
  local note alive swept=0
  [[ ! -e $files/swept ]] || read -r swept <"$files/swept"
  ((EPOCHSECONDS - swept > 300)) || return 0
  printf '%s\n' "$EPOCHSECONDS" >"$files/swept"
  for note in "$files"/*.alive; do
    # An empty one is being written.
    { read -r alive <"$note"; } 2>/dev/null || alive=$EPOCHSECONDS
    note=${note##*/}
    ((EPOCHSECONDS - alive <= 3600)) || drop "${note%.alive}"
  done
  find "$files" -maxdepth 1 \( -name '*.data' -mmin +60 -o -name '*.claim' -mmin +10 -o -name '*.answer' -mmin +10 \) \
    -delete
}

# The path that is meant, in `path`: SESSION TEXT
locate() {
  local directory
  take "$2"
  path=${texts[0]}
  if [[ $path != /* ]]; then
    find_directory "$1"
    path=$directory/$path
  fi
}

# A path without `.`, `..` and spare slashes, but with the symlink that its last part may be, in `shown`.
show() {
  local rest=$1 part last='' plain='' above='' dots=''
  while [[ -n $rest ]]; do
    part=${rest%%/*}
    rest=${rest#"$part"}
    rest=${rest#/}
    case $part in
      '' | .) continue ;;
      ..) dots=1 ;;
    esac
    above=$plain last=$part
    plain+=/$part
  done
  shown=${plain:-/}
  [[ -n $dots ]] || return 0
  [[ $last != .. ]] || above=$plain
  IFS= read -r -d '' shown < <(realpath -mz -- "${above:-/}")
  [[ $last == .. ]] || shown=${shown%/}/$last
}

# What lies somewhere: `info MODE SIZE SECONDS PATH`, the mode in hexadecimal. PATH FOLLOW
info() {
  local facts
  facts=$(stat ${2:+-L} -c '%f %s %.9Y' -- "$1" 2>&1) || fail "$1" "$facts"
  show "$1"
  tell_text "$shown"
  printf 'info %s %s\n' "$facts" "$told"
}

verb_file_stat() { # SESSION INCARNATION PATH FOLLOW
  hello "$2"
  locate "$1" "$3"
  info "$path" "$4"
}

# All below a directory, in base64: type, size, time, mode, name and target of each, each with a NUL behind it. A list
# that is too long for an answer stays in a file. Deliveries at the same time have files of their own.
verb_file_list() { # SESSION INCARNATION PATH DEPTH TYPE ID
  local id=$6.$$ said line
  local -a depth=() type=()
  hello "$2"
  locate "$1" "$3"
  said=$(stat -L -- "$path" 2>&1) || fail "$path" "$said"
  [[ -d $path ]] || fail "$path" 'Not a directory'
  [[ -z $4 ]] || depth=(-maxdepth "$4")
  [[ -z $5 ]] || type=(-type "$5")
  note "$id" "$files/$id.data"
  if ! said=$(find -H "$path" -mindepth 1 "${depth[@]}" -name "$ours" -prune -o "${type[@]}" \
    -printf '%y\0%s\0%T@\0%m\0%P\0%l\0' 2>&1 >"$files/$id.data"); then
    while IFS= read -r line; do
      # What vanishes meanwhile is not there.
      if [[ $line == 'find: '* && $line != *': No such file or directory' ]]; then
        drop "$id"
        fail "$path" "$line"
      fi
    done <<<"$said"
  fi
  show "$path"
  tell_text "$shown"
  printf 'at %s\n' "$told"
  tell_text "$files"
  printf 'home %s\n' "$told"
  hand_out "$id" "$files/$id.data" "$most"
}

# What a file of ours holds, in base64, and then it is removed; when that is too much: `kept PATH`. ID FILE MOST
hand_out() {
  local size
  size=$(stat -c %s -- "$2")
  if ((size > $3)); then
    tell_text "$2"
    printf 'kept %s\n' "$told"
  else
    base64 -w 65536 -- "$2"
    drop "$1"
  fi
}

verb_file_mkdir() { # SESSION INCARNATION PATH PARENTS ID
  hello "$2"
  locate "$1" "$3"
  once "$5" make_directory "$4"
}

make_directory() { # PARENTS
  local said
  said=$(mkdir ${1:+-p} -- "$path" 2>&1) || fail "$path" "$said"
  show "$path"
  tell_text "$shown"
  printf 'at %s\n' "$told"
}

verb_file_remove() { # SESSION INCARNATION PATH ID
  hello "$2"
  locate "$1" "$3"
  once "$4" remove
}

remove() {
  local said
  said=$(unlink -- "$path" 2>&1) || fail "$path" "$said"
}

verb_file_rename() { # SESSION INCARNATION PATH PATH ID
  local old
  hello "$2"
  locate "$1" "$3"
  old=$path
  locate "$1" "$4"
  once "$5" rename "$5"
}

rename() { # ID
  local said temporary parent=${path%/}
  local -a devices
  parent=${parent%/*}
  mapfile -t devices < <(stat -c %d -- "$old" "${parent:-/}" 2>/dev/null)
  if ((${#devices[@]} == 2)) && [[ ${devices[0]} != "${devices[1]}" ]]; then
    # A copy beside the new place first, so that it is whole there or not at all.
    temporary=$parent/.sandboxsync-$1.tmp
    note "$1" "$temporary"
    if ! said=$({ cp -a -T -- "$old" "$temporary" && mv -f -T -- "$temporary" "$path"; } 2>&1); then
      drop "$1"
      fail_rename "$said"
    fi
    drop "$1"
    rm -rf -- "$old"
  elif ! said=$(mv -f -T -- "$old" "$path" 2>&1); then
    # Nothing to do, says the system of one file.
    [[ $said == *' are the same file' ]] || fail_rename "$said"
  fi
}

# What the system says of a rename is about its destination, of some errors, when the source is there.
fail_rename() {
  case $1 in
    'mv: cannot overwrite '* | *': No such file or directory' | *': File exists' | *': Directory not empty' | \
      *': Not a directory')
      [[ ! -e $old && ! -L $old ]] || fail "$path" "$1"
      ;;
  esac
  fail "$old" "$1"
}

# Reading: `file =SIZE IDENTITY` and `path PATH`, then bytes in base64, or, of a large file when it is first asked for,
# `alias PATH`: another name of it, under which a service takes it for bytes. IDENTITY, once known, has to be the same.
verb_file_read() { # SESSION INCARNATION PATH IDENTITY OFFSET COUNT ID STAGING SUFFIX
  local said facts size identity
  hello "$2"
  locate "$1" "$3"
  [[ ! -d $path ]] || fail "$path" 'Is a directory'
  # A FIFO that nobody writes would block for ever.
  [[ ! -p $path ]] || fail "$path" 'No such device or address'
  said=$({ : <"$path"; } 2>&1) || fail "$path" "$said"
  exec 5<"$path"
  facts=$(stat -L -c '%s %d:%i:%W' /proc/self/fd/5)
  read -r size identity <<<"$facts"
  [[ -z $4 || $4 == "$identity" ]] || die changed
  show "$path"
  tell_text "$shown"
  printf 'file =%s %s\npath %s\n' "$size" "$identity" "$told"
  if [[ -z $4 && -f $path ]] && ((size > $6)); then
    make_alias "$7" "$8" "$9"
    return
  fi
  { said=$({
    dd bs=65536 iflag=fullblock,skip_bytes,count_bytes skip="$5" count="$6" status=none <&5 | base64 -w 65536 >&6
    exit "${PIPESTATUS[0]}"
  } 2>&1); } 6>&1 || [[ $said == *'cannot skip to specified offset' ]] || fail "$path" "$said"
}

make_alias() { # ID STAGING SUFFIX
  local staging=${2:-$files} directory
  directory=$staging/.sandboxsync-$1.tmp
  note "$1" "$directory"
  if mkdir -p -- "$directory" && { ln -s -- "$path" "$directory/f$3" || [[ -L $directory/f$3 ]]; }; then
    tell_text "$directory/f$3"
    printf 'alias %s\n' "$told"
  else
    drop "$1"
  fi
}

verb_file_drop() { # INCARNATION ID
  hello "$1"
  drop "$2"
}

verb_file_home() { # INCARNATION: where the host is
  hello "$1"
  tell_text "$base"
  printf 'home %s\n' "$told"
}

# shellcheck source=files-write.bash
[[ $verb != file_w_* ]] || . "$here/files-write.bash"
# shellcheck source=files-tree.bash
[[ $verb != file_t_* ]] || . "$here/files-tree.bash"
[[ -d $files ]] || mkdir -p -- "$files"
sweep
