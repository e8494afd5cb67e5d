"""`LocalTransport`: keeps the local sandboxes by id and spreads the calls over them."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import TracebackType
from typing import Literal

from sandboxsync import _archive
from sandboxsync._unset import Timeout, Unset
from sandboxsync.errors import (
    ConfigurationError,
    RequestTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    SessionTerminatedError,
)
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import (
    SYSTEM_CLOCK,
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
from sandboxsync.transports.local._channel import SupervisorGoneError
from sandboxsync.transports.local._check import check_bash, check_platform, check_workspace
from sandboxsync.transports.local._sandbox import LocalSandbox
from sandboxsync.transports.local._settings import (
    Bind,
    Limits,
    Settings,
    check_binds,
    check_isolation,
    check_limits,
)
from sandboxsync.transports.local._single import start_single
from sandboxsync.transports.local.files import Files

__all__ = ["LocalTransport"]


class LocalTransport(Transport):
    """Sandboxes on this machine.

    With `isolation="none"` there is no boundary: commands can do what this process can do. Each sandbox id has a
    private temporary directory that is removed at the end. With `workspace=DIR` there is one sandbox whatever the id,
    `DIR` is its workspace, and `DIR` stays.

    With `isolation="bubblewrap"` each sandbox is a container: `/workspace`, `/tmp` and home are its own and in memory,
    the system's programs are there to read, and nothing else of this machine is, but for `workspace=DIR` as
    `/workspace`, what `binds` names, and the network unless `network=False`. `binds` are `(source, target)` pairs or
    `Bind`s. `limits` bound what it may use up.

    Shells start from a clean environment: private `HOME` and `TMPDIR`, this process's `PATH` (isolated: as far as it is
    there), `LANG=C.UTF-8`, `TERM=dumb`, and the variables of this process that `inherit_env` names. `bash` is a program
    (looked up in `PATH`) of version 4.4 or later.

    Making one starts nothing that stays; the first isolated one of a process tries bubblewrap (about 30 ms). Safe for
    threads. Everything a sandbox holds ends with `Sandbox.destroy`, with `close`, with the interpreter, and within 2
    seconds when this process is killed. A forked child may go on using it: there each session continues on a new shell,
    and the child's end touches nothing of the parent's.

    Raises `ConfigurationError` when this is not Linux, when there is no such bash, when `workspace` is not a directory,
    for an isolation, bind or limit that makes no sense, for one that needs isolation and has none, and, saying why and
    what helps, when bubblewrap is missing or may not make a container here.
    """

    name = "LocalTransport"
    clock = SYSTEM_CLOCK
    capabilities = frozenset({Capability.OS_PROCESSES, Capability.BULK, Capability.NATIVE_PROGRAMS})

    def __init__(
        self,
        workspace: str | os.PathLike[str] | None = None,
        *,
        inherit_env: Sequence[str] = (),
        bash: str = "bash",
        isolation: Literal["none", "bubblewrap"] = "none",
        network: bool = True,
        binds: Sequence[Bind | tuple[str | os.PathLike[str], str]] = (),
        limits: Limits | None = None,
    ) -> None:
        check_platform()
        if isinstance(inherit_env, str) or not all(isinstance(name, str) for name in inherit_env):
            raise ConfigurationError("inherit_env takes a sequence of names of environment variables")
        isolated = check_isolation(isolation, network, binds, limits)
        self._settings = Settings(
            check_workspace(workspace),
            tuple(inherit_env),
            check_bash(bash),
            isolated,
            network,
            check_binds(binds),
            check_limits(limits),
        )
        if isolated:
            from sandboxsync.transports.local._bubblewrap import check_usable

            check_usable(self._settings)
        self._lock = threading.Lock()
        self._sandboxes: dict[str, _Entry] = {}
        self._closed = False
        _living.add(self)

    def __repr__(self) -> str:
        given = [] if self._settings.workspace is None else [repr(self._settings.workspace)]
        given += ["isolation='bubblewrap'"] if self._settings.isolated else []
        return f"LocalTransport({', '.join(given)})"

    def __enter__(self) -> LocalTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # The sandbox

    def workspace(self, sandbox_id: str) -> str:
        return self._sandbox(sandbox_id).workspace

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        sandbox = self._sandbox(sandbox_id)
        try:
            pending = sandbox.supervisor.ask({"do": "ping"})
            with contextlib.closing(pending):
                if pending.result(timeout) is None:
                    raise RequestTimeoutError(f"the sandbox did not answer within {timeout:g} s")
        except SupervisorGoneError:
            raise sandbox.gone() from None

    def destroy(self, sandbox_id: str) -> None:
        with self._lock:
            entry = self._sandboxes.pop(self._key(sandbox_id), None)
        if entry is not None:
            entry.end()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            entries = list(self._sandboxes.values())
            self._sandboxes.clear()
        with contextlib.ExitStack() as stack:
            for entry in entries:
                stack.callback(entry.end)

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
        if ref.session_id is None:
            timeout = request.default_timeout if isinstance(request.timeout, Unset) else request.timeout
            with _no_raw_error("cannot run a command here now"):
                return start_single(sandbox, ref.env, request, timeout)
        return sandbox.session(ref).run(request)

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        sandbox = self._meet(ref)
        snapshot, env = sandbox.snapshot(ref)
        return sandbox.processes.start(request, ref.session_id, env, snapshot)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return self._sandbox(sandbox_id).processes.all()

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._sandbox(sandbox_id).processes.get(process_id)

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._sandbox(sandbox_id).processes.wait(process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._sandbox(sandbox_id).processes.kill(process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return self._sandbox(sandbox_id).processes.forget(process_id)

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        return self._sandbox(sandbox_id).processes.follow(process_id, live)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        return self._sandbox(sandbox_id).probe_port(port, path, timeout)

    # Files

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        files, path = self._at(ref, path)
        return files.open_read(path, chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        files, path = self._at(ref, path)
        return files.write(path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        files, path = self._at(ref, path)
        return files.stat(path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        files, path = self._at(ref, path)
        return files.list(path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        files, path = self._at(ref, path)
        return files.mkdir(path, recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        files, path = self._at(ref, path)
        files.remove(path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        files, old = self._at(ref, old)
        files.rename(old, self._at(ref, new)[1])

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        files, path = self._at(ref, path)
        return _archive.pack(path, exclude, paths=files.paths)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        files, path = self._at(ref, path)
        _archive.unpack(chunks, path, paths=files.paths)

    # Inside

    def _key(self, sandbox_id: str) -> str:
        return sandbox_id if self._settings.workspace is None else ""

    def _sandbox(self, sandbox_id: str) -> LocalSandbox:
        """The sandbox of an id, started if need be; a new one in the place of one whose supervisor was killed."""
        key = self._key(sandbox_id)
        with self._lock:
            if self._closed:
                raise ConfigurationError("this LocalTransport is closed")
            entry = self._sandboxes.get(key)
            dead = entry if entry is not None and entry.is_lost() else None
            if entry is None or dead is not None:
                entry = self._sandboxes[key] = _Entry(self._settings)
        if dead is not None:
            dead.end()
        return entry.get()

    def _meet(self, ref: SessionRef) -> LocalSandbox:
        sandbox = self._sandbox(ref.sandbox_id)
        ref.meet(sandbox.incarnation)
        return sandbox

    def _at(self, ref: SessionRef, path: str) -> tuple[Files, str]:
        """The files of a sandbox, and the real path that a path of the API means."""
        sandbox = self._meet(ref)
        return sandbox.files, sandbox.resolve(path, sandbox.directory(ref))

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        for entry in self._sandboxes.values():
            entry.abandon()


class _Entry:
    """A sandbox that starts once, whoever asks first; the others wait for it (C2)."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._starting = threading.Lock()
        self._sandbox: LocalSandbox | None = None
        self._ended = False

    def get(self) -> LocalSandbox:
        sandbox = self._sandbox
        if sandbox is None:
            with self._starting:
                if self._ended:
                    raise SessionTerminatedError("the sandbox was ended", code="SANDBOX_RESTARTED")
                if self._sandbox is None:
                    with _no_raw_error("cannot start a local sandbox"):
                        self._sandbox = LocalSandbox(self._settings)
                sandbox = self._sandbox
        return sandbox

    def is_lost(self) -> bool:
        return self._sandbox is not None and self._sandbox.is_lost()

    def end(self) -> None:
        with self._starting:
            self._ended = True
        if self._sandbox is not None:
            self._sandbox.destroy()

    def abandon(self) -> None:
        self._starting = threading.Lock()
        if self._sandbox is not None:
            self._sandbox.abandon()


@contextlib.contextmanager
def _no_raw_error(what: str) -> Iterator[None]:
    """What the system refuses (descriptors, processes, space) is told as a sandbox that is not available."""
    try:
        yield
    except OSError as exc:
        if isinstance(exc, SandboxError):
            raise
        raise SandboxUnavailableError(f"{what}: {exc}") from exc


_living: weakref.WeakSet[LocalTransport] = weakref.WeakSet()


def _close_all() -> None:
    for transport in list(_living):
        try:
            transport.close()
        except Exception as exc:  # the interpreter is ending: say it, and end the others
            print(f"sandboxsync: closing {transport!r}: {exc}", file=sys.stderr)


def _after_fork() -> None:
    for transport in list(_living):
        transport._after_fork()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_after_fork)
