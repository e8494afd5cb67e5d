"""A command read to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias

from ._decode import decode_error, make_decoder
from .errors import OutputLimitError, SandboxError, _PartialOutput
from .models import ExecResult
from .transports.base import Exited, Output

if TYPE_CHECKING:
    from ._client import Client
    from .transports.base import CommandStream, SessionRef

OnOutput: TypeAlias = Callable[[Literal["stdout", "stderr"], str], object]


def collect(
    client: Client,
    stream: CommandStream,
    command: str,
    ref: SessionRef,
    on_output: OnOutput | None,
    max_output: int | None,
    encoding: str,
    errors: str,
) -> ExecResult:
    """Read a command to its end. Whatever is raised, the command is stopped and the session's turn given back."""
    out: list[bytes] = []
    err: list[bytes] = []
    feed = None if on_output is None else _Feed(on_output, encoding, errors)
    room = None if max_output is None else {"stdout": max_output, "stderr": max_output}
    stdout = stderr = ""
    try:
        while True:
            item = stream.read()
            if isinstance(item, Exited):
                break
            data = item.data
            if room is not None:
                data = _fit(room, item)
            (out if item.stream == "stdout" else err).append(data)
            if feed is not None:
                feed(item.stream, data)
            if len(data) != len(item.data):
                raise OutputLimitError(f"the command wrote more than {max_output} bytes to {item.stream}")
        if feed is not None:
            feed.end()
        stdout_bytes, stderr_bytes = b"".join(out), b"".join(err)
        if out:
            stdout = stdout_bytes.decode(encoding, errors)
        if err:
            stderr = stderr_bytes.decode(encoding, errors)
    except BaseException as exc:
        stream.close()
        if feed is not None and feed.error is exc:
            raise
        stdout_bytes, stderr_bytes = b"".join(out), b"".join(err)
        if isinstance(exc, UnicodeError) and not isinstance(exc, SandboxError):
            raise decode_error(exc, command, stdout_bytes, stderr_bytes, encoding) from exc
        if isinstance(exc, _PartialOutput):
            exc._with_output(command, stdout_bytes, stderr_bytes, encoding, errors)
        if isinstance(exc, SandboxError):
            note_restart(ref, exc)
            client.tell_end(exc)
        raise
    return ExecResult(
        item.exit_code,
        stdout,
        stderr,
        stdout_bytes,
        stderr_bytes,
        command,
        item.duration,
        stream.started_at,
        ref.session_id,
        encoding,
        errors,
    )


def note_restart(ref: SessionRef, error: SandboxError) -> None:
    """After a command in flight was told of a restart, the next call of the same object is not told again (S17)."""
    if error.code == "SANDBOX_RESTARTED":
        ref.incarnation = None


def _fit(room: dict[str, int], item: Output) -> bytes:
    """Return of an output what ``max_output`` still allows."""
    left = room[item.stream]
    room[item.stream] = max(0, left - len(item.data))
    return item.data if len(item.data) <= left else item.data[:left]


class _Feed:
    """Hands text to ``on_output`` and remembers what that raised: it is the caller's, not the command's."""

    def __init__(self, on_output: OnOutput, encoding: str, errors: str) -> None:
        self.error: BaseException | None = None
        self._on_output = on_output
        self._stdout = make_decoder(encoding, errors)
        self._stderr = make_decoder(encoding, errors)

    def __call__(self, stream: Literal["stdout", "stderr"], data: bytes, final: bool = False) -> None:
        text = (self._stdout if stream == "stdout" else self._stderr).decode(data, final)
        if text:
            try:
                self._on_output(stream, text)
            except BaseException as exc:
                self.error = exc
                raise

    def end(self) -> None:
        self("stdout", b"", final=True)
        self("stderr", b"", final=True)
