"""The container's API: one sandbox, no key. Commands and sessions; files and processes are in modules of their own."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, ExceptionHandler

from sandboxsync.errors import ConfigurationError, SandboxError, SandboxUnavailableError
from sandboxsync.server._answers import Answer, now
from sandboxsync.server._container_commands import ContainerCommands
from sandboxsync.server._container_errors import ContainerError
from sandboxsync.server._container_files import ContainerFiles
from sandboxsync.server._container_processes import ContainerProcesses
from sandboxsync.server._container_request import Site
from sandboxsync.server._guard import BodyTooLargeError, Guard
from sandboxsync.server._workers import NoWorkerError, Workers
from sandboxsync.transports.base import Transport

__all__ = ["create_container_app"]

VERSION = "0.12.7"
"""The version of the service whose behaviour this is."""
_SILENCE = 255.0
"""Seconds after which the service ends an answer in which nothing came."""


def create_container_app(transport: Transport, sandbox_id: str, *, silence: float = _SILENCE) -> ASGIApp:
    """Return an ASGI app with the container's API over one sandbox of `transport`, which stays the caller's to close.

    A streamed answer ends, as the service's do, after `silence` seconds in which nothing came. The server has to call
    the app's lifespan: its end stops what runs.
    """
    return Guard(_container(Site(transport, sandbox_id, Workers(), silence)))


def _container(site: Site) -> Starlette:
    commands, files, processes = ContainerCommands(site), ContainerFiles(site), ContainerProcesses(site)
    posts = {
        "execute": commands.execute,
        "execute/stream": commands.execute_stream,
        "session/create": commands.create_session,
        "session/delete": commands.delete_session,
        "read": files.read,
        "read/stream": files.read_stream,
        "write": files.write,
        "mkdir": files.mkdir,
        "exists": files.exists,
        "delete": files.delete,
        "rename": files.rename,
        "move": files.move,
        "list-files": files.list_files,
        "process/start": processes.start,
        "port-watch": processes.port_watch,
    }
    gets = {
        "ping": _ping,
        "version": _version,
        "session/list": commands.list_sessions,
        "process/list": processes.list,
        "process/{id}": processes.get,
        "process/{id}/logs": processes.logs,
        "process/{id}/stream": processes.stream,
    }
    routes = [
        Route("/", _root, methods=["GET"]),
        *(Route(f"/api/{path}", handler, methods=["POST"]) for path, handler in posts.items()),
        *(Route(f"/api/{path}", handler, methods=["GET"]) for path, handler in gets.items()),
        Route("/api/process/kill-all", processes.kill_all, methods=["DELETE"]),
        Route("/api/process/{id}", processes.kill, methods=["DELETE"]),
    ]
    handlers: Mapping[Any, ExceptionHandler] = {
        404: _not_found,
        405: _not_found,
        BodyTooLargeError: _too_large,
        ClientDisconnect: _gone,
        ContainerError: _told,
        NoWorkerError: _busy,
        SandboxError: _failed,
    }

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await Workers().short(site.workers.close)

    app = Starlette(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.router.redirect_slashes = False
    return app


async def _root(request: Request) -> Response:
    return PlainTextResponse("Hello from Bun server! 🚀")


async def _ping(request: Request) -> Response:
    return Answer({"success": True, "status": "healthy", "timestamp": now()})


async def _version(request: Request) -> Response:
    return Answer({"success": True, "version": VERSION, "timestamp": now()})


async def _not_found(request: Request, exc: Exception) -> Response:
    if request.method == "PATCH":
        return PlainTextResponse("Internal Server Error", 500, {"content-type": "text/plain;charset=utf-8"})
    return ContainerError("UNKNOWN_ERROR", "The requested endpoint was not found", 404).answer()


async def _too_large(request: Request, exc: Exception) -> Response:
    return Response(status_code=413, headers={"connection": "close"})


async def _gone(request: Request, exc: Exception) -> Response:
    return Response(status_code=400)


async def _told(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, ContainerError)
    return exc.answer()


async def _busy(request: Request, exc: Exception) -> Response:
    return ContainerError("INTERNAL_ERROR", "No capacity for another command", 503).answer()


async def _failed(request: Request, exc: Exception) -> Response:
    assert isinstance(exc, SandboxError)
    status = 503 if isinstance(exc, (SandboxUnavailableError, ConfigurationError)) else 500
    return ContainerError(exc.code, str(exc), status).answer()
