"""The seam: what a backend must do so that `Sandbox` works on it.

A transport hosts sandboxes by id. It speaks bytes and the small values below; it decodes nothing, fills in no
defaults and hides no retries. Everything else (`exec`, `read_text`, `upload`, `wait_for_log`, `git_checkout` …) is
composed once, above this line.

Rules that hold for every method:

- It may be called from any thread, and by any number of `Sandbox` objects at once.
- A sandbox starts on its first use. Nothing here needs it to be started before.
- It blocks until it is done, and no longer: what waits for a session's turn says so, nothing else does.
- Arguments were checked by the caller (ids, env names, timeouts, no NUL, no empty path).
- A method that takes a `SessionRef` calls `ref.meet(incarnation)` before it does anything, so that a client that
  knew an earlier life of the sandbox is told once (`SessionTerminatedError`, code `SANDBOX_RESTARTED`).
- Errors are those of `sandboxsync.errors`. What the far side says is mapped, never passed through raw:
  `TransportError` and its children where the sandbox cannot be reached, `FileError` and its children for files.
- After `close`, every method but `close` raises `ConfigurationError`.
"""

from __future__ import annotations

import enum
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Literal, Protocol

import attrs

from sandboxsync._clock import SYSTEM_CLOCK, Clock
from sandboxsync._unset import UNSET, Timeout
from sandboxsync.errors import SessionTerminatedError
from sandboxsync.models import FileInfo, ProcessStatus

__all__ = [
    "OFFERED_BY",
    "SYSTEM_CLOCK",
    "ByteStream",
    "Capability",
    "Clock",
    "CommandRequest",
    "CommandStream",
    "Exited",
    "LogStream",
    "Output",
    "ProcessInfo",
    "ProcessRequest",
    "SessionRef",
    "SessionSpec",
    "Transport",
]

Environment = Mapping[str, "str | None"]
"""Names to values; `None` unsets what a lower layer had set."""


class Capability(enum.Enum):
    """What only some transports can do. What is not in here, all of them do alike."""

    OS_PROCESSES = "processes of an operating system: pids, signals, setsid"
    BULK = "outputs and files over 8 MiB"
    NATIVE_PROGRAMS = "native programs: git, python3, sockets"
    TERMINAL = "interactive terminals"
    CODE = "code contexts"
    WATCH = "watching files"
    TUNNEL = "tunnels to ports"
    MOUNT = "bucket mounts"


OFFERED_BY: Mapping[Capability, Sequence[str]] = {
    Capability.OS_PROCESSES: ("LocalTransport", "HTTPTransport"),
    Capability.BULK: ("LocalTransport", "HTTPTransport"),
    Capability.NATIVE_PROGRAMS: ("LocalTransport", "HTTPTransport"),
    Capability.TERMINAL: (),
    Capability.CODE: (),
    Capability.WATCH: (),
    Capability.TUNNEL: (),
    Capability.MOUNT: (),
}
"""The transports of this package that have each capability, by class name: for error messages."""


@attrs.define(eq=False)
class SessionRef:
    """One client's view of a session: which one it means, and which life of the sandbox it saw last.

    `session_id=None` means no session: a fresh shell that starts in the workspace and leaves no state behind.
    `env` is the sandbox layer of the environment, given to a session or shell that has to be made for this call.
    `is_deleted` says whether this client has begun to delete the session: then it is not made anew for this reference,
    and `SessionDestroyedError` is raised in its place.
    """

    sandbox_id: str
    session_id: str | None
    env: Environment = attrs.field(factory=dict)
    incarnation: str | None = None
    is_deleted: Callable[[], bool] = bool  # which is False

    def meet(self, incarnation: str) -> None:
        """Note the sandbox's present life. Raise `SessionTerminatedError` when this client knew another one (S17)."""
        seen, self.incarnation = self.incarnation, incarnation
        if seen is not None and seen != incarnation:
            raise SessionTerminatedError(
                f"sandbox {self.sandbox_id!r} was restarted: the state of its sessions is lost",
                code="SANDBOX_RESTARTED",
                session_id=self.session_id,
            )


@attrs.frozen
class SessionSpec:
    """What a session is made from, and again after its shell died. `cwd` is as given; `None` is the workspace."""

    env: Environment = attrs.field(factory=dict)
    cwd: str | None = None
    command_timeout: Timeout = UNSET


@attrs.frozen
class CommandRequest:
    """One command. `command` is shell text; `env` and `cwd` hold for it alone.

    `timeout` in seconds counts from the call of `run`; `UNSET` takes the session's, else `default_timeout`.
    `stdin=None` is end-of-file at once.
    """

    command: str
    env: Mapping[str, str] = attrs.field(factory=dict)
    cwd: str | None = None
    stdin: bytes | None = None
    timeout: Timeout = UNSET
    default_timeout: float | None = None


@attrs.frozen
class Output:
    """Bytes as they came, never empty."""

    stream: Literal["stdout", "stderr"]
    data: bytes


@attrs.frozen
class Exited:
    """The end, after all output. `exit_code` is the shell's (E6); `duration` in seconds, without waiting in line."""

    exit_code: int
    duration: float


