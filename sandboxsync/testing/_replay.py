"""`Replay`: answers every call from a cassette."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sandboxsync._unset import Timeout
from sandboxsync.errors import ConfigurationError
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

from ._cassette import asked_of
from ._cassette_decoder import Decoder
from ._cassette_file import Entry, load
from ._matching import CassetteMismatchError, Matcher, still_runs
from ._replay_streams import ReplayClock, ReplayedBytes, ReplayedCommand, ReplayedLogs, replayed_pieces
from ._spool import Taken

__all__ = ["Replay"]

_PIECE = 1 << 16


class Replay(Transport):
    """What a `Recording` has written, as a transport: nothing is run, and nothing but the cassette is asked.

    Calls of a session, and of a process, are answered in the order in which a thread made them; different sessions and
    threads, and commands without a session, may come in another order than recorded. A call that does not fit raises
    `CassetteMismatchError`. What only looks (`stat`, `list_files`, `list_sessions`, `list_processes`, `get_process`,
    `wait_process`, `follow_logs`, `probe_port`, `workspace`, `ping`) may be asked less often, or more often: then it is
    answered as the last time.

    Ids that were made up are others in each run, and stand for each other in the order in which they come. Secrets are
    hidden in what is asked as they were in the cassette, so that their values do not matter.

    Calls return at once, and `clock`, which begins when the recording did, shows the time that they took there; with
    *realtime*, streams give each piece when it came in the recording, and waits take as long.

    Any thread may call, also after a fork. Nothing is started, so that there is nothing to `close`; calls after it
    raise `ConfigurationError`.

    Raises `ConfigurationError` for a cassette that is missing, damaged, or of another version.
    """

    name = "Replay"

    def __init__(self, path: str | os.PathLike[str], *, realtime: bool = False) -> None:
        self._path = os.fspath(path)
        self._cassette = load(self._path)
        self._matcher = Matcher(self._cassette, self._path)
        self._closed = False
        self.capabilities = self._cassette.capabilities
        self.clock = ReplayClock(realtime, self._cassette.began)

    def __repr__(self) -> str:
        return f"Replay({self._path!r})"

    def __enter__(self) -> Replay:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @property
    def unused(self) -> list[str]:
        """A line for each recorded call that nobody has asked for, without those that only look."""
        return [str(entry) for entry in self._matcher.unused()]

    def assert_all_used(self) -> None:
        """Raise `CassetteMismatchError` when there are `unused` calls."""
        if unused := self.unused:
            text = "\n  ".join([f"nobody has asked for {len(unused)} calls of {self._path!r}:", *unused])
            raise CassetteMismatchError(text)

    # The sandbox

    def workspace(self, sandbox_id: str) -> str:
        return str(self._answer("workspace", sandbox_id))

    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        self._answer("ping", sandbox_id, timeout)

    def destroy(self, sandbox_id: str) -> None:
        self._answer("destroy", sandbox_id)

    def close(self) -> None:
        self._closed = True

    # Sessions

    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        self._answer("create_session", ref, spec)

    def delete_session(self, ref: SessionRef) -> None:
        self._answer("delete_session", ref)

    def list_sessions(self, sandbox_id: str) -> list[str]:
        return list(self._answer("list_sessions", sandbox_id))

    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        self._answer("set_session_env", ref, changes, timeout)

    # Commands

    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        entry, decoder = self._ask("run", ref, request)
        answer = entry.answer
        return ReplayedCommand(entry, decoder.time(answer["started_at"]), decoder.events(answer["events"]), self.clock)

    # Background processes

    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        return self._process("start_process", ref, request)

    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        return list(self._answer("list_processes", sandbox_id))

    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        return self._process("get_process", sandbox_id, process_id)

    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        return self._process("wait_process", sandbox_id, process_id, timeout)

    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        self._answer("kill_process", sandbox_id, process_id, signal)

    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        return bool(self._answer("forget_process", sandbox_id, process_id))

    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        entry, decoder = self._ask("follow_logs", sandbox_id, process_id, live)
        return ReplayedLogs(entry, decoder.events(entry.answer["events"]), self.clock)

    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        status: int | None = self._answer("probe_port", sandbox_id, port, path, timeout)
        return status

    # Files

    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        entry, decoder = self._ask("read_file", ref, path, chunk_size)
        return ReplayedBytes(entry, decoder.text(entry.answer["path"]), self._pieces(entry, decoder, chunk_size))

    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        return self._info("write_file", ref, path, chunks)

    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        return self._info("stat", ref, path, follow_symlinks)

    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        return list(self._answer("list_files", ref, path, recursive))

    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        return str(self._answer("make_directory", ref, path, recursive))

    def remove_file(self, ref: SessionRef, path: str) -> None:
        self._answer("remove_file", ref, path)

    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        self._answer("rename", ref, old, new)

    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        entry, decoder = self._ask("read_tree", ref, path, exclude)
        return self._pieces(entry, decoder, _PIECE)

    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        self._answer("write_tree", ref, path, chunks)

    # Inside

    def _ask(self, name: str, *arguments: object) -> tuple[Entry, Decoder]:
        """Return the recorded call, and what decodes its answer. Raises the error of a call that has failed."""
        if self._closed:
            raise ConfigurationError("this Replay is closed")
        asked = asked_of(name, arguments)
        chunks: Any = asked.pop("content", ())
        if name in ("write_file", "write_tree") and self._matcher.wants_content(name, asked):
            asked["content"] = _all_of(chunks)
        entry = self._matcher.take(name, asked)
        answer = entry.answer
        if "unfinished" in answer or "interrupted" in answer:
            # It may have been the content that raised; then it does so again.
            _all_of(chunks)
            raise CassetteMismatchError(f"the recording has no answer to {entry}: {answer}")
        decoder = Decoder(self._matcher.ids, self._cassette.began)
        # Who waited in vain has waited as long as it was to.
        self.clock.sleep(asked["timeout"] or 0.0 if still_runs(entry) else answer.get("took", 0.0))
        if "error" in answer and not {"content", "tree"} & answer.keys():
            raise decoder.error(answer["error"])
        return entry, decoder

    def _answer(self, name: str, *arguments: object) -> Any:
        entry, decoder = self._ask(name, *arguments)
        return decoder.returned(name, entry.answer["returned"])

    def _process(self, name: str, *arguments: object) -> ProcessInfo:
        info: ProcessInfo = self._answer(name, *arguments)
        return info

    def _info(self, name: str, *arguments: object) -> FileInfo:
        info: FileInfo = self._answer(name, *arguments)
        return info

    def _pieces(self, entry: Entry, decoder: Decoder, size: int) -> Iterator[bytes]:
        error = decoder.error(entry.answer["error"]) if "error" in entry.answer else None
        return replayed_pieces(entry, decoder.pieces(entry.answer, size), error)


def _all_of(chunks: Iterable[bytes]) -> Taken:
    taken = Taken(chunks, bytes)
    for _ in taken:
        pass
    return taken
