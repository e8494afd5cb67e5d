"""Read a command's large output to its end, in an interpreter of its own; print seconds and memory as JSON.

``python -m benchmarks._bulk ours|baseline``
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

SIZE = 1_000_000_000
COMMAND = f"head -c {SIZE} /dev/zero"


def peak() -> int:
    """The most memory that this process has had resident, in bytes.

    Not `getrusage`: there a child begins with the peak of the process that it was forked from.
    """
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def ours() -> tuple[float, int, int]:
    """Through `exec_stream`: seconds, bytes read, bytes of memory more than before."""
    from sandboxsync import LocalTransport, Sandbox, Stdout

    with LocalTransport() as transport, Sandbox(transport) as sandbox, sandbox.session() as session:
        session.exec("true")
        before, count = peak(), 0
        start = time.perf_counter()
        with session.exec_stream(COMMAND) as stream:
            for event in stream:
                if isinstance(event, Stdout):
                    count += len(event.data)
        return time.perf_counter() - start, count, peak() - before


def baseline() -> tuple[float, int, int]:
    """Through a pipe, 64 KiB at a time."""
    before, count = peak(), 0
    start = time.perf_counter()
    with subprocess.Popen(["bash", "-c", COMMAND], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        while data := os.read(fd, 1 << 16):
            count += len(data)
    return time.perf_counter() - start, count, peak() - before


if __name__ == "__main__":
    seconds, count, memory = {"ours": ours, "baseline": baseline}[sys.argv[1]]()
    assert count == SIZE, count
    print(json.dumps({"seconds": seconds, "memory": memory}))
