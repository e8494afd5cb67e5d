"""The files of a volume as a mapping from paths to bytes, for tests to prepare and to look at."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, MutableMapping

from sandboxsync.transports.fake._files import VolumeFiles
from sandboxsync.transports.fake._volume import SYSTEM_FILES, Volume

__all__ = ["VolumeMapping"]

_WORKSPACE = "/workspace"


class VolumeMapping(MutableMapping[str, bytes]):
    """The regular files of a volume, by path.

    A relative key is below ``/workspace``; iteration gives absolute ones, sorted. Values are bytes; a `str` may be set,
    and is encoded as UTF-8. Parents are made. A key that is no file's raises :class:`KeyError`.

    What lies in ``/dev``, and files that every new volume has, such as ``/etc/passwd``, as long as they are unchanged,
    are left out of iteration, length and comparison; they can be read by their key. A symlink is followed where it is
    the key, and is no key in iteration.

    Two mappings are equal when they hold the same files; in a plain one to compare with, keys may be relative and
    values `str` as well. Any thread may use it.
    """

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._files = VolumeFiles(volume)

    def __getitem__(self, key: str) -> bytes:
        """Return the content of a file. Raises :class:`KeyError`."""
        try:
            path = _absolute(key)
            if self._volume.stat(path).kind != "file":
                raise KeyError(key)
            return self._volume.read(path)
        except OSError:
            raise KeyError(key) from None

    def __setitem__(self, key: str, value: bytes | str) -> None:
        """Write a file. Raises :class:`TypeError` for other values, :class:`FileError` where no file can be."""
        self._files.write(_absolute(key), [_bytes(value)])

    def __delitem__(self, key: str) -> None:
        """Remove a file, or the symlink to it. Raises :class:`KeyError`."""
        self[key]
        try:
            self._volume.remove(_absolute(key))
        except OSError:
            raise KeyError(key) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths())

    def __len__(self) -> int:
        return len(self._paths())

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[index]
        except (KeyError, TypeError):
            return False
        return True

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        try:
            wanted = {_absolute(key): _bytes(value) for key, value in other.items()}
        except TypeError:
            return False
        return dict(self) == wanted

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {', '.join(self._paths()) or 'no files'}>"

    def _paths(self) -> list[str]:
        files = (info.path for info in self._files.list("/", recursive=True) if info.type == "file")
        return sorted(path for path in files if not self._is_hidden(path))

    def _is_hidden(self, path: str) -> bool:
        return path.startswith("/dev/") or (path in SYSTEM_FILES and self.get(path) == SYSTEM_FILES[path])


def _absolute(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a path is a str, not {type(key).__name__}")
    return posixpath.join(_WORKSPACE, key)


def _bytes(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"the content of a file is bytes or str, not {type(value).__name__}")
