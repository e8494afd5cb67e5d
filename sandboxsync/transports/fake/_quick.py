"""The quick way of a shell: a command is run to its end, in a worker thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from sandboxsync.transports.fake._bashkit import bashkit
from sandboxsync.transports.fake._program import Answer, Invocation, Program

if TYPE_CHECKING:
    from sandboxsync.transports.fake._shell import Job, Shell, StreamName

__all__ = ["Quick"]

_NAMES: tuple[StreamName, StreamName] = ("stdout", "stderr")
_STOPPED = 137
_MOST = 10 << 20
"""Bytes at which bashkit cuts an output, mostly without a word."""
_LOSS = "\N{REPLACEMENT CHARACTER}"


class Quick:
    """Runs commands of one shell that leave nothing running."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._job: Job | None = None
        self._text = ""
        self._end: list[str] | None = None
        self._stop = threading.Event()
        self._awake = threading.Event()
        self._sent = {"stdout": 0, "stderr": 0}
        self._seen = {"stdout": "", "stderr": ""}
        self._unsure = {"stdout": False, "stderr": False}
        self._result = bashkit().BuiltinResult

    def builtins(self) -> dict[str, Callable[[Any], Any]]:
        """The programs, and the two questions of the script below, as bashkit calls them in this way."""
        found = {name: self._callback(program) for name, program in self._shell.programs.items()}
        return {**found, "__sbx_text": self._give_text, "__sbx_end": self._take_end}

    # From any thread

    def submit(self, job: Job) -> None:
        self._job = job
        self._stop.clear()
        self._shell.engine.workers.run(self._run)

    def runs(self, job: Job) -> bool:
        """Whether this is the command that it runs now."""
        return self._job is job

    def cancel(self) -> None:
        self._stop.set()
        self._shell.bash.cancel()
        self._awake.set()

    # In the worker

    def _run(self) -> None:
        from sandboxsync.transports.fake._shell import Cut, Died, Ended, Stopped

        shell, job = self._shell, self._job
        assert job is not None
        self._text = shell.text_of(job)
        self._end = None
        self._sent = {"stdout": 0, "stderr": 0}
        self._unsure = {"stdout": False, "stderr": False}
        self._seen = {"stdout": "", "stderr": ""}
        lines = shell.settings_lines(job.settings)
        source = "/dev/null" if job.stdin is None else shell.sandbox.lend(job.stdin)
        script = f'{{ builtin eval "$(__sbx_text)"; }} <{source}\n__sbx_end "$?"'
        result = shell.bash.execute_sync("\n".join([*lines, script]), self._take_output)
        if job.stdin is not None:
            shell.sandbox.take_back(source)
        how: Cut | Died | Ended | Stopped
        if max(len(result.stdout_bytes), len(result.stderr_bytes)) >= _MOST:
            how = Cut()
        elif self._end is not None:
            how = Ended(shell.status)
        elif self._stop.is_set():
            how = Stopped()
        else:
            how = Died(result.exit_code)
        if self._stop.is_set():
            shell.bash.clear_cancel()
        for name, data in zip(_NAMES, (result.stdout_bytes, result.stderr_bytes), strict=True):
            if self._unsure[name]:
                # Of a stopped command there are no bytes; what was seen of them as text is better than nothing.
                rest = self._seen[name].encode() if isinstance(how, Stopped) else data[self._sent[name] :]
                self._put(name, rest)
        self._job = None
        shell.finish(job, how)

    def _give_text(self, context: Any) -> Any:
        return self._result(self._text, "", self._shell.status)

    def _take_end(self, context: Any) -> Any:
        assert self._job is not None
        self._end = context.argv
        self._shell.note_end(self._job, context.argv[0], context.cwd, context.env)
        return self._result("", "", 0)

    def _take_output(self, out: str, err: str) -> None:
        """Text as it comes. What is no text is not seen in it, so from there on the bytes of the result are taken."""
        for name, text in zip(_NAMES, (out, err), strict=True):
            if text:
                self._unsure[name] = self._unsure[name] or _LOSS in text
                if self._unsure[name]:
                    self._seen[name] += text
                else:
                    data = text.encode()
                    self._sent[name] += len(data)
                    self._put(name, data)

    def _put(self, name: StreamName, data: bytes) -> None:
        assert self._job is not None
        while data and not self._job.put(name, data):
            room = threading.Event()
            self._job.on_room(room.set)
            room.wait()

    # Programs

    def _callback(self, program: Program) -> Callable[[Any], Any]:
        def call(context: Any) -> Any:
            stdin = b"" if context.stdin is None else context.stdin.encode()
            invocation = Invocation(context.name, context.argv, context.env, context.cwd, stdin, self._shell)
            return self._carry_out(self._ask(program, invocation))

        return call

    def _ask(self, program: Program, invocation: Invocation) -> Answer:
        """Call a program; one that may do anything in another thread, since interpreters cannot be used in this."""
        if not program.blocks:
            return program.function(invocation)
        answer: Future[Answer] = Future()

        def run() -> None:
            try:
                answer.set_result(program.function(invocation))
            except BaseException as exc:
                answer.set_exception(exc)

        self._shell.engine.workers.run(run)
        return answer.result()

    def _carry_out(self, answer: Answer) -> Any:
        text = {"stdout": b"", "stderr": b""}
        for step in answer.steps:
            self._sleep(step.delay)
            text[step.stream] += step.data
        with self._shell.sandbox.ports.open(answer.ports):
            self._sleep(answer.delay)
            if answer.exit_code is None:
                self._sleep(None)
        answer.done(None if self._stop.is_set() else answer.exit_code)
        # A program that says what is no text is run in the other way, unless its name is hidden in a function or file.
        out, err = (text[name].decode(errors="replace") for name in _NAMES)
        return self._result(out, err, _STOPPED if answer.exit_code is None else answer.exit_code)

    def _sleep(self, seconds: float | None) -> None:
        """Sleep on the fake's clock, for ever with `None`, or until the command is stopped."""
        if seconds is not None and seconds <= 0:
            return
        shell = self._shell
        self._awake.clear()
        if self._stop.is_set():
            return

        def fire() -> None:
            shell.activity.run()
            self._awake.set()

        clock = shell.engine.clock
        # In one step: a shell that went to sleep after it was woken would let the clock jump past all it is to do.
        with clock.lock:
            timer = None if seconds is None else clock.set_timer(seconds, fire)
            shell.activity.rest()
        try:
            self._awake.wait()
        finally:
            shell.activity.run()
            clock.cancel(timer)
