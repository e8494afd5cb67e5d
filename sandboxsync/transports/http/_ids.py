"""Names of sandboxes as a bridge takes them (S18)."""

from __future__ import annotations

import base64
import hashlib
import re

__all__ = ["bridge_id"]

_FITS = re.compile(r"(?!zz)[a-z2-7]{1,63}")
_LONGEST = 63


def bridge_id(sandbox_id: str) -> str:
    """The id of a sandbox on a bridge, which takes `[a-z2-7]` and 63 of them at most.

    A name that fits goes as it is; `zz` begins the base32 of another one, `zzh` that of its SHA-256 where it is long.
    """
    if _FITS.fullmatch(sandbox_id):
        return sandbox_id
    name = sandbox_id.encode()
    encoded = f"zz{_base32(name)}"
    return encoded if len(encoded) <= _LONGEST else f"zzh{_base32(hashlib.sha256(name).digest())}"


def _base32(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").lower()
