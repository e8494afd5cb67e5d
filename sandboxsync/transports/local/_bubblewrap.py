"""A sandbox in a container of its own, made by bubblewrap. What is done inside of it is in `_inside.py`.

It has its own user, process, mount, IPC and UTS namespaces, and its own network if it is not to have ours. Its root is
this user outside, or a user of its own when this process is the administrator's (`_launch.py`). All that it writes is
in memory and goes with it, but for what is bound writable.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from typing import Literal

from sandboxsync.errors import ConfigurationError, SandboxUnavailableError
from sandboxsync.transports.local._cgroup import MemoryGroup, find_place
from sandboxsync.transports.local._channel import Supervisor, bare_environment, interpreter, memory_file, program, spawn
from sandboxsync.transports.local._ground import Ground
from sandboxsync.transports.local._rooted import RootedPaths
from sandboxsync.transports.local._settings import LIMIT_KINDS, Settings

__all__ = ["BubblewrapGround", "check_usable"]

_RUN = "/run/sandboxsync"
_PYTHON = "/run/python"
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ETC = (
    "ImageMagick-*",
    "alternatives",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "host.conf",
    "hosts",
    "java*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "magic",
    "mime.types",
    "networks",
    "nsswitch.conf",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "protocols",
    "python*",
    "redhat-release",
    "resolv.conf",
    "rpc",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
)
"""What programs read of `/etc` and holds no secret."""
_FILES = {
    "/etc/passwd": "root:x:0:0:root:/root:/bin/bash\nnobody:x:65534:65534:nobody:/:/usr/sbin/nologin\n",
    "/etc/group": "root:x:0:\nnogroup:x:65534:\n",
    "/etc/hostname": "sandbox\n",
}
_SHM = 64 << 20
"""Bytes of `/dev/shm`: as much as containers have elsewhere."""
_LAUNCHER = os.path.join(os.path.dirname(__file__), "_launch.py")
_FIRST_USER, _USERS = 0x70000000, 1 << 24
"""Numbers of users that no system gives away."""
_HANDED = 3
"""Descriptors that the supervisor hands over: of the root, and of the directories for control and for logs."""
_usable: set[Settings] = set()


def check_usable(settings: Settings) -> None:
    """Raise `ConfigurationError` unless a container as asked for can be made and its bash runs.

    Blocks for 30 ms; tried once for each settings.
    """
    if settings in _usable:
        return
    container = _Container(settings)
    argv = [*container.argv(), settings.bash, "--norc", "--noprofile", "-c", ":"]
    try:
        result = subprocess.run(
            container.launched(argv), stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=bare_environment()
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise ConfigurationError(f"bubblewrap does not run: {exc}") from exc
    if result.returncode != 0:
        said = result.stderr.decode(errors="replace").strip() or f"exit code {result.returncode}"
        raise ConfigurationError(f"bubblewrap cannot make a sandbox here: {said}. {_way_out()}")
    _usable.add(settings)


def _way_out() -> str:
    for setting, forbids, remedy in (
        ("user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile for bwrap",
        ),
    ):
        try:
            with open(f"/proc/sys/{setting}", encoding="ascii") as file:
                if file.read().strip() == forbids:
                    return f"This system forbids user namespaces; what allows them: {remedy}"
        except OSError:
            continue  # this kernel has no such setting
    return (
        "It needs user namespaces and mounts: in a container, start that with "
        "--security-opt seccomp=unconfined --security-opt systempaths=unconfined (and for root, --cap-add SYS_ADMIN)"
    )


class BubblewrapGround(Ground):
    """A running container. Making it blocks for 60 ms; raises `ConfigurationError` and `SandboxUnavailableError`."""

    remap = False
    workspace = "/workspace"
    home = "/root"
    tmp = "/tmp"
    inside = f"{_RUN}/"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        container = _Container(settings)
        self.supervisor = Supervisor(container.start)
        self._held = _Descriptors(self.supervisor.given)
        if len(self.supervisor.given) != _HANDED:
            self.supervisor.close()
            raise SandboxUnavailableError("cannot start a local sandbox: too many open files")
        root, run, logs = self.supervisor.given
        self.paths = _HeldPaths(root, container.user, self._held)
        # Through the descriptors, because these directories have no path outside of the sandbox.
        self.here = f"/proc/self/fd/{run}/"
        self.logs = f"/proc/self/fd/{logs}/"

    def search_path(self) -> str:
        seen = [*_SYSTEM, *(bind.target for bind in self._settings.binds)]
        given = os.environ.get("PATH", _PATH).split(":")
        kept = [entry for entry in given if any(f"{entry}/".startswith(f"{place}/") for place in seen)]
        return ":".join(kept) or _PATH

    def connect(self, family: int) -> socket.socket:
        if self._settings.network:
            return socket.socket(family, socket.SOCK_STREAM)
        result = self.supervisor.ask({"do": "socket", "family": int(family)}).result()
        assert result is not None  # no timeout was given
        answer, fds = result
        if "errno" in answer:
            raise OSError(answer["errno"], os.strerror(answer["errno"]))
        return socket.socket(fileno=fds[0])

    def after_fork(self) -> None:
        return  # all of it is of use there

    def in_child(self) -> Ground:
        self.client, self.serial = self.supervisor.attach()
        return self

    def let_go(self) -> None:
        return  # all of it has gone with the last process


class _Descriptors:
    """Descriptors that live as long as somebody may use a path with their numbers."""

    def __init__(self, fds: list[int]) -> None:
        self._fds = fds

    def __del__(self) -> None:
        for fd in self._fds:
            os.close(fd)


class _HeldPaths(RootedPaths):
    def __init__(self, root: int, user: int | None, held: _Descriptors) -> None:
        super().__init__(root, user)
        self._held = held


class _Container:
    """What one container is made of."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.user = _own_user() if _is_administrator() else None
        self._sources: list[tuple[str, str]] = []

    def start(self, channel: int, parent: int, says: int) -> int:
        """Start the supervisor in it, with these descriptors; returns the pid of what ends with it."""
        python = os.path.realpath(interpreter())
        prefix = os.path.dirname(os.path.dirname(python))
        hidden = not f"{python}/".startswith(tuple(f"{place}/" for place in _SYSTEM))
        argv = self.argv()
        if hidden:
            argv += ["--ro-bind", self._source(prefix), _PYTHON]
            argv += ["--setenv", "LD_LIBRARY_PATH", f"{_PYTHON}/lib"]
            python = f"{_PYTHON}/{os.path.relpath(python, prefix)}"
        given = {
            "supervisor": f"{_RUN}/supervisor",
            "python": _PYTHON if hidden else None,
            "run": _RUN,
            "files": _FILES,
            "disk": self.settings.limits.disk,
            "shm": _SHM,
            "limits": {
                kind: value
                for name, kind in LIMIT_KINDS.items()
                if (value := getattr(self.settings.limits, name)) is not None
            },
        }
        files = {
            "supervisor": program("_supervisor.py"),
            "inside": program("_inside.py"),
            "given": json.dumps(given).encode(),
        }
        others: dict[int, int] = {}
        with contextlib.ExitStack() as stack:
            for number, (name, data) in enumerate(files.items(), 5):
                others[number] = memory_file(data)
                stack.callback(os.close, others[number])
                argv += ["--file", str(number), f"{_RUN}/{name}"]
            argv += ["--cap-add", "CAP_SYS_ADMIN", "--cap-add", "CAP_SETPCAP"]
            argv += [python, "-I", "-S", f"{_RUN}/inside", f"{_RUN}/given"]
            group = self._group()
            if group is None:
                return spawn(self.launched(argv), channel, parent, says, others)
            return self._start_in(group, argv, (channel, parent, says), others)

    def _start_in(
        self, group: MemoryGroup, argv: list[str], given: tuple[int, int, int], others: dict[int, int]
    ) -> int:
        """Start bubblewrap, and let its child begin when that is in the group."""
        said = says = asked = asks = -1
        try:
            said, says = os.pipe()
            asked, asks = os.pipe()
            at = argv.index("--file")  # before the program, whose arguments come last
            argv = [*argv[:at], "--info-fd", "8", "--block-fd", "9", *argv[at:]]
            argv = group.removed_after(self.launched(argv), self.settings.bash)
            pid = spawn(argv, *given, {**others, 8: says, 9: asked})
            os.close(says)
            says = -1
            told = b""
            while b"}" not in told:
                data = os.read(said, 4096)
                if not data:
                    return pid  # it has failed, and says so elsewhere
                told += data
            child = json.loads(told)["child-pid"]
            try:
                group.make(child)
            except OSError:
                os.kill(child, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):  # children are not waited for in this program
                    os.waitpid(pid, 0)
                raise
            os.write(asks, b".")
            return pid
        finally:
            for fd in (said, says, asked, asks):
                if fd >= 0:
                    os.close(fd)

    def _group(self) -> MemoryGroup | None:
        if self.settings.limits.memory is None:
            return None
        place = find_place()
        return None if place is None else MemoryGroup(place, self.settings.limits.memory)

    def argv(self) -> list[str]:
        """bubblewrap, with what it shows of this machine."""
        program = shutil.which("bwrap")
        if program is None:
            raise ConfigurationError(
                "isolation='bubblewrap' needs the program bwrap, and found none in PATH: install the package bubblewrap"
            )
        argv = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
        argv += ["--as-pid-1", "--new-session", "--uid", "0", "--gid", "0", "--hostname", "sandbox"]
        if not self.settings.network:
            argv += ["--unshare-net"]
        argv += ["--proc", "/proc", "--dev", "/dev", "--dir", "/tmp", "--dir", "/root", "--dir", "/etc"]
        for place in _SYSTEM:
            if os.path.islink(place):
                argv += ["--symlink", os.readlink(place), place]
            elif os.path.isdir(place):
                argv += ["--ro-bind", place, place]
        for path in _etc():
            argv += ["--ro-bind-try", os.path.realpath(path), path]
        if self.settings.workspace is None:
            argv += ["--dir", "/workspace"]
        else:
            argv += ["--bind", self._source(self.settings.workspace, "must"), "/workspace"]
        for bind in sorted(self.settings.binds, key=lambda bind: bind.target):
            source = self._source(os.fsdecode(bind.source), "must" if bind.writable else "may")
            argv += ["--bind" if bind.writable else "--ro-bind", source, bind.target]
        return [*argv, "--chdir", "/"]

    def _source(self, path: str, owned: Literal["no", "may", "must"] = "no") -> str:
        """What bubblewrap is to call a path; `owned` is whether it is to look like the sandbox's own."""
        if self.user is None:
            return path
        self._sources.append((path, owned))
        return f"/tmp/{len(self._sources) - 1}"

    def launched(self, argv: list[str]) -> list[str]:
        """How bubblewrap is to be started."""
        if self.user is None:
            return argv
        sources = [word for source in self._sources for word in source]
        return [interpreter(), "-I", "-S", _LAUNCHER, str(self.user), *sources, "--", *argv]


def _etc() -> Iterator[str]:
    for pattern in _ETC:
        yield from sorted(glob.glob(f"/etc/{pattern}"))


def _is_administrator() -> bool:
    """Whether this process is the real one's, and not one whom a user namespace calls so."""
    if os.geteuid() != 0:
        return False
    with open("/proc/self/uid_map", encoding="ascii") as file:
        return file.read().split() == ["0", "0", "4294967295"]


def _own_user() -> int:
    return _FIRST_USER + secrets.randbelow(_USERS)
