"""What a test says to a fake: scripts, processes, files, faults."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from inspect import BoundArguments
from types import TracebackType
from typing import TypeVar, overload

from sandboxsync.errors import InvalidRequestError, SandboxError, SandboxUnavailableError, StreamInterruptedError
from sandboxsync.transports.fake._calls import FakeCalls, about
from sandboxsync.transports.fake._clock import FakeClock
from sandboxsync.transports.fake._faults import ErrorToRaise, Faults
from sandboxsync.transports.fake._mapping import VolumeMapping
from sandboxsync.transports.fake._patterns import CommandPattern, matcher
from sandboxsync.transports.fake._program import Answer
from sandboxsync.transports.fake._programs import PROGRAMS
from sandboxsync.transports.fake._results import (
    TimedOutput,
    check_exit_code,
    check_ports,
    check_seconds,
    check_times,
    steps,
)
from sandboxsync.transports.fake._sandbox import FakeSandbox
from sandboxsync.transports.fake._scripts import Scripts
from sandboxsync.transports.fake._volume import Volume

__all__ = ["FakeControls", "FakeSandboxHandle", "FullDisk"]

_Function = TypeVar("_Function", bound=Callable[..., object])


class FakeControls(ABC):
    """The part of `FakeTransport` that is for tests. Any thread may call; nothing here blocks."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.calls = FakeCalls(clock)
        """What was run, in order."""
        self._template = Volume(clock.time)
        self._scripts = Scripts(self.calls, PROGRAMS)
        self._faults = Faults()

    @abstractmethod
    def _sandbox(self, sandbox_id: str) -> FakeSandbox:
        """The sandbox of an id, made if need be."""

    @abstractmethod
    def _all_sandboxes(self) -> list[FakeSandbox]:
        """Those that there are."""

    @abstractmethod
    def _end(self, sandbox_id: str) -> None:
        """End a sandbox, if there is one."""

    # Scripts

    def on(
        self,
        pattern: CommandPattern,
        *,
        stdout: str | bytes = b"",
        stderr: str | bytes = b"",
        exit_code: int = 0,
        delay: float = 0.0,
        output: Iterable[TimedOutput] = (),
        times: int | None = None,
    ) -> None:
        """Say what a command does: print `stdout` and `stderr`, then `output`, take `delay` seconds, and end.

        `pattern` is the command as a text (`"npm run build"`), a text with `*`, `?` or `[` as in a shell's glob
        (`"npm run *"`), a compiled pattern that has to match all of it, or a sequence of its first words
        (`["git", "push"]`). It is compared with the words of one command as the shell runs it, joined with single
        spaces, wherever it stands: in a pipeline, a loop, a function, a script. Its first word has to be literal.

        `output` is a sequence of `(seconds, text)` or `(seconds, text, "stderr")`, each that long after the one before;
        it is seen while the command runs. All times are of the fake's clock, so they take no real time.

        It holds for every sandbox, also for sessions that there are already. Of several that match, those with `times`
        are used up first, in the order in which they were given; of the others the newest counts. Scripts come
        before a function (`command`) of that name, and that before a program that the sandbox has anyway.

        Raises `InvalidRequestError`, also for what belongs to the shell itself, as `cd` and `export`.
        """
        answer = Answer(steps(stdout, stderr, output), check_exit_code(exit_code), check_seconds(delay))
        self._make_known(self._scripts.add(matcher(pattern), answer, check_times(times)))

    @overload
    def command(self, name: str) -> Callable[[_Function], _Function]: ...
    @overload
    def command(self, name: str, function: _Function) -> _Function: ...
    def command(self, name: str, function: _Function | None = None) -> _Function | Callable[[_Function], _Function]:
        """Have a function called in the place of a program, whatever its arguments: a decorator, or with the function.

        The function is given, by their names, those of these that it has parameters for: `argv` (a list, its own name
        first), `env` (all that is exported), `cwd`, `stdin` (bytes; only a function that asks for it reads), and
        `files`, the files of the sandbox as a mapping in which relative keys are below `/workspace`. It returns its
        standard output (`str`, `bytes`), its exit code (`int`), `(exit_code, stdout, stderr)`, a `FakeResult`, or
        `None`, which is success.

        It is called in another thread than the test's, and by several at once if several commands are. What it raises
        is a mistake in the test: the command goes on as if the program had failed with 1 and a traceback, and at its
        end `exec` raises that exception. For what nobody waits for, as `start_process`, it is in `calls`.
        """
        if function is None:
            return lambda function: self.command(name, function)
        self._make_known(self._scripts.add_function(name, function))
        return function

    def process(
        self,
        pattern: CommandPattern,
        *,
        logs: Iterable[TimedOutput] | str | bytes = (),
        port: int | Iterable[int] | None = None,
        status: int = 200,
        exit_code: int | None = None,
        delay: float = 0.0,
        times: int | None = None,
    ) -> None:
        """Say what a command does that serves: print `logs` (as `output` of `on`), open its ports, and run on.

        Without `exit_code` it runs until it is killed; with one it ends `delay` seconds after its last output. Its
        ports are open from its last output to its end, and answer HTTP with `status`. For the rest it is as `on`.
        """
        code = None if exit_code is None else check_exit_code(exit_code)
        answer = Answer(steps(b"", b"", logs), code, check_seconds(delay), check_ports(port, status))
        self._make_known(self._scripts.add(matcher(pattern), answer, check_times(times)))

    def _make_known(self, name: str) -> None:
        for sandbox in self._all_sandboxes():
            sandbox.add_program(name, self._scripts.programs[name])

    @property
    def programs(self) -> frozenset[str]:
        """The names that are scripted."""
        return self._scripts.names

    # Files and sandboxes

    @property
    def files(self) -> VolumeMapping:
        """The files that every new sandbox has, to be changed."""
        return VolumeMapping(self._template)

    def sandbox(self, sandbox_id: str) -> FakeSandboxHandle:
        """One sandbox, as a test sees it."""
        return FakeSandboxHandle(self, sandbox_id)

    # Faults

    def fail(
        self,
        operation: str,
        error: ErrorToRaise | None = None,
        *,
        times: int = 1,
        after_bytes: int | None = None,
        sandbox: str | None = None,
    ) -> None:
        """Let the next `times` calls of an operation raise an error, and do nothing.

        `operation` is a verb of a sandbox, as `"exec"` or `"read_file"`, or a method of the transport, as `"run"`;
        verbs that ask the same of the transport fail alike. `error` is a class of `sandboxsync.errors` or one that is
        made, of which each call raises a copy; left out, it is `SandboxUnavailableError`. `sandbox` is the id of the
        only one that it is for.

        With `after_bytes` the call begins, and breaks off after so many bytes of output (of a file), at the latest
        before its end is told; the command is stopped. `error` is then by default `StreamInterruptedError`.

        Raises `InvalidRequestError`, for an operation that there is not, too.
        """
        if after_bytes is not None and (isinstance(after_bytes, bool) or after_bytes < 0):
            raise InvalidRequestError(f"after_bytes is a number, 0 or more, not {after_bytes!r}")
        if error is None:
            error = SandboxUnavailableError if after_bytes is None else StreamInterruptedError
        self._faults.add(operation, error, check_times(times) or 1, after_bytes, sandbox)

    def unavailable(self, times: int = 1, *, retry_after: float | None = None, sandbox: str | None = None) -> None:
        """Let the next calls of whatever operation raise `SandboxUnavailableError`, as a service without room does."""
        error = SandboxUnavailableError(
            "the service has no room for another sandbox now",
            code="capacity_exceeded",
            http_status=503,
            retry_after=retry_after,
        )
        self._faults.add(None, error, check_times(times) or 1, None, sandbox)

    def disk_full(self, sandbox: str | None = None) -> FullDisk:
        """Leave no room for another byte, in one sandbox or in all and in new ones.

        Writes raise `NoSpaceError`, and commands find the disk full. It lasts until `undo()` of what is returned, which
        is a context manager too. What is deleted makes room.
        """
        if sandbox is not None:
            return FullDisk(lambda: [self._sandbox(sandbox).volume])
        return FullDisk(lambda: [self._template, *(each.volume for each in self._all_sandboxes())])

    def latency(self, seconds: float) -> None:
        """Let every operation take so many seconds of the fake's clock before it begins; 0 ends that."""
        self._faults.latency = check_seconds(seconds, "latency")

    def heal(self) -> None:
        """Let nothing fail any more: takes back `fail`, `unavailable` and `latency`."""
        self._faults.clear()

    # For the transport

    def _before(self, operation: str, given: BoundArguments) -> None:
        """Called before each operation."""
        if self._faults.latency:
            self.clock.sleep(self._faults.latency)
        try:
            self._faults.strike(operation, given)
        except SandboxError as exc:
            if operation in ("run", "start_process"):
                ref, request = given.arguments["ref"], given.arguments["request"]
                call = self.calls.begin("exec" if operation == "run" else "process", **about(ref, request))
                call.finish(0.0, None, exc)
            raise

    def _renew_controls(self) -> None:
        """In a forked child."""
        self._template.renew_lock()
        self._scripts.renew()
        self._faults.renew()
        self.calls.renew()


