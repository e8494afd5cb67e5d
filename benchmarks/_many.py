"""Make many sandboxes in memory and run a command in each, in an interpreter of its own; print measures as JSON.

``python -m benchmarks._many COUNT``
"""

from __future__ import annotations

import json
import os
import sys
import time

from sandboxsync import FakeTransport, Sandbox


def resident() -> int:
    """The memory that this process has resident now, in bytes."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def measure(count: int) -> dict[str, float]:
    """Seconds, bytes and descriptors of `count` sandboxes: with a session in each, and when that has run a command."""
    with FakeTransport() as transport:
        with Sandbox(transport) as sandbox:
            sandbox.exec("true")  # what the first command loads is not part of any sandbox
        sandboxes = [Sandbox(transport) for _ in range(count)]
        memory, descriptors, start = resident(), len(os.listdir("/proc/self/fd")), time.perf_counter()
        sessions = [sandbox.create_session("main") for sandbox in sandboxes]
        made, made_memory = time.perf_counter() - start, resident() - memory
        start = time.perf_counter()
        for session in sessions:
            assert session.exec("true").success
        used, used_memory = time.perf_counter() - start, resident() - memory
        held = len(os.listdir("/proc/self/fd")) - descriptors
        start = time.perf_counter()
    return {
        "made": made,
        "made_memory": made_memory,
        "used": used,
        "used_memory": used_memory,
        "descriptors": held,
        "closed": time.perf_counter() - start,
    }


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
