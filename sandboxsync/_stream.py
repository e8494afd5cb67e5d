"""Streams of a running command and of a file being read."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ._collect import collect, note_restart
from ._decode import decode_error, make_decoder
from .errors import InvalidRequestError, OutputLimitError, SandboxError, _PartialOutput
from .models import Completed, ExecEvent, ExecResult, Started, Stderr, Stdout
from .transports.base import Exited, Output

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._client import Client
    from .transports.base import ByteStream, CommandStream, SessionRef


class Closing(ABC):
    """Base of what holds something on the far side until it is read to its end or closed."""

    # Set once nothing is held any more; read by __del__, also of an object whose __init__ failed.
    _over = True

    @abstractmethod
    def close(self) -> None:
        """Give up what is held. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not self._over:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self._drop()

    def _drop(self) -> None:
        """Give up what is held, called by the garbage collector."""
        self.close()


class ExecStream(Closing):
    """A command that runs: a context manager and an iterator of events.

    The first event is ``Started``, the last one ``Completed``: it alone says that the command ran to its end.
    Between them come ``Stdout`` and ``Stderr`` as the command writes. A character whose bytes are cut by two
    events is in the text of the second; what is left of one at the very end comes as an event of its own with
    ``data=b""``, so that all texts joined are all ``data`` decoded.

    Iterating blocks until something comes. It raises ``CommandTimeoutError`` (the command was stopped),
    ``SessionTerminatedError`` (its shell ended), ``SessionDestroyedError`` (its session was deleted),
    ``SandboxDestroyedError``, ``OutputLimitError`` (after the first ``max_output`` bytes were handed out),
    ``OutputDecodeError`` (with ``errors="strict"``), or a ``TransportError``; each carries the output that
    was not handed out, and is raised again by each later step. After ``close`` it raises
    ``InvalidRequestError``.

    One thread iterates; ``kill`` and ``close`` may be called from any. Unread output makes the command wait.
    ``command``, ``started_at`` (UTC) and ``session_id`` (``None`` without a session) say what runs.
    """

    def __init__(
        self,
        client: Client,
        stream: CommandStream,
        command: str,
        ref: SessionRef,
        max_output: int | None,
        encoding: str,
        errors: str,
    ) -> None:
        self.command = command
        self.started_at = stream.started_at
        self.session_id = ref.session_id
        self._ref = ref
        self._client = client
        self._stream = stream
        self._text = (encoding, errors)
        self._decoders = {"stdout": make_decoder(encoding, errors), "stderr": make_decoder(encoding, errors)}
        self._max_output = max_output
        self._room = {"stdout": max_output, "stderr": max_output}
        self._begun = self._done = self._closed = self._over = False
        # Handed out or raised before anything else is read; an error stays, for later steps.
        self._next: deque[ExecEvent | SandboxError] = deque([Started(command, self.started_at)])

    def __repr__(self) -> str:
        state = "closed" if self._closed else "ended" if self._over else "running"
        return f"<ExecStream {state} session_id={self.session_id!r}>"

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ExecEvent:
        self._begun = True
        if self._done:
            raise StopIteration
        while not self._next and not self._closed:
            self._read()
        if self._closed:
            raise InvalidRequestError("the stream was closed before the command's end was read")
        item = self._next[0]
        if isinstance(item, SandboxError):
            raise item
        self._next.popleft()
        self._done = isinstance(item, Completed)
        return item

    def _read(self) -> None:
        """Read once; put what follows from it into ``_next``."""
        try:
            item = self._stream.read()
        except SandboxError as exc:
            note_restart(self._ref, exc)
            self._finish(self._client.seen(exc))
        except ValueError:
            # The transport's answer to a read after another thread's close.
            if not self._closed:
                raise
        except BaseException:
            self.close()
            raise
        else:
            if isinstance(item, Exited):
                self._finish(Completed(item.exit_code, item.duration))
            else:
                self._take(item)

    def _take(self, output: Output) -> None:
        name, data = output.stream, output.data
        room = self._room[name]
        if room is not None:
            self._room[name] = room - len(data)
            data = data[: max(0, room)]
        try:
            text = self._decoders[name].decode(data)
        except UnicodeError as exc:
            self._stop()
            self._next.append(self._decode_error(exc, name, data))
            return
        if data:
            self._next.append(Stdout(text, data) if name == "stdout" else Stderr(text, data))
        if room is not None and room < len(output.data):
            self._stop()
            self._finish(
                OutputLimitError(
                    f"the command wrote more than {self._max_output} bytes to {name}", command=self.command
                )
            )

    def _finish(self, last: Completed | SandboxError) -> None:
        """Put what the decoders still hold before ``last``."""
        self._over = True
        try:
            for name, event in (("stdout", Stdout), ("stderr", Stderr)):
                rest = self._decoders[name].decode(b"", True)
                if rest:
                    self._next.append(event(rest, b""))
        except UnicodeError as exc:
            if isinstance(last, Completed):
                self._next.append(self._decode_error(exc, "stdout", b""))
                return
        if isinstance(last, _PartialOutput):
            last._with_output(self.command, last.stdout_bytes, last.stderr_bytes, *self._text)
        self._next.append(last)

    def _decode_error(self, exc: UnicodeError, name: str, data: bytes) -> SandboxError:
        out, err = (data, b"") if name == "stdout" else (b"", data)
        error = decode_error(exc, self.command, out, err, self._text[0])
        error.__cause__ = exc
        return error

    def _stop(self) -> None:
        self._over = True
        self._stream.close()

    def _drop(self) -> None:
        self._stream.abandon()

    def result(self) -> ExecResult:
        """Read the command to its end and return its result, as ``exec`` does. Blocks.

        Raises ``InvalidRequestError`` once an event was taken or the stream was closed, and what ``exec``
        raises.
        """
        if self._begun or self._closed:
            raise InvalidRequestError("result() comes before the first event is taken and before close()")
        self._begun = True
        self._next.clear()
        self._next.append(InvalidRequestError("the stream was read to its end by result()"))
        try:
            return collect(self._client, self._stream, self.command, self._ref, None, self._max_output, *self._text)
        finally:
            self._over = True

    def kill(self) -> None:
        """Stop the command and its whole tree, and return when it is gone; at most 2 s and a bit.

        Iterating goes on: to the output so far, and ``Completed`` with 128 + the signal. Does nothing to a
        command that has ended. From any thread.
        """
        if not self._over:
            try:
                self._stream.kill()
            except SandboxError as exc:
                self._client.tell_end(exc)
                raise

    def close(self) -> None:
        """Stop the command if it runs, drop what was not read, and let the next command of the session begin.

        Idempotent; from any thread. Raises nothing.
        """
        if not self._done:
            self._closed = True
            self._stop()


class FileStream(Closing):
    """A file being read: an iterator of ``bytes`` and a context manager. ``size`` is that when it was opened.

    Iterating blocks until a chunk is there, and raises a ``FileError`` or a ``TransportError`` when the rest
    cannot be read, ``InvalidRequestError`` after ``close``. One thread iterates; it holds one chunk in memory
    at a time.
    """

    def __init__(self, client: Client, stream: ByteStream) -> None:
        self.path = stream.path
        self.size = stream.size
        self._client = client
        self._stream = stream
        self._ended = self._over = False

    def __repr__(self) -> str:
        return f"<FileStream {self.path!r} size={self.size}>"

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        if self._ended:
            raise StopIteration
        if self._over:
            raise InvalidRequestError("the stream was closed before the file's end was read")
        try:
            return next(self._stream)
        except StopIteration:
            self._ended = True
            self.close()
            raise
        except SandboxError as exc:
            self.close()
            self._client.tell_end(exc)
            raise

    def close(self) -> None:
        """Give up the rest. Idempotent; raises nothing."""
        self._over = True
        self._stream.close()
