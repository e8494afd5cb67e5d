"""Sandboxes of a service, over HTTP; see :class:`HTTPTransport`."""

from sandboxsync.transports.http._events import HTTPEvent, RequestFinished, RetryScheduled
from sandboxsync.transports.http._retry import RetryPolicy
from sandboxsync.transports.http._timeouts import HTTPTimeouts
from sandboxsync.transports.http._transport import HTTPTransport

__all__ = ["HTTPEvent", "HTTPTimeouts", "HTTPTransport", "RequestFinished", "RetryPolicy", "RetryScheduled"]
