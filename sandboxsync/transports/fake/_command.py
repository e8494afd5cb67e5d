"""A command that runs in a shell of the fake, and what its caller reads of it."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sandboxsync.errors import CommandTimeoutError, SandboxError, UnsupportedOperationError
from sandboxsync.transports.base import CommandStream, Exited, Output
from sandboxsync.transports.fake._limits import check_text
from sandboxsync.transports.fake._program import Notes
from sandboxsync.transports.fake._shell import Cut, Died, Ended, Settings, Shell, Stopped, StreamName

if TYPE_CHECKING:
    from sandboxsync.transports.fake._clock import Timer, Wait
    from sandboxsync.transports.fake._engine import Engine

__all__ = ["KILLED", "FakeCommand", "StopReason"]

CUT = "FakeTransport keeps no more than 10 MiB of a command's output, and this one wrote more"
KILLED = 137
"""The exit code of what was killed."""
_ROOM = 1 << 20
"""Bytes that are kept for a reader before the command has to wait."""

StopReason = Literal["timeout", "killed", "closed"]


class FakeCommand(CommandStream):
    """The stream of a command. Any thread may use it. `died` makes the end when the shell ended by itself.

    Raises `UnsupportedOperationError` for what the interpreter would cut.
    """

    def __init__(
        self,
        engine: Engine,
        text: str,
        stdin: bytes | None,
        timeout: float | None,
        died: Callable[[Died], Exited | SandboxError],
    ) -> None:
        check_text(text)
        self.text = text
        self.stdin = stdin
        self.settings = Settings()
        self.notes = Notes()
        self.stopped = False
        self.on_ended: Callable[[FakeCommand, Cut | Died | Ended | Stopped], None] | None = None
        """Called with the end, before a reader can see it."""
        self.on_over: Callable[[], None] | None = None
        """Called once, when the caller has read the end, or closed the stream."""
        self._engine = engine
        self._timeout = timeout
        self._died = died
        self._shell: Shell | None = None
        self._timer: Timer | None = None
        self._wait: Wait | None = None
        self._output: deque[Output] = deque()
        self._size = 0
        self._room: Callable[[], object] | None = None
        self._changed = threading.Condition(threading.Lock())
        self._end: Exited | SandboxError | None = None
        self._over = False
        self._reason: StopReason | SandboxError | None = None
        self._break: SandboxError | None = None
        self._left = -1
        self._began = engine.clock.monotonic()
        self.started_at: datetime = engine.clock.now()

    @property
    def duration(self) -> float:
        """Seconds on the clock since it began."""
        return self._engine.clock.monotonic() - self._began

    def break_after(self, count: int, error: SandboxError) -> None:
        """Before it starts: stop it after so many bytes of output, and tell its reader `error`, its end never."""
        self._left, self._break = count, error
        if count == 0:
            self.stopped, self._reason = True, error

    def start(self, shell: Shell, left: float | None) -> None:
        """Hand it to a shell. `left` are the seconds until its timeout."""
        clock = self._engine.clock
        self._shell = shell
        shell.hold()
        # As long as it is in flight somebody may wait for it.
        self._wait = clock.wait(None, lambda: None)
        self._wait.begin()
        if left is not None and not math.isinf(left):
            self._timer = clock.set_timer(left, lambda: self._expire(shell))
        shell.submit(self)

    def _expire(self, shell: Shell) -> None:
        """The time is over. Called under the clock's lock."""
        shell.hold()
        self.stop("timeout")

    def fails_in(self, directory: str | None, problem: str | None) -> bool:
        """Whether it cannot run in a directory, for a `problem` with that; then it is over, without having run (E7)."""
        if problem is None:
            return False
        message = f"bash: line 1: cd: {directory}: {problem}\n"
        self.put("stderr", message.encode("utf-8", "surrogateescape"))
        self._end = Exited(1, 0.0) if self._break is None else self._break
        return True

    # For the shell

    def put(self, stream: StreamName, data: bytes) -> bool:
        with self._changed:
            if self._size >= _ROOM and not self.stopped:
                return False
            if self._left >= 0:
                data = data[: self._left]
                self._left -= len(data)
            if data and self._reason != "closed":
                self._output.append(Output(stream, data))
                self._size += len(data)
            self._changed.notify_all()
        if self._left == 0 and self._break is not None and self._shell is not None and not self.stopped:
            self._shell.hold()
            self.stop(self._break)
        return True

    def on_room(self, call: Callable[[], object]) -> None:
        with self._changed:
            self._room = call
            full = self._size >= _ROOM and not self.stopped
        if not full:
            self._tell_room()

    def _tell_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room()

    def ended(self, how: Cut | Died | Ended | Stopped) -> None:
        self._engine.clock.cancel(self._timer)
        if self._wait is not None:
            self._wait.end()
        if self.on_ended is not None:
            self.on_ended(self, how)
        end = self._made_of(how)
        if self._shell is not None:
            # Not later: the next command may have started then, and the clock would jump to its timeout.
            self._shell.rest()
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _made_of(self, how: Cut | Died | Ended | Stopped) -> Exited | SandboxError:
        if self._break is not None and not isinstance(how, Stopped):
            return self._break
        if isinstance(how, Ended):
            return Exited(how.exit_code, self.duration)
        if isinstance(how, Cut):
            return UnsupportedOperationError(CUT)
        if isinstance(how, Died):
            return self._died(how)
        if isinstance(self._reason, SandboxError):
            return self._reason
        if self._reason == "timeout":
            assert self._timeout is not None
            return CommandTimeoutError(
                f"the command did not end within {self._timeout:g} s", timeout=self._timeout, started=True
            )
        return Exited(KILLED, self.duration)

    # From any thread

    def stop(self, reason: StopReason | SandboxError) -> None:
        """End it, for a reason that its reader is told. Does not wait."""
        shell = self._shell
        if shell is not None and not self.is_over():
            if self._reason is None or reason == "closed":
                self._reason = reason
            self.stopped = True
            self._tell_room()
            shell.stop(self)

    def is_over(self) -> bool:
        """Whether it has ended, be it that nobody has read that yet."""
        return self._end is not None

    def wait(self) -> None:
        """Return when it has ended."""
        with self._changed:
            while self._end is None:
                self._changed.wait()

    def read(self) -> Output | Exited:
        with self._changed:
            if self._over:
                raise ValueError("this stream has ended or was closed")
            while not self._output and self._end is None:
                self._changed.wait()
                if self._over:
                    raise ValueError("this stream was closed")
            if self._output:
                output = self._output.popleft()
                self._size -= len(output.data)
            else:
                output = None
            end = self._end
        if output is not None:
            if self._size < _ROOM:
                self._tell_room()
            return output
        self._let_go()
        assert end is not None
        if isinstance(end, SandboxError):
            raise end
        return end

    def kill(self) -> None:
        if not self.is_over():
            self.stop("killed")
            self.wait()

    def close(self) -> None:
        if not self.is_over():
            self.stop("closed")
            self.wait()
        with self._changed:
            self._output.clear()
            self._changed.notify_all()
        self._let_go()

    def abandon(self) -> None:
        if not self.is_over():
            self.stop("closed")

    def _let_go(self) -> None:
        with self._changed:
            over, self._over = self._over, True
        if not over and self.on_over is not None:
            self.on_over()
