"""The life of a ``Sandbox`` and its sessions over a scripted transport."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from sandboxsync import (
    UNSET,
    CommandTimeoutError,
    DefaultSessionError,
    InvalidRequestError,
    Sandbox,
    SandboxDestroyedError,
    SandboxFileNotFoundError,
    SandboxUnavailableError,
    Session,
    SessionBusyError,
    SessionDestroyedError,
    SessionExistsError,
    SessionNotFoundError,
    SessionTerminatedError,
    UnsupportedOperationError,
)
from sandboxsync._operations import Operations
from sandboxsync.transports.base import OFFERED_BY, Capability, SessionSpec
from tests._stub_transport import StubTransport, out, process


@pytest.fixture
def transport() -> StubTransport:
    """A transport that answers."""
    return StubTransport()


# One set of verbs


def verbs(cls: type) -> dict[str, inspect.Signature]:
    """The public methods of a class."""
    return {
        name: inspect.signature(value)
        for name, value in inspect.getmembers(cls, inspect.isfunction)
        if not name.startswith("_")
    }


@pytest.mark.parametrize("name", sorted(verbs(Operations)))
def test_sandbox_has_every_verb_of_a_session(name: str) -> None:
    """A verb has the same signature on Sandbox and Session, but for session_id=None at the end."""
    on_session, on_sandbox = verbs(Session)[name], verbs(Sandbox)[name]
    *same, last = on_sandbox.parameters.values()
    assert last == inspect.Parameter(
        "session_id", inspect.Parameter.KEYWORD_ONLY, default=None, annotation="str | None"
    )
    assert same == list(on_session.parameters.values())
    assert on_sandbox.return_annotation == on_session.return_annotation


def sample(parameter: inspect.Parameter) -> Any:
    """Something to pass, so that a value in the wrong place is seen."""
    return f"<{parameter.name}>"


@pytest.mark.parametrize("name", sorted(verbs(Operations)))
def test_sandbox_hands_every_argument_on(name: str, transport: StubTransport, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verb of Sandbox passes each argument to the verb of the session that session_id names."""
    signature = verbs(Session)[name]
    seen: list[Any] = []

    def verb(self: Operations, *args: Any, **kwargs: Any) -> str:
        seen.append((self._ref.session_id, signature.bind(self, *args, **kwargs).arguments))
        return "<returned>"

    monkeypatch.setattr(Operations, name, verb)
    parameters = list(signature.parameters.values())[1:]
    given = {parameter.name: sample(parameter) for parameter in parameters}
    answer = getattr(Sandbox(transport), name)(**given, session_id="s7")
    assert answer == "<returned>" or signature.return_annotation in ("None", "NoReturn")
    session_id, arguments = seen[0]
    del arguments["self"]
    assert (session_id, arguments) == ("s7", given)


@pytest.mark.parametrize(
    ("name", "arguments", "capability"),
    [
        ("terminal", (), Capability.TERMINAL),
        ("create_code_context", (), Capability.CODE),
        ("run_code", ("1",), Capability.CODE),
        ("list_code_contexts", (), Capability.CODE),
        ("delete_code_context", ("x",), Capability.CODE),
        ("watch", (".",), Capability.WATCH),
        ("tunnel", (80,), Capability.TUNNEL),
        ("close_tunnel", (80,), Capability.TUNNEL),
        ("mount_bucket", ("b", "/mnt"), Capability.MOUNT),
        ("unmount_bucket", ("/mnt",), Capability.MOUNT),
    ],
)
def test_what_no_transport_offers_is_refused(
    transport: StubTransport, name: str, arguments: Any, capability: Capability
) -> None:
    """A verb that needs a missing capability raises before any I/O and says who has it: here, nobody."""
    for owner in (Sandbox(transport), Sandbox(transport).get_session("s")):
        with pytest.raises(UnsupportedOperationError, match="no transport of this version can"):
            getattr(owner, name)(*arguments)
    assert OFFERED_BY[capability] == ()
    assert transport.calls == []


# Which session


def test_making_objects_does_no_io(transport: StubTransport) -> None:
    """Sandbox(), get_session() and session() do no I/O; ids are random when they are not given."""
    sandbox = Sandbox(transport)
    sandbox.get_session("s")
    sandbox.session()
    repr(sandbox), repr(sandbox.get_session("s"))
    assert transport.calls == []
    assert sandbox.id != Sandbox(transport).id
    assert set(sandbox.id) <= set("abcdefghijklmnopqrstuvwxyz234567")
    assert not sandbox.id.startswith("zz")


