"""What a sandbox stands on: its supervisor, and where its things are. Here, for one without isolation."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import tempfile
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from sandboxsync._paths import HOST, Paths
from sandboxsync.transports.local._channel import Supervisor, interpreter, memory_file, program, spawn

if TYPE_CHECKING:
    from sandboxsync.transports.local._settings import Settings

__all__ = ["BareGround", "Ground"]


class Ground(ABC):
    """A running supervisor, and the places of a sandbox. Directories end with a slash but for the last three."""

    supervisor: Supervisor
    here: str
    """The directory of what we speak to the sandbox through, as this process reaches it; files in it are made
    `paths.acting()`."""
    inside: str
    """The same directory, as the sandbox sees it."""
    logs: str
    """The directory for the logs of background processes, as this process reaches it."""
    paths: Paths
    """How the sandbox's paths are used."""
    remap: bool
    """Whether `/workspace` is a way to say `workspace` (F5)."""
    client: int = 0
    """The number for tags of what this process starts."""
    serial: int = 0
    """A number that no other process which uses this sandbox has."""
    workspace: str
    home: str
    tmp: str

    @abstractmethod
    def search_path(self) -> str:
        """`PATH` for programs."""

    @abstractmethod
    def connect(self, family: int) -> socket.socket:
        """A stream socket of the network that programs have, to connect."""

    @abstractmethod
    def after_fork(self) -> None:
        """In a forked child, at once: let go of what is of no use here."""

    @abstractmethod
    def in_child(self) -> Ground:
        """In a forked child: what the sandbox stands on here, in the same workspace. Raises `SupervisorGoneError`."""

    @abstractmethod
    def let_go(self) -> None:
        """After the supervisor has ended: remove what it left, which it does itself unless it was killed."""


class BareGround(Ground):
    """No isolation: a private directory of this machine, in the workspace that was given or one of its own."""

    def __init__(self, settings: Settings, workspace: str | None) -> None:
        # Short, because the shells of sessions parse paths in it with every command.
        self._root = os.path.join(os.path.realpath(tempfile.gettempdir()), f"sandboxsync-{secrets.token_hex(4)}")
        self._settings = settings
        self.supervisor = Supervisor(self._start)
        self.here = self.inside = self.logs = os.path.join(self._root, "")
        self.workspace = workspace or self.here + "workspace"
        self.home = self.here + "home"
        self.tmp = self.here + "tmp"
        self.paths = HOST
        self.remap = not os.path.isdir("/workspace")

    def _start(self, channel: int, parent: int, says: int) -> int:
        source = memory_file(program("_supervisor.py"))
        argv = [interpreter(), "-I", "-S", "/proc/self/fd/5", self._root, "workspace", "home", "tmp", "scripts"]
        try:
            return spawn(argv, channel, parent, says, {5: source})
        finally:
            os.close(source)

    def search_path(self) -> str:
        return os.environ.get("PATH", os.defpath)

    def connect(self, family: int) -> socket.socket:
        return socket.socket(family, socket.SOCK_STREAM)

    def after_fork(self) -> None:
        self.supervisor.forget()

    def in_child(self) -> Ground:
        ground = BareGround(self._settings, self.workspace)
        ground.home = self.home
        return ground

    def let_go(self) -> None:
        if not os.path.isdir(self._root):
            return
        import shutil

        # What a killed supervisor left is told by its private `TMPDIR`.
        mark = b"\0TMPDIR=" + os.fsencode(self.tmp) + b"\0"
        for name in os.listdir("/proc"):
            if name.isdigit():
                # It has ended, or it is somebody else's.
                with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                    with open(f"/proc/{name}/environ", "rb") as file:
                        ours = mark in b"\0" + file.read()
                    if ours:
                        os.kill(int(name), signal.SIGKILL)
        shutil.rmtree(self._root, ignore_errors=True)
