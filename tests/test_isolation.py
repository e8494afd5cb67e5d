"""What isolated sandboxes keep from whom: an attempt to escape each, and that all else goes on (docs/isolation.md)."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

import sandboxsync
from sandboxsync import Bind, Limits, LocalTransport, Sandbox, Session
from sandboxsync.errors import (
    ConfigurationError,
    FileError,
    NoSpaceError,
    SandboxError,
    SandboxFileNotFoundError,
)
from sandboxsync.testing._tools import SLACK
from sandboxsync.transports.local._cgroup import MemoryGroup, find_place

pytestmark = pytest.mark.usefixtures("bubblewrap")

needs_control_groups = pytest.mark.skipif(find_place() is None, reason="this process may not make control groups")

MEBIBYTE = 1 << 20


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    """A transport that ends with the test."""
    with LocalTransport(isolation="bubblewrap") as transport:
        yield transport


@pytest.fixture
def sandbox(transport: LocalTransport) -> Sandbox:
    """A sandbox of it."""
    return Sandbox(transport)


@pytest.fixture
def session(sandbox: Sandbox) -> Session:
    """A session of it."""
    return sandbox.create_session()


def python(session: Session, program: str, timeout: float = 30) -> str:
    """What a Python program prints in the sandbox; its own standard error is shown when it fails."""
    result = session.exec(["python3", "-c", textwrap.dedent(program)], timeout=timeout)
    assert result.exit_code == 0, result.stderr
    return result.stdout


class TestHostFiles:
    """Files of the machine: not seen, not read, not written."""

    def test_nothing_of_the_machines_own_is_there(self, session: Session, tmp_path: Path) -> None:
        """Neither homes nor temporary files, nor what the system keeps, nor its secrets."""
        (tmp_path / "secret").write_text("SECRET")
        assert session.exec(["cat", str(tmp_path / "secret")]).exit_code == 1
        assert session.exec("ls -A /home /var /srv /mnt /root /tmp /workspace 2>/dev/null").stdout.split() == [
            "/root:",
            "/tmp:",
            "/workspace:",
        ]
        assert session.exec("ls /run").stdout == "sandboxsync\n"
        for name in ("shadow", "gshadow", "sudoers", "ssh", "ssl/private", "gitconfig", "environment"):
            assert session.exec(["test", "-e", f"/etc/{name}"]).exit_code == 1, name
        assert "root:x:0:0:root:/root:" in session.exec("cat /etc/passwd").stdout

    def test_the_systems_programs_can_be_read_and_not_changed(self, session: Session) -> None:
        """`/usr` is read-only, whoever one seems to be; `/` is not."""
        result = session.exec("touch /usr/x; rm -f /usr/bin/env; mount -o remount,rw /usr; ls /usr/bin/env; touch /app")
        assert result.stdout == "/usr/bin/env\n"
        assert "Read-only file system" in result.stderr
        assert result.exit_code == 0

    def test_what_we_speak_to_shells_through_cannot_be_changed(self, session: Session) -> None:
        """The directory of our FIFOs takes no new names, so none can be made to lead elsewhere."""
        for command in ("rm -rf /run/sandboxsync/*", "mv /run/sandboxsync /x", "ln -s /etc /run/sandboxsync/s1/y"):
            assert session.exec(command).exit_code != 0
        assert session.exec("umount -l /run/sandboxsync").exit_code != 0
        assert session.exec("echo ok").stdout == "ok\n"

    def test_links_lead_to_the_sandboxs_own_files(self, sandbox: Sandbox, session: Session) -> None:
        """An absolute symlink read, written, listed or removed through the API means the sandbox's file."""
        session.exec("ln -s /etc/passwd link; ln -s / all; ln -s ../../../../../etc/hostname up; echo x >/etc/mine")
        assert session.read_text("link").startswith("root:x:0:0:root:/root:")
        assert session.read_text("up") == "sandbox\n"
        assert session.read_text("all/etc/mine") == "x\n"
        session.write_file("all/etc/made", "y")
        assert session.exec("cat /etc/made").stdout == "y"
        assert not os.path.exists("/etc/made")
        session.write_file("link", "replaced")
        assert session.exec("cat /etc/passwd").stdout == "replaced"
        assert {info.name for info in session.list_files("all")} >= {"workspace", "etc", "usr"}
        assert "home" not in {info.name for info in session.list_files("all")}

    def test_dot_dot_stays_inside(self, session: Session) -> None:
        """However many `..` a path has, it is the sandbox's root that it ends at."""
        up = "../" * 40
        assert session.read_text(f"/workspace/{up}etc/hostname") == "sandbox\n"
        session.write_file(f"{up}made", "x")
        assert session.exec("cat /made").stdout == "x"
        with pytest.raises(SandboxFileNotFoundError):
            session.list_files(f"{up}home")

    @pytest.mark.parametrize(
        "link", ["/proc/self/root", "/proc/1/root", "/proc/1/cwd", "/proc/self/cwd", "/proc/1/exe"]
    )
    def test_links_of_proc_lead_nowhere(self, session: Session, link: str) -> None:
        """The links of `/proc` that jump out of a view of the files are refused, by us and by the system."""
        link = f"/proc/{link}"
        for path in (link, f"{link}/etc/hostname"):
            with pytest.raises(FileError):
                session.read_bytes(path)
            with pytest.raises(FileError):
                session.write_file(path, b"x")
        with pytest.raises(FileError):
            session.list_files(link)
        assert session.exec(["cat", f"/proc/1/root{os.getcwd()}/x"]).exit_code == 1

    def test_a_directory_swapped_for_a_link_is_no_way_out(self, sandbox: Sandbox, tmp_path: Path) -> None:
        """While a directory and a symlink to one of the machine change places, nothing of the machine is touched."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "file").write_text("HOST")
        inside = str(outside)
        session = sandbox.create_session()
        session.exec(["mkdir", "-p", inside, "d"])
        session.exec(["ln", "-s", inside, "link"])
        session.exec(f"echo mine >d/file; echo mine >{inside}/file")
        swap = "while :; do mv -T d e; mv -T link d; mv -T d link; mv -T e d; done"
        process = sandbox.start_process(swap, cwd="/workspace")
        seen = set()
        until = time.monotonic() + 4
        while time.monotonic() < until:
            for attempt in (
                lambda: seen.add(session.read_text("/workspace/d/file")),
                lambda: session.write_file("/workspace/d/file", "mine\n"),
                lambda: session.write_file("/workspace/d/new/deep/file", "mine\n"),
                lambda: session.rename_file("/workspace/d/new", "/workspace/d/moved"),
                lambda: seen.update(info.name for info in session.list_files("/workspace/d")),
            ):
                try:
                    attempt()
                except FileError:
                    continue
        process.kill()
        assert "mine\n" in seen
        assert "HOST" not in seen
        assert sorted(path.name for path in outside.iterdir()) == ["file"]
        assert (outside / "file").read_text() == "HOST"

    def test_binds_are_read_only_unless_they_say_otherwise(self, tmp_path: Path) -> None:
        """What is bound is seen where it was asked for, and changed only where that was asked for."""
        for name in ("read", "write"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "file").write_text(name)
        binds: list[Bind | tuple[Path, str]] = [
            (tmp_path / "read", "/data/read"),
            Bind(tmp_path / "write", "/workspace/write", writable=True),
        ]
        with Sandbox(LocalTransport(isolation="bubblewrap", binds=binds)) as sandbox:
            session = sandbox.create_session()
            assert session.exec("cat /data/read/file write/file").stdout == "readwrite"
            assert session.exec("echo x >/data/read/file").exit_code == 1
            assert session.exec("echo x >write/file && echo y >write/new").success
            with pytest.raises(FileError):
                session.write_file("/data/read/file", "x")
            session.write_file("write/api", "z")
        assert (tmp_path / "read/file").read_text() == "read"
        assert (tmp_path / "write/file").read_text() == "x\n"
        for name in ("new", "api"):
            assert (tmp_path / "write" / name).stat().st_uid == os.geteuid()

    def test_a_workspace_that_was_given_stays(self, tmp_path: Path) -> None:
        """`workspace=DIR` is `/workspace`, its files are the caller's in both directions, and all else goes."""
        (tmp_path / "given").write_text("given")
        transport = LocalTransport(tmp_path, isolation="bubblewrap")
        with transport, Sandbox(transport) as sandbox:
            assert sandbox.workspace == "/workspace"
            assert sandbox.exec("pwd; cat given; rm given; mkdir d; echo made >d/made; touch /elsewhere").stdout == (
                "/workspace\ngiven"
            )
            sandbox.write_file("/workspace/api", "api")
            assert sandbox.exec("stat -c %u . d/made api").stdout == "0\n0\n0\n"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["api", "d"]
        assert {path.stat().st_uid for path in tmp_path.rglob("*")} == {os.geteuid()}


