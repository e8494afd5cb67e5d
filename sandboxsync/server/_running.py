"""A running server: two apps on two ports of this machine, on one event loop in a thread of this process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
import threading
from collections.abc import Iterator
from typing import Any, Literal

import attrs
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from sandboxsync.errors import ConfigurationError
from sandboxsync.server._answers import ConnectionCloseError
from sandboxsync.server._bridge import create_bridge_app
from sandboxsync.server._container import create_container_app
from sandboxsync.transports.base import Transport
from sandboxsync.transports.local import Limits, LocalTransport

__all__ = ["RunningServer", "running_server"]

_HOST = "127.0.0.1"
_CONTAINER = "container-0"
"""The sandbox behind the container's API: an id that the bridge refuses, so that no two share it."""
_PROCESSES = 4096
"""Processes of one sandbox: a command without a session takes four."""
_KEEP_ALIVE = 300
_GRACE = 1.0
"""Seconds in which answers may come to their end once the sandboxes have."""
_logger = logging.getLogger("sandboxsync.server")


@attrs.frozen
class RunningServer:
    """Where a server listens: `url` is the bridge's API, which wants `api_key`; `container_url` the container's.

    `transport` has the sandboxes that it serves, `container_id` is the id of the one behind `container_url`.
    """

    url: str
    api_key: str = attrs.field(repr=False)
    container_url: str
    transport: Transport = attrs.field(repr=False)
    container_id: str


@contextlib.contextmanager
def running_server(
    *, isolation: Literal["none", "bubblewrap"] = "bubblewrap", api_key: str | None = None
) -> Iterator[RunningServer]:
    """Return a context manager that serves sandboxes on free loopback ports while its block runs.

    `url` has the bridge's API, for any number of sandboxes by id; without `api_key` the key is a random one.
    `container_url` has the container's API, for one sandbox more and without a key. Both run in a thread of this
    process. Leaving the block ends all sandboxes and what runs in them, and returns within seconds.

    With `isolation="none"` there is no boundary: who reaches the ports can do what this process can.

    Raises `ConfigurationError` for an empty key and when sandboxes cannot be isolated as asked here, and `OSError` when
    there is no port.
    """
    key = secrets.token_urlsafe(32) if api_key is None else api_key
    limits = None if isolation == "none" else Limits(processes=_most_processes())
    with LocalTransport(isolation=isolation, limits=limits) as transport:
        bridge = create_bridge_app(transport, key)
        container = create_container_app(transport, _CONTAINER)
        with _Serving([bridge, container], transport) as (port, container_port):
            container_url = f"http://{_HOST}:{container_port}"
            yield RunningServer(f"http://{_HOST}:{port}", key, container_url, transport, _CONTAINER)


def _most_processes() -> int:
    import resource  # which only the systems have that isolation works on

    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    return _PROCESSES if most == resource.RLIM_INFINITY else min(_PROCESSES, most)


class _Serving:
    """Serves apps, each on a port, from entry to exit, which ends their transport first, and so what they wait for."""

    def __init__(self, apps: list[ASGIApp], transport: Transport) -> None:
        self._apps = apps
        self._transport = transport
        self._sockets: list[socket.socket] = []
        self._servers: list[_Server] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="sandboxsync-server", daemon=True)

    def __enter__(self) -> list[int]:
        with contextlib.ExitStack() as stack:
            for app in self._apps:
                # With the protocol told, asyncio lets small pieces go out at once.
                sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP))
                sock.bind((_HOST, 0))
                self._sockets.append(sock)
                self._servers.append(_Server(app))
            ports: list[int] = [sock.getsockname()[1] for sock in self._sockets]
            self._thread.start()
            self._ready.wait()
            if self._failure is not None:
                self._thread.join()
                raise ConfigurationError(f"the server did not start: {self._failure}") from self._failure
            stack.pop_all()
        return ports

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        try:
            self._transport.close()
        finally:
            with contextlib.suppress(RuntimeError):  # the loop has ended, by a failure of its own
                self._loop.call_soon_threadsafe(self._stop)
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as exc:
            self._failure = exc
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        pairs = zip(self._servers, self._sockets, strict=True)
        running = [asyncio.ensure_future(server.serve(sockets=[sock])) for server, sock in pairs]
        for server, task in zip(self._servers, running, strict=True):
            up = asyncio.ensure_future(server.up.wait())
            await asyncio.wait([up, task], return_when=asyncio.FIRST_COMPLETED)
            up.cancel()
        self._ready.set()
        await asyncio.gather(*running)

    def _stop(self) -> None:
        assert self._loop is not None
        for server in self._servers:
            server.should_exit = True
            # Whoever has not read the end of an answer by then does not get it.
            self._loop.call_later(_GRACE, server.drop_connections)


class _Server(uvicorn.Server):
    """Serves one app. Changes nothing of the process: no signal handler, no logging."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                loop="asyncio",
                http=_Protocol,
                ws="none",
                lifespan="on",
                log_config=None,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=10,
            )
        )
        self.up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.up.set()

    def drop_connections(self) -> None:
        """Break off every connection that is still open."""
        for connection in list(self.server_state.connections):
            assert isinstance(connection, _Protocol)
            connection.transport.abort()


class _Protocol(HttpToolsProtocol):
    """Logs failures alone, and to a logger of ours: paths may hold keys."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.access_log = False
        self.logger = _logger


def _is_failure(record: logging.LogRecord) -> bool:
    """Whether a record tells of a failure, and not of a connection that is closed on purpose."""
    return record.exc_info is None or not isinstance(record.exc_info[1], ConnectionCloseError)


_logger.addFilter(_is_failure)
