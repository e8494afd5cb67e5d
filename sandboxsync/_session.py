"""A session: one shell that keeps its state between commands."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from ._client import Life
from ._operations import Operations
from ._validate import Env
from .errors import (
    InvalidRequestError,
    SandboxDestroyedError,
    SessionDestroyedError,
    SessionNotFoundError,
    SessionTerminatedError,
)
from .models import SessionDeleteResult

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._sandbox import Sandbox
    from .transports.base import SessionRef, SessionSpec

DEFAULT = "default"


class Session(Operations):
    """A shell of the sandbox, by id: what one command leaves (directory, variables, functions) the next one finds.

    Made by ``Sandbox.create_session``, ``session`` and ``get_session``. Any thread may use it; its commands
    run one at a time in the order asked, and only ``exec``, ``exec_stream``, ``set_env_vars`` and
    ``git_checkout`` wait for their turn. After its own deletion every call raises ``SessionDestroyedError``;
    when its shell has ended, the call that sees it raises ``SessionTerminatedError`` once, and the one after
    it gets a fresh shell.

    As a context manager it is deleted at the end of the block if this object created it, else left as it is.
    """

    def __init__(self, sandbox: Sandbox, ref: SessionRef, life: Life, session_id: str, created: bool) -> None:
        super().__init__(sandbox._client, ref, life)
        self._sandbox = sandbox
        self._id = session_id
        self._created = created

    def __repr__(self) -> str:
        return f"<Session {self._id!r} of sandbox {self._client.sandbox_id!r}>"

    @property
    def id(self) -> str:
        """The name of the session in its sandbox."""
        return self._id

    @property
    def sandbox(self) -> Sandbox:
        """The object that this one was made by."""
        return self._sandbox

    def set_env_vars(self, env: Env) -> None:
        """Set variables of the session's shell, for every client of it; ``None`` unsets. Waits for the turn.

        Raises ``InvalidRequestError`` for a bad name or value, and then changes nothing; ``SessionError``
        when the shell itself refuses; and what ``exec`` raises before a command begins. The wait is bounded
        by the session's command timeout.
        """
        self._set_env(env)

    def delete(self) -> SessionDeleteResult:
        """End the session: its shell, its jobs, and the command it runs (whose caller gets ``SessionDestroyedError``).

        Raises ``SessionNotFoundError`` when it is gone already, ``DefaultSessionError`` for the default
        session, ``SessionDestroyedError`` when this object has deleted it before.
        """
        if self._id != DEFAULT:
            self._check()
        return self._sandbox._delete(self._ref, self._id, missing_ok=False)

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._created or self._life.deleted or self._id == DEFAULT:
            return
        try:
            self._sandbox._delete(self._ref, self._id, missing_ok=True)
        except (SandboxDestroyedError, SessionDestroyedError, SessionNotFoundError, SessionTerminatedError):
            # All of them say that the session is gone.
            pass
        except Exception as exc:
            if error is None:
                raise
            note_failed_exit(error, f"session {self._id!r} could not be deleted", exc)


class SessionBlock:
    """What ``Sandbox.session`` returns: a context manager whose target is the ``Session``."""

    def __init__(self, sandbox: Sandbox, session_id: str, spec: SessionSpec) -> None:
        self._sandbox = sandbox
        self._session_id = session_id
        self._spec = spec
        self._session: Session | None = None

    def __enter__(self) -> Session:
        if self._session is not None:
            raise InvalidRequestError("this block was entered before; call session() again")
        self._session = self._sandbox._create(self._session_id, self._spec)
        return self._session

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            self._session.__exit__(kind, error, trace)


def note_failed_exit(error: BaseException, what: str, failure: Exception) -> None:
    """Tell of a failed clean-up on the error that goes to the caller, where Python can (3.11)."""
    if hasattr(error, "add_note"):
        error.add_note(f"{what}: {failure!r}")