class TestHostProcesses:
    """Processes of the machine: not seen, not signalled, not traced."""

    def test_they_are_not_seen_and_not_signalled(self, session: Session) -> None:
        """`/proc` has the sandbox's processes alone, and no number is one of the machine's."""
        other = subprocess.Popen(["sleep", "60"])
        try:
            assert session.exec("ls -d /proc/[0-9]* | wc -l").stdout.strip() < "9"
            session.exec(f"kill -9 {other.pid} {os.getpid()}; kill -9 -1", timeout=30, check=False)
        except SandboxError:
            pass  # the last of them ends the shell as well
        finally:
            assert other.poll() is None
            other.kill()
            other.wait()

    def test_the_first_process_cannot_be_killed_looked_into_or_traced(self, session: Session) -> None:
        """The supervisor is out of reach of the sandbox that it watches over."""
        session.exec("kill -9 1; kill -STOP 1; kill -TERM 1")
        assert (
            session.exec("cat /proc/1/environ /proc/1/maps /proc/1/fd/*; readlink /proc/1/exe /proc/1/fd/*").stdout
            == ""
        )
        program = """
            import ctypes
            libc = ctypes.CDLL(None, use_errno=True)
            print(libc.ptrace(16, 1, None, None), ctypes.get_errno())
            print(libc.syscall(438, libc.syscall(434, 1, 0), 3, 0), ctypes.get_errno())
        """
        assert python(session, program) == "-1 1\n-1 1\n"

    def test_signals_to_all_end_the_sandbox_and_nobody_else(self, transport: LocalTransport) -> None:
        """What kills all that it can reach ends what is in its sandbox; that goes on, and so do others."""
        one, two = Sandbox(transport), Sandbox(transport)
        theirs = two.start_process("sleep 60")
        ours = one.start_process("sleep 60")
        with pytest.raises(SandboxError):
            one.exec("bash -c 'kill -9 -1'", timeout=30)
        assert ours.wait_for_exit(timeout=10) == 137
        assert one.exec("echo again").stdout == "again\n"
        assert theirs.refresh().status == "running"

    def test_sandboxes_do_not_see_each_other(self, transport: LocalTransport) -> None:
        """Neither files nor processes of another sandbox."""
        one, two = Sandbox(transport), Sandbox(transport)
        one.write_file("/tmp/mine", "x")
        one.start_process("sleep 4321")
        assert not two.exists("/tmp/mine")
        assert "4321" not in two.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout


