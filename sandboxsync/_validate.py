"""Checks of what callers pass: they return the value in the form the seam wants, or raise ``InvalidRequestError``.

Pure functions. No message shows a value that may be a secret.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, overload

from ._unset import UNSET, Timeout, Unset
from .errors import InvalidRequestError

if TYPE_CHECKING:
    from pathlib import PurePosixPath

Command: TypeAlias = str | Sequence[str]
"""A string for the shell, or arguments that are passed as they are."""

RemotePath: TypeAlias = "str | PurePosixPath"
"""A path in the sandbox."""

LocalPath: TypeAlias = str | os.PathLike[str]
"""A path on this machine."""

Env: TypeAlias = Mapping[str, str | None]
"""Names of variables and their values."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_SESSION_ID = frozenset(_LETTERS + "._-")
_SANDBOX_ID = frozenset(_LETTERS + "._@:-")
_READ_ONLY_NAMES = frozenset({"UID", "EUID", "PPID", "BASHOPTS", "SHELLOPTS"})

# Longer than any clock of a backend takes; 31 years are no limit.
_FOREVER = 1e9


def _check_text(text: str, what: str) -> None:
    if "\0" in text:
        raise InvalidRequestError(f"{what} holds a NUL character")
    if not text.isascii():
        try:
            text.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            raise InvalidRequestError(f"{what} holds half of a surrogate pair") from None


def check_sandbox_id(value: object) -> str:
    """S18."""
    if not isinstance(value, str) or not 1 <= len(value) <= 128 or not _SANDBOX_ID.issuperset(value):
        raise InvalidRequestError(f"not a sandbox id: {_shown(value)} (1 to 128 of A-Z a-z 0-9 . _ @ : - are)")
    return value


def check_session_id(value: object, what: str = "session id") -> str:
    """S8; the ids of processes have the same form."""
    if (
        not isinstance(value, str)
        or not 1 <= len(value) <= 128
        or not _SESSION_ID.issuperset(value)
        or ".." in value
        or value == "__DISABLE_SESSION__"
    ):
        raise InvalidRequestError(f"not a {what}: {_shown(value)} (1 to 128 of A-Z a-z 0-9 . _ - without '..' are)")
    return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 200 else text[:200] + "..."


@overload
def check_env(env: object, keep_none: Literal[False] = False) -> dict[str, str]: ...
@overload
def check_env(env: object, keep_none: Literal[True]) -> dict[str, str | None]: ...
def check_env(env: object, keep_none: bool = False) -> Mapping[str, str | None]:
    """E8. Return a copy of ``env``, without its ``None`` values unless ``keep_none``."""
    if env is None:
        return {}
    if not isinstance(env, Mapping):
        raise InvalidRequestError(f"env must be a mapping, not {type(env).__name__}")
    checked: dict[str, str | None] = {}
    for name, value in env.items():
        # An ASCII identifier of Python is a name of the shell.
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii():
            raise InvalidRequestError(f"not a name of an environment variable: {_shown(name)}")
        if name in _READ_ONLY_NAMES:
            raise InvalidRequestError(f"environment variable {name} is read-only in bash")
        if value is None:
            if not keep_none:
                continue
        elif not isinstance(value, str):
            raise InvalidRequestError(f"environment variable {name} must be str or None, not {type(value).__name__}")
        else:
            _check_text(value, f"environment variable {name}")
        checked[name] = value
    return checked


def check_command(command: object) -> str:
    """E9. Return the text for the shell; of a sequence every word is quoted, so that none is a keyword or alias."""
    if isinstance(command, str):
        text = command
    elif isinstance(command, Sequence) and not isinstance(command, (bytes, bytearray, memoryview)):
        for word in command:
            if not isinstance(word, str):
                raise InvalidRequestError(f"arguments must be str, not {type(word).__name__}")
        text = " ".join(["'" + word.replace("'", "'\\''") + "'" for word in command])
    else:
        raise InvalidRequestError(f"command must be str or a sequence of str, not {type(command).__name__}")
    if not text:
        raise InvalidRequestError("command is empty")
    _check_text(text, "command")
    return text


