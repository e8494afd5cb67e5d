"""An interpreter of its own for the suite: `python -m sandboxsync.testing._child NAME TRANSPORT [ARGUMENT …]`.

NAME is a function of `_programs` or `_programs_life`, TRANSPORT a Python expression that makes the transport. What the
function returns is printed as one line of JSON. None of this imports pytest, so that it starts quickly.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import sandboxsync

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make *function* callable by its name from the command line."""
    PROGRAMS[function.__name__] = function
    return function


def make(source: str) -> Any:
    """Return the transport that *source* makes. These programs run in real time: a clock that jumps is paused."""
    transport = eval(source, {"sandboxsync": sandboxsync})
    if hasattr(transport.clock, "paused"):
        transport.clock.paused().__enter__()
    return transport


def wait_for(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    """Return whether *condition* became true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def tell(value: object) -> None:
    """Print a line for whoever started this program."""
    print(json.dumps(value), flush=True)


def main(name: str, *arguments: str) -> None:
    """Run one program."""
    # Ignored in what a shell runs in the background, and inherited: some programs are interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for module in ("_programs", "_programs_life"):
        import_module(f"sandboxsync.testing.{module}")
    tell(PROGRAMS[name](*arguments))


if __name__ == "__main__":
    # Under its real name, so that the programs do not see a second copy of this module.
    from sandboxsync.testing._child import main as run

    run(*sys.argv[1:])
