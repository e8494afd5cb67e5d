"""One place where what the system says of a file becomes an error of this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .errors import FileError, file_error


@contextmanager
def mapped(path: str) -> Iterator[None]:
    """Raise the :class:`FileError` for an :class:`OSError` of the block, with *path* as its ``filename``."""
    try:
        yield
    except FileError:
        raise
    except OSError as exc:
        raise file_error(exc, path) from exc
