# shellcheck shell=bash
# Puts the host into a sandbox: install.bash VERSION WORKSPACE (NAME BASE64)...
#
# Its directory is this user's alone: never a predictable name where everybody may write, nor in the workspace.
set -eu
umask 077
version=$1 workspace=$2
shift 2
base=
for place in /run/sandboxsync-host "${XDG_RUNTIME_DIR:-}/sandboxsync-host" "${HOME:-}/.cache/sandboxsync-host"; do
  case $place/ in
    "$workspace"/*) continue ;;
    /sandboxsync-host/ | /.cache/*) continue ;;
  esac
  if mkdir -p -- "$place" 2>/dev/null && [[ -O $place && -w $place && ! -L $place ]]; then
    base=$place
    break
  fi
done
if [[ -z $base ]]; then
  echo '!no-place'
  exit 0
fi
chmod 700 "$base"
mkdir -p "$base/jobs" "$base/sessions" "$base/processes" "$base/parts" "$base/answers"
[[ -p $base/never ]] || mkfifo "$base/never" 2>/dev/null || true
new=$(mktemp -d "$base/.new.XXXXXXXX")
mkdir "$new/place"
while (($# > 1)); do
  printf '%s' "$2" | base64 -d >"$new/$1"
  shift 2
done
for pair in b:before n:enter x:leave a:after; do
  cp "$new/${pair#*:}.bash" "$new/place/${pair%:*}"
done
if [[ ! -e $base/incarnation ]]; then
  head -c 8 /dev/urandom | base64 >"$new/incarnation"
  ln "$new/incarnation" "$base/incarnation" 2>/dev/null || true
fi
mv -T "$new" "$base/$version" 2>/dev/null || rm -rf -- "$new"
echo 'sbx installed'
