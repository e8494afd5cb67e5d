"""What a test has said that programs do, and how the shells come to it."""

from __future__ import annotations

import functools
import inspect
import shlex
import threading
import traceback
from collections.abc import Callable, Mapping

import attrs

from sandboxsync.errors import InvalidRequestError
from sandboxsync.transports.base import Output
from sandboxsync.transports.fake._bashkit import bashkit
from sandboxsync.transports.fake._calls import FakeCall, FakeCalls
from sandboxsync.transports.fake._mapping import VolumeMapping
from sandboxsync.transports.fake._patterns import Matcher, check_name
from sandboxsync.transports.fake._program import Answer, Invocation, Program, Step
from sandboxsync.transports.fake._results import answer_of

__all__ = ["Scripts"]

_PARAMETERS = ("argv", "env", "cwd", "stdin", "files")


@attrs.define(eq=False)
class _Script:
    matcher: Matcher
    answer: Answer
    left: int | None


@attrs.frozen
class _Function:
    call: Callable[..., object]
    parameters: frozenset[str]


class Scripts:
    """Finds the answer to each command whose name was scripted. Any thread may use it.

    Of the scripts that match a command, those with a number of times come first, in their order, and then the newest of
    the others; then the function of that name; then what the command would be without any of them.
    """

    def __init__(self, calls: FakeCalls, programs: Mapping[str, Program]) -> None:
        self.programs: dict[str, Program] = dict(programs)
        """All programs: those that are there without scripts, and a stand-in for each name that is scripted."""
        self._without = programs
        self._calls = calls
        self._lock = threading.Lock()
        self._scripts: list[_Script] = []
        self._functions: dict[str, _Function] = {}
        self._names: frozenset[str] = frozenset()

    @property
    def names(self) -> frozenset[str]:
        """The names that are scripted."""
        return self._names

    def add(self, matcher: Matcher, answer: Answer, times: int | None) -> str:
        """Have commands answered. Returns the name of the program that has to be made known to the shells."""
        name = check_name(matcher.name)
        with self._lock:
            self._scripts.append(_Script(matcher, answer, times))
        return self._stand_in(name)

    def add_function(self, name: str, function: Callable[..., object]) -> str:
        """Have a function called in the place of a program; returns its name. Raises `InvalidRequestError`."""
        check_name(name)
        asked = _parameters(function)
        with self._lock:
            self._functions[name] = _Function(function, asked)
        return self._stand_in(name)

    def renew(self) -> None:
        """In a forked child: who held the lock is not here."""
        self._lock = threading.Lock()

    def _stand_in(self, name: str) -> str:
        function = self._functions.get(name)
        # One that does not read leaves its input to the next, as in `while read`.
        reads = (function is not None and "stdin" in function.parameters) or _is_of_bashkit(name)
        with self._lock:
            self.programs[name] = Program(self._carry_out, reads_stdin=reads, blocks=True, is_live=True)
            self._names |= {name}
        return name

    def _carry_out(self, call: Invocation) -> Answer:
        shell = call.shell
        clock = shell.engine.clock
        words = (call.name, *call.argv)
        entry = self._calls.begin(
            "command",
            command=" ".join(words),
            argv=words,
            sandbox_id=shell.sandbox.id,
            session_id=shell.session_id,
            env=dict(call.env),
            cwd=call.cwd,
            stdin=call.stdin,
            notes=shell.notes,
        )
        began = clock.monotonic()
        try:
            answer = self._answer(call, words)
        except BaseException as exc:
            # A mistake in a test: whoever started the command raises it, when the command has ended.
            entry.error = exc
            if entry.notes is not None and entry.notes.failure is None:
                entry.notes.failure = exc
            answer = Answer([Step(0.0, "stderr", "".join(traceback.format_exception(exc)).encode())], 1)

        def done(exit_code: int | None) -> None:
            elapsed = clock.monotonic() - began
            _note_output(entry, answer, None if exit_code is not None else elapsed)
            entry.finish(elapsed, exit_code)

        return attrs.evolve(answer, done=done)

    def _answer(self, call: Invocation, words: tuple[str, ...]) -> Answer:
        script, function = self._take(words), self._functions.get(call.name)
        if script is not None:
            return script.answer
        if function is not None:
            given = {
                "argv": list(words),
                "env": dict(call.env),
                "cwd": call.cwd,
                "stdin": call.stdin,
                "files": VolumeMapping(call.shell.sandbox.volume),
            }
            return answer_of(
                function.call(**{name: given[name] for name in _PARAMETERS if name in function.parameters})
            )
        program = self._without.get(call.name)
        if program is not None:
            return program.function(call)
        others = {name: program for name, program in self.programs.items() if name != call.name}
        output, exit_code = call.shell.sandbox.run_within(call, shlex.join(words), others)
        return Answer([Step(0.0, each.stream, each.data) for each in output], exit_code)

    def _take(self, words: tuple[str, ...]) -> _Script | None:
        with self._lock:
            found = [script for script in self._scripts if script.left != 0 and script.matcher.matches(words)]
            limited = [script for script in found if script.left is not None]
            if limited:
                assert limited[0].left is not None
                limited[0].left -= 1
                return limited[0]
            return found[-1] if found else None


def _note_output(entry: FakeCall, answer: Answer, elapsed: float | None) -> None:
    """Keep what was printed, in `elapsed` seconds if it was stopped then."""
    printed, at = [], 0.0
    for step in answer.steps:
        at += step.delay
        if elapsed is not None and at > elapsed:
            break
        printed.append(Output(step.stream, step.data))
    entry.take(printed)


def _parameters(function: Callable[..., object]) -> frozenset[str]:
    """Return which of the things on offer a function takes."""
    if not callable(function):
        raise InvalidRequestError(f"a function is needed in the place of a program, not {function!r}")
    asked: set[str] = set()
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            asked.update(_PARAMETERS)
        elif parameter.name in _PARAMETERS and parameter.kind is not parameter.POSITIONAL_ONLY:
            asked.add(parameter.name)
        elif parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL:
            raise InvalidRequestError(
                f"a function in the place of a program is given {', '.join(_PARAMETERS)}, and no {parameter.name!r}"
            )
    return frozenset(asked)


@functools.cache
def _is_of_bashkit(name: str) -> bool:
    found: bool = bashkit().Bash().execute_sync(f"command -v {shlex.quote(name)}").exit_code == 0
    return found
