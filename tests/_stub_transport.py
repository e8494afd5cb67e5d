"""A transport without a sandbox: it notes every call and answers what a test has told it to."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from typing import Any

import attrs

from sandboxsync._unset import Timeout
from sandboxsync.errors import ProcessNotFoundError, SandboxFileNotFoundError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import (
    SYSTEM_CLOCK,
    ByteStream,
    Capability,
    CommandRequest,
    CommandStream,
    Environment,
    Exited,
    LogStream,
    Output,
    ProcessInfo,
    ProcessRequest,
    SessionRef,
    SessionSpec,
    Transport,
)

NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)


def out(data: bytes) -> Output:
    """Standard output."""
    return Output("stdout", data)


def err(data: bytes) -> Output:
    """Standard error."""
    return Output("stderr", data)


class StubStream(CommandStream):
    """Hands out a list of items; raises those that are exceptions, calls those that can be called."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.started_at = NOW
        self.items = list(items)
        self.reads = 0
        self.kills = 0
        self.closes = 0

    def read(self) -> Output | Exited:
        if self.closes or not self.items:
            raise ValueError("the stream is over")
        self.reads += 1
        item = self.items.pop(0)
        if callable(item):
            item = item()
        if isinstance(item, BaseException):
            raise item
        assert isinstance(item, (Output, Exited))
        return item

    def kill(self) -> None:
        self.kills += 1
        self.items[:] = [Exited(143, 0.5)]

    def close(self) -> None:
        self.closes += 1

    def abandon(self) -> None:
        self.closes += 1


class StubLogs(LogStream):
    """Hands out a list of items; ``None`` is a moment in which nothing comes."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items if isinstance(items, Iterator) else list(items)
        self.timeouts: list[float | None] = []
        self.closed = False

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        self.timeouts.append(timeout)
        item = next(self.items, None) if isinstance(self.items, Iterator) else None
        if isinstance(self.items, list) and self.items:
            item = self.items.pop(0)
        assert timeout is not None or item is not None, "would wait for ever"
        if isinstance(item, BaseException):
            raise item
        assert item is None or isinstance(item, (Output, Exited))
        return item

    def close(self) -> None:
        self.closed = True


class StubBytes(ByteStream):
    """A file being read."""

    def __init__(self, path: str, chunks: Sequence[Any]) -> None:
        self.path = path
        self.size = sum(len(chunk) for chunk in chunks if isinstance(chunk, bytes))
        self.chunks = list(chunks)
        self.closed = False

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if not self.chunks:
            raise StopIteration
        chunk = self.chunks.pop(0)
        if isinstance(chunk, BaseException):
            raise chunk
        assert isinstance(chunk, bytes)
        return chunk

    def close(self) -> None:
        self.closed = True


def info(path: str, kind: Any = "file", size: int = 0, relative: str | None = None) -> FileInfo:
    """What lies at an absolute path."""
    name = path.rpartition("/")[2]
    return FileInfo(name, path, name if relative is None else relative, kind, size, NOW, 0o644)


def process(id: str = "p1", **changes: Any) -> ProcessInfo:
    """A process that runs, but for what a test says."""
    return attrs.evolve(ProcessInfo(id, 42, "sleep 9", "running", NOW, None, None, "default"), **changes)


class StubTransport(Transport):
    """``calls`` holds ``(method, arguments)``; ``fail`` by method what it raises instead of answering."""

    name = "StubTransport"
    capabilities: frozenset[Capability] = frozenset()
    clock = SYSTEM_CLOCK

    def __init__(self, *scripts: Iterable[Any]) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.fail: dict[str, BaseException] = {}
        self.scripts = [list(script) for script in scripts]
        self.streams: list[StubStream] = []
        self.refs: list[SessionRef] = []
        self.before: Callable[[], object] = lambda: None
        self.files: dict[str, FileInfo] = {}
        self.content: dict[str, Sequence[Any]] = {}
        self.written = b""
        self.processes: dict[str, ProcessInfo] = {}
        self.log_items: Iterable[Any] = []
        self.logs: list[StubLogs] = []
        self.ports: list[int | None] = []

    @property
    def names(self) -> list[str]:
        """The methods that were called, in order."""
        return [name for name, _ in self.calls]

    def last(self, name: str) -> tuple[Any, ...]:
        """The arguments of the last call of a method."""
        return [arguments for called, arguments in self.calls if called == name][-1]

    def _note(self, name: str, *arguments: Any) -> None:
        if arguments and isinstance(arguments[0], SessionRef):
            self.refs.append(arguments[0])
            arguments = (attrs.evolve(arguments[0], env=dict(arguments[0].env)), *arguments[1:])
        self.calls.append((name, arguments))
        self.before()
        if name in self.fail:
            raise self.fail[name]

    def workspace(self, sandbox_id: str) -> str:
        self._note("workspace", sandbox_id)
        return "/workspace"

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._note("ping", sandbox_id, timeout)

    def destroy(self, sandbox_id: str) -> None:
        self._note("destroy", sandbox_id)

    def close(self) -> None:
        self._note("close")

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        self._note("create_session", ref, spec)

    def delete_session(self, ref: SessionRef) -> None:
        self._note("delete_session", ref)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        self._note("list_sessions", sandbox_id)
        return ["s2", "default", "s1"]

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._note("set_session_env", ref, dict(changes), timeout)

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        self._note("run", ref, request)
        stream = StubStream(self.scripts.pop(0) if self.scripts else [Exited(0, 0.25)])
        self.streams.append(stream)
        return stream

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        self._note("start_process", ref, request)
        started = process(request.process_id, command=request.command, session_id=ref.session_id)
        self.processes[request.process_id] = started
        return started

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        self._note("list_processes", sandbox_id)
        return list(self.processes.values())

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        self._note("get_process", sandbox_id, process_id)
        if process_id not in self.processes:
            raise ProcessNotFoundError(process_id=process_id)
        return self.processes[process_id]

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        self._note("wait_process", sandbox_id, process_id, timeout)
        if timeout and self.processes[process_id].status == "running":
            time.sleep(min(timeout, 0.02))
        return self.processes[process_id]

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._note("kill_process", sandbox_id, process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        self._note("forget_process", sandbox_id, process_id)
        return self.processes.pop(process_id, None) is not None

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        self._note("follow_logs", sandbox_id, process_id)
        self.logs.append(StubLogs(self.log_items))
        return self.logs[-1]

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        self._note("probe_port", sandbox_id, port, path, timeout)
        return self.ports.pop(0)

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        self._note("read_file", ref, path, chunk_size)
        return StubBytes(path, self.content.get(path, ()))

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        self._note("write_file", ref, path)
        self.written = b"".join(chunks)
        return info(path, size=len(self.written))

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        self._note("stat", ref, path, follow_symlinks)
        if path not in self.files:
            raise SandboxFileNotFoundError(filename=path)
        return self.files[path]

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        self._note("list_files", ref, path, recursive)
        return list(self.files.values())

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        self._note("make_directory", ref, path, recursive)
        return f"/workspace/{path}"

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self._note("remove_file", ref, path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self._note("rename", ref, old, new)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        self._note("read_tree", ref, path, exclude)
        return iter(())

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self._note("write_tree", ref, path)
