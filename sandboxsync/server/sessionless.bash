# shellcheck shell=bash
# Runs a command as the service's container does without a session: by /bin/bash -c, in a process group of its own, and
# ends when nobody holds its output any more. Standard input holds, each ended by a NUL: the seconds that it may take or
# nothing, the command, and NAME=value for each variable of its own. Exit status: the command's; 124 when it was stopped.
mapfile -d '' -t given
exec 3> >(exec cat)
out=$!
exec 4> >(exec cat >&2)
err=$!
# What bash tells of jobs that were killed is nobody's output.
exec </dev/null 2>/dev/null
set -m
began=${EPOCHREALTIME/[.,]/}
(
  unset LANG LC_ALL
  for pair in "${given[@]:2}"; do
    # shellcheck disable=SC2163  # it holds the value too
    export "$pair"
  done
  exec /bin/bash -c "${given[1]}" >&3 2>&4 3>&- 4>&-
) &
child=$!
watch=
if [ -n "${given[0]}" ]; then
  (
    sleep "${given[0]}"
    kill -TERM -- "-$child"
    sleep 5
    kill -KILL -- "-$child"
  ) >/dev/null 3>&- 4>&- &
  watch=$!
fi
exec 3>&- 4>&-
wait "$child"
code=$?
if [ -n "$watch" ]; then
  # No trap tells it, because bash 5.2 may wait for ever after a wait that a trap broke off.
  if ((${EPOCHREALTIME/[.,]/} - began < 10#${given[0]/./}000)); then
    kill -KILL -- "-$watch"
    watch=
  else
    code=124
  fi
fi
for reader in "$out" "$err"; do
  wait "$reader"
  # Before version 5.1 bash waits only for the last of them.
  while kill -0 "$reader"; do
    sleep 0.01
  done
done
if [ -n "$watch" ]; then
  kill -KILL -- "-$watch"
fi
exit "$code"
