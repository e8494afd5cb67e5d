"""The proxy as a test sees it."""

from __future__ import annotations

import socket
from types import TracebackType
from urllib.parse import urlsplit

from typing_extensions import Self

from sandboxsync.errors import ConfigurationError

from ._hub import Hub
from ._relay import Relay
from ._rules import PathPattern, ProxiedRequest, Rules
from ._values import Fault

__all__ = ["FaultProxy"]


class FaultProxy:
    """A server on a free port of this machine that passes HTTP on to another one, with faults where a rule says so.

    *upstream_url* is that of the other one, over plain http; `url` is used in its place. Without a rule each byte
    arrives as it was sent, but for the headers `Host` and `Expect` of requests; WebSockets do too. Use it in a `with`
    block, or close it. Any thread may use it. Raises `ConfigurationError` for another kind of URL.
    """

    def __init__(self, upstream_url: str) -> None:
        try:
            parts = urlsplit(upstream_url)
            self._port = parts.port or 80
        except ValueError as exc:
            raise ConfigurationError(f"not a URL: {exc}") from exc
        if parts.scheme != "http" or not parts.hostname or "@" in parts.netloc or parts.query or parts.fragment:
            raise ConfigurationError("a FaultProxy needs the URL of a server, such as http://127.0.0.1:8000")
        self._host = parts.hostname
        self._authority = parts.netloc
        self._rules = Rules()
        self._hub = Hub(self._serve)
        self.url = f"http://{self._hub.address}{parts.path.rstrip('/')}"
        """Where it listens, with the path of *upstream_url*."""

    def __repr__(self) -> str:
        return f"<FaultProxy {self.url} before {self._authority}>"

    def _serve(self, sock: socket.socket) -> None:
        Relay(self._hub, sock, (self._host, self._port), self._authority, self._rules.take).run()

    def on(
        self,
        method: str | None,
        path: PathPattern,
        fault: Fault,
        *,
        times: int | None = 1,
        nth: int = 1,
        chance: float = 1.0,
        seed: int = 0,
    ) -> None:
        """Let requests of a method and a path (`None` is any) have a fault.

        *path* is a part of it, a compiled pattern to search in it, or a function that is given it; it has the query,
        and is as it was sent. The fault strikes the *nth* request that matches and those after it, each with a
        *chance*, *times* in all (`None`: always). Numbers are drawn from *seed*. Of several rules whose turn it is
        the one that was given first counts.

        Raises `ConfigurationError` for what makes no sense.
        """
        self._rules.add(method, path, fault, times=times, nth=nth, chance=chance, seed=seed)

    def random(self, fault: Fault, *, seed: int, chance: float, times: int | None = None) -> None:
        """Let each request have a fault with a *chance*. The same seed gives the same requests the same faults.

        Raises `ConfigurationError` for what makes no sense.
        """
        self.on(None, None, fault, times=times, chance=chance, seed=seed)

    def heal(self) -> None:
        """Take back all rules. A fault that has begun goes on."""
        self._rules.clear()

    @property
    def requests(self) -> list[ProxiedRequest]:
        """What came so far, in its order, with the faults that it got."""
        return self._rules.requests

    @property
    def connections(self) -> int:
        """How many connections clients have made so far."""
        return self._hub.connections

    def wait_for_stall(self, timeout: float = 10.0) -> None:
        """Wait until a `Stall` holds an answer. Raises `TimeoutError` when none does in time."""
        if not self._hub.wait_for_stall(timeout):
            raise TimeoutError(f"no answer was held within {timeout:g} s")

    def release(self) -> None:
        """Let all answers go on that a `Stall` holds now."""
        self._hub.release()

    def close(self) -> None:
        """End it and all its connections, whatever they wait for. Idempotent; returns within a second."""
        self._hub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
