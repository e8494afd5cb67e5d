# shellcheck shell=bash
# shellcheck disable=SC2154  # what sources this has set them
# Directory trees as tar archives: sourced by files.bash for the verbs that begin with `file_t_`.

need_tar() {
  command -v tar >/dev/null || die no-tar
}

# Packs what a client has chosen from a list; the archive comes in base64, or stays in a file. The names, each with a NUL
# behind it, are in base64 here, or `-`: then in ID.data. Deliveries at the same time have files of their own.
verb_file_t_pack() { # SESSION INCARNATION PATH ID STAGING MOST NAMES
  local id=$4.$$ names directory said code
  hello "$2"
  locate "$1" "$3"
  need_tar
  printf -v directory '%s/.sandboxsync-%s%08x.tmp' "${5:-$files}" "${4:0:16}" "$$"
  note "$id" "$directory"
  said=$(umask 077 && mkdir -p -- "$directory" 2>&1) || fail "$directory" "$said"
  names=$directory/names
  if [[ $7 == - ]]; then
    names=$files/$4.data
  else
    base64 -d <<<"$7" >"$names"
  fi
  # Owners are not told, and the special bits are nobody else's.
  code=0
  said=$(tar --create --file="$directory/tree" --directory="$path" --null --verbatim-files-from \
    --no-recursion --files-from="$names" --format=posix --pax-option=delete=atime,delete=ctime --hard-dereference \
    --owner=:0 --group=:0 --numeric-owner --mode=a-st --warning=no-file-changed 2>&1) || code=$?
  # Another code is not its own: it was ended.
  ((code <= 2)) || said='tar: : Cannot write: Input/output error'
  check_packed "$id"
  tell_text "$path"
  printf 'at %s\n' "$told"
  hand_out "$id" "$directory/tree" "$6"
}

# Refuses for what `tar` complained of, in `said`; what vanished meanwhile is not there.
check_packed() { # ID
  local line
  while IFS= read -r line; do
    case $line in
      *': No such file or directory' | *'File removed before we read it' | *'file changed as we read it') ;;
      *': File shrank by '*)
        drop "$1"
        die shrank
        ;;
      'tar: '*': Cannot '* | 'tar: '*': Read error'* | 'tar: '*': Wrote only '*)
        drop "$1"
        fail "$path" "$line"
        ;;
    esac
  done <<<"$said"
}

# Makes a directory to unpack into, and in it one for what is to be unpacked: `root REAL-PATH`, `spool PATH`, and `old`
# if there is something already.
verb_file_t_place() { # SESSION INCARNATION PATH ID
  hello "$2"
  locate "$1" "$3"
  once "$4.place" place "$4"
}

