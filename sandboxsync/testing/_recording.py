"""`Recording`: passes every call on to another transport, and keeps what was asked and answered."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from sandboxsync._unset import Timeout
from sandboxsync.errors import SandboxError
from sandboxsync.models import FileInfo
from sandboxsync.transports.base import (
    ByteStream,
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

from ._cassette import ENVIRONMENTS, Call, Encoder, Json, asked_of, number_ids
from ._cassette_file import header, write
from ._recording_streams import RecordedBytes, RecordedCommand, RecordedLogs, recorded_tree
from ._secrets import Redact, Secrets
from ._spool import Spool, Taken

__all__ = ["Recording"]

P = ParamSpec("P")
T = TypeVar("T")

_WAITING = frozenset({"wait_process", "probe_port"})


class Recording(Transport):
    """Another transport as it is, and a cassette of all that was asked of it and answered, for `Replay`.

    Calls block, raise and may come from any thread as on *transport*. The cassette is written to *path* by `close`, in
    one step, whatever happened before; until then what is large is kept in a temporary file. A stream that was not read
    to its end is marked `incomplete`. In a forked child calls go on to *transport*, and are not recorded: only the
    process that made this object writes.

    *redact* holds names of environment variables, whose values are hidden wherever they appear in the cassette, and
    compiled patterns, whose matches are. A value is known from this process's environment and from those that calls
    are given.

    Raises `ConfigurationError` for a bad *redact*.
    """

    name = "Recording"

    def __init__(self, transport: Transport, path: str | os.PathLike[str], *, redact: Redact = ()) -> None:
        self.capabilities = transport.capabilities
        self.clock = transport.clock
        self._inner = transport
        self._path = os.path.abspath(path)
        self._secrets = Secrets(redact)
        self._began = self.clock.now()
        self._process = os.getpid()
        self._spool = Spool()
        self._calls: list[Call] = []
        self._written = False

    def __repr__(self) -> str:
        return f"Recording({self._inner!r}, {self._path!r})"

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # The sandbox

    def workspace(self, sandbox_id: str) -> str:
        return self._call("workspace", self._inner.workspace, sandbox_id)

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._call("ping", self._inner.ping, sandbox_id, timeout)

    def destroy(self, sandbox_id: str) -> None:
        self._call("destroy", self._inner.destroy, sandbox_id)

    def close(self) -> None:
        """Close the transport, then write the cassette, also when closing fails. Idempotent.

        Raises what closing the transport raises, and `OSError` when the cassette cannot be written: then another
        `close` tries again.
        """
        try:
            self._inner.close()
        finally:
            if not self._written and self._is_ours():
                self._write()
                self._written = True
                self._calls.clear()

    # Sessions

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        self._call("create_session", self._inner.create_session, ref, spec)

    def delete_session(self, ref: SessionRef) -> None:
        self._call("delete_session", self._inner.delete_session, ref)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        return self._call("list_sessions", self._inner.list_sessions, sandbox_id)

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._call("set_session_env", self._inner.set_session_env, ref, changes, timeout)

    # Commands

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        call = self._begin("run", ref, request)
        with self._noted(call):
            return RecordedCommand(self._inner.run(ref, request), call.answer, self._spool, self.clock)

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        return self._call("start_process", self._inner.start_process, ref, request)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return self._call("list_processes", self._inner.list_processes, sandbox_id)

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._call("get_process", self._inner.get_process, sandbox_id, process_id)

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._call("wait_process", self._inner.wait_process, sandbox_id, process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._call("kill_process", self._inner.kill_process, sandbox_id, process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return self._call("forget_process", self._inner.forget_process, sandbox_id, process_id)

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        call = self._begin("follow_logs", sandbox_id, process_id, live)
        with self._noted(call):
            stream = self._inner.follow_logs(sandbox_id, process_id, live)
            return RecordedLogs(stream, live, call.answer, self._spool, self.clock)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        return self._call("probe_port", self._inner.probe_port, sandbox_id, port, path, timeout)

    # Files

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        call = self._begin("read_file", ref, path, chunk_size)
        with self._noted(call):
            return RecordedBytes(self._inner.read_file(ref, path, chunk_size), call.answer, self._spool)

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        return self._call("write_file", self._inner.write_file, ref, path, Taken(chunks, self._spool.keep))

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self._call("stat", self._inner.stat, ref, path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return self._call("list_files", self._inner.list_files, ref, path, recursive)

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        return self._call("make_directory", self._inner.make_directory, ref, path, recursive)

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self._call("remove_file", self._inner.remove_file, ref, path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self._call("rename", self._inner.rename, ref, old, new)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        call = self._begin("read_tree", ref, path, exclude)
        with self._noted(call):
            return recorded_tree(self._inner.read_tree(ref, path, exclude), call.answer, self._spool)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self._call("write_tree", self._inner.write_tree, ref, path, Taken(chunks, self._spool.keep))

    # Inside. No lock: a step that threads may race for is one append to a list or one change of a dict.

    def _is_ours(self) -> bool:
        return os.getpid() == self._process

    def _begin(self, name: str, *arguments: object) -> Call:
        call = Call(name, threading.get_ident(), asked_of(name, arguments))
        if self._is_ours() and not self._written:
            self._calls.append(call)
        return call

    def _call(self, name: str, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        call = self._begin(name, *args)
        began = self.clock.monotonic()
        with self._noted(call):
            returned = method(*args, **kwargs)
        took = {"took": round(self.clock.monotonic() - began, 3)} if name in _WAITING else {}
        call.answer.update(returned=list(returned) if isinstance(returned, list) else returned, **took)
        return returned

    @contextmanager
    def _noted(self, call: Call) -> Generator[None]:
        """Note what the block raises."""
        try:
            yield
        except SandboxError as exc:
            # A copy: callers add to the error.
            call.answer["error"] = copy.copy(exc)
            raise
        except BaseException as exc:
            call.answer["interrupted"] = type(exc).__name__
            raise

    def _write(self) -> None:
        calls = list(self._calls)
        for call in calls:
            for layer in ENVIRONMENTS & call.asked.keys():
                self._secrets.learn(call.asked[layer])
        encoder = Encoder(self._secrets, number_ids(calls), self._began)
        threads: dict[int, int] = {}
        write(
            self._path,
            header(self._inner.name, self.capabilities, self._began, self._secrets),
            (_encoded(encoder, call, threads.setdefault(call.thread, len(threads) + 1)) for call in calls),
        )


def _encoded(encoder: Encoder, call: Call, thread: int) -> dict[str, Json]:
    answer = dict(call.answer)
    content = call.asked.get("content")
    known = not isinstance(content, Taken) or content.whole or "returned" in answer
    asked = call.asked if known else {key: value for key, value in call.asked.items() if key != "content"}
    who = {} if thread == 1 else {"thread": thread}
    return {"asked": encoder.asked(call.name, asked), **who, "answer": encoder.answer(call.name, answer)}
