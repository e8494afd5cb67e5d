# shellcheck shell=sh
# Clone a repository, whole or not at all. The code is plain sh and runs in a process of its own.
#
#   clone DIRECTORY GIT-ARGUMENTS...   the arguments of git but for the directory
#   undo BEFORE MADE                   remove what a clone that was stopped had said it would make
#
# Answers on standard output, each field ended by NUL, before anything is made first "new" or "empty" (what the
# directory was) and the highest directory to be made; then "done", the branch and the path up to its last newline, or
# "failed" and git's exit code. Instead of all that, "missing" (no git) or "taken" (the directory). The exit code of
# clone is 0 whatever happens, for the session may have set -e.
set +e

undo() {
    case $1 in
        new) rm -rf -- "$2" ;;
        empty) rm -rf -- "${2:?}"/* "$2"/.[!.]* "$2"/..?* ;;
    esac
}

# The directory may belong to another user than the one that runs this.
here() {
    git -c safe.directory='*' -C "$dir" "$@"
}

if [ "$1" = undo ]; then
    undo "$2" "$3"
    exit
fi

dir=$2
shift 2
case $dir in
    .) dir=$PWD ;;
    /*) ;;
    *) dir=${PWD%/}/$dir ;;
esac
unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE GIT_OBJECT_DIRECTORY GIT_NAMESPACE
export LC_ALL=C LANGUAGE='' GIT_TERMINAL_PROMPT=0 GIT_ASKPASS='' SSH_ASKPASS_REQUIRE=never GIT_TRACE_REDACT=1
export GIT_ALLOW_PROTOCOL=https:http:ssh:git:file

made=$dir
if ! command -v git >/dev/null; then
    printf 'missing\0'
    exit 0
elif [ -d "$dir" ] && [ -z "$(ls -A -- "$dir")" ]; then
    before=empty
elif [ -e "$dir" ] || [ -L "$dir" ]; then
    printf 'taken\0'
    exit 0
else
    before=new
    while above=${made%/*} && [ -n "$above" ] && ! [ -e "$above" ] && ! [ -L "$above" ]; do
        made=$above
    done
fi
printf '%s\0%s\0' "$before" "$made"

git "$@" "$dir" </dev/null >/dev/null
status=$?
if [ "$status" -ne 0 ]; then
    undo "$before" "$made"
    printf 'failed\0%s\0' "$status"
    exit 0
fi
branch=$(here symbolic-ref --short -q HEAD || here rev-parse --short HEAD)
printf 'done\0%s\0' "$branch"
cd -- "$dir" && pwd -P
exit 0
