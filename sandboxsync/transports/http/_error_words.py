"""What the words of a service's error say beyond its code. No I/O."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator

__all__ = ["codes_of_class", "errno_in", "narrowed"]

_GIT = frozenset({"GIT_OPERATION_FAILED", "GIT_CLONE_FAILED", "GIT_CHECKOUT_FAILED"})
_VAGUE = frozenset(
    {
        "INTERNAL_ERROR",
        "UNKNOWN_ERROR",
        "SESSION_ERROR",
        "COMMAND_NOT_FOUND",
        "COMMAND_EXECUTION_ERROR",
        "STREAM_START_ERROR",
        "EXEC_ERROR",
        "EXEC_TRANSPORT_ERROR",
        "FILESYSTEM_ERROR",
        "WORKSPACE_ARCHIVE_WRITE_ERROR",
        "WORKSPACE_ARCHIVE_READ_ERROR",
    }
)

_NARROWED: tuple[tuple[frozenset[str], re.Pattern[str], str], ...] = (
    (_VAGUE, re.compile(r"^Session '.*' not found$", re.DOTALL), "SESSION_NOT_FOUND"),
    (_VAGUE, re.compile(r"^Session '.*' already exists$", re.DOTALL), "SESSION_ALREADY_EXISTS"),
    (_VAGUE, re.compile(r"not found or already completed(?: in session '.*')?$", re.DOTALL), "PROCESS_NOT_FOUND"),
    (_VAGUE, re.compile(r"^Serialized RPC arguments or return values are limited to"), "PAYLOAD_TOO_LARGE"),
    (_VAGUE, re.compile(r"^Command time(?:out|d out) after \d+ ?ms$"), "COMMAND_TIMEOUT"),
    (_VAGUE, re.compile(r"^Invalid environment variable name: "), "VALIDATION_FAILED"),
    (_VAGUE, re.compile(r"^ENOENT: .*, posix_spawn '"), "FILE_NOT_FOUND"),
    (_VAGUE, re.compile(r"^(?:The requested endpoint was not found|Invalid endpoint)$"), "NO_SUCH_ROUTE"),
    (
        _GIT,
        re.compile(r"Authentication failed for|could not read (?:Username|Password)|Permission denied \(publickey"),
        "GIT_AUTH_FAILED",
    ),
    (_GIT, re.compile(r"fatal: Remote branch .* not found|pathspec '.*' did not match"), "GIT_BRANCH_NOT_FOUND"),
    (
        _GIT,
        re.compile(r"repository '.*' (?:not found|does not exist)|does not appear to be a git repository"),
        "GIT_REPOSITORY_NOT_FOUND",
    ),
)
"""Codes that say too little, words of the reason that say more, and the code that is meant."""

_WORDS = {
    os.strerror(number): number
    for number in (
        errno.ENOENT,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
        errno.EROFS,
        errno.EISDIR,
        errno.ENOTDIR,
        errno.ENOTEMPTY,
        errno.EFBIG,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.EBUSY,
        errno.EXDEV,
        errno.EMFILE,
    )
}
_NAME = re.compile(r"\b(E[A-Z0-9]{3,12}): ")
_PHRASE = re.compile(rf": ({'|'.join(map(re.escape, _WORDS))})$", re.MULTILINE)


def narrowed(code: str, reason: str) -> str:
    """Return the code that is meant by one that says too little, `code` itself for any other."""
    for codes, words, meant in _NARROWED:
        if code in codes and words.search(reason):
            return meant
    return code


def errno_in(reason: str) -> int | None:
    """Return the `errno` that a runtime (`EISDIR: illegal …`) or a program (`mv: …: Is a directory`) names, if one."""
    for name in _NAME.findall(reason):
        number = getattr(errno, name, None)
        if isinstance(number, int):
            return number
    phrase = _PHRASE.search(reason.rstrip())
    return _WORDS[phrase[1]] if phrase else None


def codes_of_class(name: str) -> Iterator[str]:
    """The codes that a class name of the service (`SessionAlreadyExistsError`) may stand for, the likeliest first."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name.removesuffix("Error")).upper()
    yield from (words, f"{words}_ERROR", f"{words}_FAILED", words.replace("FILE_SYSTEM", "FILESYSTEM") + "_ERROR")
