"""Cases about the lives of sandboxes and sessions, and about parity; the rows are in `docs/cases.md`."""

from __future__ import annotations

import inspect

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.errors import SessionExistsError, SessionNotFoundError
from sandboxsync.testing._tools import unique
from sandboxsync.transports import base
from sandboxsync.transports.base import Transport


def test_SL01_a_destroyed_id_is_free_at_once(transport: Transport) -> None:
    """Again and again, without a pause, and nothing of the old sandbox is there."""
    name = unique("user")
    for _ in range(10):
        sandbox = Sandbox(transport, name)
        assert sandbox.exec('echo "ok$V"; V=old').stdout == "ok\n"
        sandbox.destroy()
    Sandbox(transport, unique("never-used")).destroy()


def test_SL02_a_new_client_finds_what_is_there(sandbox: Sandbox, transport: Transport) -> None:
    """Making the session again is an error of its own; getting it attaches."""
    sandbox.create_session("x").exec("V=1")
    sandbox.exec("V=2")
    other = Sandbox(transport, id=sandbox.id)
    with pytest.raises(SessionExistsError) as caught:
        other.create_session("x")
    assert caught.value.session_id == "x"
    assert other.get_session("x").exec("echo $V").stdout == "1\n"
    assert other.exec("echo $V").stdout == "2\n"


def test_SL07_deleting_what_is_not_there(sandbox: Sandbox) -> None:
    """It raises unless told otherwise, and stops nobody from making it."""
    with pytest.raises(SessionNotFoundError):
        sandbox.delete_session("ghost")
    assert sandbox.delete_session("ghost", missing_ok=True).success is False
    assert sandbox.create_session("ghost").exec("echo ok").stdout == "ok\n"


def test_WB04_one_signature_for_every_transport(transport: Transport) -> None:
    """What a transport implements has the parameters of the seam, and sessions have the sandbox's verbs."""
    for name, member in vars(base.Transport).items():
        if inspect.isfunction(member) and not name.startswith("_"):
            theirs = inspect.signature(getattr(type(transport), name)).parameters
            assert list(theirs) == list(inspect.signature(member).parameters), name
    for name in dir(Session):
        if name.startswith("_") or not callable(getattr(Sandbox, name, None)):
            continue
        ours = dict(inspect.signature(getattr(Sandbox, name)).parameters)
        ours.pop("session_id", None)
        assert list(ours) == list(inspect.signature(getattr(Session, name)).parameters), name
