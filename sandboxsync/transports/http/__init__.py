"""Sandboxes of a service, over HTTP."""