class FakeSandboxHandle:
    """One sandbox of a fake, by its id; made with the first use."""

    def __init__(self, fake: FakeControls, sandbox_id: str) -> None:
        self.id = sandbox_id
        self._fake = fake

    def __repr__(self) -> str:
        return f"<FakeSandboxHandle {self.id!r}>"

    @property
    def files(self) -> VolumeMapping:
        """Its files, to arrange and to assert on."""
        return VolumeMapping(self._fake._sandbox(self.id).volume)

    def restart(self) -> None:
        """Lose its files, sessions and processes, as a service does with a sandbox that was idle (S17).

        The next call of whoever knew a session raises `SessionTerminatedError` (`SANDBOX_RESTARTED`), once; what runs
        ends with that too. Blocks until all has ended. New files are those of the fake's `files`.
        """
        self._fake._end(self.id)


class FullDisk:
    """Disks without room, until the block ends or `undo` is called."""

    def __init__(self, volumes: Callable[[], list[Volume]]) -> None:
        self._volumes = volumes
        self._before: dict[Volume, int | None] = {}
        for volume in volumes():
            self._before[volume] = volume.capacity
            volume.capacity = volume.used

    def __enter__(self) -> FullDisk:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.undo()

    def undo(self) -> None:
        """Let there be room as before. Idempotent."""
        for volume in self._volumes():
            # One that is not known was made from the template meanwhile.
            volume.capacity = self._before.get(volume, next(iter(self._before.values())))
