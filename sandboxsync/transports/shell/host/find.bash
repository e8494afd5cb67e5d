# shellcheck shell=bash
# Finds the host and asks it: find.bash VERSION WORKSPACE VERB ARGUMENT...; says `!missing` when there is none yet.
# shellcheck disable=SC2034 # for host.bash
version=$1 SANDBOXSYNC_WORKSPACE=$2
shift 2
for base in /run/sandboxsync-host "${XDG_RUNTIME_DIR:-}/sandboxsync-host" "${HOME:-}/.cache/sandboxsync-host"; do
  if [[ -O $base && -f $base/$version/host.bash ]]; then
    # shellcheck source=host.bash
    . "$base/$version/host.bash"
    exit
  fi
done
echo '!missing'
