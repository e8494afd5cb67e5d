"""The bridge's API: many sandboxes by id, behind a key. Sandboxes, commands, sessions; files are in `_bridge_files`."""

from __future__ import annotations

import base64
import contextlib
import hmac
import posixpath
import re
import secrets
import threading
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, ExceptionHandler

from sandboxsync._unset import UNSET
from sandboxsync._validate import check_env
from sandboxsync.errors import (
    CommandTimeoutError,
    ConfigurationError,
    SandboxError,
    SandboxUnavailableError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from sandboxsync.server._answers import Answer, Streamed, Writer, as_text, dump, load_in, now
from sandboxsync.server._bridge_files import BridgeFiles
from sandboxsync.server._commands import MISSING, TIMED_OUT, Command, SpawnError, run, sessionless, was_stopped
from sandboxsync.server._guard import BodyTooLargeError, Guard, read_body
from sandboxsync.server._openapi import document
from sandboxsync.server._refusal import RefusedError
from sandboxsync.server._workers import NoWorkerError, Workers
from sandboxsync.transports.base import CommandRequest, SessionRef, SessionSpec, Transport

__all__ = ["create_bridge_app"]

_SANDBOX_ID = re.compile(r"[a-z2-7]{1,128}")
_SESSION_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_BARE_WORD = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_MOST_JSON = 32 << 20
_MOST_OUTPUT = 32 << 20
"""Bytes that one command can print before its result cannot be told any more."""
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-cache"}


def create_bridge_app(transport: Transport, api_key: str) -> ASGIApp:
    """Return an ASGI app with the bridge's API over the sandboxes of `transport`, which stays the caller's to close.

    Raises `ConfigurationError` for an empty key. The server has to call the app's lifespan: its end stops what runs.
    """
    if not api_key.strip():
        raise ConfigurationError("the bridge's app needs a key that is not empty")
    return Guard(_Bridge(transport, api_key).app())


class _Bridge:
    """The handlers, and what they share."""

    def __init__(self, transport: Transport, api_key: str) -> None:
        self._transport = transport
        self._key = api_key.encode()
        self._workers = Workers()
        self._lock = threading.Lock()
        self._used: set[str] = set()

    def app(self) -> Starlette:
        files = BridgeFiles(self._transport, self._workers, self._sandbox_id)
        sandbox = "/v1/sandbox/{id}"
        routes = [
            Route("/health", self.health, methods=["GET"]),
            Route("/v1/openapi.json", self.openapi, methods=["GET"]),
            Route("/v1/sandbox", self.create_sandbox, methods=["POST"]),
            Route(sandbox, self.delete_sandbox, methods=["DELETE"]),
            Route(f"{sandbox}/running", self.running, methods=["GET"]),
            Route(f"{sandbox}/exec", self.exec, methods=["POST"]),
            Route(f"{sandbox}/session", self.create_session, methods=["POST"]),
            Route(f"{sandbox}/session/{{sid}}", self.delete_session, methods=["DELETE"]),
            Route(f"{sandbox}/file/{{path:path}}", files.get, methods=["GET"]),
            Route(f"{sandbox}/file/{{path:path}}", files.put, methods=["PUT"]),
            Route(f"{sandbox}/persist", files.persist, methods=["POST"]),
            Route(f"{sandbox}/hydrate", files.hydrate, methods=["POST"]),
            Route("/v1/pool/stats", self.pool_stats, methods=["GET"]),
            Route("/v1/pool/prime", self.pool_ok, methods=["POST"]),
            Route("/v1/pool/shutdown-prewarmed", self.pool_ok, methods=["POST"]),
        ]
        handlers: Mapping[Any, ExceptionHandler] = {
            404: _not_found,
            405: _not_found,
            BodyTooLargeError: _too_large,
            ClientDisconnect: _gone,
            NoWorkerError: _busy,
            RefusedError: _refused,
            SandboxError: _failed,
        }
        app = Starlette(routes=routes, exception_handlers=handlers, lifespan=self._lifespan)
        app.router.redirect_slashes = False
        app.add_middleware(_Authorized, key=self._key)
        return app

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await Workers().short(self._workers.close)

    def _sandbox_id(self, request: Request) -> str:
        """The id of the sandbox that a request is about."""
        sandbox_id: str = request.path_params["id"]
        if _SANDBOX_ID.fullmatch(sandbox_id) is None:
            raise RefusedError("Invalid sandbox ID format")
        with self._lock:
            self._used.add(sandbox_id)
        return sandbox_id

    # Sandboxes

    async def health(self, request: Request) -> Response:
        return Answer({"ok": True})

    async def openapi(self, request: Request) -> Response:
        return Answer(document(request.app.routes))

    async def create_sandbox(self, request: Request) -> Response:
        return Answer({"id": base64.b32encode(secrets.token_bytes(17)).decode()[:26].lower()})

    async def running(self, request: Request) -> Response:
        await self._workers.short(self._transport.ping, self._sandbox_id(request), None)
        return Answer({"running": True})

    async def delete_sandbox(self, request: Request) -> Response:
        sandbox_id = self._sandbox_id(request)
        await self._workers.short(self._transport.destroy, sandbox_id)
        with self._lock:
            self._used.discard(sandbox_id)
        return Response(status_code=204)

    async def pool_stats(self, request: Request) -> Response:
        used = len(self._used)
        config = {"warmTarget": 0, "refreshInterval": 10000, "maxInstances": 0, "scaleBatchSize": 5}
        return Answer({"warm": 0, "assigned": used, "total": used, "config": config, "maxInstances": None})

    async def pool_ok(self, request: Request) -> Response:
        return Answer({"ok": True})

    # Commands

    async def exec(self, request: Request) -> Streamed:
        sandbox_id = self._sandbox_id(request)
        session_id = request.headers.get("session-id")
        if session_id is not None and (_SESSION_ID.fullmatch(session_id) is None or ".." in session_id):
            raise RefusedError("Invalid session ID format")
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

    def _run(self, ref: SessionRef, command: Command, on_text: Any) -> int | None:
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
            spec = SessionSpec(check_env(env if isinstance(env, dict) else None))
            for place in places:
                try:
                    self._transport.create_session(
                        SessionRef(sandbox_id, session_id), SessionSpec(spec.env, place, spec.command_timeout)
                    )
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


class _Authorized:
    """Lets nobody below `/v1` who has not the key."""

    def __init__(self, app: ASGIApp, key: bytes) -> None:
        self._app = app
        self._key = key

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and f"{scope['path']}/".startswith("/v1/"):
            request = Request(scope)
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            keys = [given.strip().encode("latin-1")] if scheme.lower() == "bearer" else []
            if scope["path"] == "/v1/openapi.json":
                keys += [token.encode("utf-8", "replace") for token in request.query_params.getlist("token")]
            if not any(hmac.compare_digest(key, self._key) for key in keys):
                await Answer({"error": "Unauthorized", "code": "unauthorized"}, 401)(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _command(given: Any) -> Command:
    argv = given.get("argv") if isinstance(given, dict) else None
    if not isinstance(argv, list) or not argv:
        raise RefusedError("argv must be a non-empty array")
    words = [as_text(word) for word in argv]
    text = " ".join(word if _BARE_WORD.fullmatch(word) else "'" + word.replace("'", "'\\''") + "'" for word in words)
    cwd = given.get("cwd")
    if not isinstance(cwd, str) or not cwd:
        cwd = None
    else:
        cwd = posixpath.normpath(posixpath.join("/workspace", cwd))
        if not f"{cwd}/".startswith("/workspace/"):
            raise RefusedError("cwd must resolve to a location within /workspace", 403)
    limit = given.get("timeout_ms")
    timed = isinstance(limit, (int, float)) and not isinstance(limit, bool) and limit > 0
    return Command(text, cwd, timeout=limit / 1000 if timed else None)


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def _output(stream: Literal["stdout", "stderr"], data: bytes) -> bytes:
    return _event(stream, base64.b64encode(data))


def _error(writer: Writer, text: str) -> None:
    writer.write(_event("error", dump({"error": text, "code": "exec_transport_error"})))


async def _not_found(request: Request, exc: Exception) -> Response:
    return PlainTextResponse("404 Not Found", 404, {"content-type": "text/plain; charset=UTF-8"})


async def _refused(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, RefusedError)
    return Answer({"error": str(exc), "code": exc.code}, exc.status)


async def _too_large(request: Request, exc: Exception) -> Response:
    return Answer({"error": "payload too large", "code": "payload_too_large"}, 413)


async def _gone(request: Request, exc: Exception) -> Response:
    return Response(status_code=400)


async def _busy(request: Request, exc: Exception) -> Response:
    return Answer({"error": "no capacity for another command", "code": "capacity_exceeded"}, 503)


async def _failed(request: Request, exc: Exception) -> Response:
    status = 503 if isinstance(exc, (SandboxUnavailableError, ConfigurationError)) else 502
    return Answer({"error": f"{type(exc).__name__}: {exc}", "code": "exec_transport_error"}, status)
