"""A proxy that damages HTTP on demand, and the faults that it knows."""

from ._proxy import FaultProxy
from ._rules import ProxiedRequest
from ._values import Answer, Drop, Fault, HangUp, Silence, Slow, Split, Stall, Truncate, Twice

__all__ = [
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
]
