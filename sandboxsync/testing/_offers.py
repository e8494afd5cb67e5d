"""Capabilities: what a transport does not offer is refused, in one way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from sandboxsync import Sandbox
from sandboxsync.errors import UnsupportedOperationError
from sandboxsync.transports.base import OFFERED_BY, Capability, Transport

from ._tools import recorded

CALLS: dict[Capability, list[Callable[[Any], object]]] = {
    Capability.NATIVE_PROGRAMS: [lambda caller: caller.git_checkout("https://git.invalid/x.git")],
    Capability.TERMINAL: [lambda caller: caller.terminal(), lambda caller: caller.terminal(cols=100, rows=30)],
    Capability.CODE: [
        lambda caller: caller.create_code_context(),
        lambda caller: caller.run_code("1"),
        lambda caller: caller.list_code_contexts(),
        lambda caller: caller.delete_code_context("x"),
    ],
    Capability.WATCH: [lambda caller: caller.watch(".")],
    Capability.TUNNEL: [lambda caller: caller.tunnel(8080), lambda caller: caller.close_tunnel(8080)],
    Capability.MOUNT: [
        lambda caller: caller.mount_bucket("bucket", "data"),
        lambda caller: caller.unmount_bucket("data"),
    ],
}


class CapabilityRules:
    """The other side of `requires`: what a transport lacks, it says so."""

    def test_missing_capabilities_are_refused_before_any_io(self, transport: Transport) -> None:
        """`UnsupportedOperationError` names the transports that can, and the transport is not asked."""
        watched, calls = recorded(transport)
        with Sandbox(watched) as sandbox:
            for capability in set(CALLS) - transport.capabilities:
                for caller in (sandbox, sandbox.get_session("s")):
                    for call in CALLS[capability]:
                        with pytest.raises(UnsupportedOperationError) as caught:
                            call(caller)
                        assert transport.name in str(caught.value)
                        assert all(name in str(caught.value) for name in OFFERED_BY[capability])
            assert calls == []

    def test_a_transport_says_what_it_is(self, transport: Transport) -> None:
        """Its name is that of its class, and its capabilities are members of the closed set."""
        assert transport.name == type(transport).__name__
        assert all(isinstance(capability, Capability) for capability in transport.capabilities)
        for capability, names in OFFERED_BY.items():
            if transport.name in {name for offered in OFFERED_BY.values() for name in offered}:
                assert (capability in transport.capabilities) == (transport.name in names)
