"""What a ``Sandbox`` object and everything made from it share: the transport, the environment, and the end.

There is no lock: each step that threads may race for is one atomic operation on a ``dict`` or an attribute,
so that nothing here can be left locked in a forked child.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeVar

from .errors import (
    ConfigurationError,
    FileError,
    ProcessError,
    SandboxDestroyedError,
    SandboxError,
    SessionDestroyedError,
    SessionNotFoundError,
    SessionTerminatedError,
    TransportError,
)

if TYPE_CHECKING:
    from typing_extensions import ParamSpec

    from ._unset import Timeout
    from .transports.base import SessionRef, Transport

    P = ParamSpec("P")

T = TypeVar("T")

# What a call may meet when its sandbox, or its transport, is taken away under it.
_OF_THE_END = (
    SessionTerminatedError,
    SessionDestroyedError,
    SessionNotFoundError,
    TransportError,
    FileError,
    ProcessError,
    ConfigurationError,
)


class Life:
    """One life of a session id on one ``Sandbox`` object: from its first ``Session`` to its deletion."""

    __slots__ = ("deleted",)

    def __init__(self) -> None:
        self.deleted = False


class Client:
    """One ``Sandbox`` object's view of its sandbox."""

    __slots__ = ("command_timeout", "end", "env", "lives", "owns_transport", "sandbox_id", "transport")

    def __init__(
        self, transport: Transport, sandbox_id: str, env: dict[str, str | None], command_timeout: Timeout
    ) -> None:
        self.transport = transport
        self.sandbox_id = sandbox_id
        self.env = env
        self.command_timeout = command_timeout
        self.end: Literal["", "destroyed", "closed"] = ""
        self.owns_transport = False
        self.lives: dict[str, Life] = {}

    def life(self, session_id: str) -> Life:
        """The present life of a session id."""
        return self.lives.setdefault(session_id, Life())

    def ended(self) -> SandboxDestroyedError:
        """The error of every call after the end."""
        if self.end == "closed":
            return SandboxDestroyedError(f"this Sandbox object for {self.sandbox_id!r} is closed")
        return SandboxDestroyedError(f"sandbox {self.sandbox_id!r} was destroyed")

    def seen(self, error: SandboxError) -> SandboxError:
        """Return the error to raise for one of the transport: what the end caused is told as the end."""
        if not self.end or (self.end == "closed" and not self.owns_transport):
            return error
        if not isinstance(error, _OF_THE_END):
            return error
        ended = self.ended()
        ended.__cause__ = error
        return ended

    def tell_end(self, error: SandboxError) -> None:
        """Raise ``SandboxDestroyedError`` from an error that the end caused; return for any other."""
        if (seen := self.seen(error)) is not error:
            raise seen from error

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call into the transport, unless this object has met its end."""
        if self.end:
            raise self.ended()
        try:
            return function(*args, **kwargs)
        except SandboxError as exc:
            self.tell_end(exc)
            raise


class Bound:
    """Verbs bound to one sandbox and one session of it, or to none."""

    def __init__(self, client: Client, ref: SessionRef, life: Life) -> None:
        self._client = client
        self._transport = client.transport
        self._ref = ref
        self._life = life
        ref.is_deleted = lambda: life.deleted

    def _check(self) -> SessionRef:
        """Return what to hand to the transport, or raise when this object has met its end."""
        client, ref = self._client, self._ref
        if client.end:
            raise client.ended()
        if self._life.deleted:
            raise SessionDestroyedError(f"session {ref.session_id!r} was deleted", session_id=ref.session_id)
        if client.env:
            # A copy: the layer may change while the transport reads it.
            ref.env = client.env.copy()
        return ref

    def _call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """``_check``, then call into the transport."""
        self._check()
        return self._client.call(function, *args, **kwargs)
