"""The container's routes for commands and sessions."""

from __future__ import annotations

import secrets
import time
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from sandboxsync._unset import UNSET
from sandboxsync.errors import (
    CommandTimeoutError,
    FileError,
    SandboxError,
    SessionDestroyedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from sandboxsync.server._answers import Answer, Streamed, Writer, dump, load, now
from sandboxsync.server._commands import (
    MISSING,
    TIMED_OUT,
    Command,
    SpawnError,
    milliseconds,
    run,
    sessionless,
    was_stopped,
)
from sandboxsync.server._container_errors import ContainerError, command_failed, invalid, start_failed
from sandboxsync.server._container_processes import start_process
from sandboxsync.server._container_request import (
    EVENTS,
    NO_SESSION,
    Site,
    body_of,
    command_of,
    json_of,
    session_of,
)
from sandboxsync.transports.base import CommandRequest, CommandStream, SessionSpec

__all__ = ["ContainerCommands"]

_MOST_OUTPUT = 256 << 20
"""Bytes of output that are collected in memory; who prints more is stopped."""


class ContainerCommands:
    """The handlers."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def execute(self, request: Request) -> Response:
        body = await json_of(request, self._site)
        named = session_of(request, body)
        session_id = None if named == NO_SESSION else named or "default"
        if body.get("background") is True:
            return await start_process(self._site, body, session_id)
        command = command_of(body, session_id)
        if session_id is not None:
            _check_for_session(body, command, session_id)

        def answer() -> Answer:
            code, stdout, stderr = self._execute(session_id, command)
            told: dict[str, Any] = {"success": code == 0, "exitCode": code, "stdout": stdout, "stderr": stderr}
            if "command" in body:
                told["command"] = command.text
            told.update(duration=0, timestamp=now())
            if named is not None:
                told["sessionId"] = named
            return Answer(told)

        return await self._site.workers.long(answer)

    def _execute(self, session_id: str | None, command: Command) -> tuple[int, str, str]:
        """Run a command to its end; its exit code and output. In a worker thread."""
        printed: dict[str, list[str]] = {"stdout": [], "stderr": []}

        def on_text(stream: Literal["stdout", "stderr"], text: str) -> None:
            printed[stream].append(text)

        if session_id is not None and self._is_missing(session_id, command.cwd):
            return 1, "", f"Failed to change directory to '{command.cwd}'"
        began = time.monotonic()
        try:
            exited = run(self._site.workers, self._start(session_id, command), on_text, _MOST_OUTPUT)
        except SpawnError as exc:
            raise command_failed(command.text, session_id, str(exc)) from None
        except CommandTimeoutError as exc:
            told = f"Command timeout after {(exc.timeout or 0) * 1000:.0f}ms"
            raise command_failed(command.text, session_id, told) from None
        except SessionTerminatedError as exc:
            raise _terminated(session_id, exc) from None
        stdout, stderr = "".join(printed["stdout"]), "".join(printed["stderr"])
        if session_id is not None:
            return exited.exit_code, _of_session(stdout), _of_session(stderr)
        if was_stopped(exited, command, began):
            assert command.timeout is not None
            return TIMED_OUT, stdout, f"{stderr}Command timed out after {command.timeout * 1000:.0f}ms"
        return exited.exit_code, stdout, stderr

    def _start(self, session_id: str | None, command: Command) -> CommandStream:
        site = self._site
        if session_id is None:
            return sessionless(site.transport, site.sandbox_id, command)
        timeout = UNSET if command.timeout is None else command.timeout
        request = CommandRequest(command.text or "\n", command.env, command.cwd, timeout=timeout)
        return site.transport.run(site.ref(session_id), request)

    def _is_missing(self, session_id: str, cwd: str | None) -> bool:
        if cwd is None:
            return False
        try:
            return self._site.transport.stat(self._site.ref(session_id), cwd, True).type != "directory"
        except FileError:
            return True

    async def execute_stream(self, request: Request) -> Streamed:
        body = await json_of(request, self._site)
        named = session_of(request, body)
        session_id = None if named == NO_SESSION else named or "default"
        if not body.get("command"):
            raise ContainerError("INVALID_COMMAND", "Invalid command: empty command provided", 400)
        # The service has no time limit for these.
        command = command_of({**body, "timeoutMs": None}, session_id)
        site = self._site
        return Streamed(site.workers, lambda writer: self._stream(writer, session_id, command), EVENTS, site.silence)

    def _stream(self, writer: Writer, session_id: str | None, command: Command) -> None:
        """Run a command and write its events. In a worker thread."""

        def write(kind: str, **more: object) -> None:
            writer.write(b"data: " + dump({"type": kind, **more, "timestamp": now()}) + b"\n\n")

        if session_id is not None and self._is_missing(session_id, command.cwd):
            write("start", command=command.text)
            write("stderr", data=f"Failed to change directory to '{command.cwd}'\n")
            write("complete", exitCode=1)
            writer.end()
            return
        try:
            stream = self._start(session_id, command)
        except SpawnError as exc:
            raise start_failed(command.text, session_id, str(exc)) from None
        except SessionTerminatedError as exc:
            raise _terminated(session_id, exc) from None
        write("start", command=command.text)
        try:
            exit_code = run(self._site.workers, stream, lambda name, text: write(name, data=text)).exit_code
        except SandboxError as exc:
            ended = exc.exit_code if isinstance(exc, SessionTerminatedError) else None
            if ended is None:
                write("error", error=str(exc))
            else:
                write("complete", exitCode=ended)  # the command ended its shell
        else:
            write("complete", exitCode=exit_code)
        writer.end()

    # Sessions

    async def create_session(self, request: Request) -> Response:
        try:
            given = load(await body_of(request))
        except ValueError:
            given = {}
        given = given if isinstance(given, dict) else {}
        session_id = given.get("id")
        if not isinstance(session_id, str) or not session_id:
            session_id = f"session_{time.time_ns() // 1_000_000}_{secrets.token_hex(6)}"
        env, cwd = given.get("env"), given.get("cwd")
        env = {name: value for name, value in env.items() if isinstance(value, str)} if isinstance(env, dict) else {}
        cwd = cwd if isinstance(cwd, str) and cwd else None
        limit = milliseconds(given.get("commandTimeoutMs"))
        spec = SessionSpec(env, cwd, UNSET if limit is None else limit)
        await self._site.workers.short(self._create_session, session_id, spec)
        options = {"id": session_id, "env": env, "cwd": cwd or "/workspace"}
        if limit is not None:
            options["commandTimeoutMs"] = given["commandTimeoutMs"]
        data = {"ready": True, "isDestroying": False, "shellExitCode": None, "id": session_id, "options": options}
        return Answer({"success": True, "data": data, "containerPlacementId": None, "timestamp": now()})

    def _create_session(self, session_id: str, spec: SessionSpec) -> None:
        places = [None] if spec.cwd is None else [spec.cwd, "/root", None]
        try:
            for place in places:
                try:
                    made = SessionSpec(spec.env, place, spec.command_timeout)
                    self._site.transport.create_session(self._site.ref(session_id), made)
                    return
                except MISSING:
                    continue  # the service silently takes the home directory
        except SessionExistsError:
            raise ContainerError(
                "SESSION_ALREADY_EXISTS",
                f"Session '{session_id}' already exists",
                409,
                {"sessionId": session_id, "containerPlacementId": None},
                suggestion=f'Session "{session_id}" already exists. Use a different session ID or reuse the existing '
                "session",
            ) from None

    async def list_sessions(self, request: Request) -> Response:
        ids = await self._site.workers.short(self._site.transport.list_sessions, self._site.sandbox_id)
        return Answer({"success": True, "data": ids, "timestamp": now()})

    async def delete_session(self, request: Request) -> Response:
        try:
            body = load(await body_of(request))
        except ValueError:
            raise invalid("Invalid request body") from None
        session_id = body.get("sessionId") if isinstance(body, dict) else None
        if not isinstance(session_id, str) or not session_id:
            raise invalid("sessionId is required")
        try:
            await self._site.workers.short(self._site.transport.delete_session, self._site.ref(session_id))
        except SessionNotFoundError:
            context = {"sessionId": session_id, "originalError": "Session not found"}
            raise ContainerError("INTERNAL_ERROR", f"Session '{session_id}' not found", 500, context) from None
        return Answer({"success": True, "sessionId": session_id, "timestamp": now()})


def _check_for_session(body: dict[str, Any], command: Command, session_id: str) -> None:
    if "command" not in body:
        why = "undefined is not an object (evaluating '$.match')"
        message = f"Failed to execute command 'undefined': {why}"
        raise ContainerError("COMMAND_EXECUTION_ERROR", message, 500, {"stderr": why})
    limit = body.get("timeoutMs")
    if isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit <= 0:
        raise command_failed(command.text, session_id, f"Command timeout after {limit}ms")


def _of_session(text: str) -> str:
    """What the service tells of the output of a command in a session."""
    return text.replace("\0", "").removesuffix("\n")


def _terminated(session_id: str | None, exc: SessionTerminatedError | SessionDestroyedError) -> ContainerError:
    exit_code = exc.exit_code if isinstance(exc, SessionTerminatedError) else None
    return ContainerError(
        "SESSION_TERMINATED",
        f"Session '{session_id}' shell exited (exit code: {exit_code})",
        410,
        {"sessionId": session_id, "exitCode": exit_code},
        suggestion=f'Session "{session_id}" ended because its shell exited (exit code: {exit_code}). Session-local '
        "state (env vars, cwd, shell functions) has been lost. Retry the call to start a fresh session, or call "
        "createSession() with the same id to recreate it explicitly",
    )
