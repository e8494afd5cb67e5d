"""A volume as a file system of bashkit, through the C interface that bashkit has for foreign ones (version 1).

What the interface cannot say: times are not set and FIFOs not made through it, and a name that is not UTF-8 does not
pass, so that it is left out of listings. `..` never arrives: bashkit has resolved it as text.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable
from contextlib import suppress
from itertools import accumulate, count
from types import ModuleType
from typing import Any
from weakref import WeakValueDictionary

from sandboxsync.transports.fake._volume import Attributes, Volume

__all__ = ["mountable"]

_CAPSULE = b"bashkit.FileSystem.v1"
_VERSION = 1
_OK, _FAILED = 0, 1

_OTHER = 0
_ERROR_KINDS = {
    errno.ENOENT: 1,
    errno.EEXIST: 2,
    errno.EACCES: 3,
    errno.EPERM: 3,
    errno.EROFS: 3,
    errno.EINVAL: 4,
    errno.EISDIR: 5,
    errno.ENOTDIR: 6,
    errno.ENOTEMPTY: 7,
    errno.ENOTSUP: 8,
}
# It knows no devices.
_FILE_TYPES = {"file": 0, "directory": 1, "symlink": 2, "fifo": 3, "device": 0}


class _Bytes(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class _Error(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("message", _Bytes)]


class _Metadata(ctypes.Structure):
    _fields_ = [
        ("file_type", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 7),
        ("size", ctypes.c_uint64),
        ("mode", ctypes.c_uint32),
        ("modified_secs", ctypes.c_int64),
        ("modified_nanos", ctypes.c_uint32),
        ("created_secs", ctypes.c_int64),
        ("created_nanos", ctypes.c_uint32),
    ]


class _Entry(ctypes.Structure):
    _fields_ = [("name", _Bytes), ("metadata", _Metadata)]


_volumes: WeakValueDictionary[int, Volume] = WeakValueDictionary()
"""Whose calls are whose. bashkit holds a number, so it keeps no volume alive."""
_numbers = count(1)
_lent: dict[int, object] = {}
"""What bashkit was given to read, by address, until it gives it back."""


def mountable(volume: Volume, bashkit_module: ModuleType) -> Any:
    """Return *volume* as a `FileSystem` of *bashkit_module* (any copy of it), for `Bash.mount`.

    The volume has to be held by somebody else for as long as it is used; afterwards every operation fails. Any number
    of shells may have it mounted, and run in any threads. Commands have to end before the interpreter does: Python may
    abort a process in which some thread calls back too late.
    """
    number = next(_numbers)
    _volumes[number] = volume
    handle = _Handle(_VERSION, 0, number, _NOTHING, _NOTHING, ctypes.pointer(_VTABLE))
    # It copies the handle and the table; the capsule dies here, and has nothing to free.
    return bashkit_module.FileSystem.from_capsule(_new_capsule(ctypes.addressof(handle), _CAPSULE, None))


# The operations, as the interface calls them


def _read(volume: Volume, path: _Bytes, out: Any) -> None:
    text = _text(path)
    private = volume.private.get(text)
    _lend(out[0], volume.read(text) if private is None else private)


def _write(volume: Volume, path: _Bytes, content: _Bytes) -> None:
    volume.write(_text(path), _data(content))


def _append(volume: Volume, path: _Bytes, content: _Bytes) -> None:
    volume.append(_text(path), _data(content))


def _mkdir(volume: Volume, path: _Bytes, recursive: bool) -> None:
    volume.mkdir(_text(path), parents=recursive)


def _remove(volume: Volume, path: _Bytes, recursive: bool) -> None:
    text = _text(path)
    if volume.stat(text, follow=False).kind != "directory":
        volume.remove(text)
    elif recursive:
        volume.rmtree(text)
    else:
        volume.rmdir(text)


def _stat(volume: Volume, path: _Bytes, out: Any) -> None:
    text = _text(path)
    private = volume.private.get(text)
    _describe(out[0], _meant(volume, text) if private is None else Attributes("file", 0o600, len(private), 0, 0, 0))


def _read_dir(volume: Volume, path: _Bytes, out: Any) -> None:
    found = []
    for name, attributes in volume.scandir(_text(path)):
        with suppress(UnicodeEncodeError):
            found.append((_buffer(name.encode()), attributes))
    entries = (_Entry * max(1, len(found)))()
    for entry, (buffer, attributes) in zip(entries, found, strict=False):
        entry.name.ptr, entry.name.len = ctypes.addressof(buffer), len(buffer)
        _describe(entry.metadata, attributes)
    out[0].ptr, out[0].len = ctypes.addressof(entries), len(found)
    _lent[out[0].ptr] = (entries, found)


def _exists(volume: Volume, path: _Bytes, out: Any) -> None:
    # A symlink that leads nowhere is there too: `rm` and `ls` ask this first.
    out[0] = volume.exists(_text(path), follow=False)


def _rename(volume: Volume, old: _Bytes, new: _Bytes) -> None:
    volume.rename(_text(old), _text(new))


def _copy(volume: Volume, old: _Bytes, new: _Bytes) -> None:
    volume.copy(_text(old), _text(new))


def _symlink(volume: Volume, target: _Bytes, path: _Bytes) -> None:
    volume.symlink(_text(target), _text(path))


def _read_link(volume: Volume, path: _Bytes, out: Any) -> None:
    _lend(out[0], volume.readlink(_text(path)).encode())


def _chmod(volume: Volume, path: _Bytes, mode: int) -> None:
    volume.chmod(_text(path), mode)


def _meant(volume: Volume, path: str) -> Attributes:
    """Return what bashkit asks for: nearly always what a symlink leads to (`cd`, `[[ -f`, running a script).

    But the link itself when it leads nowhere, and when it leads back to a directory of its own path: what walks down a
    tree would not end there.
    """
    try:
        found = volume.stat(path)
    except OSError:
        return volume.stat(path, follow=False)
    if found.kind == "directory":
        link = volume.stat(path, follow=False)
        if link.kind == "symlink":
            above = accumulate(path.split("/")[:-1], "{}/{}".format)
            if any(volume.stat(directory or "/").ino == found.ino for directory in above):
                return link
    return found


def _describe(out: _Metadata, attributes: Attributes) -> None:
    out.file_type = _FILE_TYPES[attributes.kind]
    out.size = attributes.size
    out.mode = attributes.mode
    out.modified_secs, out.modified_nanos = divmod(attributes.mtime_ns, 10**9)
    out.created_secs, out.created_nanos = divmod(attributes.created_ns, 10**9)


def _text(value: _Bytes) -> str:
    return _data(value).decode()


def _data(value: _Bytes) -> bytes:
    return ctypes.string_at(value.ptr, value.len) if value.len else b""


def _buffer(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return (ctypes.c_char * len(data)).from_buffer_copy(data)


def _lend(out: _Bytes, data: bytes) -> None:
    if data:
        buffer = _buffer(data)
        out.ptr, out.len = ctypes.addressof(buffer), len(data)
        _lent[out.ptr] = buffer


def _take_back(instance: int, lent: _Bytes) -> None:
    _lent.pop(lent.ptr, None)


def _fail(error: _Error, exc: BaseException) -> None:
    number, text = _OTHER, f"{type(exc).__name__}: {exc}"
    if isinstance(exc, OSError) and exc.strerror:
        number, text = _ERROR_KINDS.get(exc.errno or 0, _OTHER), exc.strerror
    error.kind = number
    _lend(error.message, text.encode(errors="replace"))


def _function(operation: Callable[..., None], *arguments: Any) -> Any:
    """Return an operation as a C function. Its exceptions become errors there, all of them: none gets through C."""

    def call(instance: int, *values: Any) -> int:
        *given, error = values
        try:
            volume = _volumes.get(instance)
            if volume is None:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
            operation(volume, *given)
        except BaseException as exc:
            _fail(error[0], exc)
            return _FAILED
        return _OK

    kind = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_void_p, *arguments, ctypes.POINTER(_Error))
    return kind(call)


_GIVES_BYTES = (_Bytes, ctypes.POINTER(_Bytes))
_TAKE_BACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, _Bytes)(_take_back)

_FUNCTIONS = {
    "read_file": _function(_read, *_GIVES_BYTES),
    "write_file": _function(_write, _Bytes, _Bytes),
    "append_file": _function(_append, _Bytes, _Bytes),
    "mkdir": _function(_mkdir, _Bytes, ctypes.c_bool),
    "remove": _function(_remove, _Bytes, ctypes.c_bool),
    "stat": _function(_stat, _Bytes, ctypes.POINTER(_Metadata)),
    # An array of entries is told as bytes are: where it is, and how many.
    "read_dir": _function(_read_dir, *_GIVES_BYTES),
    "exists": _function(_exists, _Bytes, ctypes.POINTER(ctypes.c_bool)),
    "rename": _function(_rename, _Bytes, _Bytes),
    "copy": _function(_copy, _Bytes, _Bytes),
    "symlink": _function(_symlink, _Bytes, _Bytes),
    "read_link": _function(_read_link, *_GIVES_BYTES),
    "chmod": _function(_chmod, _Bytes, ctypes.c_uint32),
    "free_bytes": _TAKE_BACK,
    "free_dir_entries": _TAKE_BACK,
}
"""One table for all volumes; it is here for good, since bashkit calls it until the process ends."""


class _VTable(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in _FUNCTIONS]


class _Handle(ctypes.Structure):
    _fields_ = [
        ("abi_version", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("instance", ctypes.c_void_p),
        ("retain", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("vtable", ctypes.POINTER(_VTable)),
    ]


def _address(function: Any) -> int | None:
    return ctypes.cast(function, ctypes.c_void_p).value


_VTABLE = _VTable(*map(_address, _FUNCTIONS.values()))

# What counts references has nothing to do here. It is no Python function, because bashkit releases its file systems
# while the interpreter ends, when none can run any more. This one is in every Python, does nothing, and leaves the
# argument alone, which in C a caller may pass to a function that takes none.
_NOTHING = _address(ctypes.pythonapi.Py_IsInitialized)

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)
