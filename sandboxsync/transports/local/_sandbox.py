"""One local sandbox in one of its lives: its directories, its supervisor, what it hosts."""

from __future__ import annotations

import contextlib
import itertools
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Mapping, Sequence
from importlib import resources

import attrs

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
from sandboxsync.transports.local._processes import Processes, Snapshot
from sandboxsync.transports.local._session import LocalSession
from sandboxsync.transports.local.files import resolve

__all__ = ["LocalSandbox", "Settings"]

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
class Settings:
    """What `LocalTransport` was made with."""

    workspace: str | None
    inherit_env: tuple[str, ...]
    bash: str


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
        self.sessions: dict[str, LocalSession] = {}
        self.processes = Processes(self)
        root = self._start()
        self.workspace = settings.workspace or os.path.join(root, "workspace")
        self._home = os.path.join(root, "home")
        self._tmp = os.path.join(root, "tmp")
        self._remap = not os.path.isdir("/workspace")

    def _start(self) -> str:
        # Short, because the shells of sessions parse paths in it with every command.
        root = os.path.join(os.path.realpath(tempfile.gettempdir()), f"sandboxsync-{secrets.token_hex(4)}")
        self._supervisor: Supervisor | None = Supervisor(root, ["workspace", "home", "tmp", "scripts"])
        self._root = root
        self.scripts = os.path.join(root, "scripts", "")
        try:
            self._write_scripts()
        except BaseException:
            self._supervisor.close()
            raise
        return root

    def _write_scripts(self) -> None:
        for name in _SCRIPTS:
            text = resources.files("sandboxsync.transports.shell").joinpath(name).read_text("utf-8")
            with open(self.scripts + name, "w", encoding="utf-8") as file:
                # Without the comments, which every shell would read with every command.
                file.writelines(line for line in text.splitlines(keepends=True) if not line.lstrip().startswith("#"))

    @property
    def supervisor(self) -> Supervisor:
        """The supervisor; in a forked child one of its own, started on first use."""
        if self._supervisor is None:
            with self._starting:
                if self._supervisor is None:
                    self._start()
        assert self._supervisor is not None
        return self._supervisor

    def is_lost(self) -> bool:
        """Whether it has ended, be it that its supervisor was killed."""
        supervisor = self._supervisor
        return self._lost or (supervisor is not None and not supervisor.is_there())

    # For what it hosts

    def next_owner(self) -> int:
        """A number that marks the processes of one session or background process, never given twice."""
        return next(self._owners)

    def next_place(self) -> str:
        """The path of a directory that does not exist yet, with a slash at its end."""
        self.supervisor  # noqa: B018  (in a forked child it brings the directory that this lies in)
        return f"{self._root}/s{next(self._places)}/"

    def resolve(self, path: str, directory: str) -> str:
        """The real path that a path of the API means (F4, F5)."""
        return resolve(path, directory, self.workspace, self._remap)

    def environment(self, *layers: Environment) -> dict[str, str]:
        """A clean environment (S13) with layers on top, lowest first."""
        env = {
            "HOME": self._home,
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "TERM": "dumb",
            "TMPDIR": self._tmp,
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
        """The arguments that run a command in a bash of its own. `file` is where one too long for that is put."""
        bash = [self.bash, "--norc", "--noprofile", "-O", "expand_aliases", "-c"]
        data = command.encode("utf-8", "surrogateescape")
        if len(data) <= _LONGEST_ARGUMENT:
            return [*bash, command]
        with open(file, "wb") as script:
            script.write(data)
        read = r'\builtin mapfile -d "" -t __sbx <"$1"; \builtin shift; \builtin eval "${__sbx[0]}"'
        return [*bash, read, "bash", file]

    def gone(self) -> SandboxError:
        """Note that the supervisor has ended under us; the error to raise."""
        self._lost = True
        return SessionTerminatedError("the sandbox was ended", code="SANDBOX_RESTARTED")

    # Sessions

    def create_session(self, session_id: str, spec: SessionSpec) -> None:
        """See `Transport.create_session`."""
        directory = self.workspace if spec.cwd is None else self.resolve(spec.cwd, self.workspace)
        try:
            os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        except OSError as exc:
            raise file_error(exc, directory) from exc
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

    # Ends

    def destroy(self) -> None:
        """End everything in it, and remove its directory (never a workspace that was given)."""
        self._lost = True
        supervisor = self._supervisor
        if supervisor is not None:
            if self._settings.workspace is not None:
                # The files stay, so programs get the time to leave them in order.
                end: dict[str, object] = {"do": "end", "low": 1, "high": (1 << 63) - 1, "reason": "destroyed"}
                with contextlib.suppress(SupervisorGoneError):
                    supervisor.answer({**end, "number": int(signal.SIGTERM)})
            supervisor.close()
        with self._lock:
            sessions = list(self.sessions.values())
            self.sessions.clear()
        for session in sessions:
            session.sandbox_ended()
        if os.path.isdir(self._root):
            self._clean_up_after_a_killed_supervisor()

    def _clean_up_after_a_killed_supervisor(self) -> None:
        """End what it left, which is told by its private `HOME`, and remove the directory."""
        import shutil

        home = b"\0HOME=" + os.fsencode(self._home) + b"\0"
        for name in os.listdir("/proc"):
            if name.isdigit():
                try:
                    with open(f"/proc/{name}/environ", "rb") as file:
                        ours = home in b"\0" + file.read()
                    if ours:
                        os.kill(int(name), signal.SIGKILL)
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    continue  # it has ended, or it is somebody else's
        shutil.rmtree(self._root, ignore_errors=True)

    def abandon(self) -> None:
        """In a forked child: what runs belongs to the parent; what it was made from is used for new shells here."""
        self._lock = threading.Lock()
        self._starting = threading.Lock()
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.forget()
        self.processes = Processes(self)
        for session in self.sessions.values():
            session.abandon()
