# Starts a container and, when that has ended, removes the control group that it was put into: whoever made both may
# have been killed by then. Arguments: the directory of the group, and what to start.
group=$1
shift
cd /
"$@" &
exec 2>/dev/null
for fd in /proc/self/fd/*; do
  fd=${fd##*/}
  if ((fd > 2)); then exec {fd}>&-; fi
done
wait
# Should somebody have killed bubblewrap, what it started ends with the sandbox.
while read -r _ <"$group/cgroup.procs"; do sleep 0.1; done
# A process that has ended may be counted for a moment.
tries=100
until [ ! -d "$group" ] || rmdir -- "$group" || ((--tries == 0)); do sleep 0.1; done
