"""`HTTPTransport`: sandboxes of a service, with sessions of our own in them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Literal

import attrs

from sandboxsync._unset import Timeout
from sandboxsync.errors import ConfigurationError
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
from sandboxsync.transports.http._connection import Connection
from sandboxsync.transports.http._events import HTTPEvent
from sandboxsync.transports.http._ports import probe_port
from sandboxsync.transports.http._retry import DEFAULT_POLICY, RetryPolicy
from sandboxsync.transports.http._timeouts import HTTPTimeouts
from sandboxsync.transports.http.dialects._bridge import BridgeDialect
from sandboxsync.transports.http.dialects._container import ContainerDialect
from sandboxsync.transports.http.dialects._detect import detect
from sandboxsync.transports.http.dialects._dialect import Dialect, RemoteSandbox
from sandboxsync.transports.http.hosted._files import HostedFiles
from sandboxsync.transports.http.hosted._host import Host
from sandboxsync.transports.http.hosted._sandbox import HostedSandbox

__all__ = ["HTTPTransport"]

_WORKSPACE = "/workspace"
_DIALECTS = ("auto", "bridge", "container")


@attrs.frozen
class _Sandbox:
    """What this process has of one sandbox."""

    remote: RemoteSandbox
    hosted: HostedSandbox
    files: HostedFiles


class _Process:
    """What one process has; a forked child makes its own, with locks that nobody holds."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sandboxes: dict[str, _Sandbox] = {}