class TestPowers:
    """What only the machine's administrator may do."""

    def test_no_program_gains_powers(self, session: Session) -> None:
        """No capability, none to be had by setuid programs, and every file system is mounted so."""
        status = session.exec("cat /proc/self/status").stdout
        assert [line.split()[1] for line in status.splitlines() if line.startswith("Cap")] == ["0" * 16] * 5
        assert "NoNewPrivs:\t1" in status
        mounts = session.exec("cat /proc/self/mountinfo").stdout.splitlines()
        assert all("nosuid" in line.split()[5].split(",") for line in mounts), mounts
        assert session.exec("mount -t tmpfs none /tmp").exit_code != 0
        assert session.exec("chroot / true").exit_code != 0
        assert session.exec("hostname other").exit_code != 0

    def test_a_setuid_program_stays_its_callers(self, tmp_path: Path) -> None:
        """A setuid copy of a program, which belongs to the caller, runs as who started it."""
        program = shutil.copy("/usr/bin/grep", tmp_path / "grep")
        os.chmod(program, 0o6755)
        with Sandbox(LocalTransport(isolation="bubblewrap", binds=[(tmp_path, "/data")])) as sandbox:
            shown = sandbox.exec("/data/grep -E '^(Uid|Gid|CapEff)' /proc/self/status").stdout
        assert shown == "Uid:\t0\t0\t0\t0\nGid:\t0\t0\t0\t0\nCapEff:\t0000000000000000\n"

    def test_devices_are_neither_there_nor_made(self, session: Session) -> None:
        """Only the harmless devices, and no way to make another."""
        devices = session.exec("find /dev -type c -o -type b").stdout.split()
        assert {Path(device).name for device in devices} <= {
            *("null", "zero", "full", "random", "urandom", "tty", "ptmx", "console"),
        }
        assert session.exec("mknod disk b 8 0").exit_code != 0
        assert session.exec("mknod zero c 1 5").exit_code != 0

    def test_a_namespace_of_its_own_gives_no_way_back(self, session: Session) -> None:
        """With the powers of a user namespace made inside, what is mounted stays covered and read-only."""
        script = "umount -l /run/sandboxsync; mount -o remount,rw /usr; touch /usr/x; touch /run/sandboxsync/x"
        session.exec(["unshare", "-Urm", "bash", "-c", script])
        assert session.exec("ls /usr/x /run/sandboxsync/x").exit_code == 2
        assert session.exec("echo ok").stdout == "ok\n"


class TestCaller:
    """What the program has that made the sandbox."""

    def test_its_environment_and_descriptors_stay_with_it(self, tmp_path: Path) -> None:
        """Neither a variable nor an inheritable descriptor of the caller is in the sandbox, or held beside it."""
        (tmp_path / "secret").write_text("SECRET")
        program = """
            import os, sys
            os.environ["SECRET_KEY"] = "SECRET"
            fd = os.open(sys.argv[1], os.O_RDONLY)
            os.dup2(fd, 17, inheritable=True)
            from sandboxsync import LocalTransport, Sandbox
            with Sandbox(LocalTransport(isolation="bubblewrap")) as sandbox:
                session = sandbox.create_session()
                print(session.exec("env; ls -l /proc/self/fd /proc/[2-9]*/fd; cat <&17").stdout)
                held = []
                for pid in os.listdir("/proc"):
                    try:
                        if pid.isdigit() and int(pid) != os.getpid():
                            held += [os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")]
                    except OSError:
                        continue
                print("HELD" if sys.argv[1] in held else "let go")
        """
        output = _run(program, str(tmp_path / "secret"))
        assert "SECRET" not in output
        assert str(tmp_path) not in output
        assert output.rstrip().endswith("let go")

    def test_its_terminal_cannot_be_typed_into(self, tmp_path: Path) -> None:
        """No program has the caller's terminal, by name or by descriptor, to push characters into (TIOCSTI)."""
        program = """
            from sandboxsync import LocalTransport, Sandbox
            attack = '''
            import fcntl, os, termios
            for path in ["/dev/tty", "/dev/console", *(f"/proc/self/fd/{n}" for n in range(20))]:
                try:
                    fd = os.open(path, os.O_RDWR)
                    for byte in b"echo INJECTED\\\\n":
                        fcntl.ioctl(fd, termios.TIOCSTI, bytes([byte]))
                    print("typed into", path)
                except OSError:
                    continue
            '''
            import textwrap
            with Sandbox(LocalTransport(isolation="bubblewrap")) as sandbox:
                result = sandbox.exec(["python3", "-c", textwrap.dedent(attack)])
                print("ATTEMPTED", result.exit_code, result.stdout, result.stderr)
        """
        (tmp_path / "program.py").write_text(textwrap.dedent(program))
        import pty

        read: list[bytes] = []
        pid, fd = pty.fork()
        if pid == 0:
            os.execv(sys.executable, [sys.executable, str(tmp_path / "program.py")])
        try:
            while data := os.read(fd, 4096):
                read.append(data)
        except OSError:
            pass  # how the end of a terminal is told
        os.waitpid(pid, 0)
        os.close(fd)
        output = b"".join(read).decode()
        assert "ATTEMPTED 0" in output, output
        assert "typed into" not in output
        assert "INJECTED" not in output


