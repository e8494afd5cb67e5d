"""Files that are read: small ones in the answer that opens them, large ones by the service's own route."""

from __future__ import annotations

import base64
import errno
import secrets
from collections.abc import Generator, Iterator
from contextlib import closing, suppress

from sandboxsync.errors import FileError, SandboxError, TransportError
from sandboxsync.transports.base import ByteStream, SessionRef
from sandboxsync.transports.http.hosted._file_host import (
    ATTEMPTS,
    SMALL,
    FileHost,
    data_of,
    is_final,
    maybe_told,
    refused,
    told,
)
from sandboxsync.transports.http.hosted._host import HostRefusedError

__all__ = ["HostedReader"]

_PIECE = 12 << 20
"""Bytes that one call hands out in base64."""


class HostedReader(ByteStream):
    """A file being read. Not for two threads at once."""

    def __init__(self, host: FileHost, ref: SessionRef, path: str, chunk_size: int) -> None:
        self._host = host
        self._ref = ref
        self._chunk_size = chunk_size
        self._id = secrets.token_hex(12)
        raw = host.raw
        lines = host.ask_at(ref, "file_read", path, "", "0", str(SMALL), self._id, raw.staging or "", raw.suffix)
        self.path = told(lines, "path")
        size, self._identity = told(lines, "file").split(" ")
        self.size = int(size)
        self._alias = maybe_told(lines, "alias")
        self._source = self._content(data_of(lines))
        self._waiting = bytearray()

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        waiting = self._waiting
        while len(waiting) < self._chunk_size:
            data = next(self._source, None)
            if data is None:
                break
            if not waiting and len(data) == self._chunk_size:
                return data
            waiting += data
        if not waiting:
            self.close()
            raise StopIteration
        chunk = bytes(memoryview(waiting)[: self._chunk_size])
        del waiting[: self._chunk_size]
        return chunk

    def close(self) -> None:
        """Give up the rest. Idempotent."""
        self._source.close()
        self._waiting.clear()
        if self._alias is not None:
            self._alias = None
            # What cannot be removed now is removed an hour later.
            with suppress(SandboxError):
                self._host.ask(self._ref, "file_drop", self._id)

    def _content(self, first: bytes) -> Generator[bytes, None, None]:
        """All bytes: those of the answer, or by the route of the service, and what that does not give, by the host."""
        at = len(first)
        if first:
            yield first
        # Files of the system may be longer than they say.
        over = self.size <= SMALL and at < SMALL
        if self._alias is not None:
            try:
                with closing(self._host.raw.read(self._alias)) as chunks:
                    for data in chunks:
                        at += len(data)
                        yield data
            except TransportError as exc:
                if is_final(exc):
                    raise
            over = at >= self.size
        failures = 0
        while not over:
            before = at
            try:
                for data in self._piece(at):
                    at += len(data)
                    yield data
                over = at - before < _PIECE
                failures = 0
            except TransportError as exc:
                failures = 1 if at > before else failures + 1
                if is_final(exc) or failures == ATTEMPTS:
                    raise

    def _piece(self, at: int) -> Iterator[bytes]:
        ref = self._ref
        try:
            answer = self._host.open_at(ref, "file_read", self.path, self._identity, str(at), str(_PIECE), "", "", "")
            try:
                while (line := answer.line()) is not None:
                    if line and " " not in line:
                        yield base64.b64decode(line)
            finally:
                answer.close()
        except HostRefusedError as exc:
            if str(exc) == "changed":
                raise FileError(
                    f"{self.path!r} was replaced while it was read",
                    errno=errno.EBUSY,
                    filename=self.path,
                    retryable=True,
                ) from None
            raise refused(exc) from None
