"""The careful way of a shell: its interpreter runs one script that never ends, and asks for command after command.

So `$?`, traps, jobs, redirections and all else that a shell keeps are kept by the interpreter itself. What belongs to
the engine's event loop is marked; bashkit runs the interpreter in threads of its own.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sandboxsync.transports.fake._bashkit import bashkit_runs
from sandboxsync.transports.fake._program import Answer, Invocation, Program

if TYPE_CHECKING:
    from sandboxsync.transports.fake._shell import Job, Shell, StreamName

__all__ = ["Loop"]

_QUIET = 0.02
"""Seconds of real time in which nothing happens, and nothing runs, before a shell of which something sleeps counts as
asleep."""
_LOOKS = 4
_OUT, _ERR = 198, 199
_GO = 77
# What the interpreter runs. The question `next` says how the last command ended and returns when there is another: its
# text is in `c`, its input in `i`, and in `p` what has to be done before it. The question is asked in a subshell, where
# no DEBUG trap of the user's runs, and as the condition of an `until`, which ends the script under `set -n`. Any other
# status than `go` comes from a redirection that failed. A `break` of a command ends a loop, so that another follows.
_LOOP = """\
until ({next} "$?" "$-" "${{SHELLOPTS-}}" >&{out} 2>&{err}); do case $? in \
{go}) builtin . {place}/p; {{ builtin eval "$({text})"; }} <{place}/i;; *) {next} spoilt;; esac; done; """
_SCRIPT = "builtin exec {out}>&1 {err}>&2; {state}" + 4 * _LOOP + "{next} again\n"
_PREPARE = """\
builtin exec 1>&{out} 2>&{err}
{lines}
builtin return 0
"""
# What a waited-for job of an earlier command has printed is no output of the command that waits.
_WAIT = 'wait() { builtin wait "$@" >/dev/null 2>&1; }'
_LOST = 0.5
"""Seconds of real time after which the end of a command will not be seen any more in its output."""
_FENCE = "builtin printf %s%s '{0}' '{1}'; builtin printf %s%s '{0}' '{1}' >&2"


class Loop:
    """Runs the commands of one shell."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._engine = shell.engine
        secret = secrets.token_hex(8)
        self._secret = secret
        self._next_name = f"__next_{secret}"
        self._text_name = f"__text_{secret}"
        self._place = f"/dev/.{secret}"
        self._private = shell.sandbox.volume.private
        self._fences: dict[StreamName, _Fence] = {"stdout": _Fence(secret), "stderr": _Fence(secret)}
        self._pending: Job | None = None
        self._job: Job | None = None
        self._number = 0
        self._text = b""
        self._gate: asyncio.Event | None = None
        self._fenced: asyncio.Event | None = None
        self._main: asyncio.Task[None] | None = None
        self._again = self._stopping = self._spoilt = self._cleaning = False
        self._putting = 0
        self._options = ""
        self._sleeping = 0
        self._waking = 0
        self._quiet: asyncio.TimerHandle | None = None
        self._shell.bash.add_command(self._next_name, self._next)
        self._shell.bash.add_command(self._text_name, self._give_text)

    @property
    def is_running(self) -> bool:
        """Whether the interpreter runs, be it that it waits for a command."""
        return self._main is not None

    # From any thread

    def submit(self, job: Job) -> None:
        self._engine.post(self._take, job)

    def cancel(self) -> None:
        """End the command that runs, and all jobs."""
        self._engine.post(self._cancel)

    def add_program(self, name: str, program: Program) -> None:
        async def call(context: Any) -> int:
            self._step()
            try:
                return await self._run_program(program, context)
            finally:
                self._step()

        self._shell.bash.add_command(name, call)

    # On the loop

    def _take(self, job: Job) -> None:
        self._pending = job
        if self._main is None:
            self._main = asyncio.get_running_loop().create_task(self._live())
        elif self._gate is not None:
            self._gate.set()

    def _cancel(self) -> None:
        if self._main is not None and not self._stopping:
            self._stopping = True
            self._shell.bash.cancel()

    async def _live(self) -> None:
        """Run the interpreter until it ends, and tell the command that ran then."""
        from sandboxsync.transports.fake._shell import Died, Stopped

        result: Any
        while True:
            self._again = False
            result = await self._shell.bash.execute(
                self._script(), capture=0, stdout=self._sink("stdout"), stderr=self._sink("stderr")
            )
            if not self._again or self._stopping:
                break
        job, self._job = self._job or self._pending, None
        self._pending = None
        stopped, self._stopping = self._stopping, False
        self._main = self._gate = None
        self._unwatch()
        if stopped:
            self._shell.bash.clear_cancel()
        died = Died(self._shell.status if self._spoilt else result.exit_code, self._spoilt)
        if job is not None:
            for name, fence in self._fences.items():
                await self._put(job, name, fence.rest())
            self._shell.finish(job, Stopped() if stopped else died)
        else:
            if not stopped:
                self._shell.died = died
            self._shell.idle()

    def _script(self) -> str:
        # Each run of a script begins without traps and options: those that a stopped command has left are set again.
        left = self._shell.bash.shell_state().traps
        lines = [f"builtin set -o {name}; " for name in self._options.split(":") if name]
        lines += [f"builtin trap -- {shlex.quote(text)} {name}; " for name, text in left.items()]
        return _SCRIPT.format(
            next=self._next_name,
            text=self._text_name,
            place=self._place,
            out=_OUT,
            err=_ERR,
            go=_GO,
            state="".join(lines),
        )

    async def _next(self, context: Any) -> int:
        """The script's question for the next command; its arguments are `$?` and `$-`."""
        from sandboxsync.transports.fake._shell import Ended

        if context.argv[0] == "again":
            self._again = True
            return 0
        if context.argv[0] == "spoilt":
            self._spoil()
            return 0
        status, flags, self._options = context.argv
        self._gate = asyncio.Event()
        if self._job is not None:
            if not self._cleaning:
                self._shell.note_end(self._job, status, context.cwd, context.env)
            if not await self._find_end(context):
                self._spoil()
                return 0
            if "trap" in self._job.text and not self._cleaning:
                # Those of these kinds end with their command, and run once more before they do: nobody is to see that.
                self._cleaning = True
                self._number += 1
                for fence in self._fences.values():
                    fence.begin(None, self._token("end"), False)
                self._lay_out(b"", ["builtin trap - DEBUG ERR RETURN"], b"")
                return _GO
            self._cleaning = False
            job, self._job = self._job, None
            self._unwatch()
            self._shell.finish(job, Ended(self._shell.status))
        if self._pending is None:
            await self._gate.wait()
        assert self._pending is not None
        self._job, self._pending = self._pending, None
        self._prepare(self._job, flags)
        return _GO

    def _spoil(self) -> None:
        """No other command can run: the last one has closed what the script needs, or let it lead elsewhere."""
        self._spoilt = True
        self._shell.bash.cancel()

    async def _find_end(self, context: Any) -> bool:
        """Write the mark that ends a command's output, and wait until it comes out. `False` when that is lost."""
        self._fenced = asyncio.Event()
        end = self._token("end")
        try:
            await asyncio.gather(context.stdout.write(end), context.stderr.write(end))
        except RuntimeError:
            return False
        while not self._fenced.is_set():
            try:
                await asyncio.wait_for(self._fenced.wait(), _LOST)
            except (TimeoutError, asyncio.TimeoutError):
                if not self._putting:
                    return False
        return True

    def _prepare(self, job: Job, flags: str) -> None:
        """Lay out what the script reads for a command."""
        self._number += 1
        lines = self._shell.settings_lines(job.settings)
        text = self._shell.text_of(job).encode("utf-8", "surrogateescape")
        begin, skips_line = None, False
        if "x" in flags:
            # Up to here the script's own lines are traced. In two words, so that the trace of it is not taken for it.
            begin = self._token("begin")
            fence = _FENCE.format(begin[:1].decode(), begin[1:].decode())
            status = 0 if "e" in flags else self._shell.status
            skips_line = status != 0
            text = (f"{fence}; (builtin exit {status}); " if skips_line else f"{fence}; ").encode() + text
        for name, each in self._fences.items():
            each.begin(begin, self._token("end"), skips_line and name == "stderr")
        if "wait" in job.text and "&" not in job.text:
            lines.append(_WAIT)
            self._shell.undo("builtin unset -f wait")
        self._lay_out(text, lines, job.stdin or b"")
        self._step()

    def _lay_out(self, text: bytes, lines: list[str], stdin: bytes) -> None:
        self._text = text
        prepare = _PREPARE.format(out=_OUT, err=_ERR, lines="\n".join(lines))
        self._private[f"{self._place}/p"] = prepare.encode()
        self._private[f"{self._place}/i"] = stdin

    async def _give_text(self, context: Any) -> int:
        """The text of the command. The status of the last one is the question's, so that the next finds it in `$?`."""
        await context.stdout.write(self._text)
        return self._shell.status

    def _token(self, kind: str) -> bytes:
        return f"<{kind} {self._number} {self._secret}>".encode()

    def _sink(self, name: StreamName) -> Callable[[bytes], Awaitable[None]]:
        async def write(data: bytes) -> None:
            self._step()
            fence = self._fences[name]
            if fence.is_passed:
                return  # what a job writes after its command has ended goes nowhere
            clean = fence.feed(data)
            if self._job is not None and not self._cleaning:
                await self._put(self._job, name, clean)
            if self._fenced is not None and all(each.is_passed for each in self._fences.values()):
                self._fenced.set()

        return write

    async def _put(self, job: Job, name: StreamName, data: bytes) -> None:
        self._putting += 1
        try:
            while data and not job.put(name, data):
                room = asyncio.Event()
                job.on_room(partial(self._engine.post, room.set))
                await room.wait()
        finally:
            self._putting -= 1

    # Programs, on the loop

    async def _run_program(self, program: Program, context: Any) -> int:
        stdin = b""
        if program.reads_stdin:
            stdin = b"".join([chunk async for chunk in context.stdin])
        invocation = Invocation(context.name, context.argv, context.env, context.cwd, stdin, self._shell)
        answer = await self._ask(program, invocation)
        exit_code = None
        try:
            for step in answer.steps:
                await self._sleep(step.delay)
                out = context.stdout if step.stream == "stdout" else context.stderr
                await out.write(step.data)
            with self._shell.sandbox.ports.open(answer.ports):
                await self._sleep(answer.delay)
                if answer.exit_code is None:
                    await self._sleep(None)
            exit_code = answer.exit_code
        finally:
            answer.done(exit_code)
        assert exit_code is not None
        return exit_code

    async def _ask(self, program: Program, invocation: Invocation) -> Answer:
        if not program.blocks:
            return program.function(invocation)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def run() -> None:
            try:
                found = program.function(invocation)
            except BaseException as exc:
                loop.call_soon_threadsafe(_settle, answer, None, exc)
            else:
                loop.call_soon_threadsafe(_settle, answer, found, None)

        self._engine.workers.run(run)
        return await answer

    async def _sleep(self, seconds: float | None) -> None:
        """Sleep on the fake's clock, for ever with `None`."""
        if seconds is not None and seconds <= 0:
            return
        loop = asyncio.get_running_loop()
        over: asyncio.Future[None] = loop.create_future()
        woken: list[bool] = []

        def fire() -> None:
            self._shell.activity.run()
            woken.append(True)
            self._waking += 1
            loop.call_soon_threadsafe(_settle, over, None, None)

        timer = None
        self._sleeping += 1
        try:
            timer = None if seconds is None else self._engine.clock.set_timer(seconds, fire)
            self._step()
            await over
        finally:
            self._engine.clock.cancel(timer)
            self._sleeping -= 1
            self._waking -= len(woken)
            self._step()

    def _step(self) -> None:
        """Something happened in the shell: it is awake, and asleep when nothing more happens for a while."""
        if self._job is None:
            return  # a job of an ended command does not hold the clock
        self._shell.activity.run()
        self._unwatch()
        if self._sleeping:
            self._watch(_LOOKS)

    def _watch(self, looks: int) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + _QUIET / _LOOKS
        self._quiet = loop.call_at(due, self._look, looks, due)

    def _unwatch(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _look(self, looks: int, due: float) -> None:
        """See whether the shell still does nothing: several times, and only when this thread itself was in time."""
        self._quiet = None
        if not self._sleeping or self._job is None:
            return
        if bashkit_runs() or asyncio.get_running_loop().time() - due > _QUIET / _LOOKS:
            self._watch(_LOOKS)
        elif looks > 1:
            self._watch(looks - 1)
        else:
            with self._engine.clock.lock:
                # What was woken a moment ago has not got to say so.
                if not self._waking:
                    self._shell.activity.rest()


def _settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(value)


class _Fence:
    """Cuts the output of one command out of a stream, and the trace of the script out of that."""

    def __init__(self, secret: str) -> None:
        self._trace = re.compile(rb"[^\n]*__next_%b [^\n]*\n" % secret.encode())
        self._secret = secret.encode()
        self._start: bytes | None = None
        self._skips_line = False
        self._end = b""
        self._held = b""
        self.is_passed = True

    def begin(self, start: bytes | None, end: bytes, skips_line: bool) -> None:
        """A command starts. What is its own comes after `start`, or the line after that, and before `end`."""
        self._start = start
        self._skips_line = skips_line
        self._end = end
        self._held = b""
        self.is_passed = False

    def feed(self, data: bytes) -> bytes:
        """Return what is the command's own of what has come so far."""
        data = self._held + data
        self._held = b""
        if self._start is not None:
            before, found, after = data.partition(self._start)
            if not found and self._end not in data:
                self._held = data
                return b""
            if found and self._skips_line and b"\n" not in after:
                self._held = data
                return b""
            self._start = None
            data = after if found else before
            if found and self._skips_line:
                data = after.partition(b"\n")[2]
        before, found, _ = data.partition(self._end)
        if found:
            self.is_passed = True
            return self._clean(before)
        keep = _overlap(data, self._end)
        if keep:
            data, self._held = data[:-keep], data[-keep:]
        return self._clean(data)

    def rest(self) -> bytes:
        """What was held because it looked like the beginning of an end."""
        held, self._held = self._held, b""
        self.is_passed = True
        return self._clean(held) if self._start is None else b""

    def _clean(self, data: bytes) -> bytes:
        return self._trace.sub(b"", data) if self._secret in data else data


def _overlap(data: bytes, token: bytes) -> int:
    """How many bytes at the end of `data` are the beginning of `token`."""
    start = data.find(token[:1], max(0, len(data) - len(token) + 1))
    while start >= 0:
        if token.startswith(data[start:]):
            return len(data) - start
        start = data.find(token[:1], start + 1)
    return 0
