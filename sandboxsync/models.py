"""The values that calls return: immutable; times in seconds, sizes in bytes, datetimes aware and in UTC."""

from __future__ import annotations

import codecs
import re
import stat
from datetime import datetime
from typing import Literal, TypeAlias

import attrs

from ._redact import redact
from .errors import CommandFailedError

ProcessStatus: TypeAlias = Literal["starting", "running", "completed", "failed", "killed", "error"]
"""``completed`` is exit code 0, ``failed`` another one, ``killed`` ended by a signal or a timeout of ours."""

FileType: TypeAlias = Literal["file", "directory", "symlink", "other"]

# The longer marks first: UTF-32-LE begins with the mark of UTF-16-LE.
_WIDE_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


def _short(value: str | bytes) -> str:
    """Return a repr of bounded length: a result may hold hundreds of megabytes."""
    if len(value) <= 200:
        return repr(value)
    return f"{value[:200]!r}...<{len(value)} {'bytes' if isinstance(value, bytes) else 'characters'}>"


def _short_command(value: str) -> str:
    return _short(redact(value))


@attrs.frozen
class ExecResult:
    """What a command that ran to its end has left.

    ``stdout`` and ``stderr`` are ``stdout_bytes`` and ``stderr_bytes``, decoded as a whole with ``encoding``
    and ``errors``. ``duration`` (s) is the command's own, without the wait for its session; ``session_id`` is
    ``None`` for a command that ran without a session.
    """

    exit_code: int
    stdout: str = attrs.field(repr=_short)
    stderr: str = attrs.field(repr=_short)
    stdout_bytes: bytes = attrs.field(repr=False)
    stderr_bytes: bytes = attrs.field(repr=False)
    command: str = attrs.field(repr=_short_command)
    duration: float
    started_at: datetime
    session_id: str | None = None
    encoding: str = attrs.field(default="utf-8", repr=False)
    errors: str = attrs.field(default="replace", repr=False)

    @property
    def success(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    def check(self) -> ExecResult:
        """Return this result, or raise :class:`CommandFailedError` when the exit code is not 0."""
        if self.exit_code != 0:
            raise CommandFailedError(result=self)
        return self


@attrs.frozen
class Started:
    """The command has begun."""

    command: str = attrs.field(repr=_short_command)
    started_at: datetime


@attrs.frozen
class Stdout:
    """A piece of standard output: ``text`` never ends inside a character, ``data`` is what arrived."""

    text: str = attrs.field(repr=_short)
    data: bytes = attrs.field(repr=_short)


@attrs.frozen
class Stderr:
    """A piece of standard error: ``text`` never ends inside a character, ``data`` is what arrived."""

    text: str = attrs.field(repr=_short)
    data: bytes = attrs.field(repr=_short)


@attrs.frozen
class Completed:
    """The command has ended and all its output was handed out; always the last event."""

    exit_code: int
    duration: float


ExecEvent: TypeAlias = Started | Stdout | Stderr | Completed


@attrs.frozen
class SessionDeleteResult:
    """A session that was deleted."""

    success: bool
    session_id: str
    timestamp: datetime


@attrs.frozen
class ProcessLogs:
    """All that a process has printed so far."""

    stdout: str = attrs.field(repr=_short)
    stderr: str = attrs.field(repr=_short)
    process_id: str


@attrs.frozen
class LogEvent:
    """A piece of a process's output, or its end: then ``type`` is ``exit`` and ``exit_code`` is set."""

    type: Literal["stdout", "stderr", "exit"]
    data: str = attrs.field(repr=_short)
    timestamp: datetime
    process_id: str
    exit_code: int | None = None


@attrs.frozen
class LogMatch:
    """The line that was waited for, without its line end; ``match`` is ``None`` for a literal pattern."""

    line: str = attrs.field(repr=_short)
    match: re.Match[str] | None = None


@attrs.frozen
class FileInfo:
    """One entry of a directory, not followed if it is a symlink.

    ``path`` is absolute, ``relative_path`` relative to the directory that was listed. ``mode`` holds the
    permission bits; ``permissions`` shows them as ``ls`` does, such as ``rw-r--r--``.
    """

    name: str
    path: str
    relative_path: str
    type: FileType
    size: int
    modified_at: datetime
    mode: int = attrs.field(repr=oct)
    permissions: str = attrs.field()

    @permissions.default
    def _permissions_of_mode(self) -> str:
        return stat.filemode(self.mode)[1:]


@attrs.frozen
class WriteFileResult:
    """A file that was written; ``size`` is that of the new content."""

    path: str
    size: int
    timestamp: datetime


@attrs.frozen
class ReadFileResult:
    """The whole content of a file; ``mime_type`` is guessed from the name and has no parameters."""

    path: str
    content: bytes = attrs.field(repr=_short)
    size: int
    mime_type: str
    timestamp: datetime

    @property
    def text(self) -> str:
        """The content as text, without its byte order mark.

        UTF-8, or what the mark says (UTF-16, UTF-32); bytes that do not decode become U+FFFD.
        """
        return self.content.decode(self._encoding, "replace")

    @property
    def is_binary(self) -> bool:
        """Whether the content is no text: it does not decode, or holds a NUL character.

        The whole content is looked at, never a sample whose edge could cut a character.
        """
        try:
            return "\0" in self.content.decode(self._encoding)
        except UnicodeDecodeError:
            return True

    @property
    def _encoding(self) -> str:
        for mark, encoding in _WIDE_MARKS:
            if self.content.startswith(mark):
                return encoding
        return "utf-8-sig"


@attrs.frozen
class MkdirResult:
    """A directory that is there now."""

    path: str
    recursive: bool
    timestamp: datetime


@attrs.frozen
class GitCheckoutResult:
    """A repository that was cloned: ``branch`` is the one checked out, ``repo_url`` holds no credentials."""

    repo_url: str
    branch: str
    target_dir: str
    timestamp: datetime