place() { # ID
  local said root
  local -a old
  need_tar
  if ! said=$(mkdir -p -- "$path" 2>&1); then
    [[ $said != *': File exists' ]] || said='Not a directory'
    fail "$path" "$said"
  fi
  IFS= read -r -d '' root < <(realpath -z -- "$path")
  shopt -s dotglob
  old=("$root"/*)
  note "$1" "$root/.sandboxsync-$1.tmp"
  if ! said=$(umask 077 && mkdir -p -- "$root/.sandboxsync-$1.tmp/new" 2>&1); then
    drop "$1"
    fail "$path" "$said"
  fi
  tell_text "$root"
  printf 'root %s\n' "$told"
  tell_text "$root/.sandboxsync-$1.tmp"
  printf 'spool %s\n' "$told"
  ((${#old[@]} == 0)) || printf 'old\n'
}

# Unpacks from three files in base64, or `-` where they were put into the spool: `files`, an archive of regular files
# alone; `places`, what the archive has where, three texts each with a NUL behind it: `d NAME -` for the directories,
# parents first, `d NAME member` for those whose facts it has, `l NAME -` for symlinks, `h NAME SOURCE` for hard links; `rest`, an archive of directories and symlinks.
verb_file_t_unpack() { # INCARNATION ID ROOT FILES PLACES REST
  hello "$1"
  take "$3"
  once "$2.unpack" unpack "$2" "${texts[0]}" "${@:4}"
}

unpack() { # ID ROOT FILES PLACES REST
  local id=$1 root=$2 spool=$2/.sandboxsync-$1.tmp name said i
  local -a places special=()
  # shellcheck disable=SC2064  # now
  trap "drop '$id'" EXIT
  shift 2
  for name in files places rest; do
    [[ $1 == - ]] || printf '%s' "$1" | base64 -d >"$spool/$name"
    shift
  done
  cd -- "$root" || fail "$root" 'No such file or directory'
  said=$(extract "$spool/files" "$spool/new") || fail "$root" "${said%%$'\n'*}"
  mapfile -d '' -t places <"$spool/places"
  clear_places
  merge "$spool/new" "$root"
  link_files
  said=$(extract "$spool/rest" "$root") || fail "$root" "${said%%$'\n'*}"
  for ((i = 0; i < ${#special[@]}; i += 2)); do
    chmod "${special[i]}" -- "${special[i + 1]}"
  done
}

extract() { # ARCHIVE DIRECTORY
  tar --extract --file="$1" --directory="$2" --no-same-owner --same-permissions 2>&1
}

# A directory takes the place of a symlink, never of a file; nothing takes the place of a directory. The special bits of
# directories that are there, which are not the archive's, are kept in `special`.
clear_places() {
  local i name
  for ((i = 0; i < ${#places[@]}; i += 3)); do
    name=./${places[i + 1]}
    if [[ ${places[i]} == d ]]; then
      if [[ -L $name ]]; then
        rm -f -- "$name"
      elif [[ -d $name ]]; then
        [[ ! -u $name ]] || special+=(u+s "$name")
        [[ ! -g $name ]] || special+=(g+s "$name")
        [[ ! -k $name ]] || special+=(+t "$name")
        # It gets its own mode again when all is in it.
        [[ ${places[i + 2]} != member || -r $name && -w $name && -x $name ]] || chmod u+rwx -- "$name"
      elif [[ -e $name ]]; then
        fail "$root/${name:2}" 'Not a directory'
      fi
    elif [[ -d $name && ! -L $name ]]; then
      fail "$root/${name:2}" 'Is a directory'
    fi
  done
}

# Moves all that a directory holds, files and directories, into another: FROM TO
merge() {
  local entry said
  local -a entries=() move=()
  shopt -s dotglob
  entries=("$1"/*)
  for entry in "${entries[@]}"; do
    if [[ -d $entry && -d $2/${entry##*/} ]]; then
      merge "$entry" "$2/${entry##*/}"
    else
      move+=("$entry")
    fi
  done
  ((${#move[@]})) || return 0
  said=$(printf '%s\0' "${move[@]}" | xargs -0 mv -f -t "$2" -- 2>&1) || fail "$2" "${said%%$'\n'*}"
}

# A hard link is made only to a regular file that no symlink leads to.
link_files() {
  local i source part rest directory said
  for ((i = 0; i < ${#places[@]}; i += 3)); do
    [[ ${places[i]} == h ]] || continue
    source=. rest=${places[i + 2]}
    while [[ -n $rest ]]; do
      part=${rest%%/*}
      rest=${rest#"$part"}
      rest=${rest#/}
      source+=/$part
      [[ ! -L $source ]] || rest='' part=''
    done
    tell_text "${places[i + 1]}"
    [[ -n $part && -f $source ]] || die "no-source $told"
    directory=./${places[i + 1]}
    directory=${directory%/*}
    if [[ ! -d $directory ]]; then
      said=$(mkdir -p -- "$directory" 2>&1) || fail "$root/$directory" "$said"
    fi
    if [[ ! $source -ef ./${places[i + 1]} ]]; then
      said=$(ln -f -P -T -- "$source" "./${places[i + 1]}" 2>&1) || fail "$root/${places[i + 1]}" "$said"
    fi
  done
}
