"""Clone a repository inside a sandbox, by a command in the session.

Credentials travel in environment variables of that one command, and only a credential helper in it reads them:
they are in no argument list and no file. What depends on the session's directory happens in the command, when
its turn has come.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from functools import cache
from importlib import resources
from typing import Protocol

import attrs

from ._git_source import Source, parse
from ._unset import Timeout
from .errors import (
    CommandTimeoutError,
    GitAuthenticationError,
    GitBranchNotFoundError,
    GitError,
    GitRepositoryNotFoundError,
    InvalidRequestError,
    SandboxError,
    SandboxFileNotFoundError,
    SessionDestroyedError,
    SessionTerminatedError,
    UnsupportedOperationError,
)
from .models import ExecResult, GitCheckoutResult
from .transports.base import OFFERED_BY, Capability, CommandRequest, Exited, SessionRef, Transport

__all__ = ["Run", "checkout"]

_UNDO_TIMEOUT = 60.0
_KEEP = 20_000

# What git says, in the order in which it is looked for: it says "repository not found" after other reasons too.
_REASONS: tuple[tuple[str, type[GitError], str], ...] = (
    (r"Remote branch .* not found", GitBranchNotFoundError, "there is no such branch"),
    (
        r"Authentication failed|could not read (Username|Password)|terminal prompts disabled|Access denied"
        r"|Permission denied \(|The requested URL returned error: 40[13]|Host key verification failed",
        GitAuthenticationError,
        "the credentials are refused or missing",
    ),
    (
        r"[Rr]epository .*not found|does not appear to be a git repository|repository .* does not exist"
        r"|The requested URL returned error: (404|410)",
        GitRepositoryNotFoundError,
        "there is no such repository",
    ),
)


class Run(Protocol):
    """The session's `exec`, of shell text."""

    def __call__(self, command: str, *, env: Mapping[str, str], timeout: Timeout) -> ExecResult:
        """Run *command* in its turn."""


def checkout(
    run: Run,
    transport: Transport,
    ref: SessionRef,
    repo_url: str,
    *,
    branch: str | None,
    target_dir: str | None,
    depth: int | None,
    token: str | None,
    timeout: Timeout,
) -> GitCheckoutResult:
    """Clone *repo_url* into *target_dir*, by default named after it, below the session's directory.

    *repo_url* is what git takes: https, http, ssh, git and file URLs, ``host:path`` and paths; other
    transports, such as ``ext::``, are refused. *token*, and a user and password in the URL, are used for
    http(s) and its host alone; other credential helpers are then neither asked nor told. The user for *token*
    is that of the URL, or ``x-access-token``. *branch* may be a tag; the branch of the result is a short commit
    then. *depth* is a number of commits. *target_dir* may exist if it is empty.

    Blocks for the session's turn and the clone, *timeout* seconds at most; after a failure or a timeout nothing
    that was not there before stays. Raises :class:`InvalidRequestError` and :class:`UnsupportedOperationError`
    before anything is run, :class:`GitAuthenticationError`, :class:`GitRepositoryNotFoundError`,
    :class:`GitBranchNotFoundError`, other :class:`GitError` (``context`` has ``exit_code`` and ``stderr``,
    without secrets), and what *run* raises.
    """
    source = parse(repo_url, token)
    name = source.name if target_dir is None else target_dir
    if not name or "\0" in name:
        raise InvalidRequestError("target_dir is empty, or holds a NUL")
    words = [*source.options, "clone", *_options(branch, depth)]
    if Capability.NATIVE_PROGRAMS not in transport.capabilities:
        _check_stand_in(transport)
    source = attrs.evolve(source, url=_real_url(transport, ref, source.url))
    if name.startswith("/"):
        name = _real(transport, ref, name)
    command = _script("clone", _plain(name), *words, "--", source.url)
    try:
        result = run(command, env=source.environment, timeout=timeout)
    except (CommandTimeoutError, SessionTerminatedError, SessionDestroyedError) as exc:
        # What it ran is gone by now, so nothing is made after this.
        _undo(transport, ref, exc.stdout_bytes)
        stderr = source.hide(exc.stderr)
        exc.command = f"git clone {shlex.quote(source.url)}"
        exc.stdout, exc.stdout_bytes = "", b""
        exc.stderr, exc.stderr_bytes = stderr, stderr.encode("utf-8", "replace")
        raise
    return _result(result, source, branch, name, transport.clock.now())