def test_s3_verbs_use_the_default_session(transport: StubTransport) -> None:
    """S3: without session_id the default session is used, with enable_default_session=False none."""
    assert Sandbox(transport).exec("x").session_id == "default"
    sessionless = Sandbox(transport, enable_default_session=False)
    assert sessionless.exec("x").session_id is None
    sessionless.list_files()
    assert transport.last("list_files")[0].session_id is None
    assert sessionless.exec("x", session_id="default").session_id == "default"


def test_s17_one_ref_per_object(transport: StubTransport) -> None:
    """S17: each Session object, the default, and each session_id keeps its own view of the sandbox's life."""
    sandbox = Sandbox(transport, "box")
    one, two = sandbox.get_session("s"), sandbox.get_session("s")
    for call in (sandbox.exec, one.exec, two.exec, lambda c: sandbox.exec(c, session_id="s")):
        call("x")
        call("x")
    kept = transport.refs
    assert [kept[i] is kept[i + 1] for i in range(7)] == [True, False, True, False, True, False, True]
    assert {ref.sandbox_id for ref in kept} == {"box"}
    sandbox.exec("x", session_id="default")
    assert transport.refs[-1] is kept[0]


def test_errors_of_the_transport_come_through(transport: StubTransport) -> None:
    """What the transport raises while the sandbox lives reaches the caller as it is."""
    sandbox = Sandbox(transport)
    for error in (
        SessionBusyError("x"),
        SessionTerminatedError("x", code="SANDBOX_RESTARTED"),
        CommandTimeoutError("x", started=False),
        SandboxUnavailableError("x"),
    ):
        transport.fail["run"] = error
        with pytest.raises(type(error)) as caught:
            sandbox.exec("x")
        assert caught.value is error


# Environment


def test_layers_of_the_environment(transport: StubTransport) -> None:
    """The session's env wins over the sandbox's; None values are skipped when either is made."""
    sandbox = Sandbox(transport, env={"A": "1", "B": "2", "N": None})
    sandbox.create_session("s", env={"B": "3", "C": None})
    assert transport.last("create_session")[1] == SessionSpec({"A": "1", "B": "3"}, None, UNSET)
    sandbox.exec("x", session_id="new")
    assert transport.last("run")[0].env == {"A": "1", "B": "2"}


def test_set_env_vars_of_the_sandbox(transport: StubTransport) -> None:
    """It changes the default session now, and what this object makes afterwards; None unsets the image's."""
    sandbox = Sandbox(transport, "box", env={"A": "1"})
    sandbox.set_env_vars({"B": "2", "A": None})
    ref, changes, timeout = transport.last("set_session_env")
    assert (ref.sandbox_id, ref.session_id, ref.env) == ("box", "default", {"A": "1"})
    assert (changes, timeout) == ({"B": "2", "A": None}, UNSET)
    sandbox.create_session("s")
    assert transport.last("create_session")[1].env == {"A": None, "B": "2"}
    sandbox.get_session("t").exec("x")
    assert transport.last("run")[0].env == {"A": None, "B": "2"}


def test_set_env_vars_without_default_session(transport: StubTransport) -> None:
    """Without a default session nothing is sent; the next command without a session has the variables."""
    sandbox = Sandbox(transport, enable_default_session=False)
    sandbox.set_env_vars({"A": "1"})
    assert transport.calls == []
    sandbox.exec("x")
    assert transport.last("run")[0].env == {"A": "1"}


def test_set_env_vars_is_all_or_nothing(transport: StubTransport) -> None:
    """When it fails, by a bad name or in the session, the sandbox's layer stays as it was."""
    sandbox = Sandbox(transport)
    with pytest.raises(InvalidRequestError):
        sandbox.set_env_vars({"A": "1", "b-d": "2"})
    transport.fail["set_session_env"] = SessionTerminatedError("x")
    with pytest.raises(SessionTerminatedError):
        sandbox.set_env_vars({"A": "1"})
    sandbox.exec("x")
    assert transport.last("run")[0].env == {}


