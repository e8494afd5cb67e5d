"""The transport: sandboxes in memory, by id."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType

from sandboxsync._unset import Timeout, Unset
from sandboxsync.errors import ConfigurationError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import (
    ByteStream,
    Capability,
    CommandRequest,
    CommandStream,
    Environment,
    LogStream,
    ProcessInfo,
    ProcessRequest,
    SessionRef,
    SessionSpec,
    Transport,
)
from sandboxsync.transports.fake._bashkit import at_exit, bashkit
from sandboxsync.transports.fake._calls import RecordedCommand, about
from sandboxsync.transports.fake._clock import FakeClock
from sandboxsync.transports.fake._command import FakeCommand
from sandboxsync.transports.fake._controls import FakeControls
from sandboxsync.transports.fake._engine import Engine
from sandboxsync.transports.fake._faults import CutFile, intercepted
from sandboxsync.transports.fake._processes import FakeProcess
from sandboxsync.transports.fake._sandbox import FakeSandbox

__all__ = ["FakeTransport"]


@intercepted
class FakeTransport(FakeControls, Transport):
    """Sandboxes in memory: a real bash language, files and time, without processes, network or disk.

    `clock` is the clock that all its sandboxes live by, a new one if it is left out.

    Making one starts nothing. Safe for threads. A forked child may go on using it, on copies of the files and on new
    shells. Raises `ImportError` without bashkit, which the extra `fake` brings.

    For tests: `on`, `command` and `process` say what programs do, `calls` is what was run, `files` and
    `sandbox(id).files` are the files, and `fail`, `unavailable`, `disk_full` and `latency` make calls fail or slow.
    """

    name = "FakeTransport"
    capabilities: frozenset[Capability] = frozenset()
    clock: FakeClock

    def __init__(self, *, clock: FakeClock | None = None) -> None:
        bashkit()
        super().__init__(FakeClock() if clock is None else clock)
        self._engine = Engine(self.clock)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, FakeSandbox] = {}
        self._closed = False
        _living.add(self)

    def __repr__(self) -> str:
        return "FakeTransport()"

    def __enter__(self) -> FakeTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # The sandbox

    def workspace(self, sandbox_id: str) -> str:
        return self._sandbox(sandbox_id).workspace

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._sandbox(sandbox_id)

    def destroy(self, sandbox_id: str) -> None:
        self._end(sandbox_id)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            sandboxes = list(self._sandboxes.values())
            self._sandboxes.clear()
        with contextlib.ExitStack() as stack:
            stack.callback(self._engine.close)
            for sandbox in sandboxes:
                stack.callback(sandbox.destroy)

    # Sessions

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        assert ref.session_id is not None
        self._meet(ref).create_session(ref.session_id, spec)

    def delete_session(self, ref: SessionRef) -> None:
        assert ref.session_id is not None
        self._meet(ref).delete_session(ref.session_id)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        return list(self._sandbox(sandbox_id).sessions)

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._meet(ref).session(ref).set_env(changes, timeout)

    # Commands

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        sandbox = self._meet(ref)
        call = self.calls.begin("exec", **about(ref, request))
        began = self.clock.monotonic()

        def begin(command: FakeCommand) -> None:
            call.notes = command.notes
            cut = self._faults.cut("run", ref.sandbox_id)
            if cut is not None:
                command.break_after(*cut)

        try:
            if ref.session_id is None:
                timeout = request.default_timeout if isinstance(request.timeout, Unset) else request.timeout
                command = sandbox.run_single(ref.env, request, timeout, begin)
            else:
                command = sandbox.session(ref).run(request, begin)
        except BaseException as exc:
            call.finish(self.clock.monotonic() - began, None, exc)
            raise
        return RecordedCommand(command, call)

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        sandbox = self._meet(ref)
        directory, env = sandbox.place(ref)

        def begin(process: FakeProcess) -> None:
            call = self.calls.begin("process", **about(ref, request), notes=process.notes)
            process.on_end = call.process_ended

        return sandbox.processes.start(request, ref.session_id, env, directory, begin)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return self._sandbox(sandbox_id).processes.all()

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._sandbox(sandbox_id).processes.get(process_id).info()

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._sandbox(sandbox_id).processes.wait(process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._sandbox(sandbox_id).processes.kill(process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return self._sandbox(sandbox_id).processes.forget(process_id)

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        return self._sandbox(sandbox_id).processes.follow(process_id, live)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        return self._sandbox(sandbox_id).processes.probe(port, path)

    # Files

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        sandbox, path = self._path(ref, path)
        stream = sandbox.files.open_read(path, chunk_size)
        cut = self._faults.cut("read_file", ref.sandbox_id, path=path)
        return stream if cut is None else CutFile(stream, *cut)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        sandbox, path = self._path(ref, path)
        return sandbox.files.write(path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        sandbox, path = self._path(ref, path)
        return sandbox.files.stat(path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        sandbox, path = self._path(ref, path)
        return sandbox.files.list(path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        sandbox, path = self._path(ref, path)
        return sandbox.files.mkdir(path, recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        sandbox, path = self._path(ref, path)
        sandbox.files.remove(path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        sandbox, old = self._path(ref, old)
        sandbox.files.rename(old, sandbox.resolve(new, sandbox.directory(ref)))

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        sandbox, path = self._path(ref, path)
        return sandbox.files.read_tree(path, exclude)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        sandbox, path = self._path(ref, path)
        sandbox.files.write_tree(path, chunks)

    # Inside

    def _sandbox(self, sandbox_id: str) -> FakeSandbox:
        """The sandbox of an id, made if need be."""
        with self._lock:
            if self._closed:
                raise ConfigurationError("this FakeTransport is closed")
            sandbox = self._sandboxes.get(sandbox_id)
            if sandbox is None:
                volume = self._template.clone(self.clock.time)
                sandbox = FakeSandbox(sandbox_id, self._engine, volume, self._scripts.programs)
                self._sandboxes[sandbox_id] = sandbox
            return sandbox

    def _all_sandboxes(self) -> list[FakeSandbox]:
        with self._lock:
            return list(self._sandboxes.values())

    def _end(self, sandbox_id: str) -> None:
        with self._lock:
            sandbox = self._sandboxes.pop(sandbox_id, None)
        if sandbox is not None:
            sandbox.destroy()

    def _meet(self, ref: SessionRef) -> FakeSandbox:
        sandbox = self._sandbox(ref.sandbox_id)
        ref.meet(sandbox.incarnation)
        return sandbox

    def _path(self, ref: SessionRef, path: str) -> tuple[FakeSandbox, str]:
        sandbox = self._meet(ref)
        return sandbox, sandbox.resolve(path, sandbox.directory(ref))

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self.clock.renew()
        self._engine.renew()
        self._renew_controls()
        for sandbox in self._sandboxes.values():
            sandbox.abandon()


_living: weakref.WeakSet[FakeTransport] = weakref.WeakSet()


def _close_all() -> None:
    for transport in list(_living):
        try:
            transport.close()
        except Exception as exc:  # the interpreter is ending: say it, and end the others
            print(f"sandboxsync: closing {transport!r}: {exc}", file=sys.stderr)


def _after_fork() -> None:
    for transport in list(_living):
        transport._after_fork()


at_exit(_close_all)
os.register_at_fork(after_in_child=_after_fork)
