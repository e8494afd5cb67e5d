"""The bridge's API: many sandboxes by id, behind a key. Commands, sessions and files are in modules of their own."""

from __future__ import annotations

import base64
import contextlib
import hmac
import re
import secrets
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, ExceptionHandler

from sandboxsync.errors import ConfigurationError, SandboxError, SandboxUnavailableError
from sandboxsync.server._answers import Answer
from sandboxsync.server._bridge_commands import BridgeCommands
from sandboxsync.server._bridge_files import BridgeFiles
from sandboxsync.server._guard import BodyTooLargeError, Guard
from sandboxsync.server._openapi import document
from sandboxsync.server._refusal import RefusedError
from sandboxsync.server._workers import NoWorkerError, Workers
from sandboxsync.transports.base import Transport

__all__ = ["create_bridge_app"]

_SANDBOX_ID = re.compile(r"[a-z2-7]{1,128}")


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
        commands = BridgeCommands(self._transport, self._workers, self._sandbox_id)
        files = BridgeFiles(self._transport, self._workers, self._sandbox_id)
        sandbox = "/v1/sandbox/{id}"
        routes = [
            Route("/health", self.health, methods=["GET"]),
            Route("/v1/openapi.json", self.openapi, methods=["GET"]),
            Route("/v1/sandbox", self.create_sandbox, methods=["POST"]),
            Route(sandbox, self.delete_sandbox, methods=["DELETE"]),
            Route(f"{sandbox}/running", self.running, methods=["GET"]),
            Route(f"{sandbox}/exec", commands.exec, methods=["POST"]),
            Route(f"{sandbox}/session", commands.create_session, methods=["POST"]),
            Route(f"{sandbox}/session/{{sid}}", commands.delete_session, methods=["DELETE"]),
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