def test_set_env_vars_of_a_session(transport: StubTransport) -> None:
    """It goes to that session alone."""
    sandbox = Sandbox(transport)
    sandbox.get_session("s").set_env_vars({"A": None})
    assert transport.last("set_session_env")[0].session_id == "s"
    assert transport.last("set_session_env")[1] == {"A": None}
    sandbox.exec("x")
    assert transport.last("run")[0].env == {}


# Sessions


def test_create_session(transport: StubTransport) -> None:
    """It passes cwd and command_timeout on, and makes an id when none is given."""
    session = Sandbox(transport).create_session(cwd="app", command_timeout=None)
    assert session.id.startswith("session-")
    assert len(session.id) == len("session-") + 12
    assert transport.last("create_session")[1] == SessionSpec({}, "app", None)


@pytest.mark.parametrize("error", [SessionExistsError("x"), SandboxFileNotFoundError(filename="app")])
def test_s16_create_session_fails(transport: StubTransport, error: Exception) -> None:
    """S16: what the transport raises is raised, from a with block too."""
    transport.fail["create_session"] = error
    with pytest.raises(type(error)):
        Sandbox(transport).create_session("s")
    with pytest.raises(type(error)), Sandbox(transport).session("s"):
        pass
    assert "delete_session" not in transport.names


@pytest.mark.parametrize("raised", [None, KeyError(), KeyboardInterrupt(), GeneratorExit()])
def test_s6_a_block_deletes_its_session(transport: StubTransport, raised: BaseException | None) -> None:
    """S6: a session made by a with block is deleted at its end, whatever happened inside."""
    for make in (lambda: Sandbox(transport).session("s"), lambda: Sandbox(transport).create_session("s")):
        del transport.calls[:]
        if raised is None:
            with make():
                pass
        else:
            with pytest.raises(type(raised)), make():
                raise raised
        assert transport.names == ["create_session", "delete_session"]


def test_block_of_a_found_session_deletes_nothing(transport: StubTransport) -> None:
    """With on a session from get_session does nothing at its end; nor does one of the default session."""
    sandbox = Sandbox(transport)
    with sandbox.get_session("s") as session:
        assert session.id == "s"
    with sandbox.session("default"):
        pass
    assert "delete_session" not in transport.names


def test_failing_exit_never_hides_the_exception(transport: StubTransport) -> None:
    """A delete that fails is raised after a quiet block, and only noted on the exception of another."""
    transport.fail["delete_session"] = SandboxUnavailableError("full")
    with pytest.raises(SandboxUnavailableError), Sandbox(transport).session():
        pass
    with pytest.raises(KeyError) as caught, Sandbox(transport).session():
        raise KeyError
    notes = getattr(caught.value, "__notes__", None)
    assert notes is None or "full" in notes[0]


@pytest.mark.parametrize("gone", [SessionNotFoundError("x"), SessionTerminatedError("x")])
def test_block_whose_session_is_gone(transport: StubTransport, gone: Exception) -> None:
    """A session that is gone at the end of its block is no error, by whatever it went."""
    sandbox = Sandbox(transport)
    transport.fail["delete_session"] = gone
    with sandbox.session():
        pass
    with sandbox.session() as session:
        transport.fail.clear()
        session.delete()
    with sandbox.session():
        sandbox.destroy()


def test_block_is_for_one_time(transport: StubTransport) -> None:
    """What session() returns is entered once."""
    block = Sandbox(transport).session()
    with block:
        pass
    with pytest.raises(InvalidRequestError), block:
        pass


def test_delete_session(transport: StubTransport) -> None:
    """It returns what was deleted; an unknown session raises unless missing_ok."""
    sandbox = Sandbox(transport)
    result = sandbox.delete_session("s")
    assert (result.success, result.session_id) == (True, "s")
    assert result.timestamp.tzinfo is not None
    transport.fail["delete_session"] = SessionNotFoundError("x")
    with pytest.raises(SessionNotFoundError):
        sandbox.delete_session("s")
    assert sandbox.delete_session("s", missing_ok=True).success is False


def test_default_session_cannot_be_deleted(transport: StubTransport) -> None:
    """It raises DefaultSessionError with the words of the contract, before any I/O."""
    sandbox = Sandbox(transport)
    deletes: list[Any] = [lambda: sandbox.delete_session("default"), sandbox.get_session("default").delete]
    for delete in deletes:
        with pytest.raises(DefaultSessionError) as caught:
            delete()
        assert str(caught.value) == "Cannot delete default session. Use sandbox.destroy() instead."
    assert transport.calls == []


