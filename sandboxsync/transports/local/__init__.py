"""Sandboxes on this machine: subprocesses, a real bash for each session, isolated by bubblewrap if wanted."""

from sandboxsync.transports.local._settings import Bind, Limits
from sandboxsync.transports.local._transport import LocalTransport

__all__ = ["Bind", "Limits", "LocalTransport"]
