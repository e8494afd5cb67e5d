"""What file calls ask of the host in a sandbox, and what its answers mean. See `shell/host/files.bash`."""

from __future__ import annotations

import base64
import errno
import posixpath
import stat
from datetime import datetime, timezone

from sandboxsync.errors import (
    FileError,
    InvalidRequestError,
    ProtocolError,
    SandboxUnavailableError,
    StreamInterruptedError,
    TransportError,
    UnsupportedOperationError,
    file_error,
)
from sandboxsync.models import FileInfo, FileType
from sandboxsync.transports.base import SessionRef
from sandboxsync.transports.http.hosted._host import Answer, Host, HostRefusedError, packed
from sandboxsync.transports.http.hosted._raw import RawFiles

__all__ = [
    "ATTEMPTS",
    "SMALL",
    "FileHost",
    "data_of",
    "info_of",
    "is_final",
    "maybe_told",
    "path_argument",
    "refused",
    "text_of",
    "time_of",
    "told",
]

SMALL = 256 << 10
"""Bytes of an answer that is read at once."""
ATTEMPTS = 4
"""How often the same is asked when the answer breaks off."""
_LONGEST_PATH = 4096
_WORDS = {
    "Argument list too long": errno.E2BIG,
    "Broken pipe": errno.EPIPE,
    "Cannot allocate memory": errno.ENOMEM,
    "Device or resource busy": errno.EBUSY,
    "Directory not empty": errno.ENOTEMPTY,
    "Disk quota exceeded": errno.EDQUOT,
    "File exists": errno.EEXIST,
    "File name too long": errno.ENAMETOOLONG,
    "File too large": errno.EFBIG,
    "Input/output error": errno.EIO,
    "Invalid argument": errno.EINVAL,
    "Invalid cross-device link": errno.EXDEV,
    "Is a directory": errno.EISDIR,
    "No space left on device": errno.ENOSPC,
    "No such device": errno.ENODEV,
    "No such device or address": errno.ENXIO,
    "No such file or directory": errno.ENOENT,
    "Not a directory": errno.ENOTDIR,
    "Operation not permitted": errno.EPERM,
    "Operation not supported": errno.EOPNOTSUPP,
    "Permission denied": errno.EACCES,
    "Read-only file system": errno.EROFS,
    "Resource temporarily unavailable": errno.EAGAIN,
    "Stale file handle": errno.ESTALE,
    "Text file busy": errno.ETXTBSY,
    "Too many levels of symbolic links": errno.ELOOP,
    "Too many links": errno.EMLINK,
    "Too many open files": errno.EMFILE,
}


