"""A bound on the memory of a sandbox as a whole: a control group, where this process may make one.

Whoever started this process must have given it a part of the tree (delegation, as `systemd-run --user --scope -p
Delegate=yes` or a container does), or it is the administrator's. Nothing is changed for this process itself: in version
2 the new group lies beside its own, and so its parent must have the memory controller on.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator, Sequence

import attrs

__all__ = ["MemoryGroup", "find_place"]

_STARTER = os.path.join(os.path.dirname(__file__), "grouped.bash")


@attrs.frozen
class Place:
    """A directory of the tree in which groups can be made, and the files that bound the memory of one."""

    directory: str
    limit: str
    swap: str


def find_place(process: str = "/proc/self") -> Place | None:
    """Where groups with a bound on memory can be made; `None` where that is not for this process."""
    mounts = list(_mounts(f"{process}/mountinfo"))
    with open(f"{process}/cgroup", encoding="utf-8") as file:
        lines = [line.rstrip("\n").split(":", 2) for line in file]
    for number, controllers, path in lines:
        for kind, options, root, mounted in mounts:
            if number == "0" and kind == "cgroup2":
                place = _second_version(mounted, root, path)
            elif kind == "cgroup" and "memory" in controllers.split(",") and "memory" in options:
                place = _first_version(mounted, root, path)
            else:
                continue
            if place is not None:
                return place
    return None


def _mounts(path: str) -> Iterator[tuple[str, list[str], str, str]]:
    """The kind, the options, the root in its tree and the directory of each mount of control groups."""
    with open(path, encoding="utf-8") as file:
        for line in file:
            first, _, second = line.partition(" - ")
            kind, _, options = second.split()[:3]
            if kind in ("cgroup", "cgroup2"):
                root, mounted = first.split()[3:5]
                yield kind, options.split(","), root, mounted


def _first_version(mounted: str, root: str, path: str) -> Place | None:
    directory = _below(mounted, root, path)
    if directory is None or not os.access(directory, os.W_OK):
        return None
    return Place(directory, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")


def _second_version(mounted: str, root: str, path: str) -> Place | None:
    directory = _below(mounted, root, os.path.dirname(path))
    if directory is None:
        return None
    try:
        with open(f"{directory}/cgroup.subtree_control", encoding="ascii") as file:
            on = file.read().split()
    except FileNotFoundError:
        return None
    if "memory" not in on or not all(os.access(name, os.W_OK) for name in (directory, f"{directory}/cgroup.procs")):
        return None
    return Place(directory, "memory.max", "memory.swap.max")


def _below(mounted: str, root: str, path: str) -> str | None:
    """The directory of a group, if what is mounted has it."""
    relative = os.path.relpath(path, root)
    directory = os.path.normpath(os.path.join(mounted, relative))
    return directory if not relative.startswith("..") and os.path.isdir(directory) else None


class MemoryGroup:
    """A group for one container. Who starts that as `removed_after` says need not remove it."""

    def __init__(self, place: Place, limit: int) -> None:
        """Name it, for a bound of so many bytes of memory and no swap beyond them."""
        self._place = place
        self._limit = limit
        self._directory = os.path.join(place.directory, f"sandboxsync-{os.getpid()}-{secrets.token_hex(4)}")

    def removed_after(self, argv: Sequence[str], bash: str) -> list[str]:
        """How a program is to be started so that the group is removed once that and all in the group have ended."""
        # Sourced, for a shell keeps the file open that it runs.
        return [bash, "--norc", "--noprofile", "-c", '. "$0"', _STARTER, self._directory, *argv]

    def make(self, pid: int) -> None:
        """Make it, and put a process into it; those that come from it will be, too. Raises `OSError`."""
        os.mkdir(self._directory)
        self._write(self._place.limit, self._limit)
        # Not every kernel counts swap; in the first version the number is of both together.
        with contextlib.suppress(FileNotFoundError):
            self._write(self._place.swap, self._limit if "memsw" in self._place.swap else 0)
        self._write("cgroup.procs", pid)

    def _write(self, name: str, value: int) -> None:
        fd = os.open(os.path.join(self._directory, name), os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(fd, str(value).encode())
        finally:
            os.close(fd)