def test_s5_a_deleted_session_object_is_dead(transport: StubTransport) -> None:
    """S5: after its deletion a Session object raises SessionDestroyedError without I/O; the id lives on."""
    sandbox = Sandbox(transport)
    deletes: list[Any] = [lambda s: s.delete(), lambda s: sandbox.delete_session(s.id)]
    for delete in deletes:
        dead, twin = sandbox.create_session("s"), sandbox.get_session("s")
        other = sandbox.get_session("other")
        delete(dead)
        del transport.calls[:]
        calls: list[Any] = [
            lambda s: s.exec("x"),
            lambda s: s.list_files(),
            lambda s: s.set_env_vars({}),
            lambda s: s.list_processes(),
            lambda s: s.get_process_logs("p"),
            lambda s: s.delete(),
            lambda s: s.__enter__(),
        ]
        for session in (dead, twin):
            for call in calls:
                with pytest.raises(SessionDestroyedError):
                    call(session)
        assert transport.calls == []
        other.exec("x")
        sandbox.exec("x", session_id="s")
        sandbox.get_session("s").exec("x")
        sandbox.create_session("s").exec("x")


def test_a_failed_delete_leaves_the_object(transport: StubTransport) -> None:
    """When the session could not be deleted its object works on."""
    sandbox = Sandbox(transport)
    session = sandbox.get_session("s")
    transport.fail["delete_session"] = SandboxUnavailableError("x")
    with pytest.raises(SandboxUnavailableError):
        session.delete()
    session.exec("x")
    transport.fail.clear()
    sandbox.delete_session("s")
    with pytest.raises(SessionDestroyedError):
        session.exec("x")


def test_list_sessions_is_sorted(transport: StubTransport) -> None:
    """The ids come sorted."""
    assert Sandbox(transport).list_sessions() == ["default", "s1", "s2"]


# The end


def calls_of(sandbox: Sandbox, session: Session) -> list[Any]:
    """Some of all kinds of calls."""
    return [
        lambda: sandbox.exec("x"),
        lambda: sandbox.exec_stream("x"),
        lambda: sandbox.read_file("f"),
        lambda: sandbox.start_process("x"),
        lambda: sandbox.list_processes(),
        lambda: sandbox.ping(),
        lambda: sandbox.workspace,
        lambda: sandbox.list_sessions(),
        lambda: sandbox.create_session(),
        lambda: sandbox.get_session("t"),
        lambda: sandbox.delete_session("t"),
        lambda: sandbox.set_env_vars({}),
        lambda: sandbox.__enter__(),
        lambda: session.exec("x"),
        lambda: session.write_file("f", b""),
        lambda: session.set_env_vars({}),
        lambda: session.delete(),
    ]


@pytest.mark.parametrize("end", ["destroy", "close"])
def test_after_the_end_every_call_raises(transport: StubTransport, end: str) -> None:
    """After destroy or close each call on the object, its sessions and processes raises, without I/O."""
    sandbox = Sandbox(transport, "box")
    session, started = sandbox.get_session("s"), sandbox.start_process("x")
    getattr(sandbox, end)()
    del transport.calls[:]
    for call in [*calls_of(sandbox, session), started.refresh, started.logs, started.wait_for_exit]:
        with pytest.raises(SandboxDestroyedError):
            call()
    assert transport.calls == []
    Sandbox(transport, "box").exec("x")


def test_destroy_is_idempotent(transport: StubTransport) -> None:
    """A second destroy does nothing: a new sandbox with the same id is not its business."""
    sandbox = Sandbox(transport, "box")
    sandbox.destroy()
    sandbox.destroy()
    sandbox.close()
    assert transport.calls == [("destroy", ("box",))]


def test_destroy_that_fails_can_be_repeated(transport: StubTransport) -> None:
    """When the far side could not be reached the sandbox is not taken for destroyed."""
    sandbox = Sandbox(transport, "box")
    transport.fail["destroy"] = SandboxUnavailableError("x")
    with pytest.raises(SandboxUnavailableError):
        sandbox.destroy()
    sandbox.exec("x")
    transport.fail.clear()
    sandbox.destroy()
    assert transport.names.count("destroy") == 2


