"""The one process that watches over a local sandbox: a program that imports nothing of the package, hence one file.

It is the parent of every shell and background process of the sandbox and the reaper of what they leave behind
(`PR_SET_CHILD_SUBREAPER`), so it sees each death at once and can end any tree. It watches the process that started it
through a pidfd: when that is gone, however it went and whatever forked child of it still holds our socket, everything
here is killed and the sandbox's directory removed.

Requests are JSON datagrams on a `SOCK_SEQPACKET` socket; with `"reply": true` the first descriptor that comes along is
a socket for the answer, so that any number of threads may ask at once. A datagram `@` means that the JSON lies in the
file whose descriptor comes last. A forked child of the process that started it may attach itself with a socket of its
own; what it started ends with it.

Processes are told apart by a tag: the soft limit on file locks (see `before.bash`). A tag is a number with the client
in its highest bits, then the owner, then the job (`_tags.py`); a session or a background process is one owner, each
command of a session a job.
"""

from __future__ import annotations

import array
import ctypes
import itertools
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterable

CHANNEL, PARENT = 3, 4
PR_SET_CHILD_SUBREAPER = 36
RLIMIT_LOCKS = 10
FALLOC_PUNCH_HOLE = 0x02 | 0x01
"""The flags for a hole that keeps the size of the file."""
GRACE = 2.0
oom_score: int | None = None
"""How soon programs are ended when memory runs out, if not as soon as this process."""
limits: list[tuple[int, int, int]] = []
"""What programs get: the kind of a limit, the soft and the hard one."""
UNKILLABLE = 5.0
"""Seconds after SIGKILL after which a process that is still there (in a system call that cannot end) is given up."""
CLIENT_SHIFT, MOST_CLIENTS = 53, 1 << 10
"""Where a tag has the number of its client, and how many there may be: as in `_tags.py`."""


def children_of(pid: int) -> list[int]:
    """The children of all threads of a process, without the dead."""
    found: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found.extend(map(int, file.read().split()))
    except (FileNotFoundError, ProcessLookupError):
        # Ended while being looked at: its children are the supervisor's by now, and seen on the next look.
        return found
    return found


def trees(roots: Iterable[int]) -> dict[int, int | None]:
    """The given processes and all below them, each with its parent (`None` for the given ones)."""
    ahead: list[tuple[int, int | None]] = [(root, None) for root in roots]
    found: dict[int, int | None] = {}
    while ahead:
        pid, parent = ahead.pop()
        found[pid] = parent
        ahead.extend((child, pid) for child in children_of(pid))
    return found


def tag_of(pid: int) -> int | None:
    """The tag of a process; `None` when it has ended or is a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            if file.read().rpartition(b") ")[2][:1] in (b"Z", b"X"):
                return None
        with open(f"/proc/{pid}/limits", "rb") as file:
            for line in file:
                if line.startswith(b"Max file locks"):
                    soft = line.split()[3]
                    return int(soft) if soft.isdigit() else 0
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process of the sandbox that may just have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
    except PermissionError:
        # A program that changed its user: it is not ours to signal, and waiting for it is bounded.
        return


class Child:
    """A process started here, kept until it has ended and the client has no more questions about it."""

    def __init__(self, key: int, pid: int, tag: int, held: list[int]) -> None:
        self.key = key
        self.held = held
        self.pid = pid
        self.tag = tag
        self.exit_code: int | None = None
        self.died_of: int | None = None
        self.ended_at: float | None = None
        self.reason: str | None = None
        self.signal: int | None = None
        self.ending: Ending | None = None
        self.waiting: list[socket.socket] = []
        self.forgotten = False

    def verdict(self) -> dict[str, object]:
        return {
            "exit_code": self.exit_code,
            "died_of": self.died_of,
            "ended_at": self.ended_at,
            "reason": self.reason,
            "signal": self.signal,
        }


class Ending:
    """The end of all processes with a tag in a range: a signal, SIGKILL after the grace, answers when all are gone."""

    def __init__(
        self,
        low: int,
        high: int,
        number: int,
        replies: list[socket.socket],
        children: list[Child],
        client: int | None,
    ) -> None:
        self.low, self.high, self.number = low, high, number
        self.client = client
        self.replies = replies
        self.children = children
        self.signalled: set[int] = set()
        self.kill_at = time.monotonic() + (0 if number == signal.SIGKILL else GRACE)
        self.pause = 0.002
        self.next_step = 0.0

    def step(self, orphans: Iterable[int]) -> bool:
        """Signal who is left; `True` when nobody is. `orphans` lost their parents, so they may belong anywhere."""
        now = time.monotonic()
        self.next_step = now + self.pause
        self.pause = min(self.pause * 1.5, 0.05)
        alive = [child.pid for child in self.children if child.exit_code is None]
        left = {
            pid: parent
            for pid, parent in trees([*alive, *orphans]).items()
            if (tag := tag_of(pid)) is not None and (self.low <= tag <= self.high)
        }
        warned = self.signalled.copy()
        for pid, parent in left.items():
            if now >= self.kill_at:
                send_signal(pid, signal.SIGKILL)
            elif pid not in self.signalled:
                self.signalled.add(pid)
                # What a process starts that has got the signal already belongs to how it cleans up.
                if parent not in warned:
                    send_signal(pid, self.number)
                    send_signal(pid, signal.SIGCONT)
        return not (left or alive) or now > self.kill_at + UNKILLABLE


class Deadline:
    """When a job is to be ended. `reports` is the reading end of a session's reports, or `None`."""

    def __init__(self, when: float, pid: int, at_once: bool, reports: int | None) -> None:
        self.when, self.pid, self.at_once, self.reports = when, pid, at_once, reports

    def has_status(self) -> bool:
        """Whether the end of the command has been reported already, and only not been read."""
        if self.reports is None:
            return False
        unread = select.poll()
        unread.register(self.reports, select.POLLIN)
        return any(event & select.POLLIN for _, event in unread.poll(0))

    def close(self) -> None:
        if self.reports is not None:
            os.close(self.reports)


