"""What a `LocalTransport` is made with: the values that users write, and the checks of them."""

from __future__ import annotations

import os
from collections.abc import Sequence

import attrs

from sandboxsync.errors import ConfigurationError

__all__ = ["LIMIT_KINDS", "Bind", "Limits", "Settings", "check_binds", "check_isolation", "check_limits"]

_FEWEST_DESCRIPTORS = 32
"""What the shell of a session needs to work."""
LIMIT_KINDS = {
    "memory": "RLIMIT_DATA",
    "processes": "RLIMIT_NPROC",
    "file_size": "RLIMIT_FSIZE",
    "open_files": "RLIMIT_NOFILE",
    "cpu_seconds": "RLIMIT_CPU",
}
"""The limits of the system that ours are."""
_RESERVED = ("/dev", "/proc", "/run/sandboxsync", "/workspace")


@attrs.frozen
class Bind:
    """A file or directory of this machine that an isolated sandbox sees, at `target`; read-only unless `writable`."""

    source: str | os.PathLike[str]
    target: str
    writable: bool = False


@attrs.frozen(kw_only=True)
class Limits:
    """What a sandbox may use up at most; `None` is no limit of ours. Whole numbers above zero.

    `processes` (processes and threads) and `disk` (bytes of `/`, `/tmp`, home and, unless a directory was given for it,
    `/workspace`, together) are for the sandbox as a whole. `memory` (bytes of data), `file_size` (bytes of one file,
    logs included), `open_files` (descriptors) and `cpu_seconds` are for each process, as the system has them; `memory`
    is for the whole as well where control groups are delegated to this process.

    `disk` left out is 2 GiB, or half of the machine's memory if that is less: it is memory that such files are kept in.
    """

    memory: int | None = None
    processes: int | None = 512
    file_size: int | None = None
    open_files: int | None = None
    cpu_seconds: int | None = None
    disk: int | None = None


@attrs.frozen
class Settings:
    """What `LocalTransport` was made with, checked."""

    workspace: str | None
    inherit_env: tuple[str, ...]
    bash: str
    isolated: bool = False
    network: bool = True
    binds: tuple[Bind, ...] = ()
    limits: Limits = attrs.field(factory=Limits)


def check_isolation(isolation: str, network: bool, binds: object, limits: object) -> bool:
    """Whether there is isolation. Raises `ConfigurationError` for an unknown one, and for what needs one."""
    if isolation not in ("none", "bubblewrap"):
        raise ConfigurationError(f"no isolation {isolation!r}; there are 'none' and 'bubblewrap'")
    if not isinstance(network, bool):
        raise ConfigurationError(f"network takes True or False, not {network!r}")
    if isolation == "none":
        for name, given in (("network=False", not network), ("binds", bool(binds)), ("limits", limits is not None)):
            if given:
                raise ConfigurationError(f"{name} needs isolation='bubblewrap'; without isolation nothing enforces it")
    return isolation == "bubblewrap"


def check_binds(binds: Sequence[Bind | tuple[str | os.PathLike[str], str]]) -> tuple[Bind, ...]:
    """The binds with real paths as sources. Raises `ConfigurationError`."""
    try:
        return tuple(map(_check_bind, binds))
    except TypeError:
        raise ConfigurationError(f"binds takes a sequence of (source, target) pairs or Binds, not {binds!r}") from None


def _check_bind(given: Bind | tuple[str | os.PathLike[str], str]) -> Bind:
    try:
        bind = given if isinstance(given, Bind) else Bind(*given)
        source, target = os.fsdecode(bind.source), os.fsdecode(bind.target)
    except TypeError:
        raise ConfigurationError(f"a bind is a (source, target) pair of paths or a Bind, not {given!r}") from None
    if "\0" in source or not os.path.exists(source):
        raise ConfigurationError(f"the source of a bind is not there: {source!r}")
    if not target.startswith("/") or "\0" in target or ".." in target.split("/"):
        raise ConfigurationError(f"the target of a bind is an absolute path without '..', not {target!r}")
    target = os.path.normpath("/" + target.lstrip("/"))
    for place in _RESERVED:
        below = place != "/workspace" and f"{target}/".startswith(f"{place}/")
        if f"{place}/".startswith(f"{target.rstrip('/')}/") or below:
            raise ConfigurationError(f"a bind at {target!r} would cover {place}")
    if not isinstance(bind.writable, bool):
        raise ConfigurationError(f"writable takes True or False, not {bind.writable!r}")
    return Bind(os.path.realpath(source), target, bind.writable)


def check_limits(limits: Limits | None) -> Limits:
    """The limits, with the default ones filled in. Raises `ConfigurationError` for what makes no sense, or is more than
    this process may grant.
    """
    if limits is None:
        limits = Limits()
    if not isinstance(limits, Limits):
        raise ConfigurationError(f"limits takes a Limits, not {limits!r}")
    for name, value in attrs.asdict(limits).items():
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
            raise ConfigurationError(f"Limits({name}=…) takes a whole number above zero, not {value!r}")
        if value > _most(name):
            raise ConfigurationError(f"Limits({name}={value}) is more than this process may grant ({_most(name)})")
    if limits.open_files is not None and limits.open_files < _FEWEST_DESCRIPTORS:
        raise ConfigurationError(f"Limits(open_files=…) is at least {_FEWEST_DESCRIPTORS}: a shell needs them")
    if limits.disk is None:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limits = attrs.evolve(limits, disk=min(2 << 30, memory // 2))
    return limits


def _most(name: str) -> int:
    import resource

    kind = LIMIT_KINDS.get(name)
    most = resource.RLIM_INFINITY if kind is None else resource.getrlimit(getattr(resource, kind))[1]
    return (1 << 62) if most == resource.RLIM_INFINITY else most