class TestNetwork:
    """The network, with and without."""

    def test_without_it_only_the_sandboxs_own_loopback_is_there(self) -> None:
        """Neither a listener of this machine nor any other address is reached; servers inside can be waited for."""
        connect = "import socket, sys; print(socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))))"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = str(listener.getsockname()[1])
            with Sandbox(LocalTransport(isolation="bubblewrap", network=False)) as sandbox:
                assert sandbox.exec(["python3", "-c", connect, "127.0.0.1", port]).stdout == "111\n"
                assert sandbox.exec(["python3", "-c", connect, "192.0.2.1", "80"]).stdout == "101\n"
                server = sandbox.start_process("exec python3 -m http.server 8000 --bind 127.0.0.1")
                server.wait_for_port(8000, path="/", timeout=30)
                assert sandbox.exec(["python3", "-c", connect, "127.0.0.1", "8000"]).stdout == "0\n"
                with pytest.raises(OSError):
                    socket.create_connection(("127.0.0.1", 8000), timeout=1).close()
            with Sandbox(LocalTransport(isolation="bubblewrap")) as sandbox:
                assert sandbox.exec(["python3", "-c", connect, "127.0.0.1", port]).stdout == "0\n"


class TestExhaustion:
    """What uses up the machine is stopped at the sandbox's limits; the others go on."""

    @pytest.fixture
    def other(self, transport: LocalTransport) -> Iterator[Session]:
        """A session of another sandbox, which must work before and after."""
        session = Sandbox(transport).create_session()
        assert session.exec("echo before", timeout=60).stdout == "before\n"
        yield session
        assert session.exec("echo after", timeout=60).stdout == "after\n"

    def test_a_fork_bomb(self, other: Session) -> None:
        """It runs into the limit on processes, ends at its timeout, and its sandbox can be used again."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(processes=64))) as sandbox:
            with pytest.raises(SandboxError):
                sandbox.exec("bomb() { bomb | bomb & }; bomb; sleep 60", timeout=2)
            assert subprocess.run(["true"], check=True).returncode == 0
            until = time.monotonic() + 20 + SLACK
            while True:
                try:
                    assert sandbox.exec("echo again", timeout=5).stdout == "again\n"
                    break
                except SandboxError:
                    assert time.monotonic() < until
            assert int(sandbox.exec("ls -d /proc/[0-9]* | wc -l").stdout) < 64

    def test_a_limit_on_processes_counts_those_of_the_sandbox_alone(self, other: Session) -> None:
        """64 are 64 here, whatever runs elsewhere; the next is refused."""
        program = """
            import os, time
            made = 0
            try:
                while made < 200:
                    if os.fork() == 0:
                        time.sleep(20)
                        os._exit(0)
                    made += 1
            except BlockingIOError:
                print("refused", 40 < made < 64)
        """
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(processes=64))) as sandbox:
            assert python(sandbox.create_session(), program) == "refused True\n"

    @pytest.mark.parametrize("directory", ["/tmp", "/root", "/workspace", "/", "/dev/shm"])
    def test_a_full_disk(self, other: Session, directory: str) -> None:
        """Files end at the bound; the session goes on, calls say `NoSpaceError`, and what is removed is free again."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(disk=8 * MEBIBYTE))) as sandbox:
            session = sandbox.create_session(cwd=directory)
            result = session.exec("head -c 100M /dev/zero >filler")
            assert result.exit_code == 1
            assert "No space left on device" in result.stderr
            with pytest.raises(NoSpaceError):
                session.write_file("more", bytes(4 * MEBIBYTE))
            assert not session.exists("more")
            assert session.exec("echo still here; rm filler").stdout == "still here\n"
            session.write_file("more", bytes(4 * MEBIBYTE))

    def test_too_many_files(self, other: Session) -> None:
        """Empty files take memory as well: their number is bounded with the disk."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(disk=8 * MEBIBYTE))) as sandbox:
            result = sandbox.exec("touch $(seq 5000)")
            assert "No space left on device" in result.stderr
            assert sandbox.exec("ls | wc -l").stdout.strip() < "2100"

    def test_logs_without_end(self, other: Session) -> None:
        """Logs of background processes are bounded too, and leave commands their room."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(disk=8 * MEBIBYTE))) as sandbox:
            process = sandbox.start_process("yes; echo ended >/workspace/ended; exit 7")
            assert process.wait_for_exit(timeout=60) == 7
            assert sandbox.exec("cat ended", stdin="x" * MEBIBYTE).stdout == "ended\n"

    def test_memory(self, other: Session) -> None:
        """A program that wants more than its share is told so; its session goes on."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(memory=256 * MEBIBYTE))) as sandbox:
            session = sandbox.create_session()
            result = session.exec(["python3", "-c", "x = bytearray(1 << 30)"])
            assert "MemoryError" in result.stderr
            assert session.exec(["python3", "-c", "print(len(bytearray(1 << 26)))"]).stdout == f"{1 << 26}\n"

    @needs_control_groups
    def test_memory_of_the_sandbox_as_a_whole(self, other: Session) -> None:
        """Where control groups are ours, what programs use together is bounded."""
        hog = "import time; x = bytearray(b'1') * (40 << 20); time.sleep(3); print(len(x))"
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(memory=96 * MEBIBYTE))) as sandbox:
            hogs = [sandbox.start_process(["python3", "-c", hog]) for _ in range(4)]
            ends = [process.wait_for_exit(timeout=60) for process in hogs]
            assert 137 in ends
            assert sandbox.exec("echo ok").stdout == "ok\n"

    def test_the_size_of_a_file(self, other: Session) -> None:
        """No file grows beyond the limit."""
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=Limits(file_size=MEBIBYTE))) as sandbox:
            session = sandbox.create_session()
            assert session.exec("head -c 2M /dev/zero >f; stat -c %s f").stdout == f"{MEBIBYTE}\n"
            assert session.exec("head -c 2M /dev/zero | wc -c").stdout == f"{2 * MEBIBYTE}\n"

    def test_open_files_and_processor_time(self, other: Session) -> None:
        """Descriptors and processor time end where they are to."""
        limits = Limits(open_files=64, cpu_seconds=1)
        with Sandbox(LocalTransport(isolation="bubblewrap", limits=limits)) as sandbox:
            session = sandbox.create_session()
            assert session.exec("ulimit -n; ulimit -Hn").stdout == "64\n64\n"
            assert session.exec("ulimit -n 65").exit_code == 1
            result = session.exec(["python3", "-c", "while True: pass"], timeout=60)
            assert result.exit_code in (128 + 24, 128 + 9)

    def test_the_default_limit_on_processes(self, session: Session) -> None:
        """Without a word there are 512 processes at most, and a bounded disk."""
        assert session.exec("ulimit -u").stdout == "512\n"
        assert int(session.exec("df --output=size -B1 / | tail -1").stdout) <= 2 << 30


class TestLife:
    """Nothing outlives a sandbox, however it ends."""

    def test_nothing_is_left_after_destroy(
        self, transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Processes that hide from their session end with the sandbox; no mount, directory or descriptor stays."""
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        mounts, descriptors = _mounts(), len(os.listdir("/proc/self/fd"))
        mark = _mark()
        for _ in range(3):
            sandbox = Sandbox(transport)
            sandbox.exec(f"(trap '' TERM HUP; setsid sleep {mark} & setsid setsid sleep {mark} &) >/dev/null 2>&1")
            sandbox.start_process(f"sleep {mark}")
            sandbox.destroy()
        assert (_marked(mark), _mounts(), list(tmp_path.iterdir())) == (0, mounts, [])
        assert len(os.listdir("/proc/self/fd")) <= descriptors

    @pytest.mark.parametrize("part", range(5))  # for workers side by side
    def test_killed_at_any_moment_it_leaves_nothing(self, tmp_path: Path, part: int) -> None:
        """SIGKILL of the program at random moments: no process, mount or directory stays, forked child or not."""
        program = """
            import os, subprocess, sys, threading
            from sandboxsync import LocalTransport, Sandbox
            if sys.argv[1] == "fork":
                if os.fork() == 0:
                    import time
                    time.sleep(60)
                    os._exit(0)
            sandbox = Sandbox(LocalTransport(isolation="bubblewrap"))
            print("begin", flush=True)
            session = sandbox.create_session()
            sandbox.start_process(f"trap '' TERM; sleep {sys.argv[2]}")
            session.exec(f"setsid sleep {sys.argv[2]} & sleep {sys.argv[2]}")
        """
        (tmp_path / "program.py").write_text(textwrap.dedent(program))
        (tmp_path / "tmp").mkdir()
        mark, mounts = _mark(), _mounts()
        for number in range(20):
            how = "fork" if number % 10 == 9 else "plain"
            victim = subprocess.Popen(
                [sys.executable, str(tmp_path / "program.py"), how, mark],
                stdout=subprocess.PIPE,
                start_new_session=True,
                env={**os.environ, "TMPDIR": str(tmp_path / "tmp")},
            )
            assert victim.stdout is not None
            assert victim.stdout.readline() == b"begin\n"
            time.sleep(random.uniform(0, 0.25))
            victim.kill()
            victim.wait()
            if how == "fork":
                _eventually_none(mark)
                _kill_group(victim.pid)
            victim.stdout.close()
        _eventually_none(mark)
        assert (_mounts(), list((tmp_path / "tmp").iterdir())) == (mounts, [])

    def test_a_killed_container_is_told_and_made_anew(self, transport: LocalTransport) -> None:
        """When the container is gone the call in flight says so, and the next finds a fresh sandbox."""
        sandbox = Sandbox(transport)
        session = sandbox.create_session()
        session.exec("echo x >file")
        (supervisor,) = _children_named("bwrap")
        (first,) = _children_of(supervisor)
        threading.Timer(0.5, lambda: os.kill(first, 9)).start()
        with pytest.raises(SandboxError) as caught:
            session.exec("sleep 60", timeout=30)
        assert caught.value.code == "SANDBOX_RESTARTED"
        assert session.exec("cat file", check=False).exit_code == 1

    def test_a_forked_child_works_in_the_same_container(self, transport: LocalTransport) -> None:
        """The child's shells are new, its workspace is the parent's; with its end, only what it started ends."""
        sandbox = Sandbox(transport)
        session = sandbox.create_session(env={"A": "1"})
        session.exec("echo parent >file; export B=2")
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                result = session.exec("cat file; echo $A ${B-}; echo child >made; sleep 54321 & echo $PPID")
                sandbox.start_process("sleep 54321")
                os.write(write, json.dumps([result.stdout, result.stderr]).encode())
            finally:
                os._exit(0)
        os.close(write)
        with open(read, "rb") as pipe:
            stdout, stderr = json.loads(pipe.read())
        os.waitpid(pid, 0)
        assert (stdout, stderr) == ("parent\n1\n1\n", "")
        assert session.exec("cat made; echo $B").stdout == "child\n2\n"
        until = time.monotonic() + 5 + SLACK
        while "54321" in session.exec("cat /proc/[0-9]*/cmdline | tr '\\0' ' '; true").stdout.replace("cat", ""):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert len(session.exec("ls /run/sandboxsync").stdout.split()) <= 4

    def test_without_descriptors_it_does_not_start_and_leaks_none(self) -> None:
        """At whatever number the descriptors run out, the error is the one for that; with enough it starts."""
        program = """
            import gc, os, resource
            from sandboxsync import LocalTransport, Sandbox, SandboxUnavailableError
            os.set_inheritable(os.dup2(os.open("/dev/null", os.O_RDONLY), 251), True)
            transport = LocalTransport(isolation="bubblewrap")
            before = set(os.listdir("/proc/self/fd"))
            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            ends = []
            for spare in range(0, 48, 3):
                resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + spare, hard))
                sandbox = Sandbox(transport)
                try:
                    ends.append(sandbox.exec("echo ok").stdout)
                except SandboxUnavailableError:
                    ends.append("")
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 1024), hard))
                sandbox.destroy()
            gc.collect()
            assert len(os.listdir("/proc/self/fd")) == len(before), os.listdir("/proc/self/fd")
            assert ends[0] == "" and ends[-1] == "ok\\n" and ends == sorted(ends), ends
        """
        _run(program)


