"""Waiting for a line of a process's output, or for a port of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from ._deadline import Deadline
from ._decode import make_decoder
from ._process import RUNNING
from ._validate import check_int, check_str
from .errors import InvalidRequestError, ProcessExitedBeforeReadyError, ProcessReadyTimeoutError
from .models import LogMatch, ProcessLogs
from .transports.base import Exited, LogStream

if TYPE_CHECKING:
    from ._client import Client
    from ._clock import Clock
    from .transports.base import ProcessInfo

Matcher: TypeAlias = Callable[[str], "LogMatch | None"]
Probe: TypeAlias = "Callable[[Client, float], bool]"

# A line without its end is looked at when nothing has followed for this long (s): output comes in pieces.
QUIET = 0.02
# What was printed before the time had passed is still looked at for this long (s).
GRACE = 0.5
LONGEST_LINE = 1 << 20
TAIL = 1 << 16
# An HTTP server may need long for its first answer, yet the end of the process must be seen (s).
LONGEST_PROBE = 10.0


def matcher(pattern: object) -> Matcher:
    """Check what is searched for, and return the search of one line."""
    if isinstance(pattern, re.Pattern) and isinstance(pattern.pattern, str):
        search = pattern.search

        def by_pattern(line: str) -> LogMatch | None:
            match = search(line)
            return None if match is None else LogMatch(line, match)

        return by_pattern
    if isinstance(pattern, re.Pattern):
        raise InvalidRequestError("pattern is one for bytes; logs are text")
    literal = check_str(pattern, "pattern")
    if "\n" in literal:
        raise InvalidRequestError("pattern holds a line end; it is searched line by line")
    return lambda line: LogMatch(line) if literal in line else None


class LineSearch:
    """Finds the first matching line of one output, fed in any pieces. No I/O."""

    def __init__(self, matches: Matcher) -> None:
        self._matches = matches
        self._decoder = make_decoder("utf-8", "replace")
        self._pieces: list[str] = []
        self._length = 0
        self._tail = bytearray()

    def feed(self, data: bytes) -> LogMatch | None:
        """Look at the lines that ``data`` completes."""
        self._keep(data)
        head, end, rest = self._decoder.decode(data).rpartition("\n")
        if end:
            lines = ("".join(self._pieces) + head).split("\n")
            self._pieces, self._length = [], 0
            for line in lines:
                if match := self._matches(line.removesuffix("\r")):
                    return match
        if rest:
            self._pieces.append(rest)
            self._length += len(rest)
        return self.look() if self._length > LONGEST_LINE else None

    def look(self, final: bool = False) -> LogMatch | None:
        """Look at the line whose end has not come; of one that is too long only the end is kept."""
        if final:
            self._pieces.append(self._decoder.decode(b"", True))
        line = "".join(self._pieces)
        if not line:
            return None
        kept = line if len(line) <= LONGEST_LINE else line[-TAIL:]
        self._pieces, self._length = [kept], len(kept)
        return self._matches(line.removesuffix("\r"))

    def _keep(self, data: bytes) -> None:
        self._tail += data[-TAIL:]
        if len(self._tail) > 2 * TAIL:
            del self._tail[:-TAIL]

    @property
    def tail(self) -> str:
        """The end of what was fed."""
        return self._tail[-TAIL:].decode("utf-8", "replace")


class LogSearch:
    """Both outputs of a process."""

    def __init__(self, process_id: str, matches: Matcher, clock: Clock) -> None:
        self._process_id = process_id
        self._clock = clock
        self._by_name = {"stdout": LineSearch(matches), "stderr": LineSearch(matches)}

    def run(self, stream: LogStream, deadline: Deadline) -> LogMatch | Exited | None:
        """Read until a line matches, the process has ended, or the time has passed (``None``)."""
        left = deadline.left()
        # Who prints faster than we read would have us read for ever.
        end = Deadline(None if left is None else left + GRACE, self._clock)
        unseen = False
        while True:
            # Reads with no time left take what is there already: one look at all of it.
            item = stream.read(deadline.within(QUIET) if unseen else deadline.left())
            if item is None or isinstance(item, Exited):
                final = isinstance(item, Exited)
                for search in self._by_name.values():
                    if match := search.look(final):
                        return match
                if final or deadline.passed:
                    return item
                unseen = False
                continue
            if match := self._by_name[item.stream].feed(item.data):
                return match
            if end.passed:
                return None
            unseen = True

    def logs(self) -> ProcessLogs:
        """The end of both outputs."""
        return ProcessLogs(self._by_name["stdout"].tail, self._by_name["stderr"].tail, self._process_id)


def for_log(client: Client, process_id: str, matches: Matcher, timeout: float | None) -> LogMatch:
    """Return the first line that matches."""
    deadline = Deadline(timeout, client.transport.clock)
    search = LogSearch(process_id, matches, client.transport.clock)

    def follow() -> LogMatch | Exited | None:
        stream = client.transport.follow_logs(client.sandbox_id, process_id, True)
        try:
            return search.run(stream, deadline)
        finally:
            stream.close()

    found = client.call(follow)
    if isinstance(found, LogMatch):
        return found
    if isinstance(found, Exited):
        raise _exited(process_id, found.exit_code, search.logs())
    raise _not_ready(process_id, timeout, "no line matched", search.logs())


def port_probe(port: object, mode: object, path: object, status: object) -> Probe:
    """Check the options of ``wait_for_port``, and return one look at the port."""
    number = check_int(port, "port", 1, 65535)
    if mode not in ("http", "tcp"):
        raise InvalidRequestError(f"mode must be 'http' or 'tcp': {mode!r}")
    low, high = _status_range(status)
    target = _http_path(path)

    def probe(client: Client, seconds: float) -> bool:
        wanted = target if mode == "http" else None
        answer = client.call(client.transport.probe_port, client.sandbox_id, number, wanted, seconds)
        return answer is not None and (mode == "tcp" or low <= answer <= high)

    return probe


def _status_range(status: object) -> tuple[int, int]:
    if isinstance(status, (tuple, list)):
        if len(status) != 2:
            raise InvalidRequestError("status must be an int or a pair of int")
        low, high = status
    else:
        low = high = status
    return check_int(low, "status", 100, 599), check_int(high, "status", 100, 599)


def _http_path(path: object) -> str:
    text = check_str(path, "path")
    if not text.startswith("/"):
        raise InvalidRequestError(f"path must begin with '/': {text!r}")
    if any(character <= " " or character == "\x7f" for character in text):
        raise InvalidRequestError("path holds a space or a control character; quote it")
    if not text.isascii():
        from urllib.parse import quote

        text = quote(text, safe="".join(map(chr, range(33, 127))))
    return text


def for_port(client: Client, process_id: str, probe: Probe, timeout: float | None, interval: float) -> ProcessInfo:
    """Return the process's state when its port is ready."""
    deadline = Deadline(timeout, client.transport.clock)
    pause = 0.0
    while True:
        info = client.call(client.transport.wait_process, client.sandbox_id, process_id, deadline.within(pause))
        if info.status not in RUNNING:
            raise _exited(process_id, info.exit_code, _log_tail(client, process_id))
        if pause and deadline.passed:
            raise _not_ready(process_id, timeout, "the port was not ready", _log_tail(client, process_id))
        # The first look may have no time left, and is made all the same.
        if probe(client, deadline.within(LONGEST_PROBE) or interval):
            return info
        pause = interval


def _log_tail(client: Client, process_id: str) -> ProcessLogs:
    search = LogSearch(process_id, lambda line: None, client.transport.clock)

    def read() -> None:
        stream = client.transport.follow_logs(client.sandbox_id, process_id, False)
        try:
            search.run(stream, Deadline(0, client.transport.clock))
        finally:
            stream.close()

    client.call(read)
    return search.logs()


def _exited(process_id: str, exit_code: int | None, logs: ProcessLogs) -> ProcessExitedBeforeReadyError:
    return ProcessExitedBeforeReadyError(
        f"process {process_id!r} ended with exit code {exit_code} before it was ready{_excerpt(logs)}",
        process_id=process_id,
        exit_code=exit_code,
        logs=logs,
    )


def _not_ready(process_id: str, timeout: float | None, what: str, logs: ProcessLogs) -> ProcessReadyTimeoutError:
    return ProcessReadyTimeoutError(
        f"process {process_id!r}: {what} within {timeout} s{_excerpt(logs)}",
        process_id=process_id,
        timeout=timeout,
        logs=logs,
    )


def _excerpt(logs: ProcessLogs) -> str:
    text = (logs.stderr or logs.stdout)[-2000:].rstrip()
    return f"; its output ends with:\n{text}" if text else ""
