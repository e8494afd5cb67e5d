"""The processes of this machine as `/proc` shows them, seen from outside of any sandbox."""

from __future__ import annotations

import os
from pathlib import Path


def parents() -> dict[int, tuple[int, str]]:
    """Each process of this machine, with its parent and the time it was born (a pid may be used again)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            found[int(entry.name)] = (int(fields[1]), fields[19])
    return found


def descendants(pid: int) -> dict[int, str]:
    """The processes below *pid*, zombies too, with the times they were born."""
    table = parents()
    found: dict[int, str] = {}
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child, (its_parent, born) in table.items():
            if its_parent == parent and child not in found:
                found[child] = born
                waiting.append(child)
    return found


def still_there(processes: dict[int, str]) -> list[int]:
    """Those of *processes* that have not gone yet."""
    table = parents()
    return [pid for pid, born in processes.items() if pid in table and table[pid][1] == born]


def mentioning(text: str) -> list[int]:
    """The processes of this machine that have *text* in their environment or command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                seen = (entry / "environ").read_bytes() + (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in seen:
                found.append(int(entry.name))
    return found


def descriptors() -> int:
    """How many this process has open."""
    return len(os.listdir("/proc/self/fd"))
