"""bashkit, the interpreter under the fake, and how it goes on after a fork."""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from types import ModuleType

__all__ = ["at_exit", "bashkit", "bashkit_runs"]

_THREADS = "/proc/self/task"
_WORKER = b"tokio-"
_HOW = "FakeTransport needs bashkit: pip install 'sandboxsync[fake]'"

_lock = threading.Lock()
_loaded: tuple[int, ModuleType] | None = None
_at_exit: list[Callable[[], object]] = []


def bashkit() -> ModuleType:
    """The extension module of bashkit, as it works in this process. Raises `ImportError` that says how to get it.

    Its worker threads belong to the process that first ran a command, and a forked child has none and cannot start
    any: they are a global of the loaded library. So a child loads the library once more, from another file, and gets
    globals of its own.
    """
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = os.getpid(), _imported()
        elif _loaded[0] != os.getpid():
            _loaded = os.getpid(), _loaded_again(_loaded[1])
        else:
            return _loaded[1]
        # It ends its part at the interpreter's end, and what was registered last is called first.
        for function in _at_exit:
            atexit.unregister(function)
            atexit.register(function)
        return _loaded[1]


def bashkit_runs() -> bool:
    """Whether one of its worker threads runs, or waits for a processor. `False` where the system does not tell."""
    try:
        threads = os.listdir(_THREADS)
    except FileNotFoundError:
        return False
    for thread in threads:
        try:
            with open(f"{_THREADS}/{thread}/stat", "rb") as file:
                _, _, rest = file.read().partition(b"(")
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, _, state = rest.rpartition(b") ")
        if name.startswith(_WORKER) and state[:1] == b"R":
            return True
    return False


def at_exit(function: Callable[[], object]) -> None:
    """Have `function` called at the interpreter's end, while bashkit still works."""
    _at_exit.append(function)


def _imported() -> ModuleType:
    try:
        from bashkit import _bashkit
    except ImportError as exc:
        raise ImportError(_HOW, name="bashkit") from exc
    module: ModuleType = _bashkit
    return module


def _loaded_again(module: ModuleType) -> ModuleType:
    # A library that is loaded already is told by its file: only another file is loaded as another library.
    assert module.__file__ is not None
    with tempfile.TemporaryDirectory(prefix="sandboxsync-") as directory:
        path = shutil.copy(module.__file__, directory)
        loader = importlib.machinery.ExtensionFileLoader(module.__name__, path)
        spec = importlib.util.spec_from_file_location(module.__name__, path, loader=loader)
        assert spec is not None
        again = importlib.util.module_from_spec(spec)
        loader.exec_module(again)
    again.__file__ = module.__file__
    return again


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