class CommandStream(Protocol):
    """A command that runs. One thread reads; `kill` and `close` may be called from any thread."""

    started_at: datetime
    """When the command began (UTC), after its turn came."""

    @abstractmethod
    def read(self) -> Output | Exited:
        """Return the next output as it comes, at last one `Exited`. Blocks until there is some.

        The rest of the output comes before any error. Raises `CommandTimeoutError` (the tree of the command is
        gone), `SessionTerminatedError` (its shell ended, or the sandbox was restarted), `SessionDestroyedError`
        (its session was deleted), a `TransportError` when the stream broke. After `Exited` or an error the stream
        is over and holds nothing; reading on raises `ValueError`.
        """

    @abstractmethod
    def kill(self) -> None:
        """End the command and its tree as a timeout does (T2), and return when it is gone.

        The session keeps its state; `read` goes on to the output so far and `Exited` with 128 + the signal.
        Does nothing once the command has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """`kill`, throw unread output away, and give the session's turn to the next. Idempotent, raises nothing."""

    @abstractmethod
    def abandon(self) -> None:
        """Have the command end soon, as `kill` does, because its stream was dropped without `close`.

        Called by the garbage collector, so in any thread at any moment: it neither waits nor takes a lock that its own
        thread may hold. The session is usable by the next call.
        """


class LogStream(Protocol):
    """The output of a background process from its first byte on. One thread reads, any may close."""

    @abstractmethod
    def read(self, timeout: float | None = None) -> Output | Exited | None:
        """Return the next output, one `Exited` when the process has ended and all was read, `None` after `timeout` s.

        Raises `ProcessNotFoundError` when the record is forgotten meanwhile, a `TransportError` when the stream broke
        and could not be resumed without loss.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop following. Idempotent; the process is not touched."""


class ByteStream(Protocol):
    """A file being read: an iterator of non-empty chunks that holds one chunk in memory at a time."""

    path: str
    """The absolute path, as a command in the sandbox would use it."""
    size: int
    """Bytes when it was opened."""

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """The stream itself."""

    @abstractmethod
    def __next__(self) -> bytes:
        """The next chunk, as large as was asked for but the last. Raises `FileError` or `TransportError`."""

    @abstractmethod
    def close(self) -> None:
        """Give up the rest. Idempotent."""


@attrs.frozen
class ProcessRequest:
    """A background process. `timeout` in seconds; `None` is no limit. Its cwd and env are its session's (E15)."""

    process_id: str
    command: str
    env: Mapping[str, str] = attrs.field(factory=dict)
    cwd: str | None = None
    timeout: float | None = None
    auto_cleanup: bool = False


@attrs.frozen
class ProcessInfo:
    """What is known of a background process now. `exit_code` and `end_time` are `None` while it runs."""

    id: str
    pid: int | None
    command: str
    status: ProcessStatus
    start_time: datetime
    end_time: datetime | None
    exit_code: int | None
    session_id: str | None


