"""A sandbox: its lifecycle and its sessions. Its verbs: ``_sandbox_commands`` and ``_sandbox_files``."""

from __future__ import annotations

import os
from types import TracebackType
from typing import TYPE_CHECKING, Literal

from ._client import Client, Life
from ._operations import Operations
from ._sandbox_commands import SandboxCommands
from ._sandbox_files import SandboxFiles
from ._session import DEFAULT, Session, SessionBlock, note_failed_exit
from ._unset import UNSET, Timeout
from ._validate import (
    Env,
    RemotePath,
    check_cwd,
    check_env,
    check_limit,
    check_sandbox_id,
    check_session_id,
    check_timeout,
)
from .errors import (
    DefaultSessionError,
    InvalidRequestError,
    SessionNotFoundError,
)
from .models import SessionDeleteResult
from .transports.base import SessionRef, SessionSpec

if TYPE_CHECKING:
    from typing_extensions import Self

    from .transports.base import Transport

# What every service takes as the name of a container, so that it is used as it is.
_ID_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class Sandbox(SandboxCommands, SandboxFiles):
    """One sandbox of a transport, by id.

    Making the object does no I/O: the sandbox starts on first use. Sessions, processes and files belong to
    the sandbox; another object with the same transport and id sees the same ones. Any thread may use it.

    ``id`` names the sandbox; without it, it is a random one. ``env`` is the lowest layer of the environment
    that this object gives to sessions it makes (``None`` values are skipped). ``command_timeout`` (s) is for
    commands whose call and session say nothing. With ``enable_default_session`` verbs without ``session_id``
    use the session ``default``, else each command is a fresh shell that leaves no state behind.

    As a context manager it destroys a sandbox that was made without an ``id`` and closes one that was named;
    ``on_exit="destroy"`` or ``"close"`` says it. A failing exit never hides the block's exception.

    After ``destroy`` or ``close`` every call on this object and its sessions raises
    ``SandboxDestroyedError``. Raises ``InvalidRequestError`` for bad arguments.
    """

    def __init__(
        self,
        transport: Transport,
        id: str | None = None,
        *,
        on_exit: Literal["destroy", "close"] | None = None,
        enable_default_session: bool = True,
        env: Env | None = None,
        command_timeout: Timeout = UNSET,
    ) -> None:
        if isinstance(transport, type) or not hasattr(transport, "run"):
            raise InvalidRequestError("transport must be a transport object; connect() takes URLs")
        if on_exit not in (None, "destroy", "close"):
            raise InvalidRequestError(f"on_exit must be 'destroy', 'close' or None: {on_exit!r}")
        sandbox_id = _random_id() if id is None else check_sandbox_id(id)
        layer: dict[str, str | None] = dict(check_env(env))
        self._client = Client(transport, sandbox_id, layer, check_timeout(command_timeout, "command_timeout"))
        self._on_exit = on_exit or ("destroy" if id is None else "close")
        self._has_default = bool(enable_default_session)
        self._by_id: dict[str, Operations] = {}
        self._default = self._bind(DEFAULT if self._has_default else None)
        if self._has_default:
            self._by_id[DEFAULT] = self._default

    def __repr__(self) -> str:
        state = f" {self._client.end}" if self._client.end else ""
        return f"<Sandbox {self.id!r} on {self.transport.name}{state}>"

    @property
    def id(self) -> str:
        """The name of the sandbox, as given."""
        return self._client.sandbox_id

    @property
    def transport(self) -> Transport:
        """What hosts the sandbox."""
        return self._client.transport

    @property
    def workspace(self) -> str:
        """The absolute, symlink-free directory that stands for ``/workspace``. Starts the sandbox if need be.

        Raises ``SandboxDestroyedError``, ``TransportError``.
        """
        return self._client.call(self.transport.workspace, self.id)

    # Lifecycle

    def ping(self, timeout: Timeout = UNSET) -> bool:
        """Return ``True`` when the sandbox answers, within ``timeout`` seconds. Raises a ``TransportError``
        otherwise.
        """
        self._client.call(self.transport.ping, self.id, check_limit(timeout))
        return True

    def destroy(self) -> None:
        """End the sandbox: sessions, processes, files. Blocks. Idempotent.

        Calls in flight and later ones on this object raise ``SandboxDestroyedError``; a new object with the
        same id starts afresh. Where the far side cannot be ended, sessions and processes end and files stay.
        Raises a ``TransportError`` when the far side cannot be reached; it may then be called again.
        """
        client = self._client
        if client.end == "destroyed":
            return
        if client.end:
            raise client.ended()
        client.end = "destroyed"
        try:
            client.transport.destroy(client.sandbox_id)
        except BaseException:
            client.end = ""
            raise

    def close(self) -> None:
        """End this object only, and the transport if ``connect`` made it. Idempotent.

        Later calls on this object raise ``SandboxDestroyedError``.
        """
        client = self._client
        client.end = client.end or "closed"
        if client.owns_transport:
            client.transport.close()

    def __enter__(self) -> Self:
        if self._client.end:
            raise self._client.ended()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                if self._on_exit == "destroy" and not self._client.end:
                    self.destroy()
            finally:
                self.close()
        except Exception as exc:
            if error is None:
                raise
            note_failed_exit(error, f"sandbox {self.id!r} could not be ended", exc)

    # Sessions

    def create_session(
        self,
        id: str | None = None,
        *,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        command_timeout: Timeout = UNSET,
    ) -> Session:
        """Make a session and return it. Blocks until its shell is there.

        ``cwd`` is relative to the workspace, which is the default. ``env`` is kept with the session, its
        ``None`` values are skipped. ``command_timeout`` (s) is for its commands that say nothing. An id whose
        shell died is replaced. Raises ``InvalidRequestError``, ``SessionExistsError``, and for ``cwd``
        ``SandboxFileNotFoundError`` or ``SandboxNotADirectoryError``; no session is made then. Also
        ``SandboxDestroyedError``, ``TransportError``.
        """
        return self._create(_new_session_id(id), _spec(env, cwd, command_timeout))

    def session(
        self,
        id: str | None = None,
        *,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        command_timeout: Timeout = UNSET,
    ) -> SessionBlock:
        """Return a context manager that makes a session on entry and deletes it on exit, whatever happened inside.

        The options, and what entering raises, are those of ``create_session``. A failing delete never hides
        the block's exception; a session that is gone already is no error, and the default session is left.
        """
        return SessionBlock(self, _new_session_id(id), _spec(env, cwd, command_timeout))

    def get_session(self, id: str) -> Session:
        """Return a session by id, without I/O. One that does not exist is made with defaults on first use.

        Raises ``InvalidRequestError``, ``SandboxDestroyedError``.
        """
        session_id = check_session_id(id)
        if self._client.end:
            raise self._client.ended()
        return Session(self, self._ref(session_id), self._client.life(session_id), session_id, created=False)

    def delete_session(self, id: str, *, missing_ok: bool = False) -> SessionDeleteResult:
        """End a session: its shell, its jobs, and the command it runs. The id may be used again.

        ``Session`` objects of this ``Sandbox`` for it raise ``SessionDestroyedError`` from then on. Raises
        ``DefaultSessionError`` for ``"default"``, before any I/O; ``SessionNotFoundError``, unless
        ``missing_ok``: then the result's ``success`` is ``False``. Also ``SandboxDestroyedError``,
        ``TransportError``.
        """
        session_id = check_session_id(id)
        bound = self._by_id.get(session_id)
        return self._delete(self._ref(session_id) if bound is None else bound._ref, session_id, missing_ok=missing_ok)

    def list_sessions(self) -> list[str]:
        """Return the ids of the sessions that exist, sorted; ``default`` once it was used."""
        return sorted(self._client.call(self.transport.list_sessions, self.id))

    def set_env_vars(self, env: Env) -> None:
        """Set variables of the sandbox layer; ``None`` unsets what the image has. Waits for the default session's turn.

        They hold for the default session, for every session that this object makes afterwards, and for
        commands without a session; sessions that exist keep theirs. Raises ``InvalidRequestError`` for a bad
        name or value, and what ``Session.set_env_vars`` raises; then nothing is changed.
        """
        changes = check_env(env, keep_none=True)
        if self._client.end:
            raise self._client.ended()
        if self._has_default:
            self._default._set_env(changes)
        self._client.env.update(changes)

    # For Session, SessionBlock and the verbs

    def _ref(self, session_id: str | None) -> SessionRef:
        return SessionRef(self._client.sandbox_id, session_id)

    def _bind(self, session_id: str | None) -> Operations:
        return Operations(self._client, self._ref(session_id), Life())

    def _on(self, session_id: str | None) -> Operations:
        if session_id is None:
            return self._default
        try:
            return self._by_id[session_id]
        except (KeyError, TypeError):
            return self._by_id.setdefault(check_session_id(session_id), self._bind(session_id))

    def _create(self, session_id: str, spec: SessionSpec) -> Session:
        client = self._client
        ref = self._ref(session_id)
        ref.env = client.env.copy()
        spec = SessionSpec({**ref.env, **spec.env}, spec.cwd, spec.command_timeout)
        client.call(client.transport.create_session, ref, spec)
        return Session(self, ref, client.life(session_id), session_id, created=True)

    def _delete(self, ref: SessionRef, session_id: str, missing_ok: bool) -> SessionDeleteResult:
        if session_id == DEFAULT:
            raise DefaultSessionError(
                "Cannot delete default session. Use sandbox.destroy() instead.", session_id=DEFAULT
            )
        client = self._client
        # Taken out first: who makes the session anew meanwhile begins a life of its own. Marked first: a call that
        # begins meanwhile must not make the session anew under an object that means the old one.
        life = client.lives.pop(session_id, Life())
        life.deleted = True
        self._by_id.pop(session_id, None)
        success = True
        try:
            client.call(client.transport.delete_session, ref)
        except SessionNotFoundError:
            if not missing_ok:
                raise
            success = False
        except BaseException:
            life.deleted = False
            client.lives.setdefault(session_id, life)
            raise
        return SessionDeleteResult(success, session_id, client.transport.clock.now())


def own_transport(sandbox: Sandbox) -> None:
    """Let ``sandbox.close()`` close its transport too."""
    sandbox._client.owns_transport = True


def _random_id() -> str:
    # Begins with a letter that no escaped id begins with.
    return "s" + "".join([_ID_LETTERS[byte & 31] for byte in os.urandom(19)])


def _new_session_id(id: str | None) -> str:
    return f"session-{os.urandom(6).hex()}" if id is None else check_session_id(id)


def _spec(env: Env | None, cwd: RemotePath | None, command_timeout: Timeout) -> SessionSpec:
    return SessionSpec(check_env(env), check_cwd(cwd), check_timeout(command_timeout, "command_timeout"))
