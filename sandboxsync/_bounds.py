"""Whether a symlink below a directory leads outside of it."""

from __future__ import annotations

import errno
import os
from itertools import pairwise

from .errors import file_error

__all__ = ["Bounds", "parts_of", "turns_back"]

_MAX_LINKS = 40


def parts_of(path: str) -> list[str]:
    """Return the names of a path, without what means nothing."""
    return [part for part in path.split("/") if part not in ("", ".")]


def turns_back(target: str) -> bool:
    """Whether ``..`` follows a name: where that leads may change when the name becomes a symlink later."""
    return any(part == ".." and before != ".." for before, part in pairwise(parts_of(target)))


class Bounds:
    """A directory that nothing may lead out of. Places in it are lists of names that are no symlinks."""

    def __init__(self, root: int, path: str, seen_as: str) -> None:
        """Take the directory that is open as *root*.

        *path* is its name for errors, *seen_as* the one that absolute targets begin with.
        """
        self._root = root
        self._path = path
        self._seen_as = parts_of(seen_as)

    def hold(self, place: list[str], target: str) -> bool:
        """Whether a symlink at *place* stays inside, as its text and as the symlinks there now have it."""
        return all(self._stays(place[:-1], target, follow) for follow in (False, True))

    def _stays(self, directory: list[str], target: str, follow: bool) -> bool:
        here, ahead = list(directory), [target]
        links = 0
        while ahead:
            part = ahead.pop()
            if part.startswith("/"):
                below = parts_of(part)
                if below[: len(self._seen_as)] != self._seen_as:
                    return False
                here = []
                ahead.extend(reversed(below[len(self._seen_as) :]))
            elif "/" in part:
                ahead.extend(reversed(parts_of(part)))
            elif part == "..":
                if not here:
                    return False
                here.pop()
            elif part != ".":
                here.append(part)
                link = self.link_at(here) if follow else None
                if link is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        # Nobody can follow it then, neither can the system.
                        return True
                    here.pop()
                    ahead.append(link)
        return True

    def link_at(self, place: list[str]) -> str | None:
        """Return the target of the symlink at *place*, if there is one. Raises :class:`FileError`."""
        try:
            return os.readlink("/".join(place), dir_fd=self._root)
        except OSError as exc:
            if exc.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTDIR):
                return None
            raise file_error(exc, os.path.join(self._path, *place)) from exc
