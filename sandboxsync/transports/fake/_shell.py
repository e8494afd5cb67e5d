"""One bash interpreter of bashkit, kept alive: it runs one command after the other, as a session's shell does.

It has two ways to run a command. The quick one (`_quick`) runs it to its end in a worker thread. The other (`_loop`)
runs a script that never ends and asks for one command after the other, so that jobs, traps and redirections live on
between commands; a shell changes to it for good when a command needs that.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import attrs

from sandboxsync.transports.fake._bashkit import bashkit
from sandboxsync.transports.fake._loop import Loop
from sandboxsync.transports.fake._program import Notes, Program
from sandboxsync.transports.fake._quick import Quick

if TYPE_CHECKING:
    from sandboxsync.transports.fake._clock import Activity
    from sandboxsync.transports.fake._command import FakeCommand
    from sandboxsync.transports.fake._engine import Engine
    from sandboxsync.transports.fake._sandbox import FakeSandbox

__all__ = ["Cut", "Died", "Ended", "Job", "Settings", "Shell", "Stopped", "StreamName"]

StreamName: TypeAlias = Literal["stdout", "stderr"]

_NO_LIMIT = 2**31 - 1
# What starts something beside itself, or changes what outlives a command in other ways than a variable. Rather one too
# many: it only costs time.
_NEEDS_LOOP = re.compile(
    r"(?<![&>|<])&(?![&>])|[<>]\("
    r"|\b(?:trap|exec|set|shopt|wait|jobs|kill|coproc|disown|fg|bg|sh|bash|source)\b"
    # Two that sleep at the same time. One is better off the quick way: in the other it takes all that is in its pipe.
    r"|\bsleep\b[^|]*\|(?!\|)[^|]*\bsleep\b"
    # What may write bytes that are no text, of which the quick way loses some when it is stopped.
    r"|\\[0-7xu]|random"
)
# A shell whose `builtin` is somebody else's runs nothing that it is told to.
_SPOILS = re.compile(r"\bbuiltin\s*\(\s*\)|\bfunction\s+builtin\b")


@attrs.frozen
class Ended:
    """A command has ended and its shell goes on."""

    exit_code: int


@attrs.frozen
class Died:
    """The shell ended by itself, and the command with it. `spoilt`: no other command can run in it."""

    exit_code: int
    spoilt: bool = False


@attrs.frozen
class Stopped:
    """The command was stopped from outside; the shell's state is kept."""


@attrs.frozen
class Cut:
    """The command has ended, and its output was too much for the interpreter, which has cut it."""


@attrs.frozen
class Settings:
    """What holds for one command alone: variables, and an absolute directory that exists."""

    env: Mapping[str, str] = attrs.field(factory=dict)
    directory: str | None = None


class Job(Protocol):
    """A command for a shell."""

    text: str
    stdin: bytes | None
    settings: Settings
    notes: Notes
    stopped: bool
    """Whether it is to end as soon as it begins."""

    def put(self, stream: StreamName, data: bytes) -> bool:
        """Take output, or return `False` when there is no room for it now."""

    def on_room(self, call: Callable[[], object]) -> None:
        """Have `call()` called, by any thread, once there is room."""

    def ended(self, how: Cut | Died | Ended | Stopped) -> None:
        """Called once, after all output, by any thread. It has the shell `rest` before anybody sees the end, who could
        give that shell another command.
        """


