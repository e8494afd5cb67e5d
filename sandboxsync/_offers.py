"""Verbs that need what only some transports can do; in this version none does, and each says so."""

from __future__ import annotations

from typing import NoReturn

from ._client import Bound
from ._unset import UNSET, Timeout
from ._validate import Env, RemotePath
from .errors import UnsupportedOperationError
from .transports.base import OFFERED_BY, Capability


class OfferedVerbs(Bound):
    """Terminal, code contexts, watching, tunnels and mounts.

    Each raises ``UnsupportedOperationError`` before any I/O; the message names the transports that can.
    """

    def terminal(self, *, cols: int = 80, rows: int = 24, shell: str | None = None) -> NoReturn:
        """Open an interactive terminal. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.TERMINAL)

    def create_code_context(
        self,
        *,
        language: str = "python",
        cwd: RemotePath | None = None,
        env: Env | None = None,
        timeout: Timeout = UNSET,
    ) -> NoReturn:
        """Start an interpreter that keeps its state. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.CODE)

    def run_code(
        self,
        code: str,
        *,
        context: object = None,
        language: str | None = None,
        env: Env | None = None,
        timeout: Timeout = UNSET,
        on_stdout: object = None,
        on_stderr: object = None,
        on_result: object = None,
        on_error: object = None,
    ) -> NoReturn:
        """Run code in an interpreter. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.CODE)

    def list_code_contexts(self) -> NoReturn:
        """Return the interpreters that run. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.CODE)

    def delete_code_context(self, id: str) -> NoReturn:
        """End an interpreter. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.CODE)

    def watch(
        self, path: RemotePath, *, recursive: bool = True, include: object = None, exclude: object = None
    ) -> NoReturn:
        """Watch files change. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.WATCH)

    def tunnel(self, port: int) -> NoReturn:
        """Make a port of the sandbox reachable. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.TUNNEL)

    def close_tunnel(self, port: int) -> NoReturn:
        """End a tunnel. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.TUNNEL)

    def mount_bucket(self, bucket: str, path: RemotePath) -> NoReturn:
        """Mount a bucket as a directory. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.MOUNT)

    def unmount_bucket(self, path: RemotePath) -> NoReturn:
        """End a mount. Raises ``UnsupportedOperationError``."""
        self._refuse(Capability.MOUNT)

    def _refuse(self, capability: Capability) -> NoReturn:
        names = " and ".join(OFFERED_BY[capability])
        who = f"{names} can" if names else "no transport of this version can"
        raise UnsupportedOperationError(
            f"{self._transport.name} has no {capability.value}; {who}",
            context={"capability": capability.name, "transport": self._transport.name},
        )
