"""The logs of a background process: what the host has of them, and then what comes."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Literal

from sandboxsync.errors import ProcessNotFoundError, ProtocolError, StreamInterruptedError, TransportError
from sandboxsync.transports.base import Exited, LogStream, Output
from sandboxsync.transports.http.hosted._host import Answer, Host, HostRefusedError
from sandboxsync.transports.http.hosted._lines import data_of, data_of_part

__all__ = ["HostedLog"]

_log = logging.getLogger("sandboxsync.hosted")

_LOOK = 0.05
"""Seconds between looks at a log, when a reader does not wait for ever."""


class HostedLog(LogStream):
    """Reads the two logs from their beginning; with `live`, until the process has ended."""

    def __init__(self, host: Host, process_id: str, live: bool) -> None:
        self._host = host
        self._process_id = process_id
        self._live = live
        self._at: dict[Literal["stdout", "stderr"], int] = {"stdout": 0, "stderr": 0}
        self._limits: dict[Literal["stdout", "stderr"], int] | None = None
        self._queue: deque[Output | Exited] = deque()
        self._over = False
        self._patience = host.patience()
        self._reading = threading.Lock()
        if not live:
            self._look()
            self._limits = self._sizes

    def read(self, timeout: float | None = None) -> Output | Exited | None:
        with self._reading:
            until = None if timeout is None else time.monotonic() + timeout
            while not self._queue:
                if self._over:
                    raise ValueError("this log has ended or was closed")
                if self._limits is not None and self._at == self._limits:
                    return None
                self._look()
                if self._queue:
                    break
                if until is not None and time.monotonic() >= until:
                    return None
                if self._live:
                    time.sleep(_LOOK if until is None else max(0.0, min(_LOOK, until - time.monotonic())))
            item = self._queue.popleft()
            if isinstance(item, Exited):
                self._over = True
            return item

    def close(self) -> None:
        self._over = True

    def _look(self) -> None:
        """Take what is there now, and the end if it has come."""
        while True:
            offsets = (str(self._at["stdout"]), str(self._at["stderr"]))
            try:
                answer = self._host.open("log", self._process_id, "", *offsets)
                try:
                    ended = self._take(answer)
                except TransportError:
                    for stream, part in answer.parts():
                        self._take_data(stream, data_of_part(part))
                    raise
                finally:
                    answer.close()
                self._patience.renew()
                break
            except HostRefusedError:
                raise ProcessNotFoundError(
                    f"there is no process {self._process_id!r}", process_id=self._process_id
                ) from None
            except TransportError as exc:
                if self._over or not self._patience.bear(exc):
                    raise
                _log.warning("process %r: going on from %s after %s", self._process_id, self._at, exc)
        if ended is not None and self._live and self._at == self._sizes:
            self._queue.append(ended)

    def _take_data(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        if data:
            self._patience.renew()
            self._at[stream] += len(data)
            self._queue.append(Output(stream, data))

    def _take(self, answer: Answer) -> Exited | None:
        line = answer.line()
        if line is None:
            raise StreamInterruptedError("the answer of the session host ended at once")
        word, out, err, *end = line.split(" ")
        if word != "sizes":
            raise ProtocolError(f"the session host says {line[:200]!r} of a log")
        self._sizes: dict[Literal["stdout", "stderr"], int] = {"stdout": int(out), "stderr": int(err)}
        while (item := answer.next()) is not None:
            stream, text = item
            self._take_data(stream, data_of(text))
        answer.check()
        if not end:
            return None
        what, code, *_, micros = end
        exit_code = 124 if what == "timeout" else int(code)
        return Exited(exit_code, int(micros) / 1e6)