class Shell:
    """An interpreter and what it does now. Any thread may use it, one command at a time."""

    def __init__(
        self,
        engine: Engine,
        activity: Activity,
        sandbox: FakeSandbox,
        session_id: str | None,
        env: Mapping[str, str],
        directory: str,
        programs: Mapping[str, Program],
    ) -> None:
        self.engine = engine
        self.activity = activity
        self.sandbox = sandbox
        self.session_id = session_id
        self.directory = directory
        self.env: Mapping[str, str] = dict(env)
        """What is exported, as of the end of the last command."""
        self.status = 0
        self.died: Died | None = None
        """How, once the shell has ended by itself."""
        self.programs = dict(programs)
        self._lock = threading.Lock()
        self._job: Job | None = None
        # Done with the first command.
        self._undo: list[str] = ["builtin shopt -s expand_aliases"]
        self._over = False
        self._within: set[FakeCommand] = set()
        self._quick: Quick | None = Quick(self)
        self._loop: Loop | None = None
        module = bashkit()
        self.bash: Any = module.Bash(
            username="root",
            hostname="sandbox",
            cwd=directory,
            env=dict(env),
            max_commands=_NO_LIMIT,
            max_loop_iterations=_NO_LIMIT,
            timeout_seconds=1e9,
            custom_builtins=self._quick.builtins(),
            profile=module.ExecutionProfile.Interactive,
        )
        self.bash.mount("/", sandbox.file_system())

    @property
    def notes(self) -> Notes | None:
        """Those of the command that runs, if any."""
        job = self._job
        return None if job is None else job.notes

    @contextlib.contextmanager
    def holding(self, command: FakeCommand) -> Iterator[None]:
        """While a command in another shell is a part of the one here: it is stopped with it."""
        with self._lock:
            self._within.add(command)
        try:
            yield
        finally:
            with self._lock:
                self._within.discard(command)

    @property
    def may_have_jobs(self) -> bool:
        """Whether something may go on in it after its last command."""
        return self._loop is not None

    def add_program(self, name: str, program: Program) -> None:
        """Have `name` run `program`, from the next time on."""
        with self._lock:
            self.programs[name] = program
            if not self._over:
                self._use_loop().add_program(name, program)

    def submit(self, job: Job) -> None:
        """Run a command. The one before has ended."""
        self.activity.run()
        with self._lock:
            stopped = job.stopped or self._over
            if not stopped:
                self._job = job
        if stopped:
            self.finish(job, Stopped())
        elif self._loop is None and not self._needs_loop(job.text):
            assert self._quick is not None
            self._quick.submit(job)
        else:
            with self._lock:
                loop = self._use_loop()
            loop.submit(job)

    def _needs_loop(self, text: str) -> bool:
        return _NEEDS_LOOP.search(text) is not None or any(
            program.is_live and name in text for name, program in self.programs.items()
        )

    def _use_loop(self) -> Loop:
        if self._loop is None:
            self._loop = Loop(self)
            for name, program in self.programs.items():
                self._loop.add_program(name, program)
        return self._loop

    def stop(self, job: Job) -> None:
        """End a command if it runs, and all jobs: its `ended` is called with `Stopped`, unless it has ended by then."""
        with self._lock:
            if job is self._job:
                self._cancel()

    def end(self) -> None:
        """End the interpreter for good."""
        with self._lock:
            self._over = True
            self._cancel()
            idle = self._job is None
        if idle:
            self.activity.rest()
            self.let_go()

    def undo(self, line: str) -> None:
        """Have a line run before the next command."""
        self._undo.append(line)

    def idle(self) -> None:
        """The loop has ended without a command."""
        if self._over:
            self.let_go()

    def let_go(self) -> None:
        """Drop the interpreter and what it knows of us: it cannot be told from outside that these hold each other."""
        with self._lock:
            if self._loop is None or not self._loop.is_running:
                self.bash = self._quick = self._loop = None

    def _cancel(self) -> None:
        for command in self._within:
            command.stop("killed")
        if self._job is not None and self._quick is not None and self._quick.runs(self._job):
            self._quick.cancel()
        elif self._loop is not None:
            self._loop.cancel()

    def hold(self) -> None:
        """Let the clock not jump until the command has ended or slept again: it is about to start or to be stopped."""
        self.activity.run()

    def rest(self) -> None:
        """Let the clock jump: its command has ended."""
        self.activity.rest()

    # For the two ways to run

    @staticmethod
    def text_of(job: Job) -> str:
        """The text of a command as it may go through a command substitution, which takes line ends off its end."""
        return f"{job.text}#" if job.text.endswith("\\\n") else job.text

    def finish(self, job: Job, how: Cut | Died | Ended | Stopped) -> None:
        """A command has ended."""
        if isinstance(how, Ended) and _SPOILS.search(job.text):
            how = Died(how.exit_code, spoilt=True)
        with self._lock:
            self._job = None
            if isinstance(how, Died):
                self.died = how
                self._over = True
                self._cancel()
        job.ended(how)
        if self._over:
            self.let_go()

    def note_end(self, job: Job, status: str, directory: str, env: Mapping[str, str]) -> None:
        """What the interpreter is like after a command, with what held for that alone taken back."""
        self.status = int(status)
        own = job.settings.env
        before = {name: self.env[name] for name in own if name in self.env}
        self.env = {**{name: value for name, value in env.items() if name not in own}, **before}
        if job.settings.directory is None:
            self.directory = directory

    def settings_lines(self, settings: Settings) -> list[str]:
        """The lines that take back what held for the last command alone, and make what holds for this one."""
        lines, self._undo = self._undo, []
        for number, (name, value) in enumerate(settings.env.items()):
            kept = f"__sbx_{number}"
            lines.append(f"{kept}=${{{name}-}} {kept}_set=${{{name}+x}}")
            lines.append(f"{kept}_was=$(builtin declare -p {name} 2>/dev/null || builtin :)")
            lines.append(f"builtin unset -v {name} && builtin export {name}={shlex.quote(value)}")
            how = "builtin export " if name in self.env else ""
            self._undo.append(
                f'builtin unset -v {name}; case ${kept}_was in declare\\ -[aAi]*) builtin eval "${kept}_was";; '
                f'*) case ${kept}_set in x) {how}{name}="${kept}";; esac;; esac'
            )
            self._undo.append(f"builtin unset -v {kept} {kept}_set {kept}_was")
        if settings.directory is not None:
            lines.append(f"builtin cd -- {shlex.quote(settings.directory)}")
            self._undo.append(f"builtin cd -- {shlex.quote(self.directory)} 2>/dev/null")
        return lines