@needs_control_groups
class TestTheGroupGoes:
    """No control group outlives its sandbox, and nothing of what sees to that is left, or in the way, either."""

    PROGRAM = """
        import os, sys
        from sandboxsync import Limits, LocalTransport, Sandbox
        print(os.getpid(), flush=True)
        transport = LocalTransport(isolation="bubblewrap", limits=Limits(memory=200 << 20))
        sandboxes = [Sandbox(transport) for _ in range(2)]
        for sandbox in sandboxes:
            sandbox.start_process(f"trap '' TERM; sleep {sys.argv[1]}")
        print("ready", flush=True)
    """

    @pytest.fixture
    def bounded(self) -> Iterator[LocalTransport]:
        """A transport whose sandboxes are in control groups."""
        with LocalTransport(isolation="bubblewrap", limits=Limits(memory=200 * MEBIBYTE)) as transport:
            yield transport

    def test_with_the_sandbox(self, bounded: LocalTransport) -> None:
        """At the end of `destroy` its group is gone and no child is left; another sandbox keeps its own."""
        children = _children_named("bash")
        one, two = Sandbox(bounded), Sandbox(bounded)
        one.exec("true")
        (first,) = _groups_of(os.getpid())
        two.exec("true")
        (second,) = _groups_of(os.getpid()) - {first}
        assert len(_children_named("bash")) == len(children) + 2
        one.destroy()
        assert _groups_of(os.getpid()) == {second}
        two.destroy()
        assert _groups_of(os.getpid()) == set()
        assert _children_named("bash") == children

    @pytest.mark.parametrize("prefix", [[], ["unshare", "-Ur"]], ids=["administrator", "ordinary user"])
    @pytest.mark.parametrize("moment", ["ready", "while they start"])
    def test_C5_with_a_killed_program(self, tmp_path: Path, prefix: list[str], moment: str) -> None:
        """After SIGKILL, at any moment, no group stays and no process; the others' groups do."""
        (tmp_path / "program.py").write_text(textwrap.dedent(self.PROGRAM))
        for _ in range(2 if moment == "ready" else 10):
            mark = _mark()
            argv = [*prefix, sys.executable, str(tmp_path / "program.py"), mark]
            with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as victim:
                assert victim.stdout is not None
                pid = int(victim.stdout.readline())
                if moment == "ready":
                    assert victim.stdout.readline() == "ready\n"
                    assert len(_groups_of(pid)) == 2
                else:
                    time.sleep(random.uniform(0, 0.4))
                victim.kill()
            _eventually_none(mark)
            _eventually_none(f"/sandboxsync-{pid}-")
            assert _groups_of(pid) == set()

    def test_with_a_container_that_lost_bubblewrap(self, bounded: LocalTransport) -> None:
        """When bubblewrap is killed alone, the sandbox can be used, and its group goes with it."""
        sandbox = Sandbox(bounded)
        sandbox.exec("true")
        (starter,) = _children_named("bash")
        (bubblewrap,) = _children_of(starter)
        os.kill(bubblewrap, 9)
        assert sandbox.exec("echo on").stdout == "on\n"
        assert len(_groups_of(os.getpid())) == 1
        sandbox.destroy()
        assert _groups_of(os.getpid()) == set()

    def test_what_waits_for_the_end_is_small_and_apart(self, bounded: LocalTransport) -> None:
        """It has a session of its own, none of the program's descriptors or directories, and hardly any memory."""
        fd = os.open("/dev/zero", os.O_RDONLY)
        os.dup2(fd, 217, inheritable=True)
        Sandbox(bounded).exec("true")
        os.close(fd)
        os.close(217)
        (starter,) = _children_named("bash")
        assert os.getsid(starter) == starter
        held = {os.readlink(f"/proc/{starter}/fd/{name}") for name in os.listdir(f"/proc/{starter}/fd")}
        assert (held, os.readlink(f"/proc/{starter}/cwd")) == ({"/dev/null"}, "/")
        private = re.search(r"Private_Dirty: *(\d+) kB", Path(f"/proc/{starter}/smaps_rollup").read_text())
        assert private is not None
        assert int(private[1]) < 1024

    def test_a_sandbox_that_gets_no_group_is_not_left_behind(
        self, bounded: LocalTransport, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """When a process cannot be put into a group, that is an error, and what was started for it has ended."""
        place = find_place()
        assert place is not None
        refusing = attrs.evolve(place, limit="memory.no_such_limit")
        monkeypatch.setattr("sandboxsync.transports.local._bubblewrap.find_place", lambda: refusing)
        descriptors = len(os.listdir("/proc/self/fd"))
        with pytest.raises((OSError, SandboxError)):
            Sandbox(bounded).exec("true")
        assert _groups_of(os.getpid()) == set()
        assert _children_named("bash") == []
        assert len(os.listdir("/proc/self/fd")) == descriptors


class TestOrdinaryUser:
    """The way it is for who is not the administrator, shown in a user namespace, where nobody is."""

    def test_everything_works(self, tmp_path: Path) -> None:
        """Commands, files, processes, binds and a workspace, without any powers."""
        program = """
            import os, sys
            from sandboxsync import LocalTransport, Sandbox
            transport = LocalTransport(sys.argv[1], isolation="bubblewrap", binds=[(sys.argv[1], "/again")])
            with transport, Sandbox(transport) as sandbox, sandbox.session() as session:
                session.write_file("/workspace/file", "from outside")
                print(session.exec("id -u; cat file /again/file; echo inside >made; ulimit -u").stdout)
                print(session.read_text("made"), session.read_text("/etc/hostname"))
                session.write_file("/root/x", "y")
                process = sandbox.start_process("cat /root/x; exit 3")
                print(process.wait_for_exit(timeout=30), process.logs().stdout)
                print(session.exec("grep -c CapEff:.0000000000000000 /proc/self/status").stdout)
        """
        (tmp_path / "workspace").mkdir()
        output = _run(program, str(tmp_path / "workspace"), prefix=["unshare", "-Ur"])
        assert output.split() == ["0", "from", "outsidefrom", "outside512", "inside", "sandbox", "3", "y", "1"]

    def test_where_user_namespaces_are_forbidden_it_says_so(self) -> None:
        """Asked for and not to be had is an error with the reason and the way out, never less isolation."""
        program = """
            from sandboxsync import LocalTransport
            from sandboxsync.errors import ConfigurationError
            try:
                LocalTransport(isolation="bubblewrap")
            except ConfigurationError as exc:
                print(exc)
        """
        forbid = 'echo 0 >/proc/sys/user/max_user_namespaces; exec "$@"'
        output = _run(program, prefix=["unshare", "-Ur", "bash", "-c", forbid, "bash"])
        assert "bubblewrap cannot make a sandbox here" in output
        assert "sysctl user.max_user_namespaces" in output


class TestBadInput:
    """What makes no sense is refused when the transport is made."""

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"isolation": "docker"}, "no isolation 'docker'"),
            ({"isolation": ""}, "no isolation ''"),
            ({"isolation": "none", "network": False}, "network=False needs isolation"),
            ({"binds": [("/usr", "/u")]}, "binds needs isolation"),
            ({"limits": Limits()}, "limits needs isolation"),
            ({"isolation": "bubblewrap", "network": 1}, "network takes True or False"),
            ({"isolation": "bubblewrap", "binds": [("/no/such/place", "/x")]}, "not there: '/no/such/place'"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/workspace")]}, "would cover /workspace"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/")]}, "would cover"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "//workspace/.")]}, "would cover /workspace"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/proc/x")]}, "would cover /proc"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/run")]}, "would cover /run/sandboxsync"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "relative")]}, "absolute path"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/x/../workspace")]}, "absolute path"),
            ({"isolation": "bubblewrap", "binds": [("/usr", "/x", True, 1)]}, "pair of paths"),
            ({"isolation": "bubblewrap", "binds": ["/usr"]}, "pair of paths"),
            ({"isolation": "bubblewrap", "binds": 7}, "binds takes a sequence"),
            ({"isolation": "bubblewrap", "limits": {"memory": 1}}, "limits takes a Limits"),
            ({"isolation": "bubblewrap", "limits": Limits(memory=0)}, "memory=…) takes a whole number above zero"),
            ({"isolation": "bubblewrap", "limits": Limits(processes=-1)}, "processes=…) takes a whole number"),
            ({"isolation": "bubblewrap", "limits": Limits(cpu_seconds=True)}, "cpu_seconds=…) takes a whole number"),
            ({"isolation": "bubblewrap", "limits": Limits(open_files=5)}, "at least 32"),
            ({"isolation": "bubblewrap", "limits": Limits(open_files=1 << 40)}, "more than this process may grant"),
        ],
    )
    def test_refused(self, options: dict[str, Any], says: str) -> None:
        """A `ConfigurationError` that names what is wrong; nothing is started."""
        with pytest.raises(ConfigurationError) as caught:
            LocalTransport(**options)
        assert says in str(caught.value)

    def test_without_bubblewrap_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A missing program is named with its package, and nothing runs without isolation instead."""
        (tmp_path / "bash").symlink_to(shutil.which("bash") or "")
        monkeypatch.setenv("PATH", str(tmp_path))
        with pytest.raises(ConfigurationError, match="install the package bubblewrap"):
            LocalTransport(isolation="bubblewrap")

    def test_a_bash_that_is_not_there_inside(self, tmp_path: Path) -> None:
        """One that lies where the sandbox does not see it is refused with the reason."""
        bash = shutil.copy(shutil.which("bash") or "", tmp_path / "bash")
        with pytest.raises(ConfigurationError, match="bubblewrap cannot make a sandbox here"):
            LocalTransport(isolation="bubblewrap", bash=str(bash))

    def test_by_url(self) -> None:
        """`connect` takes it as an option of the URL, and an unknown one is refused."""
        with sandboxsync.connect("local:?isolation=bubblewrap") as sandbox:
            assert sandbox.workspace == "/workspace"
            assert sandbox.exec("pwd").stdout == "/workspace\n"
        with pytest.raises(ConfigurationError, match="no isolation 'jail'"):
            sandboxsync.connect("local:?isolation=jail")


class TestControlGroups:
    """Where a group that bounds memory may be made, told by trees of files like the system's."""

    def tree(self, directory: Path, version: int, own: str, on: str = "cpu memory pids") -> str:
        """Files of `/proc` for a process in the group *own* of a tree of a version; returns their directory."""
        mounted = directory / "mounted"
        (mounted / own.lstrip("/")).mkdir(parents=True)
        for group in (mounted, *(path for path in mounted.rglob("*") if path.is_dir())):
            (group / "cgroup.procs").write_text("")
            if version == 2:
                (group / "cgroup.subtree_control").write_text(f"{on}\n")
        kind = "cgroup2 cgroup2 rw" if version == 2 else "cgroup cgroup rw,memory"
        (directory / "mountinfo").write_text(
            f"22 1 0:20 / /proc rw - proc proc rw\n30 22 0:26 / {mounted} rw,nosuid shared:4 - {kind}\n"
        )
        (directory / "cgroup").write_text(f"0::{own}\n" if version == 2 else f"4:memory:{own}\n0::/\n")
        return str(directory)

    def test_the_second_version(self, tmp_path: Path) -> None:
        """Beside the group of this process, if its parent is ours and has the memory controller on."""
        place = find_place(self.tree(tmp_path, 2, "/user.slice/app.scope/worker"))
        assert place is not None
        assert place.directory == str(tmp_path / "mounted/user.slice/app.scope")
        assert place.limit == "memory.max"

    def test_the_first_version(self, tmp_path: Path) -> None:
        """Below the group of this process."""
        place = find_place(self.tree(tmp_path, 1, "/a/b"))
        assert place is not None
        assert place.directory == str(tmp_path / "mounted/a/b")
        assert place.limit == "memory.limit_in_bytes"

    def test_what_is_not_delegated(self, tmp_path: Path) -> None:
        """Without the controller there is no place, and none where nothing is mounted."""
        assert find_place(self.tree(tmp_path / "one", 2, "/a/b", on="cpu pids")) is None
        (tmp_path / "two").mkdir()
        (tmp_path / "two/mountinfo").write_text("22 1 0:20 / /proc rw - proc proc rw\n")
        (tmp_path / "two/cgroup").write_text("0::/\n")
        assert find_place(str(tmp_path / "two")) is None

    def test_a_group_is_removed_with_what_it_is_for(self, tmp_path: Path) -> None:
        """The program that is started for a group is given its arguments, and the group has gone when it has."""
        place = find_place(self.tree(tmp_path, 2, "/a/b"))
        assert place is not None
        group = MemoryGroup(place, 1000)
        with pytest.raises(FileNotFoundError):
            group.make(os.getpid())  # this is no control group, whose files are there at once
        (made,) = Path(place.directory).glob(f"sandboxsync-{os.getpid()}-*")
        argv = group.removed_after(["sh", "-c", 'ls -d "$@"', "sh", str(made), "/"], shutil.which("bash") or "")
        assert subprocess.run(argv, capture_output=True, text=True, timeout=60).stdout == f"/\n{made}\n"
        assert not made.exists()


