"""One local sandbox in one of its lives: its directories, its supervisor, what it hosts."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import threading
from collections.abc import Mapping, Sequence
from importlib import resources

import attrs

from sandboxsync._paths import Paths
from sandboxsync.errors import (
    SandboxError,
    SessionDestroyedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
    file_error,
)
from sandboxsync.transports.base import Environment, SessionRef, SessionSpec
from sandboxsync.transports.local._channel import Supervisor, SupervisorGoneError
from sandboxsync.transports.local._ground import BareGround, Ground
from sandboxsync.transports.local._ports import probe_port
from sandboxsync.transports.local._processes import Processes, Records, Snapshot
from sandboxsync.transports.local._session import LocalSession
from sandboxsync.transports.local._settings import Settings
from sandboxsync.transports.local._tags import all_of, range_of, tag_of
from sandboxsync.transports.local.files import Files, resolve

__all__ = ["LocalSandbox"]

_SCRIPTS = (
    "before.bash",
    "enter.bash",
    "leave.bash",
    "after.bash",
    "restore.bash",
    "restore-options.bash",
    "launch.bash",
)
_LONGEST_ARGUMENT = 100_000
"""Bytes of a command that fit into one argument with room to spare; Linux allows 131,071."""


@attrs.frozen
class Spawned:
    """A program that was started: the supervisor's key for it, its pid, and a pidfd that is ours to close."""

    key: int
    pid: int
    pidfd: int


