"""Move 100 MB over HTTP, in an interpreter of its own; print seconds and memory as JSON.

``python -m benchmarks._http_files ours|bare download|upload bridge|container <where.json``
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

from benchmarks._bulk import peak
from benchmarks._http_bare import PIECE, bare
from benchmarks._http_server import Served
from sandboxsync import Sandbox

SIZE = 100_000_000
PATH = "/workspace/big.bin"


def ours(where: Served, dialect: str, way: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """Through the transport: what to measure, and what ends it."""
    transport = where.transport(dialect)
    sandbox = Sandbox(transport, "abc")

    def download() -> int:
        with sandbox.read_file_stream(PATH) as stream:
            return sum(map(len, stream))

    def upload() -> int:
        return sandbox.write_file(PATH, pieces(1 << 20)).size

    sandbox.exec("true")
    return download if way == "download" else upload, transport.close


def theirs(where: Served, dialect: str, way: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """With `requests`: an upload in pieces, for more is refused."""
    other = bare(where, dialect, "abc")

    def upload() -> int:
        for number, piece in enumerate(pieces(PIECE)):
            other.write(f"{PATH}.{number}", piece)
        return SIZE

    other.exec("true")
    return (lambda: other.read(PATH)) if way == "download" else upload, lambda: None


def pieces(size: int) -> list[bytes]:
    """What to upload, all of it the same bytes, so that it takes no memory."""
    piece = bytes(range(256)) * (size // 256)
    return [piece] * (SIZE // size) + [piece[: SIZE % size]]


def main() -> None:
    """Make the file that is read, and measure."""
    side, way, dialect = sys.argv[1:]
    where = Served(**json.load(sys.stdin))
    bare(where, dialect, "abc").exec(f"head -c {SIZE} /dev/urandom >{PATH}; rm -f {PATH}.*")
    move, end = {"ours": ours, "bare": theirs}[side](where, dialect, way)
    before = peak()
    start = time.perf_counter()
    size = move()
    seconds = time.perf_counter() - start
    assert size == SIZE, size
    end()
    print(json.dumps({"seconds": seconds, "memory": peak() - before}))


if __name__ == "__main__":
    main()