class Transport(Protocol):
    """Hosts sandboxes. See the top of this module for what holds for all methods, and `docs/writing-a-transport.md`."""

    name: str
    """The class name users know it by, for messages."""

    capabilities: frozenset[Capability]

    clock: Clock
    """What waits, timestamps and time limits are measured on: `SYSTEM_CLOCK` but for a transport that makes time."""

    # The sandbox

    @abstractmethod
    def workspace(self, sandbox_id: str) -> str:
        """The absolute, symlink-free directory that stands for `/workspace`. Starts the sandbox if need be."""

    @abstractmethod
    def ping(self, sandbox_id: str, timeout: float | None) -> None:
        """Return when the sandbox answers; raise a `TransportError` otherwise, within `timeout` seconds."""

    @abstractmethod
    def destroy(self, sandbox_id: str) -> None:
        """End sessions, processes and files of the sandbox; calls in flight end with `SANDBOX_RESTARTED`.

        Idempotent. The next use of the id starts afresh, in another incarnation.
        """

    @abstractmethod
    def close(self) -> None:
        """End what this transport holds. Idempotent; runs every step even when one fails."""

    # Sessions

    @abstractmethod
    def create_session(self, ref: SessionRef, spec: SessionSpec) -> None:
        """Make the session. Raises `SessionExistsError` when its id is in use and its shell lives, and for `spec.cwd`
        `SandboxFileNotFoundError` or `SandboxNotADirectoryError`: then no session is made (S16).
        """

    @abstractmethod
    def delete_session(self, ref: SessionRef) -> None:
        """End the session's shell, its jobs and the command it runs (S7, S14). Raises `SessionNotFoundError`."""

    @abstractmethod
    def list_sessions(self, sandbox_id: str) -> list[str]:
        """The ids of the sessions that exist, in any order."""

    @abstractmethod
    def set_session_env(self, ref: SessionRef, changes: Environment, timeout: Timeout) -> None:
        """Change the environment of the session's shell and of what replaces it (S9). Makes the session if it is new.

        Waits for the session's turn, at most `timeout` seconds. Raises what `run` raises, and `SessionError` when the
        shell refuses a name (it is read-only there).
        """

    # Commands

    @abstractmethod
    def run(self, ref: SessionRef, request: CommandRequest) -> CommandStream:
        """Start a command and return its stream. Makes the session if it is new (S4).

        Waits for the session's turn, first come first served; without a session there is none to wait for. Raises
        `SessionBusyError` when the turn is held by the calling thread, `CommandTimeoutError` (`started=False`) when the
        timeout passes first, `SessionDestroyedError` when the session is deleted meanwhile, `SessionTerminatedError`
        when its shell has died since the last call (once; nothing was run), a `TransportError` when the sandbox cannot
        be reached.
        """

    # Background processes

    @abstractmethod
    def start_process(self, ref: SessionRef, request: ProcessRequest) -> ProcessInfo:
        """Start it and return at once. Never waits for a session's turn.

        Raises `InvalidRequestError` when a running process has the id (P4), `SandboxFileNotFoundError` or
        `SandboxNotADirectoryError` for `request.cwd`; then nothing was started and nothing is listed.
        """

    @abstractmethod
    def list_processes(self, sandbox_id: str) -> list[ProcessInfo]:
        """All background processes of the sandbox that are not forgotten, oldest first."""

    @abstractmethod
    def get_process(self, sandbox_id: str, process_id: str) -> ProcessInfo:
        """Raises `ProcessNotFoundError`."""

    @abstractmethod
    def wait_process(self, sandbox_id: str, process_id: str, timeout: float | None) -> ProcessInfo:
        """Return when the process has ended and its logs are complete, or after `timeout` seconds as it is then.

        Raises `ProcessNotFoundError`.
        """

    @abstractmethod
    def kill_process(self, sandbox_id: str, process_id: str, signal: int) -> None:
        """TERM, INT, QUIT and KILL end the tree: returns when it is gone, KILL after 2 s. Others go to the main one.

        Does nothing to one that has ended. Raises `ProcessNotFoundError`.
        """

    @abstractmethod
    def forget_process(self, sandbox_id: str, process_id: str) -> bool:
        """Drop the record and logs of a process that has ended; `False` when it runs or is unknown."""

    @abstractmethod
    def follow_logs(self, sandbox_id: str, process_id: str, live: bool) -> LogStream:
        """The process's output from its start; then, if `live`, what it writes until it ends. Without, `read` returns
        `None` after what there was at the time of this call, and after that too. Raises `ProcessNotFoundError`.
        """

    @abstractmethod
    def probe_port(self, sandbox_id: str, port: int, path: str | None, timeout: float) -> int | None:
        """Try a port inside the sandbox, on 127.0.0.1 and ::1, once, for at most `timeout` seconds.

        With `path`, the status of an HTTP GET of it; without, 0 when the port accepts. `None` when nobody answers.
        """

    # Files. Paths are POSIX text (`surrogateescape`), relative ones resolved against the session's directory.

    @abstractmethod
    def read_file(self, ref: SessionRef, path: str, chunk_size: int) -> ByteStream:
        """Open a file to read. Raises `FileError` of the kind that fits: missing, a directory, not permitted."""

    @abstractmethod
    def write_file(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> FileInfo:
        """Write a file whole or not at all, also when `chunks` raises (F2); make missing parents. Returns what it is.

        Raises `SandboxIsADirectoryError`, `SandboxPermissionError`, `NoSpaceError` …, and what `chunks` raises.
        """

    @abstractmethod
    def stat(self, ref: SessionRef, path: str, follow_symlinks: bool) -> FileInfo:
        """What lies at `path`. Raises `FileError` of the kind that fits."""

    @abstractmethod
    def list_files(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        """All entries below a directory, hidden ones too, in any order; symlinks are not followed.

        Raises `SandboxFileNotFoundError`, `SandboxNotADirectoryError` …
        """

    @abstractmethod
    def make_directory(self, ref: SessionRef, path: str, recursive: bool) -> str:
        """Make a directory and return its absolute path; with `recursive` its parents too, and one that exists is fine.

        Raises `SandboxFileExistsError`, `SandboxFileNotFoundError` (no parent) …
        """

    @abstractmethod
    def remove_file(self, ref: SessionRef, path: str) -> None:
        """Remove a file or a symlink. Raises `SandboxIsADirectoryError` for a directory."""

    @abstractmethod
    def rename(self, ref: SessionRef, old: str, new: str) -> None:
        """Rename, replacing an existing file, as `os.replace` does, across file systems too."""

    @abstractmethod
    def read_tree(self, ref: SessionRef, path: str, exclude: Sequence[str]) -> Iterator[bytes]:
        """A directory as an uncompressed tar, in pieces, names relative to it (F6). Closing the iterator gives up.

        `exclude` are the patterns of `sandboxsync._archive`.
        """

    @abstractmethod
    def write_tree(self, ref: SessionRef, path: str, chunks: Iterable[bytes]) -> None:
        """Unpack a tar (as `read_tree` gives it) into a directory, made if missing, merged if it exists (F6)."""
