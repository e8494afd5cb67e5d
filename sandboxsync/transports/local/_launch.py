"""Starts bubblewrap for the system's administrator, as a user who is nobody else and owns nothing.

Imports nothing of the package, and little else, for each sandbox waits for it. Its arguments: the number of the user;
paths, each with whether its files are to look like the user's (no, may, must); `--`; what to start.

Limits on processes do not bind the administrator, and files of his would be the sandbox's own. So the sandbox runs as a
user without any powers, which is what its root is outside. That user may not reach all that the sandbox is to see: such
paths are opened here first, and lie under `/tmp` for bubblewrap, in a view of the file systems that only it has. What
the caller shares is shown with its owner's files as the user's.
"""

from __future__ import annotations

import ctypes
import os
import sys

LAST = 9
"""The highest descriptor that was passed on purpose."""
CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_PRIVATE, MS_REC = 1 << 18, 1 << 14
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
"""The same numbers on every architecture, as of all calls since Linux 5.1."""
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH, MOUNT_ATTR_IDMAP = 1, 4, 0x00100000

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
    return result


def copy_of(path: str) -> int:
    """A mount of what is at a path, and is nowhere yet."""
    flags = ctypes.c_uint(OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE)
    return check(libc.syscall(OPEN_TREE, AT_FDCWD, os.fsencode(path), flags), f"open {path}")


def show_as(mount: int, path: str, user: int) -> None:
    """Show the files of the owner of a path as the user's, and take the user's as the owner's."""
    status = os.stat(path)
    said, says = os.pipe()
    asked, asks = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(asks)
        libc.unshare(CLONE_NEWUSER)
        os.write(says, b".")
        os.read(asked, 1)
        os._exit(0)
    os.read(said, 1)
    for name, inside in (("uid_map", status.st_uid), ("gid_map", status.st_gid)):
        with open(f"/proc/{pid}/{name}", "w", encoding="ascii") as file:
            file.write(f"{inside} {user} 1")
    namespace = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    os.close(asks)
    os.waitpid(pid, 0)
    attributes = MountAttributes(MOUNT_ATTR_IDMAP, 0, 0, namespace)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    check(
        libc.syscall(MOUNT_SETATTR, mount, b"", AT_EMPTY_PATH, ctypes.byref(attributes), size),
        f"give the files in {path} to the sandbox",
    )


def main() -> None:
    end = sys.argv.index("--")
    user, sources, argv = int(sys.argv[1]), sys.argv[2:end], sys.argv[end + 1 :]
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > LAST:
            os.closerange(fd, fd + 1)  # which does not mind that of the directory, closed by now
    program = os.open(argv[0], os.O_RDONLY | os.O_CLOEXEC)
    check(libc.unshare(CLONE_NEWNS), "unshare(CLONE_NEWNS)")
    check(libc.mount(None, b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None), "mount / private")
    mounts = []
    for path, owned in zip(sources[::2], sources[1::2], strict=True):
        mount = copy_of(path)
        if owned != "no":
            try:
                show_as(mount, path, user)
            except OSError:
                # Not every file system can; what is only read can be so by whom its modes allow it.
                if owned == "must":
                    raise
        mounts.append((mount, os.path.isdir(path)))
    check(libc.mount(b"tmpfs", b"/tmp", b"tmpfs", ctypes.c_ulong(0), b"mode=755"), "mount /tmp")
    for number, (mount, is_directory) in enumerate(mounts):
        target = f"/tmp/{number}"
        if is_directory:
            os.mkdir(target)
        else:
            os.close(os.open(target, os.O_CREAT | os.O_WRONLY))
        arguments = (mount, b"", AT_FDCWD, target.encode(), MOVE_MOUNT_F_EMPTY_PATH)
        check(libc.syscall(MOVE_MOUNT, *arguments), f"move {target}")
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    os.execve(program, argv, os.environ)


if __name__ == "__main__":
    try:
        main()
    except OSError as exc:
        sys.exit(f"{exc.filename}: {exc.strerror}")