def _run(program: str, *arguments: str, prefix: list[str] | None = None) -> str:
    argv = [*(prefix or []), sys.executable, "-c", textwrap.dedent(program), *arguments]
    result = subprocess.run(argv, capture_output=True, text=True, timeout=120, pass_fds=())
    assert result.returncode == 0, result.stderr
    return result.stdout


def _mark() -> str:
    """A number of seconds to sleep that tells the processes of one test."""
    return str(random.randrange(10**8, 10**9))


def _marked(mark: str) -> int:
    """How many processes of this machine have the mark among their arguments, but for the program of the test."""
    count = 0
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                command = Path(f"/proc/{name}/cmdline").read_bytes()
            except OSError:
                continue
            count += mark.encode() in command and b"program.py" not in command
    return count


def _groups_of(pid: int) -> set[str]:
    """The names of the control groups that a program has made."""
    place = find_place()
    assert place is not None
    return {name for name in os.listdir(place.directory) if name.startswith(f"sandboxsync-{pid}-")}


def _mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def _eventually_none(mark: str) -> None:
    until = time.monotonic() + 2 + SLACK
    while left := _marked(mark):
        assert time.monotonic() < until, left
        time.sleep(0.02)


def _kill_group(leader: int) -> None:
    """End the forked child of a killed program, which is in a session of its own."""
    try:
        os.killpg(leader, 9)
    except ProcessLookupError:
        return


def _children_of(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _children_named(name: str) -> list[int]:
    found = [
        int(child) for task in Path("/proc/self/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [pid for pid in found if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def test_each_line_of_the_documented_table_has_its_test() -> None:
    """The tests that `docs/isolation.md` names for what isolation protects from are here."""
    page = (Path(__file__).parent.parent / "docs" / "isolation.md").read_text(encoding="utf-8")
    section = page.partition("## What each protects from")[2].partition("##")[0]
    table = [line for line in section.splitlines() if line.startswith("| ")][2:]
    here = set(re.findall(r"def (test_\w+)", Path(__file__).read_text(encoding="utf-8")))
    assert len(table) > 15
    for row in table:
        tests = re.findall(r"`(test_\w+)`", row)
        assert tests, row
        assert set(tests) <= here, row
