"""The first program of an isolated sandbox, its process 1: finishes what bubblewrap began, then is the supervisor.

Imports nothing of the package; what it needs is in the file that the one argument names, as JSON. It begins as the
administrator of the sandbox, hides the Python that it runs on, bounds the file systems in memory, makes the directories
that clients speak through, and then gives up every power for good. Programs cannot look into it or trace it.

Of the directory `run` there are two views. Clients write through descriptors that this program hands over; for all in
the sandbox it is read-only, so that no name in it can be made to lead anywhere. FIFOs can be written all the same.
"""

from __future__ import annotations

import _frozen_importlib_external
import ctypes
import json
import marshal
import os
import resource
import sys

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
MNT_DETACH = 2
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 4, 24, 47, 4
CAPABILITY_VERSION = 0x20080522
KEYCTL = {"x86_64": 250, "aarch64": 219}
KEYCTL_JOIN_SESSION_KEYRING = 1
LEAST_INODES = 1024

libc = ctypes.CDLL(None, use_errno=True)


def check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    texts = (source and source.encode(), target.encode(), kind and kind.encode())
    check(libc.mount(*texts, ctypes.c_ulong(flags), data.encode()), f"mount {target}")


def hide_python(directory: str) -> None:
    """Take away the Python that only this program needs; what is loaded of it stays."""
    check(libc.umount2(directory.encode(), MNT_DETACH), f"umount {directory}")
    os.rmdir(directory)


def bound(path: str, size: int) -> None:
    """Bound a file system in memory by bytes, and by files, each of which takes some too."""
    kept = os.statvfs(path).f_flag & (MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount(None, path, None, MS_REMOUNT | kept, f"size={size},nr_inodes={max(LEAST_INODES, size // 4096)}")


def make_run(run: str, size: int) -> list[int]:
    """Make the directories that clients speak through; returns descriptors of their writable views."""
    opened = []
    flags = MS_NOSUID | MS_NODEV | MS_NOEXEC
    for directory, options in ((run, "mode=755"), (f"{run}/logs", f"mode=755,size={size}")):
        os.makedirs(directory, exist_ok=True)
        mount("tmpfs", directory, "tmpfs", flags, options)
        opened.append(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    os.mkdir(f"{run}/scripts")
    mount(run, run, None, MS_BIND | MS_REC)
    for directory in (run, f"{run}/logs"):
        mount(None, directory, None, MS_BIND | MS_REMOUNT | MS_RDONLY | flags)
    return opened


def give_up_powers() -> None:
    """Drop every capability, for this process and all that come from it, and be closed to their eyes."""
    with open("/proc/sys/kernel/cap_last_cap", "rb") as file:
        last = int(file.read())
    for number in range(last + 1):
        check(libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0), "prctl(PR_CAPBSET_DROP)")
    check(libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "prctl(PR_CAP_AMBIENT)")
    check(libc.capset((ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()), "capset")
    check(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "prctl(PR_SET_DUMPABLE)")


def leave_keyring() -> None:
    """Leave the keys of the user who started this."""
    number = KEYCTL.get(os.uname().machine)
    if number is not None:
        # Without keys in the kernel there are none to leave.
        libc.syscall(ctypes.c_long(number), ctypes.c_long(KEYCTL_JOIN_SESSION_KEYRING), None)


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        given = json.load(file)
    with open(given["supervisor"], "rb") as file:
        program = file.read()
    compiled = program.startswith(_frozen_importlib_external.MAGIC_NUMBER)
    code = marshal.loads(program[16:]) if compiled else compile(program, "_supervisor.py", "exec")
    supervisor: dict[str, object] = {"__name__": "supervisor"}
    exec(code, supervisor)
    supervisor["prepare"]()  # type: ignore[operator]
    limits: list[tuple[int, int, int]] = supervisor["limits"]  # type: ignore[assignment]
    supervisor["oom_score"] = 600  # and programs before this
    limits.extend((getattr(resource, kind), value, value) for kind, value in given["limits"].items())
    with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("300")  # when the machine runs out of memory, this goes before what uses it
    leave_keyring()
    if given["python"] is not None:
        hide_python(given["python"])
    for path, text in given["files"].items():
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    os.chmod("/tmp", 0o1777)
    bound("/", given["disk"])
    bound("/dev", given["shm"])
    shared = make_run(given["run"], given["disk"])
    root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    give_up_powers()
    handed = [root, *map(os.dup, shared)]
    supervisor["serve"](supervisor["Supervisor"](None, handed, shared))  # type: ignore[operator]


if __name__ == "__main__":
    main()
