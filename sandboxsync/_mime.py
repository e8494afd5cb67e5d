"""The MIME type of a file by its name, the same on every machine."""

from __future__ import annotations

import mimetypes
from functools import lru_cache

UNKNOWN = "application/octet-stream"

_COMPRESSED = {
    "gzip": "application/gzip",
    "bzip2": "application/x-bzip2",
    "xz": "application/x-xz",
    "br": "application/x-brotli",
    "compress": "application/x-compress",
}

_OFFICE = "application/vnd.openxmlformats-officedocument"
# Left out by some of the versions of Python that we run on.
_ADDED = {
    ".docx": f"{_OFFICE}.wordprocessingml.document",
    ".md": "text/markdown",
    ".pptx": f"{_OFFICE}.presentationml.presentation",
    ".toml": "application/toml",
    ".webp": "image/webp",
    ".xlsx": f"{_OFFICE}.spreadsheetml.sheet",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}


@lru_cache(maxsize=1)
def _types() -> mimetypes.MimeTypes:
    # An object of its own knows the built-in types only, not what /etc/mime.types of this machine adds.
    types = mimetypes.MimeTypes()
    for suffix, kind in _ADDED.items():
        types.add_type(kind, suffix)
    return types


def guess(path: str) -> str:
    """Return the type without parameters; of a compressed file that of the compression."""
    # The slash keeps a name such as "data:x" from being read as a URL.
    kind, compression = _types().guess_type("/" + path.rpartition("/")[2])
    if compression is not None:
        return _COMPRESSED.get(compression, UNKNOWN)
    return (kind or UNKNOWN).partition(";")[0]