@pytest.mark.parametrize(
    "error",
    [
        SessionTerminatedError("x", code="SANDBOX_RESTARTED"),
        SessionDestroyedError("x"),
        SandboxFileNotFoundError(filename="f"),
        SandboxUnavailableError("x"),
    ],
)
def test_calls_in_flight_meet_the_end(transport: StubTransport, error: Exception) -> None:
    """A call that was under way when this object destroyed the sandbox raises SandboxDestroyedError."""
    calls: list[Any] = [
        lambda sandbox: sandbox.exec("x"),
        lambda sandbox: sandbox.read_file("f"),
        lambda sandbox: list(sandbox.exec_stream("x")),
    ]
    transport.fail = dict.fromkeys(("run", "read_file"), error)
    for call in calls:
        sandbox = Sandbox(transport)
        transport.before = sandbox.destroy
        with pytest.raises(SandboxDestroyedError) as caught:
            call(sandbox)
        assert caught.value.__cause__ is error


def test_a_running_command_meets_the_end(transport: StubTransport) -> None:
    """A stream and a command that are being read when the sandbox is destroyed raise SandboxDestroyedError."""
    calls: list[Any] = [lambda sandbox: list(sandbox.exec_stream("x")), lambda sandbox: sandbox.exec("x")]
    for call in calls:
        sandbox = Sandbox(transport)

        def end(sandbox: Sandbox = sandbox) -> None:
            sandbox.destroy()
            raise SessionTerminatedError("x", code="SANDBOX_RESTARTED")

        transport.scripts = [[out(b"a"), end]]
        with pytest.raises(SandboxDestroyedError) as caught:
            call(sandbox)
        assert isinstance(caught.value.__cause__, SessionTerminatedError)


@pytest.mark.parametrize(
    ("id", "on_exit", "destroyed"),
    [
        (None, None, True),
        ("box", None, False),
        (None, "close", False),
        ("box", "destroy", True),
    ],
)
def test_leaving_the_block(transport: StubTransport, id: Any, on_exit: Any, destroyed: bool) -> None:
    """A sandbox made without an id is destroyed, a named one closed, unless on_exit says otherwise."""
    with Sandbox(transport, id, on_exit=on_exit) as sandbox:
        pass
    assert transport.names == (["destroy"] if destroyed else [])
    with pytest.raises(SandboxDestroyedError):
        sandbox.exec("x")


def test_leaving_the_block_after_the_end(transport: StubTransport) -> None:
    """A block whose sandbox was destroyed or closed inside ends quietly."""
    with Sandbox(transport) as sandbox:
        sandbox.destroy()
    with Sandbox(transport) as sandbox:
        sandbox.close()
    assert transport.names == ["destroy"]


def test_failing_destroy_never_hides_the_exception(transport: StubTransport) -> None:
    """A destroy that fails at the end of a block is raised, unless the block raised itself."""
    transport.fail["destroy"] = SandboxUnavailableError("x")
    with pytest.raises(SandboxUnavailableError), Sandbox(transport):
        pass
    with pytest.raises(KeyError), Sandbox(transport):
        raise KeyError


def test_on_exit_is_checked(transport: StubTransport) -> None:
    """on_exit is "destroy", "close" or None."""
    with pytest.raises(InvalidRequestError):
        Sandbox(transport, on_exit="delete")  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", ["local:", None, StubTransport])
def test_transport_is_checked(bad: Any) -> None:
    """What is no transport object is refused, with a hint at connect for a URL."""
    with pytest.raises(InvalidRequestError, match="connect"):
        Sandbox(bad)


def test_small_calls(transport: StubTransport) -> None:
    """Ping is True, workspace is the transport's, the transport and the sandbox are at hand."""
    sandbox = Sandbox(transport, "box")
    assert sandbox.ping(2) is True
    assert transport.last("ping") == ("box", 2.0)
    assert sandbox.workspace == "/workspace"
    assert sandbox.transport is transport
    assert sandbox.get_session("s").sandbox is sandbox
    assert "box" in repr(sandbox)


def test_process_belongs_to_the_sandbox(transport: StubTransport) -> None:
    """A process that a deleted session started is still there for its object."""
    sandbox = Sandbox(transport)
    session = sandbox.create_session("s")
    started = session.start_process("x", process_id="p")
    session.delete()
    assert started.refresh().status == "running"
    assert transport.processes == {"p": process("p", command="x", session_id="s")}
