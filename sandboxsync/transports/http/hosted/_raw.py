"""What a service can do with whole files."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

__all__ = ["RawFiles"]


class RawFiles(Protocol):
    """The file routes of a service. Only for moving the bytes of files that were looked up: a missing file may read as
    empty, and a write is not whole or not at all.
    """

    piece: int
    """Bytes that one write may have."""
    staging: str | None
    """The directory that pieces may be put into during a call; `None` for the host's own."""

    @abstractmethod
    def can_hold(self, path: str) -> bool:
        """Whether the service can read and write this absolute path."""

    @abstractmethod
    def read(self, path: str) -> Iterator[bytes]:
        """The bytes of a file as they come. Close the iterator to give up. Raises `TransportError`."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file. May be repeated. Raises `TransportError`."""
