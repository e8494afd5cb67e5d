"""One sandbox of the fake: its files, its sessions, its processes."""

from __future__ import annotations

import secrets
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sandboxsync.errors import (
    SandboxError,
    SessionDestroyedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
    file_error,
)
from sandboxsync.transports.base import CommandRequest, Environment, Exited, Output, SessionRef, SessionSpec
from sandboxsync.transports.fake._bashkit import bashkit
from sandboxsync.transports.fake._command import FakeCommand
from sandboxsync.transports.fake._files import VolumeFiles
from sandboxsync.transports.fake._mount import mountable
from sandboxsync.transports.fake._ports import Ports
from sandboxsync.transports.fake._processes import Processes
from sandboxsync.transports.fake._program import Invocation, Program
from sandboxsync.transports.fake._session import FakeSession
from sandboxsync.transports.fake._shell import Settings, Shell
from sandboxsync.transports.fake._volume import Volume

if TYPE_CHECKING:
    from sandboxsync.transports.fake._engine import Engine

__all__ = ["FakeSandbox"]

WORKSPACE = "/workspace"
_ENVIRONMENT = {
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "TERM": "dumb",
    "TMPDIR": "/tmp",
}


class FakeSandbox:
    """Everything that has one sandbox id. Any thread may use it."""

    workspace = WORKSPACE

    def __init__(self, sandbox_id: str, engine: Engine, volume: Volume, programs: Mapping[str, Program]) -> None:
        self.id = sandbox_id
        self.engine = engine
        self.volume = volume
        self.files = VolumeFiles(volume)
        self.incarnation = secrets.token_hex(8)
        self.sessions: dict[str, FakeSession] = {}
        self.processes = Processes(self)
        self.ports = Ports()
        self._programs = programs
        self._lock = threading.Lock()
        self._shells: weakref.WeakSet[Shell] = weakref.WeakSet()
        self._singles: set[FakeCommand] = set()
        self._ended = False

    # For what it hosts

    def environment(self, *layers: Environment) -> dict[str, str]:
        """A clean environment (S13) with layers on top, lowest first."""
        env = dict(_ENVIRONMENT)
        for layer in layers:
            for name, value in layer.items():
                if value is None:
                    env.pop(name, None)
                else:
                    env[name] = value
        return env

    def resolve(self, path: str, directory: str) -> str:
        """The absolute path that a path of the API means (F4)."""
        return path if path.startswith("/") else f"{directory.rstrip('/')}/{path}"

    def directory_problem(self, path: str) -> str | None:
        """Why a path is no directory to be in, in the words of the system; `None` when it is one."""
        try:
            self.volume.listdir(path)
        except OSError as exc:
            return exc.strerror
        return None

    def new_shell(
        self,
        env: Environment,
        directory: str,
        session_id: str | None,
        programs: Mapping[str, Program] | None = None,
    ) -> Shell:
        """An interpreter that has started nothing yet; with the programs of the sandbox, or with others."""
        if self._ended:
            raise self.gone()
        shell = Shell(
            self.engine,
            self.engine.clock.activity(),
            self,
            session_id,
            self.environment(env),
            directory,
            self._programs if programs is None else programs,
        )
        with self._lock:
            self._shells.add(shell)
        if programs is None:
            for name, program in list(self._programs.items()):
                if shell.programs.get(name) != program:  # it came while the shell was made
                    shell.add_program(name, program)
        return shell

    def file_system(self) -> object:
        """The volume as bashkit takes it. To be dropped when it is mounted: it holds descriptors."""
        return mountable(self.volume, bashkit())

    def lend(self, data: bytes) -> str:
        """The path of a file with `data` that nobody else finds, until it is taken back."""
        path = f"/dev/.{secrets.token_hex(8)}"
        self.volume.private[path] = data
        return path

    def take_back(self, path: str) -> None:
        """Let go of a file that was lent."""
        del self.volume.private[path]

    def add_program(self, name: str, program: Program) -> None:
        """Let the shells that there are have one more."""
        with self._lock:
            shells = list(self._shells)
        for shell in shells:
            if shell.programs.get(name) != program:
                shell.add_program(name, program)

    def run_within(self, call: Invocation, text: str, programs: Mapping[str, Program]) -> tuple[list[Output], int]:
        """Run a text in a shell of its own with other programs, in the place of a program that a shell has called.

        Blocks until it has ended. It is stopped with the command that it is a part of.
        """
        shell = self.new_shell(call.env, call.cwd, call.shell.session_id, programs)
        command = FakeCommand(self.engine, text, call.stdin, None, lambda how: Exited(how.exit_code, command.duration))
        command.notes = call.shell.notes or command.notes
        output: list[Output] = []
        try:
            with call.shell.holding(command):
                command.start(shell, None)
                while not isinstance(item := command.read(), Exited):
                    output.append(item)
        finally:
            command.close()
            shell.end()
        return output, item.exit_code

    def gone(self) -> SandboxError:
        """The error for whoever used it when it was ended."""
        return SessionTerminatedError("the sandbox was ended", code="SANDBOX_RESTARTED")

    # Commands without a session

    def run_single(
        self,
        env: Environment,
        request: CommandRequest,
        timeout: float | None,
        begin: Callable[[FakeCommand], None],
    ) -> FakeCommand:
        """Start a command in a shell of its own (S3). `begin` is called with it before it runs."""
        shell = self.new_shell(env, self.workspace, None)
        command = FakeCommand(
            self.engine, request.command, request.stdin, timeout, lambda how: Exited(how.exit_code, command.duration)
        )
        begin(command)
        directory = None if request.cwd is None else self.resolve(request.cwd, self.workspace)
        if directory is not None and command.fails_in(request.cwd, self.directory_problem(directory)):
            return command
        command.settings = Settings(request.env, directory)
        with self._lock:
            self._singles.add(command)

        def ended(command: FakeCommand, how: object) -> None:
            with self._lock:
                self._singles.discard(command)
            if not shell.may_have_jobs:
                shell.end()

        command.on_ended = ended
        command.start(shell, timeout)
        return command

    # Sessions

    def create_session(self, session_id: str, spec: SessionSpec) -> None:
        """See `Transport.create_session`."""
        directory = self.workspace if spec.cwd is None else self.resolve(spec.cwd, self.workspace)
        try:
            self.volume.listdir(directory)
        except OSError as exc:
            raise file_error(exc, directory) from exc
        session = FakeSession(self, session_id, spec, self.volume.realpath(directory))
        with self._lock:
            old = self.sessions.get(session_id)
            if old is not None and not old.has_died():
                raise SessionExistsError(f"session {session_id!r} exists already", session_id=session_id)
            self.sessions[session_id] = session
        if old is not None:
            old.delete()

    def session(self, ref: SessionRef) -> FakeSession:
        """The session of a reference, made with defaults if it is new (S4)."""
        assert ref.session_id is not None
        with self._lock:
            session = self.sessions.get(ref.session_id)
            if session is None:
                if ref.is_deleted():
                    raise SessionDestroyedError(f"session {ref.session_id!r} was deleted", session_id=ref.session_id)
                session = FakeSession(self, ref.session_id, SessionSpec(env=ref.env), self.workspace)
                self.sessions[ref.session_id] = session
        return session

    def delete_session(self, session_id: str) -> None:
        """See `Transport.delete_session`."""
        with self._lock:
            session = self.sessions.pop(session_id, None)
        if session is None:
            raise SessionNotFoundError(f"there is no session {session_id!r}", session_id=session_id)
        session.delete()

    def place(self, ref: SessionRef) -> tuple[str, dict[str, str]]:
        """The directory and the environment that what starts beside a session begins with."""
        if ref.session_id is None:
            return self.workspace, self.environment(ref.env)
        session = self.session(ref)
        return session.directory, dict(session.exported)

    def directory(self, ref: SessionRef) -> str:
        """What relative paths of a reference start from."""
        if ref.session_id is None:
            return self.workspace
        with self._lock:
            session = self.sessions.get(ref.session_id)
        return self.workspace if session is None else session.directory

    # Ends

    def destroy(self) -> None:
        """End everything in it."""
        with self._lock:
            self._ended = True
            sessions = list(self.sessions.values())
            self.sessions.clear()
            singles = list(self._singles)
        for session in sessions:
            session.sandbox_ended()
        for command in singles:
            command.stop(self.gone())
            command.wait()
        self.processes.end()
        with self._lock:
            shells = list(self._shells)
        for shell in shells:
            shell.end()

    def abandon(self) -> None:
        """In a forked child: what runs belongs to the parent; the files are a copy, and so are the sessions."""
        self._lock = threading.Lock()
        self.volume.renew_lock()
        self._shells = weakref.WeakSet()
        self._singles = set()
        self.processes = Processes(self)
        self.ports = Ports()
        for session in self.sessions.values():
            session.abandon()
