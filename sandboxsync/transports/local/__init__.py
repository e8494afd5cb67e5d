"""Sandboxes on this machine: subprocesses, a real bash for each session, no isolation."""

from sandboxsync.transports.local._transport import LocalTransport

__all__ = ["LocalTransport"]