def _check_stand_in(transport: Transport) -> None:
    """Raise, unless a transport without native programs has something in the place of git."""
    programs = getattr(transport, "programs", None)
    if programs is None or "git" not in programs:
        names = " and ".join(OFFERED_BY[Capability.NATIVE_PROGRAMS])
        hint = "" if programs is None else "; say what git does here with the transport's command('git', function)"
        raise UnsupportedOperationError(f"{transport.name} has no git; {names} can run it{hint}")


@cache
def _code() -> str:
    return resources.files("sandboxsync").joinpath("git-clone.bash").read_text("utf-8")


def _script(*words: str) -> str:
    return shlex.join(["/bin/sh", "-c", _code(), "sh", *words])


def _options(branch: str | None, depth: int | None) -> list[str]:
    options = []
    if branch is not None:
        if not branch or branch.startswith("-") or "\0" in branch:
            raise InvalidRequestError(f"not the name of a branch: {branch!r}")
        options.append(f"--branch={branch}")
    if depth is not None:
        if isinstance(depth, bool) or depth < 1:
            raise InvalidRequestError(f"depth is a number of commits, 1 or more, not {depth!r}")
        # Without --no-local it does not count for a path.
        options += [f"--depth={depth}", "--no-local"]
    return options


def _plain(path: str) -> str:
    parts = [part for part in path.split("/") if part not in ("", ".")]
    return ("/" if path.startswith("/") else "") + ("/".join(parts) or ".")


def _real_url(transport: Transport, ref: SessionRef, url: str) -> str:
    if url.startswith("/"):
        return _real(transport, ref, url)
    if url.startswith("file:///"):
        return "file://" + _real(transport, ref, url.removeprefix("file://"))
    return url


def _real(transport: Transport, ref: SessionRef, path: str) -> str:
    """Return an absolute path as a command can use it (F5). Only the transport knows, and of what exists."""
    above, below = path, ""
    while True:
        try:
            found = transport.stat(ref, above, True).path
        except SandboxFileNotFoundError:
            above, name = posixpath.split(above.rstrip("/"))
            if not name:
                raise
            below = posixpath.join(name, below) if below else name
        else:
            return posixpath.join(found, below) if below else found


def _undo(transport: Transport, ref: SessionRef, output: bytes) -> None:
    """Remove what a stopped clone said it would make, in a shell of its own: the session may be busy or gone."""
    before, *rest = output.decode("utf-8", "surrogateescape").split("\0")
    if before not in ("new", "empty") or len(rest) < 2:
        return
    request = CommandRequest(_script("undo", before, rest[0]), timeout=_UNDO_TIMEOUT)
    with suppress(SandboxError):
        stream = transport.run(SessionRef(ref.sandbox_id, None, incarnation=ref.incarnation), request)
        try:
            while not isinstance(stream.read(), Exited):
                pass
        finally:
            stream.close()


def _result(result: ExecResult, source: Source, branch: str | None, name: str, when: datetime) -> GitCheckoutResult:
    stderr = source.hide(result.stderr[-_KEEP:])
    match result.stdout_bytes.decode("utf-8", "surrogateescape").split("\0"):
        case [_, _, "done", found, path] if path:
            return GitCheckoutResult(source.url, found, path.removesuffix("\n"), when)
        case [_, _, "failed", status, ""]:
            raise _failure(result.stderr, stderr, source.url, branch, int(status))
        case ["taken", ""]:
            raise GitError(f"{name!r} exists and is not an empty directory", context={"target_dir": name})
        case ["missing", ""]:
            raise GitError("git is not installed in the sandbox", context={"exit_code": 127, "stderr": stderr})
        case _:
            context = {"exit_code": result.exit_code, "stderr": stderr}
            raise GitError(f"git could not be run: {stderr.strip()[-500:]}", context=context)


def _failure(said: str, shown: str, url: str, branch: str | None, status: int) -> GitError:
    context = {"exit_code": status, "stderr": shown, "repo_url": url}
    for pattern, error, reason in _REASONS:
        if re.search(pattern, said):
            what = f"branch {branch!r} of {url!r}" if error is GitBranchNotFoundError else repr(url)
            return error(f"{reason}: {what}; git says: {shown.strip()[-500:]}", context=context)
    return GitError(f"cloning {url!r} failed with exit code {status}: {shown.strip()[-2000:]}", context=context)