class FileHost:
    """The host of one sandbox, asked about files; and the service's own route. Any thread may ask.

    Every verb may be delivered twice, so what breaks off is asked again.
    """

    def __init__(self, host: Host, raw: RawFiles) -> None:
        self._host = host
        self.raw = raw

    def ask(self, ref: SessionRef, verb: str, *arguments: str) -> list[str]:
        """Ask, and return the lines of the answer. Raises `FileError` for what is refused."""
        return self._ask(ref, verb, ref.incarnation or "", *arguments)

    def ask_at(self, ref: SessionRef, verb: str, path: str, *arguments: str) -> list[str]:
        """Ask about a path, which may be relative to the directory of the session."""
        return self._ask(ref, verb, ref.session_id or "", ref.incarnation or "", path_argument(path), *arguments)

    def open_at(self, ref: SessionRef, verb: str, path: str, *arguments: str) -> Answer:
        """Ask about a path, and return the answer as it comes: its reader asks again, and calls `refused`."""
        return self._open(ref, verb, ref.session_id or "", ref.incarnation or "", path_argument(path), *arguments)

    def open(self, ref: SessionRef, verb: str, *arguments: str) -> Answer:
        """Ask, and return the answer, whose rest is for `rest_of`. Raises `FileError` for what is refused at once."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self._open(ref, verb, ref.incarnation or "", *arguments)
            except HostRefusedError as exc:
                raise refused(exc) from None
            except TransportError as exc:
                if is_final(exc) or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the loop returns or raises")

    @staticmethod
    def rest_of(answer: Answer) -> list[str]:
        """The lines that are left of an answer. Raises `FileError` for what is refused, and `TransportError`."""
        try:
            lines = []
            while (line := answer.line()) is not None:
                lines.append(line)
            return lines
        except HostRefusedError as exc:
            raise refused(exc) from None
        finally:
            answer.close()

    def _ask(self, ref: SessionRef, verb: str, *arguments: str) -> list[str]:
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return self.rest_of(self._open(ref, verb, *arguments))
            except HostRefusedError as exc:
                raise refused(exc) from None
            except TransportError as exc:
                if is_final(exc) or attempt == ATTEMPTS:
                    raise
        raise AssertionError("the loop returns or raises")

    def _open(self, ref: SessionRef, verb: str, *arguments: str) -> Answer:
        answer = self._host.open(verb, *arguments)
        try:
            ref.meet(answer.incarnation)
        except BaseException:
            answer.close()
            raise
        return answer


def path_argument(path: str) -> str:
    """A path as an argument. Raises `FileError` for one that no system takes."""
    if len(path.encode("utf-8", "surrogateescape")) >= _LONGEST_PATH:
        raise FileError(errno=errno.ENAMETOOLONG, filename=path)
    return packed(path)


def is_final(exc: TransportError) -> bool:
    """Whether asking again is of no use."""
    return exc.retryable is False


def refused(exc: HostRefusedError) -> Exception:
    """What a refusal means."""
    reason, _, rest = str(exc).partition(" ")
    if reason == "file":
        words, _, path = rest.partition(" ")
        words, path = words.replace("_", " "), text_of(path)
        number = _WORDS.get(words)
        return file_error(OSError(words) if number is None else OSError(number, words), path)
    if reason == "shrank":
        return FileError("a file became shorter while it was read", errno=errno.EBUSY, retryable=True)
    if reason == "no-tar":
        return UnsupportedOperationError("directory trees need the program tar in the sandbox, which is missing")
    if reason == "no-source":
        return InvalidRequestError(f"the archive holds a hard link to what is no file in it: {text_of(rest)!r}")
    if reason == "lost":
        return SandboxUnavailableError("what was written so far is gone: too long ago, or the sandbox was restarted")
    if reason == "pieces":
        return StreamInterruptedError("a piece of a file did not arrive whole", retryable=True)
    return ProtocolError(f"the session host refuses: {exc}")


def text_of(argument: str) -> str:
    """A text of an answer."""
    if argument.startswith("="):
        return argument[1:]
    return base64.b64decode(argument[1:]).decode("utf-8", "surrogateescape")


def told(lines: list[str], word: str) -> str:
    """The text behind a word at the beginning of a line. Raises `ProtocolError` when there is none."""
    text = maybe_told(lines, word)
    if text is None:
        raise ProtocolError(f"the session host does not say {word!r}: {lines[:3]!r}"[:200])
    return text


def maybe_told(lines: list[str], word: str) -> str | None:
    """The text behind a word at the beginning of a line, if there is such a line."""
    for line in lines:
        first, _, rest = line.partition(" ")
        if first == word:
            return text_of(rest)
    return None


def data_of(lines: list[str]) -> bytes:
    """The bytes of an answer, whose lines but those of a word are base64."""
    return b"".join(base64.b64decode(line) for line in lines if " " not in line)


def info_of(lines: list[str]) -> FileInfo:
    """What an answer tells of a file. Raises `ProtocolError` when it tells nothing."""
    word, *facts = lines[0].split(" ", 4) if lines else [""]
    if word != "info" or len(facts) != 4:
        raise ProtocolError(f"the session host says nothing of a file: {lines[:3]!r}"[:200])
    mode, size, seconds, path = facts
    bits, path = int(mode, 16), text_of(path)
    name = posixpath.basename(path) or "/"
    return FileInfo(name, path, name, _type_of(bits), int(size), time_of(seconds), stat.S_IMODE(bits))


def _type_of(mode: int) -> FileType:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "directory"
    return "symlink" if stat.S_ISLNK(mode) else "other"


def time_of(seconds: str) -> datetime:
    """A time that is told in seconds, at most the last that there is."""
    value = float(seconds)
    try:
        return datetime.fromtimestamp(value, tz=timezone.utc)
    except (ValueError, OverflowError):
        return (datetime.max if value > 0 else datetime.min).replace(tzinfo=timezone.utc)
