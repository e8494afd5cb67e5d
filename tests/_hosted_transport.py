"""Hosted sessions over the plainest service there is: an isolated local sandbox that runs argument lists to their end.

Its channel is text, as that of the service: what is not UTF-8 does not come through.
"""

from __future__ import annotations

import codecs
import shlex
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Literal

from sandboxsync import LocalTransport
from sandboxsync._unset import Timeout
from sandboxsync.errors import SandboxError, StreamInterruptedError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import (
    ByteStream,
    CommandRequest,
    CommandStream,
    Environment,
    Exited,
    LogStream,
    ProcessInfo,
    ProcessRequest,
    SessionRef,
    SessionSpec,
    Transport,
)
from sandboxsync.transports.http.hosted._host import PlainAnswer, PlainExec
from sandboxsync.transports.http.hosted._sandbox import HostedSandbox


class LocalAnswer(PlainAnswer):
    """What a command without a session prints, as text."""

    def __init__(self, stream: CommandStream) -> None:
        self._stream = stream
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")}

        self._over = False

    def read(self) -> tuple[Literal["stdout", "stderr"], bytes] | int:
        try:
            item = self._stream.read()
        except SandboxError as exc:
            self._over = True
            raise StreamInterruptedError(f"the sandbox was lost: {exc}") from exc
        if isinstance(item, Exited):
            self._over = True
            return item.exit_code
        return item.stream, self._decoders[item.stream].decode(item.data).encode()

    def close(self) -> None:
        # The program goes on, as where a connection is closed; ending it would end what it has started.
        if not self._over:
            self._over = True
            threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        with suppress(SandboxError):
            while not isinstance(self._stream.read(), Exited):
                pass


class LocalExec(PlainExec):
    """Runs argument lists in a sandbox of an isolated local transport."""

    def __init__(self, transport: LocalTransport, sandbox_id: str) -> None:
        self._transport = transport
        self._sandbox_id = sandbox_id

    def exec(self, argv: Sequence[str]) -> PlainAnswer:
        ref = SessionRef(self._sandbox_id, None)
        return LocalAnswer(self._transport.run(ref, CommandRequest(shlex.join(argv))))


class HostedTransport(Transport):
    """A transport whose sessions, commands and processes are hosted, and whose files are the local one's."""

    name = "HostedTransport"

    def __init__(self) -> None:
        self._inner = LocalTransport(isolation="bubblewrap")
        self.capabilities = self._inner.capabilities
        self.clock = self._inner.clock
        self._lock = threading.Lock()
        self._hosted: dict[str, HostedSandbox] = {}

    def __enter__(self) -> HostedTransport:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _sandbox(self, sandbox_id: str) -> HostedSandbox:
        with self._lock:
            if sandbox_id not in self._hosted:
                self._hosted[sandbox_id] = HostedSandbox(LocalExec(self._inner, sandbox_id))
            return self._hosted[sandbox_id]

    def workspace(self, sandbox_id: str) -> str:
        return self._inner.workspace(sandbox_id)

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._inner.ping(sandbox_id, timeout)

    def destroy(self, sandbox_id: str) -> None:
        self._inner.destroy(sandbox_id)

    def close(self) -> None:
        self._inner.close()

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        self._sandbox(ref.sandbox_id).create_session(ref, spec)

    def delete_session(self, ref: SessionRef) -> None:
        self._sandbox(ref.sandbox_id).delete_session(ref)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        return self._sandbox(sandbox_id).list_sessions()

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._sandbox(ref.sandbox_id).set_session_env(ref, changes, timeout)

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        return self._sandbox(ref.sandbox_id).run(ref, request)

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        return self._sandbox(ref.sandbox_id).start_process(ref, request)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return self._sandbox(sandbox_id).list_processes()

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._sandbox(sandbox_id).get_process(process_id)

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._sandbox(sandbox_id).wait_process(process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._sandbox(sandbox_id).kill_process(process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return self._sandbox(sandbox_id).forget_process(process_id)

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        return self._sandbox(sandbox_id).follow_logs(process_id, live)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        return self._inner.probe_port(sandbox_id, port, path, timeout)

    def _at(self, ref: SessionRef, path: str) -> str:
        return path if path.startswith("/") else f"{self._sandbox(ref.sandbox_id).directory(ref)}/{path}"

    @staticmethod
    def _plain(ref: SessionRef) -> SessionRef:
        return SessionRef(ref.sandbox_id, None)

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        return self._inner.read_file(self._plain(ref), self._at(ref, path), chunk_size)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        return self._inner.write_file(self._plain(ref), self._at(ref, path), chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self._inner.stat(self._plain(ref), self._at(ref, path), follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return self._inner.list_files(self._plain(ref), self._at(ref, path), recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        return self._inner.make_directory(self._plain(ref), self._at(ref, path), recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self._inner.remove_file(self._plain(ref), self._at(ref, path))

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self._inner.rename(self._plain(ref), self._at(ref, old), self._at(ref, new))

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        return self._inner.read_tree(self._plain(ref), self._at(ref, path), exclude)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self._inner.write_tree(self._plain(ref), self._at(ref, path), chunks)
