"""What a service must be able to do with files: hand one out whole, and take one whole."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Generator
from typing import Protocol

__all__ = ["RawFiles"]


class RawFiles(Protocol):
    """A route of a service that moves the bytes of a file fast.

    Nothing else is asked of it: it may read a missing file as empty, write a file in steps that others see, and reach
    only what is below `staging`, by plain names. Any thread may call it.
    """

    piece: int
    """The most bytes that `write` takes."""
    staging: str | None
    """A directory that it reaches, where pieces and names of files may be while a call lasts; `None` where it reaches
    every path: then the host's own serves.
    """
    suffix: str
    """What the name of a file ends with that the service takes for bytes, not for text."""

    @abstractmethod
    def read(self, path: str) -> Generator[bytes, None, None]:
        """The bytes of a file, whose name ends with `suffix`, in non-empty chunks.

        Raises `TransportError` when it broke; a clean end may come early too.
        """

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Make or replace a file with this content. Repeats itself when it may. Raises `TransportError`."""