class HTTPTransport(Transport):
    """Sandboxes of a service that is reached over HTTP: the bridge, or a container server directly.

    `base_url` is `http://` or `https://` with a host, and a port and a path if need be. `dialect` says what is there:
    `"bridge"`, `"container"`, or `"auto"`, which finds out with the first call. `api_key` is what the bridge wants; a
    container server wants none, and none is sent to it. A container server has one sandbox, whatever the id.

    `timeout` are the limits of requests and `retry` how often failed ones are repeated; neither bounds a command.
    `verify` is `True`, `False` or the path of a CA bundle; `proxies` maps `http`, `https` or `all` to URLs; `headers`
    are sent with each request. `on_event` is called with `RequestFinished` and `RetryScheduled`, in the thread of the
    request. A key for a host that is not this machine needs https, or `allow_insecure=True`.

    Sessions, commands and background processes are kept by a host of ours in the sandbox, which the first call puts
    there; it needs bash and coreutils, and keeps its files in a directory that only the sandbox's own user can read.

    Making one does no I/O and imports no HTTP library. Safe for threads; a forked child may go on using it, over
    connections of its own.

    Raises `ConfigurationError` for what cannot be used.
    """

    name = "HTTPTransport"
    clock = SYSTEM_CLOCK
    capabilities = frozenset({Capability.OS_PROCESSES, Capability.BULK, Capability.NATIVE_PROGRAMS})

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        dialect: Literal["auto", "bridge", "container"] = "auto",
        timeout: HTTPTimeouts = HTTPTimeouts(),  # noqa: B008  # frozen
        retry: RetryPolicy = DEFAULT_POLICY,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        allow_insecure: bool = False,
        on_event: Callable[[HTTPEvent], object] | None = None,
    ) -> None:
        if dialect not in _DIALECTS:
            raise ConfigurationError(f"dialect is one of {', '.join(map(repr, _DIALECTS))}, not {dialect!r}")
        if not isinstance(timeout, HTTPTimeouts):
            raise ConfigurationError(f"timeout must be HTTPTimeouts, not {type(timeout).__name__}")

        def connect(key: str | None) -> Connection:
            return Connection(
                base_url,
                api_key=key,
                connect_timeout=timeout.connect,
                read_timeout=timeout.read,
                total_timeout=timeout.total,
                retry=retry,
                verify=verify,
                proxies=proxies,
                headers=headers,
                allow_insecure=allow_insecure,
                on_event=on_event,
            )

        self._connection = connect(api_key)
        # To a container server an `Authorization` is the id of a session.
        self._open_connection = connect(None)
        self._retry = retry
        self._has_authorization = any(name.lower() == "authorization" for name in headers or ())
        self._dialect: Dialect | None = None
        if dialect == "bridge":
            self._dialect = BridgeDialect(self._connection, frozenset())
        elif dialect == "container":
            self._dialect = self._checked(ContainerDialect(self._open_connection))
        self._processes: dict[int, _Process] = {}

    def __repr__(self) -> str:
        return f"HTTPTransport({self._connection.base_url!r})"

    def __enter__(self) -> HTTPTransport:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # The sandbox

    def workspace(self, sandbox_id: str) -> str:
        return _WORKSPACE

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._sandbox(sandbox_id).remote.ping(timeout)

    def destroy(self, sandbox_id: str) -> None:
        sandbox = self._sandbox(sandbox_id)
        if not sandbox.remote.end():
            sandbox.hosted.end()

    def close(self) -> None:
        self._connection.close()
        self._open_connection.close()

    # Sessions

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        self._sandbox(ref.sandbox_id).hosted.create_session(ref, spec)

    def delete_session(self, ref: SessionRef) -> None:
        self._sandbox(ref.sandbox_id).hosted.delete_session(ref)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        return self._sandbox(sandbox_id).hosted.list_sessions()

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._sandbox(ref.sandbox_id).hosted.set_session_env(ref, changes, timeout)

    # Commands

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        return self._sandbox(ref.sandbox_id).hosted.run(ref, request)

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        return self._sandbox(ref.sandbox_id).hosted.start_process(ref, request)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return self._sandbox(sandbox_id).hosted.list_processes()

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._sandbox(sandbox_id).hosted.get_process(process_id)

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._sandbox(sandbox_id).hosted.wait_process(process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._sandbox(sandbox_id).hosted.kill_process(process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return self._sandbox(sandbox_id).hosted.forget_process(process_id)

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        return self._sandbox(sandbox_id).hosted.follow_logs(process_id, live)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        return probe_port(self._sandbox(sandbox_id).remote, port, path, timeout)

    # Files

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        return self._sandbox(ref.sandbox_id).files.read_file(ref, path, chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        return self._sandbox(ref.sandbox_id).files.write_file(ref, path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self._sandbox(ref.sandbox_id).files.stat(ref, path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return self._sandbox(ref.sandbox_id).files.list_files(ref, path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        return self._sandbox(ref.sandbox_id).files.make_directory(ref, path, recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self._sandbox(ref.sandbox_id).files.remove_file(ref, path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self._sandbox(ref.sandbox_id).files.rename(ref, old, new)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        return self._sandbox(ref.sandbox_id).files.read_tree(ref, path, exclude)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self._sandbox(ref.sandbox_id).files.write_tree(ref, path, chunks)

    # Inside

    def _sandbox(self, sandbox_id: str) -> _Sandbox:
        process = self._here()
        remote = self._service().sandbox(sandbox_id)
        with process.lock:
            sandbox = process.sandboxes.get(remote.key)
            if sandbox is None:
                files = HostedFiles(Host(remote, _WORKSPACE, policy=self._retry), remote)
                hosted = HostedSandbox(remote, _WORKSPACE, files=files, policy=self._retry)
                sandbox = _Sandbox(remote, hosted, files)
                process.sandboxes[remote.key] = sandbox
            return sandbox

    def _here(self) -> _Process:
        pid = os.getpid()
        process = self._processes.get(pid)
        return self._processes.setdefault(pid, _Process()) if process is None else process

    def _service(self) -> Dialect:
        """What is at the other end, found out once. Two threads may ask at the same time, and find the same."""
        dialect = self._dialect
        if dialect is None:
            dialect = self._dialect = self._checked(detect(self._open_connection, self._connection))
        return dialect

    def _checked(self, dialect: Dialect) -> Dialect:
        if dialect.name == "container" and self._has_authorization:
            raise ConfigurationError(
                "a container server takes an Authorization for the id of a session: leave that header out"
            )
        return dialect