class Client:
    """Who asks: the process that started this one (number 0), or a forked child of it."""

    def __init__(self, number: int, serial: int, channel: int, process: int) -> None:
        self.number = number
        self.serial = serial
        self.channel = socket.socket(fileno=channel)
        self.process = process

    def tags(self) -> tuple[int, int]:
        """The lowest and the highest tag of what it started."""
        low = self.number << CLIENT_SHIFT
        return low, low + (1 << CLIENT_SHIFT) - 1

    def close(self) -> None:
        self.channel.close()
        os.close(self.process)


class Supervisor:
    """The loop and what it keeps."""

    def __init__(self, root: str | None = None, given: Iterable[int] = (), shared: Iterable[int] = ()) -> None:
        """`root` is removed at the end. `given` are descriptors for the client; `shared` are those of directories that
        clients work in, each with names of its own (`sN.…`, with its serial number), which go when it has gone.
        """
        self.root = root
        self.given = list(given)
        self.shared = list(shared)
        self.clients = {0: Client(0, 0, CHANNEL, PARENT)}
        self.serials = itertools.count(1)
        self.keys = itertools.count(1)
        self.children: dict[int, Child] = {}
        """By a key of ours: a pid may come again while there are still questions about its first bearer."""
        self.alive: dict[int, Child] = {}
        """Those that were not reaped, by pid."""
        self.deadlines: dict[int, Deadline] = {}
        self.endings: list[Ending] = []
        self.poll = select.poll()
        self.handlers: dict[int, Callable[[], None]] = {}
        self.running = True
        self.cleaned = False

    # The loop

    def run(self) -> None:
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.watch(wake_read, lambda: self.reap(wake_read))
        self.watch_client(self.clients[0])
        while self.running:
            for fd, _ in self.poll.poll(self.next_timer()):
                handler = self.handlers.get(fd)
                if handler is not None:
                    handler()
            now = time.monotonic()
            for tag in [tag for tag, deadline in self.deadlines.items() if deadline.when <= now]:
                self.expire(tag)
            self.advance([ending for ending in self.endings if ending.next_step <= now])

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        self.handlers[fd] = handler
        self.poll.register(fd, select.POLLIN)

    def unwatch(self, fd: int) -> None:
        del self.handlers[fd]
        self.poll.unregister(fd)

    def watch_client(self, client: Client) -> None:
        self.watch(client.channel.fileno(), lambda: self.receive(client))
        self.watch(client.process, lambda: self.lose(client))

    def lose(self, client: Client) -> None:
        """A client has ended, or wants nothing more: so does all that it started."""
        if client.number == 0:
            self.stop()
            return
        self.unwatch(client.channel.fileno())
        self.unwatch(client.process)
        client.close()
        low, high = client.tags()
        for child in list(self.children.values()):
            if low <= child.tag <= high:
                child.forgotten = True
                self.tell(child)
        self.begin_ending(low, high, "destroyed", signal.SIGKILL, [], [], client.number)

    def next_timer(self) -> float | None:
        times = [deadline.when for deadline in self.deadlines.values()]
        times += [ending.next_step for ending in self.endings]
        return max(0.0, (min(times) - time.monotonic()) * 1000 + 0.5) if times else None

    def stop(self) -> None:
        self.running = False

    # Requests

    def receive(self, client: Client) -> None:
        data, ancillary, flags, _ = client.channel.recvmsg(65536, socket.CMSG_SPACE(16 * 4), socket.MSG_CMSG_CLOEXEC)
        fds = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                fds.frombytes(payload[: len(payload) - len(payload) % fds.itemsize])
        if not data:
            self.lose(client)
            return
        held = list(fds)
        if flags & socket.MSG_CTRUNC:
            # No descriptors left to receive with: the asker sees the end of its answer, and that this still runs.
            for fd in held:
                os.close(fd)
            return
        if data == b"@":
            with open(held.pop(), "rb") as file:
                file.seek(0)
                data = file.read()
        message = json.loads(data)
        reply = socket.socket(fileno=held.pop(0)) if message.pop("reply", False) else None
        getattr(self, "do_" + message.pop("do"))(reply, held, **message)

    def do_spawn(
        self,
        reply: socket.socket,
        fds: list[int],
        program: str,
        argv: list[str],
        env: dict[str, str],
        cwd: str,
        tag: int,
        script: str | None,
        fifos: list[str],
        timeout: float | None = None,
    ) -> None:
        """Start a program; answers its key, its pid and a pidfd.

        The descriptors are its standard ones, missing ones null; or `script` is a file for its standard input. `fifos`
        are held open until it is forgotten, so that what it said last can be read after its end.
        """
        answer: dict[str, object]
        opened: list[int] = []
        held: list[int] = []
        pidfd: list[int] = []
        pid = None
        try:
            held += [os.open(fifo, os.O_RDWR | os.O_CLOEXEC) for fifo in fifos]
            opened += [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in [script] if path is not None]
            directory = os.open(os.fsencode(cwd), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.append(directory)
            pid = fork_program(program, argv, env, directory, fds or opened[:-1], tag)
            pidfd.append(os.pidfd_open(pid))
            child = Child(next(self.keys), pid, tag, held)
            self.children[child.key] = self.alive[pid] = child
            held = []
            if timeout is not None:
                self.do_arm(None, [], pid, tag, timeout, at_once=False)
            answer = {"key": child.key, "pid": pid}
        except OSError as exc:
            if pid is not None:
                send_signal(pid, signal.SIGKILL)
            answer = {"errno": exc.errno}
        for fd in (*fds, *opened, *held):
            os.close(fd)
        with reply:
            send(reply, answer, pidfd)
        for fd in pidfd:
            os.close(fd)

    def do_arm(self, reply: None, fds: list[int], pid: int, tag: int, seconds: float, at_once: bool) -> None:
        """End a job by timeout unless it is disarmed by then. `at_once`: SIGKILL for `pid`, the shell that runs it."""
        self.deadlines[tag] = Deadline(time.monotonic() + seconds, pid, at_once, fds[0] if fds else None)

    def do_disarm(self, reply: None, fds: list[int], tag: int) -> None:
        deadline = self.deadlines.pop(tag, None)
        if deadline is not None:
            deadline.close()

    def do_end(
        self,
        reply: socket.socket | None,
        fds: list[int],
        low: int,
        high: int,
        reason: str,
        number: int,
        at_once: int | None = None,
    ) -> None:
        """End all processes with a tag from `low` to `high`; answers when they are gone.

        `at_once` gets SIGKILL whatever the signal. With a descriptor, the reading end of a session's
        reports, nothing is done when one lies in it: the command has ended by itself.
        """
        deadline = Deadline(0, 0, False, fds[0] if fds else None)
        ended = deadline.has_status()
        deadline.close()
        if not ended:
            self.begin_ending(
                low, high, reason, number, [] if reply is None else [reply], [] if at_once is None else [at_once]
            )
        elif reply is not None:
            with reply:
                send(reply, {"ended": True})

    def do_signal(self, reply: socket.socket, fds: list[int], key: int, number: int) -> None:
        """Send a signal to a process that was started here and not yet reaped; answers at once."""
        child = self.children.get(key)
        if child is not None and child.exit_code is None:
            send_signal(child.pid, number)
        with reply:
            send(reply, {})

    def do_wait(self, reply: socket.socket, fds: list[int], key: int) -> None:
        """Answers how a process ended, once it has, and once its ending is over."""
        child = self.children.get(key)
        if child is None:
            with reply:
                send(reply, {"missing": True})
            return
        child.waiting.append(reply)
        self.tell(child)

    def do_look(self, reply: socket.socket, fds: list[int], keys: list[int]) -> None:
        """Answers at once how the processes of a list are."""
        found = {key: child.verdict() for key in keys if (child := self.children.get(key)) is not None}
        with reply:
            send(reply, {"found": found})

    def do_forget(self, reply: None, fds: list[int], key: int) -> None:
        child = self.children.get(key)
        if child is not None:
            child.forgotten = True
            self.tell(child)

    def do_drain(self, reply: None, fds: list[int]) -> None:
        """Read pipes to nowhere until their writers are gone, so that a background job never blocks on them (E4)."""
        for fd in fds:
            self.watch(fd, lambda fd=fd: self.drain(fd))  # type: ignore[misc]

    def do_trim(self, reply: None, fds: list[int], length: int) -> None:
        """Give back the disk space of a file's beginning, its size staying the same; where that cannot be, nothing."""
        ctypes.CDLL(None).fallocate(fds[0], FALLOC_PUNCH_HOLE, ctypes.c_int64(0), ctypes.c_int64(length))
        os.close(fds[0])

    def do_socket(self, reply: socket.socket, fds: list[int], family: int) -> None:
        """Answers a stream socket of the network that programs have here."""
        made: list[int] = []
        try:
            made.append(socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC).detach())
            answer: dict[str, object] = {}
        except OSError as exc:
            answer = {"errno": exc.errno}
        with reply:
            send(reply, answer, made)
        for fd in made:
            os.close(fd)

    def do_hello(self, reply: socket.socket, fds: list[int]) -> None:
        """Answers the descriptors that the client is given."""
        with reply:
            send(reply, {}, self.given)
        for fd in self.given:
            os.close(fd)
        self.given = []

    def do_attach(self, reply: socket.socket, fds: list[int]) -> None:
        """Take on a client, by its channel and a pidfd of it; answers its numbers, or none when there are too many."""
        channel, process = fds
        free = next((number for number in range(MOST_CLIENTS) if number not in self.clients), None)
        if free is None:
            os.close(channel)
            os.close(process)
        else:
            client = self.clients[free] = Client(free, next(self.serials), channel, process)
            self.watch_client(client)
        with reply:
            send(reply, {"client": free, "serial": None if free is None else client.serial})

    def do_ping(self, reply: socket.socket, fds: list[int]) -> None:
        with reply:
            send(reply, {"pid": os.getpid()})

    # What happens by itself

    def drain(self, fd: int) -> None:
        try:
            if os.read(fd, 1 << 20):
                return
        except BlockingIOError:
            return
        self.unwatch(fd)
        os.close(fd)

    def expire(self, tag: int) -> None:
        deadline = self.deadlines.get(tag)
        if deadline is None:
            return
        if not deadline.has_status():
            # The client takes the deadline back before it reads the status: a status read before the look above has
            # left its `disarm` in the channel.
            self.hear_out(tag >> CLIENT_SHIFT)
            if tag not in self.deadlines:
                return
            at_once = [deadline.pid] if deadline.at_once else []
            self.begin_ending(tag, tag, "timeout", signal.SIGTERM, [], at_once)
        self.do_disarm(None, [], tag)

    def hear_out(self, number: int) -> None:
        """Take all that a client has asked for by now."""
        while self.running:
            client = self.clients.get(number)
            if client is None or client.channel.fileno() not in self.handlers:
                return
            pending = select.poll()
            pending.register(client.channel, select.POLLIN)
            if not pending.poll(0):
                return
            self.receive(client)

    def reap(self, wake_read: int) -> None:
        os.read(wake_read, 4096)
        touched: list[Ending] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            child = self.alive.pop(pid, None)
            if child is None:
                touched = list(self.endings)
                continue
            code = os.waitstatus_to_exitcode(status)
            child.exit_code = code if code >= 0 else 128 - code
            child.died_of = -code if code < 0 else None
            child.ended_at = time.time()
            self.do_disarm(None, [], child.tag)
            self.tell(child)
            if child.ending is not None and child.ending not in touched:
                touched.append(child.ending)
        self.advance(touched)

    def tell(self, child: Child) -> None:
        if child.exit_code is not None and child.ending is None:
            for reply in child.waiting:
                with reply:
                    send(reply, child.verdict())
            child.waiting.clear()
            if child.forgotten:
                self.children.pop(child.key, None)
                for fd in child.held:
                    os.close(fd)

    def begin_ending(
        self,
        low: int,
        high: int,
        reason: str,
        number: int,
        replies: list[socket.socket],
        at_once: list[int],
        client: int | None = None,
    ) -> None:
        """See `do_end`. The number of `client`, if one is given, is free for another when all are gone."""
        children = []
        for child in self.alive.values():
            if low <= child.tag <= high or child.pid in at_once:
                child.reason = child.reason or reason
                child.signal = child.signal or number
                children.append(child)
        ending = Ending(low, high, number, replies, children, client)
        for child in children:
            child.ending = ending
            if child.pid in at_once:
                send_signal(child.pid, signal.SIGKILL)
        self.endings.append(ending)
        self.advance([ending])

    def advance(self, endings: list[Ending]) -> None:
        if not endings:
            return
        orphans = [pid for pid in children_of(os.getpid()) if pid not in self.alive]
        for ending in endings:
            if not ending.step(orphans):
                continue
            self.endings.remove(ending)
            if ending.client is not None:
                self.forget(self.clients.pop(ending.client))
            for child in ending.children:
                if child.ending is ending:
                    child.ending = None
                    self.tell(child)
            for reply in ending.replies:
                with reply:
                    send(reply, {})

    def forget(self, client: Client) -> None:
        """Remove what a client that has gone left in the shared directories."""
        for fd in self.shared:
            for name in os.listdir(fd):
                if name.startswith(f"s{client.serial}."):
                    place = os.open(name, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
                    for file in os.listdir(place):
                        os.unlink(file, dir_fd=place)
                    os.close(place)
                    os.rmdir(name, dir_fd=fd)

    def clean_up(self) -> None:
        """Kill all, wait until all are gone, remove the directory. Does so once."""
        if self.cleaned:
            return
        self.cleaned = True
        give_up = time.monotonic() + UNKILLABLE
        while time.monotonic() < give_up:
            left = trees(children_of(os.getpid()))
            for pid in left:
                send_signal(pid, signal.SIGKILL)
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                break  # no child is left, and so nobody below one
            time.sleep(0.001)
        if self.root is not None:
            remove_tree(self.root)


def fork_program(program: str, argv: list[str], env: dict[str, str], directory: int, fds: list[int], tag: int) -> int:
    """Start a program in a session of its own, with default signals; returns its pid."""
    environment = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    arguments = [os.fsencode(argument) for argument in argv]
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setsid()
        os.fchdir(directory)
        if oom_score is not None:
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write(str(oom_score))
        for kind, soft, hard in limits:
            resource.setrlimit(kind, (soft, hard))
        resource.setrlimit(RLIMIT_LOCKS, (tag, resource.getrlimit(RLIMIT_LOCKS)[1]))
        null = os.open("/dev/null", os.O_RDWR)
        for number in range(3):
            os.dup2(fds[number] if number < len(fds) else null, number)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) is not signal.SIG_DFL:
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.execve(os.fsencode(program), arguments, environment)
    except BaseException as exc:
        os.write(2, f"{program}: {exc}\n".encode(errors="replace"))
    os._exit(126 if isinstance(sys.exc_info()[1], PermissionError) else 127)


