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


@lru_cache(maxsize=1)
def _types() -> mimetypes.MimeTypes:
    # An object of its own knows the built-in types only, not what /etc/mime.types of this machine adds.
    return mimetypes.MimeTypes()


def guess(path: str) -> str:
    """Return the type without parameters; of a compressed file that of the compression."""
    # The slash keeps a name such as "data:x" from being read as a URL.
    kind, compression = _types().guess_type("/" + path.rpartition("/")[2])
    if compression is not None:
        return _COMPRESSED.get(compression, UNKNOWN)
    return (kind or UNKNOWN).partition(";")[0]
