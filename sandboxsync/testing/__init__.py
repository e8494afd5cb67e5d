"""What proves a transport: a suite for pytest with a test for each rule that all transports keep.

A transport of any package is tested by a class of a few lines::

    import pytest
    from sandboxsync.testing import TransportSuite

    class TestMyTransport(TransportSuite):
        @pytest.fixture
        def transport(self):
            with MyTransport() as transport:
                yield transport

        @pytest.fixture
        def transport_source(self):
            return "__import__('my_package').MyTransport()"

``transport`` gives each test a transport of its own. ``transport_source`` is a Python expression that makes the same
kind of transport, for tests that need an interpreter of their own (forks, interrupts, the end of the interpreter).
Both may be in a ``conftest.py`` instead. All tests run or none does: only a missing ``Capability`` takes out those
that are marked with ``requires``.

The suite needs the extra ``testing`` (pytest, hypothesis); nothing else imports it.

``Recording`` passes every call on to another transport and writes a cassette of it; ``Replay`` answers from the
cassette, and raises ``CassetteMismatchError`` when it is asked something else. ``FaultProxy`` passes HTTP on to a
server, and damages it as a test says. They need no extra.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._matching import CassetteMismatchError
    from ._recording import Recording
    from ._replay import Replay
    from ._suite import TransportSuite
    from ._tools import in_real_time, make_transport, requires, requires_for, skip_unless_able, time_of
    from .faults import (
        Answer,
        Drop,
        Fault,
        FaultProxy,
        HangUp,
        ProxiedRequest,
        Silence,
        Slow,
        Split,
        Stall,
        Truncate,
        Twice,
    )

__all__ = [
    "Answer",
    "CassetteMismatchError",
    "Drop",
    "Fault",
    "FaultProxy",
    "HangUp",
    "ProxiedRequest",
    "Recording",
    "Replay",
    "Silence",
    "Slow",
    "Split",
    "Stall",
    "TransportSuite",
    "Truncate",
    "Twice",
    "in_real_time",
    "make_transport",
    "requires",
    "requires_for",
    "skip_unless_able",
    "time_of",
]

# These need no pytest.
_LIGHT = {
    "CassetteMismatchError": "_matching",
    "Recording": "_recording",
    "Replay": "_replay",
    **dict.fromkeys(
        (
            "Answer",
            "Drop",
            "Fault",
            "FaultProxy",
            "HangUp",
            "ProxiedRequest",
            "Silence",
            "Slow",
            "Split",
            "Stall",
            "Truncate",
            "Twice",
        ),
        "faults",
    ),
}

_TESTS = (
    "_commands",
    "_commands_env",
    "_commands_order",
    "_commands_text",
    "_concurrency",
    "_files",
    "_files_paths",
    "_files_trees",
    "_files_writes",
    "_offers",
    "_processes",
    "_processes_logs",
    "_sessions",
    "_sessions_end",
    "_sessions_poison",
    "_sessions_shared",
    "_timeouts",
    "_timeouts_limits",
    "_tools",
)


def __getattr__(name: str) -> object:
    # Late, so that the programs of the suite, which run in this package too, start without pytest.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name in _LIGHT:
        light: object = getattr(import_module(f"{__name__}.{_LIGHT[name]}"), name)
        return light
    import pytest

    pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in _TESTS))
    from . import _suite, _tools

    value: object = getattr(_suite if name == "TransportSuite" else _tools, name)
    return value
