"""What must hold before a local sandbox can start, each said in one line when it does not."""

from __future__ import annotations

import os
import sys

from sandboxsync.errors import ConfigurationError

__all__ = ["check_bash", "check_platform", "check_workspace"]

_OLDEST_BASH = (4, 4)
_checked: dict[str, tuple[int, int]] = {}


def check_platform() -> None:
    """Raise `ConfigurationError` where local sandboxes cannot work."""
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        raise ConfigurationError(
            "LocalTransport needs a POSIX system with bash, and there Linux 5.3 or later "
            f"(it relies on /proc and pidfds); this is {sys.platform}"
        )


def check_bash(bash: str) -> str:
    """The absolute path of the bash to use. Raises `ConfigurationError`."""
    import shutil

    path = shutil.which(bash)
    if path is None:
        raise ConfigurationError(f"LocalTransport needs bash, and found no program {bash!r} in PATH")
    path = os.path.abspath(path)
    if path not in _checked:
        _checked[path] = _version(path)
    if _checked[path] < _OLDEST_BASH:
        raise ConfigurationError(f"LocalTransport needs bash 4.4 or later, and {path} is not")
    return path


def _version(path: str) -> tuple[int, int]:
    import subprocess

    ask = "echo ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]}"
    try:
        result = subprocess.run([path, "--norc", "--noprofile", "-c", ask], env={}, capture_output=True, timeout=30)
        major, minor = map(int, result.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return (0, 0)
    return major, minor


def check_workspace(workspace: str | os.PathLike[str] | None) -> str | None:
    """The real path of a workspace that was given. Raises `ConfigurationError`."""
    if workspace is None:
        return None
    try:
        path = os.fsdecode(workspace)
    except TypeError:
        raise ConfigurationError(f"workspace takes the path of a directory, not {workspace!r}") from None
    if not path or "\0" in path or not os.path.isdir(path):
        raise ConfigurationError(f"the workspace {path!r} is not a directory")
    return os.path.realpath(path)