def check_stdin(stdin: object, encoding: str) -> bytes | None:
    """Return what the command reads; text in ``encoding``."""
    if stdin is None or isinstance(stdin, bytes):
        return stdin
    if isinstance(stdin, str):
        try:
            return stdin.encode(encoding, "surrogateescape")
        except UnicodeError:
            raise InvalidRequestError(f"stdin cannot be encoded in {encoding!r}") from None
    if isinstance(stdin, (bytearray, memoryview)):
        return bytes(stdin)
    raise InvalidRequestError(f"stdin must be str or bytes, not {type(stdin).__name__}")


def check_path(path: object, what: str = "path") -> str:
    """F4. Return a path in the sandbox as text."""
    if not isinstance(path, str):
        from pathlib import PurePosixPath

        if not isinstance(path, PurePosixPath):
            raise InvalidRequestError(f"{what} must be str or PurePosixPath, not {type(path).__name__}")
        path = str(path)
    if not path:
        raise InvalidRequestError(f"{what} is empty")
    _check_text(path, what)
    return path


def check_cwd(cwd: object) -> str | None:
    """Return a directory in the sandbox as text; ``None`` stays."""
    return None if cwd is None else check_path(cwd, "cwd")


def check_local_path(path: object, what: str) -> str:
    """Return a path on this machine as text."""
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidRequestError(f"{what} must be str or os.PathLike[str], not {type(path).__name__}")
    if not text:
        raise InvalidRequestError(f"{what} is empty")
    _check_text(text, what)
    return text


def check_patterns(patterns: object, what: str) -> tuple[str, ...]:
    """Return name patterns as a tuple. A lone ``str`` is refused: its characters would be the patterns."""
    if isinstance(patterns, (str, bytes)) or not isinstance(patterns, Iterable):
        raise InvalidRequestError(f"{what} must be a sequence of str, not {type(patterns).__name__}")
    checked = tuple(patterns)
    for pattern in checked:
        check_str(pattern, f"an item of {what}")
    return checked


def check_str(value: object, what: str) -> str:
    """Return a text that is neither empty nor holds a NUL."""
    if not isinstance(value, str):
        raise InvalidRequestError(f"{what} must be str, not {type(value).__name__}")
    if not value:
        raise InvalidRequestError(f"{what} is empty")
    _check_text(value, what)
    return value


def check_timeout(value: object, what: str = "timeout") -> Timeout:
    """T7. Return seconds, ``None`` for no limit (infinity too), or ``UNSET``."""
    return UNSET if value is UNSET else check_limit(value, what)


def check_limit(value: object, what: str = "timeout", *, zero: bool = False) -> float | None:
    """T7 for a call that inherits nothing; ``zero`` allows 0 for "look once"."""
    if value is None or isinstance(value, Unset):
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequestError(f"{what} must be a number of seconds or None, not {type(value).__name__}")
    # NaN compares false to everything.
    if not (value >= 0 if zero else value > 0):
        raise InvalidRequestError(f"{what} must be {'0 or more' if zero else 'more than 0'}: {value}")
    return None if value >= _FOREVER else float(value)


def check_int(value: object, what: str, least: int, most: int | None = None) -> int:
    """Return an ``int`` that is no ``bool`` and within its bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidRequestError(f"{what} must be int, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        bounds = f"{least} or more" if most is None else f"{least} to {most}"
        raise InvalidRequestError(f"{what} must be {bounds}: {value}")
    return value


def check_callback(value: object, what: str) -> None:
    """Raise unless ``value`` is ``None`` or can be called."""
    if value is not None and not callable(value):
        raise InvalidRequestError(f"{what} must be callable, not {type(value).__name__}")


def check_signal(value: object) -> int:
    """Return the number of a signal given as ``"SIGTERM"``, ``"TERM"``, ``signal.Signals`` or ``int``."""
    import signal

    if isinstance(value, str):
        named = signal.Signals.__members__.get(value if value.startswith("SIG") else "SIG" + value)
        if named is not None:
            return int(named)
    elif isinstance(value, int) and not isinstance(value, bool) and value in signal.valid_signals():
        return int(value)
    raise InvalidRequestError(f"not a signal: {_shown(value)}")
