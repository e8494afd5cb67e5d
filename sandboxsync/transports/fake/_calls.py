"""The record of what was run, for tests to look at and to assert on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

import attrs

from sandboxsync.errors import SandboxError
from sandboxsync.transports.base import CommandRequest, CommandStream, Exited, Output, ProcessRequest, SessionRef
from sandboxsync.transports.fake._patterns import CommandPattern, matcher
from sandboxsync.transports.fake._program import Notes

if TYPE_CHECKING:
    from sandboxsync.transports.fake._clock import FakeClock
    from sandboxsync.transports.fake._command import FakeCommand
    from sandboxsync.transports.fake._processes import FakeProcess

__all__ = ["CallKind", "FakeCall", "FakeCalls", "RecordedCommand", "about"]

CallKind: TypeAlias = Literal["exec", "process", "command"]

_KEPT_CALLS = 10_000
_KEPT_OUTPUT = 1 << 20
_SHOWN = 20
_SHOWN_TEXT = 200


@attrs.define(eq=False, kw_only=True)
class FakeCall:
    """Something that was run. It is there when it begins, and complete when it has ended.

    `kind`: `"exec"` for `exec` and `exec_stream`, `"process"` for `start_process`, both with their text in `command`;
    `"command"` for one that a shell ran and that is scripted, with its words in `argv` and in `command`.

    `env` and `cwd` are what was given with the call; of a scripted command, all that it was run with. `exit_code` is
    `None` until it has ended, and when it was stopped. `error` is what was raised. `duration` is in seconds of the
    fake's clock.
    """

    kind: CallKind
    command: str
    argv: tuple[str, ...] = ()
    sandbox_id: str
    session_id: str | None
    env: Mapping[str, str] = attrs.field(repr=False)
    cwd: str | None
    stdin: bytes | None = attrs.field(default=None, repr=False)
    started_at: datetime = attrs.field(repr=False)
    exit_code: int | None = None
    error: BaseException | None = None
    duration: float | None = None
    notes: Notes | None = attrs.field(default=None, repr=False)
    """Shared by a call and the scripted commands in it."""
    _pieces: list[tuple[str, bytes]] = attrs.field(factory=list, init=False, repr=False)
    _room: int = attrs.field(default=_KEPT_OUTPUT, init=False, repr=False)

    @property
    def stdout_bytes(self) -> bytes:
        """What it printed; of `exec` as far as it was read, and of anything the first 1 MiB of both streams."""
        return self._printed("stdout")

    @property
    def stderr_bytes(self) -> bytes:
        """What it printed there."""
        return self._printed("stderr")

    @property
    def stdout(self) -> str:
        """The same as text."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """The same as text."""
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.duration is not None

    def take(self, outputs: Iterable[Output]) -> None:
        """Keep what it printed."""
        for output in outputs:
            data = output.data[: self._room]
            self._room -= len(data)
            if data:
                self._pieces.append((output.stream, data))

    def _printed(self, stream: str) -> bytes:
        return b"".join(data for name, data in list(self._pieces) if name == stream)

    def process_ended(self, process: FakeProcess, exit_code: int) -> None:
        """Note the end of a background process."""
        self.take(process.output)
        failure = None if self.notes is None else self.notes.failure
        self.finish(process.duration, exit_code, failure)

    def finish(self, duration: float, exit_code: int | None = None, error: BaseException | None = None) -> None:
        """Note its end, once."""
        if self.duration is None:
            self.exit_code, self.duration = exit_code, duration
            self.error = error or self.error


class FakeCalls(Sequence[FakeCall]):
    """All calls, in the order in which they began; the last 10,000 are kept. Any thread may use it.

    The assertions take patterns as `FakeTransport.on` does, and look at the text of every call and at the words of
    every scripted command. Where both match, as for `exec("npm test")` with `npm test` scripted, that is one call.
    They also take `sandbox_id`, `session_id`, `cwd` and `stdin`, which have to be equal, and `env`, which has to hold
    at least this. They raise `AssertionError` that shows what was called.
    """

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._calls: deque[FakeCall] = deque(maxlen=_KEPT_CALLS)

    @overload
    def __getitem__(self, index: int) -> FakeCall: ...
    @overload
    def __getitem__(self, index: slice) -> list[FakeCall]: ...
    def __getitem__(self, index: int | slice) -> FakeCall | list[FakeCall]:
        return self._all()[index]

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[FakeCall]:
        return iter(self._all())

    def __repr__(self) -> str:
        return f"<FakeCalls: {_listed(self._all())}>"

    @property
    def commands(self) -> list[str]:
        """The texts of all that was run by `exec`, `exec_stream` and `start_process`."""
        return [call.command for call in self._all() if call.kind != "command"]

    def clear(self) -> None:
        """Forget all calls."""
        with self._lock:
            self._calls.clear()

    # Assertions

    def assert_any_call(self, pattern: CommandPattern, **given: object) -> None:
        """Raise unless such a command was run at any time."""
        __tracebackhide__ = True
        calls = self._all()
        if not _matching(calls, pattern, given):
            raise AssertionError(f"{_wanted(pattern, given)} was not run; {_told(calls)}")

    def assert_called_with(self, pattern: CommandPattern, **given: object) -> None:
        """Raise unless it is what was run last: the last call, or the last scripted command."""
        __tracebackhide__ = True
        calls = self._all()
        last = calls[-1:] + [call for call in calls if call.kind != "command"][-1:]
        if not _matching(last, pattern, given):
            raise AssertionError(f"{_wanted(pattern, given)} was not what was run last; {_told(calls)}")

    def assert_called_once_with(self, pattern: CommandPattern, **given: object) -> None:
        """Raise unless such a command was run exactly once; others may have been run."""
        __tracebackhide__ = True
        calls = self._all()
        count = len(_matching(calls, pattern, given))
        if count != 1:
            raise AssertionError(f"{_wanted(pattern, given)} was run {count} times, not once; {_told(calls)}")

    def assert_not_called(self, pattern: CommandPattern | None = None, **given: object) -> None:
        """Raise when such a command was run; without a pattern, when anything was."""
        __tracebackhide__ = True
        calls = self._all()
        found = calls if pattern is None else _matching(calls, pattern, given)
        if found:
            what = "something" if pattern is None else _wanted(pattern, given)
            raise AssertionError(f"{what} was run {len(found)} times; {_told(calls)}")

    # For the transport

    def begin(self, kind: CallKind, **fields: Any) -> FakeCall:
        """Make the entry of something that begins."""
        call = FakeCall(kind=kind, started_at=self._clock.now(), **fields)
        with self._lock:
            self._calls.append(call)
        return call

    def renew(self) -> None:
        """In a forked child: who held the lock is not here."""
        self._lock = threading.Lock()

    def _all(self) -> list[FakeCall]:
        with self._lock:
            return list(self._calls)


class RecordedCommand(CommandStream):
    """The stream of a command, whose output and end go into the record as they are read.

    An exception that a function in the place of a program raised is raised here in the place of the end.
    """

    def __init__(self, command: FakeCommand, call: FakeCall) -> None:
        self.started_at = call.started_at = command.started_at
        self._command = command
        self._call = call

    def read(self) -> Output | Exited:
        command, call = self._command, self._call
        try:
            item = command.read()
        except SandboxError as exc:
            call.finish(command.duration, None, exc)
            raise
        if isinstance(item, Output):
            call.take([item])
            return item
        call.finish(item.duration, item.exit_code, command.notes.failure)
        if command.notes.failure is not None:
            raise command.notes.failure
        return item

    def kill(self) -> None:
        self._command.kill()

    def close(self) -> None:
        self._command.close()
        self._call.finish(self._command.duration)

    def abandon(self) -> None:
        self._command.abandon()
        self._call.finish(self._command.duration)


def about(ref: SessionRef, request: CommandRequest | ProcessRequest) -> dict[str, Any]:
    """Return the fields of an entry for what a request asks for."""
    return {
        "command": request.command,
        "sandbox_id": ref.sandbox_id,
        "session_id": ref.session_id,
        "env": dict(request.env),
        "cwd": request.cwd,
        "stdin": request.stdin if isinstance(request, CommandRequest) else None,
    }


def _matching(calls: Sequence[FakeCall], pattern: CommandPattern, given: Mapping[str, object]) -> list[FakeCall]:
    """Those that match, without calls that match only as the scripted commands in them do."""
    wanted = matcher(pattern)
    found = [
        call
        for call in calls
        if (wanted.matches(call.argv) if call.argv else wanted.matches_text(call.command)) and _fits(call, given)
    ]
    within = {id(call.notes) for call in found if call.kind == "command"}
    return [call for call in found if call.kind == "command" or id(call.notes) not in within or call.notes is None]


def _fits(call: FakeCall, given: Mapping[str, object]) -> bool:
    for name, value in given.items():
        actual = getattr(call, name)
        if name == "env":
            assert isinstance(value, Mapping)
            if not value.items() <= dict(actual).items():
                return False
        elif (value.encode() if name == "stdin" and isinstance(value, str) else value) != actual:
            return False
    return True


def _wanted(pattern: CommandPattern, given: Mapping[str, object]) -> str:
    return " with ".join(
        [str(matcher(pattern)), *([", ".join(f"{k}={v!r}" for k, v in given.items())] if given else [])]
    )


def _told(calls: Sequence[FakeCall]) -> str:
    return f"calls: {_listed(calls)}" if calls else "nothing was"


def _listed(calls: Sequence[FakeCall]) -> str:
    more = f"\n  ({len(calls) - _SHOWN} before)" if len(calls) > _SHOWN else ""
    return f"{len(calls)}{more}" + "".join(f"\n  {_line(call)}" for call in calls[-_SHOWN:])


def _line(call: FakeCall) -> str:
    end = "runs" if not call.is_over else "stopped" if call.exit_code is None else f"exit code {call.exit_code}"
    end = end if call.error is None else f"raised {call.error!r}"
    where = f"{call.sandbox_id}/{call.session_id}" if call.session_id else call.sandbox_id
    command = call.command if len(call.command) <= _SHOWN_TEXT else call.command[:_SHOWN_TEXT] + "..."
    return f"{call.kind} {command!r} in {where}: {end}"
