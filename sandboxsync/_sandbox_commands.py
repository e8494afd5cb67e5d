"""Commands and processes of any session, for ``Sandbox``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ._collect import OnOutput
from ._process import Process, ProcessLogStream
from ._stream import ExecStream
from ._unset import UNSET, Timeout
from ._validate import Command, Env, RemotePath
from .models import ExecResult, GitCheckoutResult, ProcessLogs

if TYPE_CHECKING:
    from signal import Signals

    from ._operations import Operations


class SandboxCommands(ABC):
    """The verbs of ``Session`` on commands and processes, with ``session_id`` to say which session is meant.

    Without it the default session is used, or none where the default session is off. What each option means
    and each verb raises stands at the method of the same name of ``Session``; a bad ``session_id`` raises
    ``InvalidRequestError``. The verbs on processes that exist see those of the whole sandbox, whatever the
    session.
    """

    @abstractmethod
    def _on(self, session_id: str | None) -> Operations:
        """Return the verbs bound to a session, to the default one for ``None``."""

    def exec(
        self,
        command: Command,
        *,
        timeout: Timeout = UNSET,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
        on_output: OnOutput | None = None,
        max_output: int | None = None,
        encoding: str = "utf-8",
        errors: str = "replace",
        session_id: str | None = None,
    ) -> ExecResult:
        """Run a command to its end and return its result. See ``Session.exec``."""
        return self._on(session_id).exec(
            command,
            timeout=timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            check=check,
            on_output=on_output,
            max_output=max_output,
            encoding=encoding,
            errors=errors,
        )

    def exec_stream(
        self,
        command: Command,
        *,
        timeout: Timeout = UNSET,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        stdin: str | bytes | None = None,
        max_output: int | None = None,
        encoding: str = "utf-8",
        errors: str = "replace",
        session_id: str | None = None,
    ) -> ExecStream:
        """Start a command and return the stream of its events. See ``Session.exec_stream``."""
        return self._on(session_id).exec_stream(
            command,
            timeout=timeout,
            env=env,
            cwd=cwd,
            stdin=stdin,
            max_output=max_output,
            encoding=encoding,
            errors=errors,
        )

    def git_checkout(
        self,
        repo_url: str,
        *,
        branch: str | None = None,
        target_dir: RemotePath | None = None,
        depth: int | None = None,
        token: str | None = None,
        timeout: Timeout = UNSET,
        session_id: str | None = None,
    ) -> GitCheckoutResult:
        """Clone a repository into ``target_dir``, or a directory named after it.

        See ``Session.git_checkout``.
        """
        return self._on(session_id).git_checkout(
            repo_url, branch=branch, target_dir=target_dir, depth=depth, token=token, timeout=timeout
        )

    def start_process(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        timeout: Timeout = UNSET,
        auto_cleanup: bool = False,
        session_id: str | None = None,
    ) -> Process:
        """Start a command in the background and return at once. See ``Session.start_process``."""
        return self._on(session_id).start_process(
            command, process_id=process_id, env=env, cwd=cwd, timeout=timeout, auto_cleanup=auto_cleanup
        )

    def list_processes(self, *, session_id: str | None = None) -> list[Process]:
        """Return all processes of the sandbox that are not forgotten, oldest first.

        See ``Session.list_processes``.
        """
        return self._on(session_id).list_processes()

    def get_process(self, id: str, *, session_id: str | None = None) -> Process | None:
        """Return a process as it is now, or ``None`` when there is none with this id.

        See ``Session.get_process``.
        """
        return self._on(session_id).get_process(id)

    def kill_process(self, id: str, signal: str | int | Signals = "SIGTERM", *, session_id: str | None = None) -> None:
        """End a process, or send it a signal. See ``Session.kill_process``."""
        self._on(session_id).kill_process(id, signal)

    def kill_all_processes(self, *, session_id: str | None = None) -> int:
        """End every running process of the sandbox with its tree; return how many.

        See ``Session.kill_all_processes``.
        """
        return self._on(session_id).kill_all_processes()

    def cleanup_completed_processes(self, *, session_id: str | None = None) -> int:
        """Forget every process that has ended, with its logs; return how many.

        See ``Session.cleanup_completed_processes``.
        """
        return self._on(session_id).cleanup_completed_processes()

    def get_process_logs(self, id: str, *, session_id: str | None = None) -> ProcessLogs:
        """Return what a process has printed so far. See ``Session.get_process_logs``."""
        return self._on(session_id).get_process_logs(id)

    def stream_process_logs(self, id: str, *, session_id: str | None = None) -> ProcessLogStream:
        """Return the stream of a process's logs: so far, then live, then one ``exit`` event.

        See ``Session.stream_process_logs``.
        """
        return self._on(session_id).stream_process_logs(id)
