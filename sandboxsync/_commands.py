"""Commands and environment: ``exec``, ``exec_stream``, ``git_checkout``, ``set_env_vars``."""

from __future__ import annotations

from ._client import Bound
from ._collect import OnOutput, collect
from ._decode import check_decoding
from ._stream import ExecStream
from ._unset import UNSET, Timeout
from ._validate import (
    Command,
    Env,
    RemotePath,
    check_callback,
    check_command,
    check_cwd,
    check_env,
    check_int,
    check_path,
    check_stdin,
    check_str,
    check_timeout,
)
from .errors import SandboxError
from .models import ExecResult, GitCheckoutResult
from .transports.base import CommandRequest, CommandStream


class CommandVerbs(Bound):
    """Verbs that wait for the session's turn. Any thread may call them; one session runs one command at a time."""

    def exec(
        self,
        command: Command,
        *,
        timeout: Timeout = UNSET,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        stdin: str | bytes | None = None,
        check: bool = False,
        on_output: OnOutput | None = None,
        max_output: int | None = None,
        encoding: str = "utf-8",
        errors: str = "replace",
    ) -> ExecResult:
        """Run a command to its end and return its result. Blocks, for the session's turn too.

        ``command`` is text for the shell, or a sequence of arguments that are passed as they are; the
        result's ``command`` is then the quoted text. ``timeout`` (s) bounds the call, the wait included; left
        out, it is the session's, else the sandbox's. ``env`` and ``cwd`` hold for this command only.
        ``stdin`` is what it reads; text is sent in ``encoding``. ``on_output(stream, text)`` is called in
        this thread as output comes; what it raises stops the command and is raised here. ``max_output`` is in
        bytes per stream.

        A non-zero exit is a result; with ``check`` it raises ``CommandFailedError``. Raises
        ``InvalidRequestError`` before anything runs, ``CommandTimeoutError``, ``OutputLimitError``,
        ``OutputDecodeError`` (``errors="strict"``), ``SessionTerminatedError`` when the session's shell
        ended, ``SessionDestroyedError`` when the session was deleted, ``SessionBusyError`` when this thread
        is inside another command of the session, ``SandboxDestroyedError``, ``TransportError``. Those that
        stop a command carry its output so far.
        """
        text = check_command(command)
        check_callback(on_output, "on_output")
        request = _request(text, timeout, env, cwd, stdin, max_output, encoding, errors, self._client.command_timeout)
        stream = self._run(request)
        result = collect(self._client, stream, text, self._ref, on_output, max_output, encoding, errors)
        return result.check() if check else result

    def exec_stream(
        self,
        command: Command,
        *,
        timeout: Timeout = UNSET,
        env: Env | None = None,
        cwd: RemotePath | None = None,
        stdin: str | bytes | None = None,
        max_output: int | None = None,
        encoding: str = "utf-8",
        errors: str = "replace",
    ) -> ExecStream:
        """Start a command and return the stream of its events. Blocks until the session's turn comes.

        The options are those of ``exec``. Use the stream in a ``with`` block: it holds the session's turn
        until it was read to its end or closed. Raises what ``exec`` raises before a command begins.
        """
        text = check_command(command)
        request = _request(text, timeout, env, cwd, stdin, max_output, encoding, errors, self._client.command_timeout)
        stream = self._run(request)
        return ExecStream(self._client, stream, text, self._ref, max_output, encoding, errors)

    def _run(self, request: CommandRequest) -> CommandStream:
        ref = self._check()
        try:
            return self._transport.run(ref, request)
        except SandboxError as exc:
            self._client.tell_end(exc)
            raise

    def git_checkout(
        self,
        repo_url: str,
        *,
        branch: str | None = None,
        target_dir: RemotePath | None = None,
        depth: int | None = None,
        token: str | None = None,
        timeout: Timeout = UNSET,
    ) -> GitCheckoutResult:
        """Clone a repository into ``target_dir``, or a directory named after it. Blocks, for the session's turn too.

        ``depth`` is the number of commits to fetch, ``timeout`` in seconds. ``token`` and the credentials of
        the URL appear in no argument list, config, error or result. Raises ``GitAuthenticationError``,
        ``GitRepositoryNotFoundError``, ``GitBranchNotFoundError``, other ``GitError``, and what ``exec``
        raises.
        """
        from . import _git

        check_str(repo_url, "repo_url")
        return self._call(
            _git.checkout,
            self._run_text,
            self._transport,
            self._ref,
            repo_url,
            branch=None if branch is None else check_str(branch, "branch"),
            target_dir=None if target_dir is None else check_path(target_dir, "target_dir"),
            depth=None if depth is None else check_int(depth, "depth", 1),
            token=None if token is None else check_str(token, "token"),
            timeout=check_timeout(timeout),
        )

    def _run_text(self, command: str, *, env: Env | None = None, timeout: Timeout = UNSET) -> ExecResult:
        return self.exec(command, env=env, timeout=timeout)

    def _set_env(self, env: Env) -> None:
        changes = check_env(env, keep_none=True)
        self._call(self._transport.set_session_env, self._ref, changes, UNSET)


def _request(
    text: str,
    timeout: Timeout,
    env: Env | None,
    cwd: RemotePath | None,
    stdin: str | bytes | None,
    max_output: int | None,
    encoding: str,
    errors: str,
    default_timeout: Timeout,
) -> CommandRequest:
    """Check the options of a command."""
    if encoding != "utf-8" or errors != "replace":
        check_decoding(encoding, errors)
    if max_output is not None:
        check_int(max_output, "max_output", 0)
    return CommandRequest(
        text,
        {} if env is None else check_env(env),
        None if cwd is None else check_cwd(cwd),
        None if stdin is None else check_stdin(stdin, encoding),
        UNSET if timeout is UNSET else check_timeout(timeout),
        None if default_timeout is UNSET else default_timeout,
    )
