# shellcheck shell=bash
# shellcheck disable=SC2154  # what sources this has set them
# The end of everything here: what host.bash sources for the verb `end`.
# shellcheck source=commands.bash
. "$here/commands.bash"
# shellcheck source=sessions.bash
. "$here/sessions.bash"

verb_end() { # INCARNATION: sessions, commands, processes; who knew them is told that all was restarted
  local session job new
  hello "$1"
  new=$(mktemp "$base/.new.XXXXXXXX")
  head -c 8 /dev/urandom | base64 >"$new"
  mv -f -- "$new" "$base/incarnation"
  for session in "$base"/sessions/s_*; do
    end_session || true
  done
  for job in "$jobs"/*.where "$base"/processes/*.where; do
    job=${job%.where}
    [[ -e $job.status ]] || end_job kill
  done
  rm -f -- "$base"/processes/* "$jobs"/*
}
