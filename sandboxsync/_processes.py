"""Background processes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ._client import Bound
from ._process import RUNNING, Process, ProcessLogStream, read_logs
from ._unset import UNSET, Timeout
from ._validate import (
    Command,
    Env,
    RemotePath,
    check_command,
    check_cwd,
    check_env,
    check_limit,
    check_session_id,
    check_signal,
)
from .errors import ProcessNotFoundError, SandboxError
from .models import ProcessLogs
from .transports.base import ProcessRequest

if TYPE_CHECKING:
    from signal import Signals


class ProcessVerbs(Bound):
    """Verbs on background processes. None waits for a running command; any thread may call them.

    Processes belong to the sandbox: every session, and every client of it, sees all of them. Each verb raises
    ``SessionDestroyedError``, ``SandboxDestroyedError``, and a ``TransportError`` when the sandbox cannot be
    reached.
    """

    def start_process(
        self,
        command: Command,
        *,
        process_id: str | None = None,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        timeout: Timeout = UNSET,
        auto_cleanup: bool = False,
    ) -> Process:
        """Start a command in the background and return at once.

        It begins with the session's environment and directory as of its last finished command, and outlives
        the session. ``timeout`` (s) is its own and inherits nothing: at its end the process is killed, with
        exit code 124. With ``auto_cleanup`` it is forgotten when it ends. Raises ``InvalidRequestError``,
        also when a running process has ``process_id``, and ``SandboxFileNotFoundError`` or
        ``SandboxNotADirectoryError`` for ``cwd``.
        """
        request = ProcessRequest(
            f"proc-{os.urandom(6).hex()}" if process_id is None else _check_id(process_id),
            check_command(command),
            check_env(env),
            check_cwd(cwd),
            check_limit(timeout),
            bool(auto_cleanup),
        )
        return Process(self._client, self._call(self._transport.start_process, self._ref, request))

    def list_processes(self) -> list[Process]:
        """Return all processes of the sandbox that are not forgotten, oldest first."""
        infos = self._call(self._transport.list_processes, self._client.sandbox_id)
        return [Process(self._client, info) for info in infos]

    def get_process(self, id: str) -> Process | None:
        """Return a process as it is now, or ``None`` when there is none with this id."""
        try:
            info = self._call(self._transport.get_process, self._client.sandbox_id, _check_id(id))
        except ProcessNotFoundError:
            return None
        return Process(self._client, info)

    def kill_process(self, id: str, signal: str | int | Signals = "SIGTERM") -> None:
        """End a process, or send it a signal; see ``Process.kill``. Raises ``ProcessNotFoundError``."""
        number = check_signal(signal)
        self._call(self._transport.kill_process, self._client.sandbox_id, _check_id(id), number)

    def kill_all_processes(self) -> int:
        """End every running process of the sandbox with its tree; return how many. Blocks until all are gone.

        When one cannot be ended, the others are, and its error is raised at last.
        """
        infos = self._call(self._transport.list_processes, self._client.sandbox_id)
        running = [info.id for info in infos if info.status in RUNNING]
        if len(running) < 2:
            outcomes = [self._end(process_id) for process_id in running]
        else:
            # Side by side: each may take 2 s to be killed.
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(16, len(running))) as pool:
                outcomes = list(pool.map(self._end, running))
        for outcome in outcomes:
            if isinstance(outcome, SandboxError):
                raise outcome
        return sum(outcome is True for outcome in outcomes)

    def _end(self, process_id: str) -> bool | SandboxError:
        try:
            self._call(self._transport.kill_process, self._client.sandbox_id, process_id, 15)
        except ProcessNotFoundError:
            return False
        except SandboxError as exc:
            return exc
        return True

    def cleanup_completed_processes(self) -> int:
        """Forget every process that has ended, with its logs; return how many."""
        infos = self._call(self._transport.list_processes, self._client.sandbox_id)
        forget = self._transport.forget_process
        ended = [info.id for info in infos if info.status not in RUNNING]
        return sum(self._call(forget, self._client.sandbox_id, process_id) for process_id in ended)

    def get_process_logs(self, id: str) -> ProcessLogs:
        """Return what a process has printed so far. Raises ``ProcessNotFoundError``."""
        process_id = _check_id(id)
        self._check()
        return read_logs(self._client, process_id)

    def stream_process_logs(self, id: str) -> ProcessLogStream:
        """Return the stream of a process's logs: so far, then live, then one ``exit`` event.

        Raises ``ProcessNotFoundError``.
        """
        process_id = _check_id(id)
        self._check()
        return ProcessLogStream(self._client, process_id)


def _check_id(value: object) -> str:
    return check_session_id(value, "process id")