class LocalSandbox:
    """Starts when it is made (20 ms), ends with `destroy` or with this process. Any thread may use it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.bash = settings.bash
        self.incarnation = secrets.token_hex(8)
        self._lost = False
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        self._owners = itertools.count(1)
        self._places = itertools.count(1)
        self._forked = False
        self.sessions: dict[str, LocalSession] = {}
        self._records = Records()
        self._ground = self._start()
        self.workspace = self._ground.workspace
        self.files = Files(self._ground.paths)

    def _start(self) -> Ground:
        ground: Ground
        if self._settings.isolated:
            from sandboxsync.transports.local._bubblewrap import BubblewrapGround

            ground = BubblewrapGround(self._settings)
        else:
            ground = BareGround(self._settings, self._settings.workspace)
        self._write_scripts(ground)
        return ground

    def _write_scripts(self, ground: Ground) -> None:
        try:
            for name in _SCRIPTS:
                text = resources.files("sandboxsync.transports.shell").joinpath(name).read_text("utf-8")
                # Without the comments, which every shell would read with every command.
                lines = [line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#")]
                with ground.paths.acting(), open(f"{ground.here}scripts/{name}", "w", encoding="utf-8") as file:
                    file.writelines(lines)
        except BaseException:
            ground.supervisor.close()
            raise

    @property
    def ground(self) -> Ground:
        """What it stands on; in a forked child something of its own, from first use. Raises `SupervisorGoneError`."""
        if self._forked:
            with self._starting:
                if self._forked:
                    before, self._ground = self._ground, self._ground.in_child()
                    if self._ground.here != before.here:
                        self._write_scripts(self._ground)
                    self._forked = False
        return self._ground

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor. Raises `SupervisorGoneError` in a forked child whose parent has ended the sandbox."""
        return self.ground.supervisor

    def is_lost(self) -> bool:
        """Whether it has ended, be it that its supervisor was killed."""
        return self._lost or (not self._forked and not self._ground.supervisor.is_there())

    # For what it hosts

    def next_owner(self) -> int:
        """A number that marks the processes of one session or background process."""
        return next(self._owners)

    def tag_of(self, owner: int, job: int = 0) -> int:
        """The tag of an owner's job."""
        return tag_of(self.ground.client, owner, job)

    def range_of(self, owner: int) -> tuple[int, int]:
        """The lowest and the highest tag of an owner."""
        return range_of(self.ground.client, owner)

    def next_place(self) -> str:
        """The name, with a slash at its end, of a directory that does not exist yet in those of the ground."""
        serial = self.ground.serial
        return f"s{serial}.{next(self._places)}/" if serial else f"s{next(self._places)}/"

    @property
    def processes(self) -> Processes:
        """Its background processes."""
        return Processes(self, self._records)

    @property
    def paths(self) -> Paths:
        """How the sandbox's paths are used."""
        return self._ground.paths

    def resolve(self, path: str, directory: str) -> str:
        """The real path that a path of the API means (F4, F5)."""
        return resolve(path, directory, self.workspace, self._ground.remap)

    def environment(self, *layers: Environment) -> dict[str, str]:
        """A clean environment (S13) with layers on top, lowest first."""
        env = {
            "HOME": self._ground.home,
            "LANG": "C.UTF-8",
            "PATH": self._ground.search_path(),
            "TERM": "dumb",
            "TMPDIR": self._ground.tmp,
        }
        env.update((name, os.environ[name]) for name in self._settings.inherit_env if name in os.environ)
        for layer in layers:
            for name, value in layer.items():
                if value is None:
                    env.pop(name, None)
                else:
                    env[name] = value
        return env

    def spawn(
        self,
        argv: list[str],
        env: Mapping[str, str],
        cwd: str,
        tag: int,
        fds: Sequence[int] = (),
        timeout: float | None = None,
        script: str | None = None,
        fifos: Sequence[str] = (),
    ) -> Spawned:
        """Start a bash through the supervisor.

        `fds` are its standard ones, null where missing; or `script` is a file for its standard input. `fifos` are kept
        from ending as long as it lives.
        """
        request = {
            "do": "spawn",
            "program": argv[0],
            "argv": ["bash", *argv[1:]],  # the name that its messages begin with
            "env": dict(env),
            "cwd": cwd,
            "tag": tag,
            "timeout": timeout,
            "script": script,
            "fifos": list(fifos),
        }
        try:
            result = self.supervisor.ask(request, *fds).result()
        except SupervisorGoneError:
            raise self.gone() from None
        assert result is not None  # no timeout was given
        answer, received = result
        if "errno" in answer:
            raise file_error(OSError(answer["errno"], os.strerror(answer["errno"])), cwd)
        return Spawned(answer["key"], answer["pid"], received[0])

    def shell_command(self, command: str, file: str) -> list[str]:
        """The arguments that run a command in a bash of its own. `file` is the name, in the directory of the ground, of
        the file where one too long for that is put.
        """
        bash = [self.bash, "--norc", "--noprofile", "-O", "expand_aliases", "-c"]
        data = command.encode("utf-8", "surrogateescape")
        if len(data) <= _LONGEST_ARGUMENT:
            return [*bash, command]
        self.put(file, data)
        read = r'\builtin mapfile -d "" -t __sbx <"$1"; \builtin shift; \builtin eval "${__sbx[0]}"'
        return [*bash, read, "bash", self.ground.inside + file]

    def put(self, name: str, data: bytes) -> None:
        """Write a file in the directory of the ground."""
        with self.paths.acting(), open(self.ground.here + name, "wb") as file:
            file.write(data)

    def gone(self) -> SandboxError:
        """Note that the supervisor has ended under us; the error to raise."""
        self._lost = True
        return SessionTerminatedError("the sandbox was ended", code="SANDBOX_RESTARTED")

    # Sessions

    def create_session(self, session_id: str, spec: SessionSpec) -> None:
        """See `Transport.create_session`."""
        directory = self.workspace if spec.cwd is None else self.resolve(spec.cwd, self.workspace)
        self.paths.check_directory(directory)
        session = LocalSession(self, session_id, spec, directory)
        with self._lock:
            old = self.sessions.get(session_id)
            if old is not None and not old.has_died():
                raise SessionExistsError(f"session {session_id!r} exists already", session_id=session_id)
            self.sessions[session_id] = session
        if old is not None:
            old.delete()

    def session(self, ref: SessionRef) -> LocalSession:
        """The session of a reference, made with defaults if it is new (S4)."""
        assert ref.session_id is not None
        with self._lock:
            session = self.sessions.get(ref.session_id)
            if session is None:
                if ref.is_deleted():
                    raise SessionDestroyedError(f"session {ref.session_id!r} was deleted", session_id=ref.session_id)
                session = LocalSession(self, ref.session_id, SessionSpec(env=ref.env), self.workspace)
                self.sessions[ref.session_id] = session
        return session

    def delete_session(self, session_id: str) -> None:
        """See `Transport.delete_session`."""
        with self._lock:
            session = self.sessions.pop(session_id, None)
        if session is None:
            raise SessionNotFoundError(f"there is no session {session_id!r}", session_id=session_id)
        session.delete()

    def snapshot(self, ref: SessionRef) -> tuple[Snapshot, dict[str, str]]:
        """What a process started beside a session begins with: its state, or the environment for one without."""
        if ref.session_id is None:
            return Snapshot(None, self.workspace), self.environment(ref.env)
        session = self.session(ref)
        return Snapshot(*session.snapshot()), self.environment(session.env)

    def directory(self, ref: SessionRef) -> str:
        """What relative paths of a reference start from."""
        if ref.session_id is None:
            return self.workspace
        with self._lock:
            session = self.sessions.get(ref.session_id)
        return self.workspace if session is None else session.directory

    def probe_port(self, port: int, path: str | None, timeout: float) -> int | None:
        """See `Transport.probe_port`."""
        try:
            return probe_port(self.ground.connect, port, path, timeout)
        except SupervisorGoneError:
            raise self.gone() from None

    # Ends

    def destroy(self) -> None:
        """End everything in it, and remove its directory (never a workspace that was given)."""
        self._lost = True
        if self._forked:
            # Nothing was started here.
            self._ground.supervisor.forget()
            return
        ground = self._ground
        if self._settings.workspace is not None:
            # The files stay, so programs get the time to leave them in order.
            low, high = all_of(ground.client)
            end: dict[str, object] = {"do": "end", "low": low, "high": high, "reason": "destroyed"}
            with contextlib.suppress(SupervisorGoneError):
                ground.supervisor.answer({**end, "number": int(signal.SIGTERM)})
        ground.supervisor.close()
        with self._lock:
            sessions = list(self.sessions.values())
            self.sessions.clear()
        for session in sessions:
            session.sandbox_ended()
        ground.let_go()

    def abandon(self) -> None:
        """In a forked child: what runs belongs to the parent; what it was made from is used for new shells here."""
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        if not self._forked:
            self._ground.after_fork()
        self._forked = True
        self._records = Records()
        for session in self.sessions.values():
            session.abandon()
