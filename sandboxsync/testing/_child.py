"""Programs that the suite runs in an interpreter of their own: `python _child.py NAME TRANSPORT [ARGUMENT …]`.

TRANSPORT is a Python expression that makes the transport. Each program prints one line of JSON at its end.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

# Run as a file, this directory would come first, before the standard library.
sys.path[:] = [path for path in sys.path if path != __file__.rpartition("/")[0]]

import sandboxsync
from sandboxsync import Sandbox
from sandboxsync.transports.base import Transport

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make *function* callable by its name from the command line."""
    PROGRAMS[function.__name__] = function
    return function


def make(source: str) -> Transport:
    """Return the transport that *source* makes."""
    transport: Transport = eval(source, {"sandboxsync": sandboxsync})
    return transport


@program
def look_around(source: str) -> dict[str, tuple[str, str, str]]:
    """What a command sees in each kind of session."""
    look = "set -- a b; echo ok $* '*' $?; mkdir -p d; cd d; echo ${PWD##*/}; cd .."
    report = {}
    with make(source) as transport, Sandbox(transport) as sandbox:
        plain = Sandbox(transport, id=sandbox.id, enable_default_session=False)
        with sandbox.session() as session:
            for kind, caller in (("default", sandbox), ("session", session), ("no session", plain)):
                result = caller.exec(look)
                report[kind] = (result.stdout, result.stderr, caller.exec("set; env").stdout)
        process = sandbox.start_process(look)
        process.wait_for_exit(20)
        logs = process.logs()
        report["process"] = (logs.stdout, logs.stderr, "")
    return report


if __name__ == "__main__":
    print(json.dumps(PROGRAMS[sys.argv[1]](*sys.argv[2:])))
