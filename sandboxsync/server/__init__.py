"""A local server that speaks the HTTP APIs of the service, over isolated sandboxes on this machine.

For trying out and testing clients: answers, limits and oddities are those of the service, so that what works here works
there. It comes with the extra ``server``; importing this package without it raises :class:`ImportError`.
"""

try:
    import httptools  # noqa: F401
    import starlette  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as exc:
    raise ImportError(
        f"sandboxsync.server needs starlette, uvicorn and httptools ({exc}): pip install 'sandboxsync[server]'"
    ) from exc

from sandboxsync.server._bridge import create_bridge_app
from sandboxsync.server._container import create_container_app
from sandboxsync.server._running import RunningServer, running_server

__all__ = ["RunningServer", "create_bridge_app", "create_container_app", "running_server"]
