"""Sandboxes in memory; see :class:`FakeTransport`."""

from sandboxsync.transports.fake._calls import FakeCall, FakeCalls
from sandboxsync.transports.fake._clock import FakeClock
from sandboxsync.transports.fake._controls import FakeSandboxHandle, FullDisk
from sandboxsync.transports.fake._results import FakeResult
from sandboxsync.transports.fake._transport import FakeTransport

__all__ = ["FakeCall", "FakeCalls", "FakeClock", "FakeResult", "FakeSandboxHandle", "FakeTransport", "FullDisk"]