def send(reply: socket.socket, answer: dict[str, object], fds: list[int] | None = None) -> None:
    try:
        socket.send_fds(reply, [json.dumps(answer).encode()], fds or [])
    except OSError:
        return  # the asker does not want to know any more (its thread was interrupted)


def remove_tree(root: str) -> None:
    """Remove a directory, also where its user took permissions away."""
    import shutil
    import traceback

    def grant(function: Callable[[str], object], path: str, error: object) -> None:
        parent = os.path.dirname(path)
        for place in (parent, path):
            if not os.path.islink(place):
                try:
                    os.chmod(place, 0o700)
                except OSError:
                    continue
        try:
            shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
        except OSError:
            traceback.print_exc()

    if sys.version_info >= (3, 12):
        shutil.rmtree(root, onexc=grant)
    else:
        shutil.rmtree(root, onerror=grant)


def prepare() -> None:
    """Keep of what was inherited only what is needed, and become the one whom orphans are given to."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for fd in map(int, os.listdir("/proc/self/fd")):
        if fd > PARENT:
            os.closerange(fd, fd + 1)  # which does not mind that of the directory, closed by now
    for fd in (CHANNEL, PARENT):
        os.set_inheritable(fd, False)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Programs get the limit that this process was started with; it needs more for itself.
    limits.append((resource.RLIMIT_NOFILE, soft, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def serve(supervisor: Supervisor) -> None:
    """Work until the client wants no more or has ended."""
    try:
        supervisor.run()
    finally:
        supervisor.clean_up()


def main() -> None:
    root, *directories = sys.argv[1:]
    prepare()
    os.mkdir(root, 0o700)
    for directory in directories:
        os.mkdir(os.path.join(root, directory), 0o700)
    serve(Supervisor(root))


if __name__ == "__main__":
    main()
