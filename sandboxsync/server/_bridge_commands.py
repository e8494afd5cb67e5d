"""The bridge's routes for commands and sessions."""

from __future__ import annotations

import base64
import posixpath
import time
from collections.abc import Callable
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from sandboxsync._unset import UNSET
from sandboxsync._validate import check_env
from sandboxsync.errors import (
    CommandTimeoutError,
    SandboxError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from sandboxsync.server._answers import Answer, Streamed, Writer, as_text, dump, load_in, now
from sandboxsync.server._commands import (
    MISSING,
    TIMED_OUT,
    Command,
    OnText,
    SpawnError,
    milliseconds,
    run,
    sessionless,
    was_stopped,
)
from sandboxsync.server._guard import read_body
from sandboxsync.server._refusal import RefusedError, session_of
from sandboxsync.server._workers import Workers
from sandboxsync.transports.base import CommandRequest, SessionRef, SessionSpec, Transport

__all__ = ["BridgeCommands"]

_MOST_JSON = 32 << 20
_MOST_OUTPUT = 32 << 20
"""Bytes that one command can print before its result cannot be told any more."""
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


class BridgeCommands:
    """The handlers. `sandbox_id` tells of a request which sandbox it is about."""

    def __init__(self, transport: Transport, workers: Workers, sandbox_id: Callable[[Request], str]) -> None:
        self._transport = transport
        self._workers = workers
        self._sandbox_id = sandbox_id

    async def exec(self, request: Request) -> Streamed:
        sandbox_id = self._sandbox_id(request)
        session_id = session_of(request)
        command = _command(await self._json(request))
        ref = SessionRef(sandbox_id, session_id)
        return Streamed(self._workers, lambda writer: self._exec(writer, ref, command), _EVENTS)

    async def _json(self, request: Request) -> Any:
        try:
            return await load_in(self._workers, await read_body(request, _MOST_JSON))
        except ValueError:
            raise RefusedError("Invalid JSON body") from None

    def _exec(self, writer: Writer, ref: SessionRef, command: Command) -> None:
        """Run a command and write its events. In a worker thread."""
        writer.begin()
        size = 0

        def on_text(stream: Literal["stdout", "stderr"], text: str) -> None:
            nonlocal size
            data = text.encode()
            size += len(data)
            writer.write(_output(stream, data))

        try:
            exit_code = self._run(ref, command, on_text)
        except SpawnError:
            _error(writer, "exec failed: Command execution failed")
        except SandboxError as exc:
            _error(writer, f"exec failed: {type(exc).__name__}: {exc}")
        else:
            if exit_code is None:
                assert command.timeout is not None
                on_text("stderr", f"Command timed out after {command.timeout * 1000:.0f}ms\n")
            if size > _MOST_OUTPUT:
                limit = "Serialized RPC arguments or return values are limited to 32MiB"
                _error(writer, f"exec failed: {limit}, but the size of this value was: {size} bytes.")
            else:
                writer.write(_event("exit", dump({"exit_code": TIMED_OUT if exit_code is None else exit_code})))
        writer.end()

    def _run(self, ref: SessionRef, command: Command, on_text: OnText) -> int | None:
        """Run it to its end; `None` when it was stopped at its limit."""
        began = time.monotonic()
        if ref.session_id is None:
            exited = run(self._workers, sessionless(self._transport, ref.sandbox_id, command), on_text)
            return None if was_stopped(exited, command, began) else exited.exit_code
        timeout = UNSET if command.timeout is None else command.timeout
        try:
            stream = self._transport.run(ref, CommandRequest(command.text, cwd=command.cwd, timeout=timeout))
            return run(self._workers, stream, on_text).exit_code
        except CommandTimeoutError:
            if command.timeout is None:
                raise
            return None
        except SessionTerminatedError as exc:
            if exc.exit_code is None:
                raise
            return exc.exit_code  # the command ended its shell

    # Sessions

    async def create_session(self, request: Request) -> Response:
        sandbox_id = self._sandbox_id(request)
        try:
            given = await load_in(self._workers, await read_body(request, _MOST_JSON))
        except ValueError:
            given = {}
        given = given if isinstance(given, dict) else {}
        session_id = given.get("id")
        if not isinstance(session_id, str) or not session_id:
            session_id = f"session-{time.time_ns() // 1_000_000}"
        await self._workers.short(self._create_session, sandbox_id, session_id, given)
        return Answer({"id": session_id})

    def _create_session(self, sandbox_id: str, session_id: str, given: dict[str, Any]) -> None:
        env = given.get("env")
        cwd = given.get("cwd")
        places = [cwd, "/root", None] if isinstance(cwd, str) and cwd else [None]
        try:
            variables = check_env(env if isinstance(env, dict) else None)
            for place in places:
                try:
                    self._transport.create_session(SessionRef(sandbox_id, session_id), SessionSpec(variables, place))
                    break
                except MISSING:
                    continue  # the service silently takes the home directory
        except SessionExistsError:
            told = f"session create failed: SessionAlreadyExistsError: Session '{session_id}' already exists"
            raise RefusedError(told, 502, "session_error") from None
        except SandboxError as exc:
            raise RefusedError(f"session create failed: {type(exc).__name__}: {exc}", 502, "session_error") from exc

    async def delete_session(self, request: Request) -> Response:
        ref = SessionRef(self._sandbox_id(request), request.path_params["sid"])
        try:
            await self._workers.short(self._transport.delete_session, ref)
        except SessionNotFoundError:
            told = f"session delete failed: SandboxError: Session '{ref.session_id}' not found"
            raise RefusedError(told, 502, "session_error") from None
        return Answer({"success": True, "sessionId": ref.session_id, "timestamp": now()})


def _command(given: Any) -> Command:
    argv = given.get("argv") if isinstance(given, dict) else None
    if not isinstance(argv, list) or not argv:
        raise RefusedError("argv must be a non-empty array")
    # All are quoted, so that none is a keyword, an alias or an assignment.
    text = " ".join("'" + as_text(word).replace("'", "'\\''") + "'" for word in argv)
    cwd = given.get("cwd")
    if not isinstance(cwd, str) or not cwd:
        cwd = None
    else:
        cwd = posixpath.normpath(posixpath.join("/workspace", cwd))
        if not f"{cwd}/".startswith("/workspace/"):
            raise RefusedError("cwd must resolve to a location within /workspace", 403)
    return Command(text, cwd, timeout=milliseconds(given.get("timeout_ms")))


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def _output(stream: Literal["stdout", "stderr"], data: bytes) -> bytes:
    return _event(stream, base64.b64encode(data))


def _error(writer: Writer, text: str) -> None:
    writer.write(_event("error", dump({"error": text, "code": "exec_transport_error"})))
