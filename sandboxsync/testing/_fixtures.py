"""What every test of the suite starts from."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.transports.base import Transport

from ._tools import skip_unless_able, time_of


class Fixtures:
    """A sandbox of its own for each test. `transport` and `transport_source` come from who uses the suite."""

    @pytest.fixture(autouse=True)
    def _needs(self, request: pytest.FixtureRequest, transport: Transport) -> Iterator[None]:
        skip_unless_able(request, transport)
        with time_of(request, transport):
            yield

    @pytest.fixture
    def sandbox(self, transport: Transport) -> Iterator[Sandbox]:
        """A sandbox that nobody has used yet."""
        with Sandbox(transport) as sandbox:
            yield sandbox

    @pytest.fixture
    def session(self, sandbox: Sandbox) -> Iterator[Session]:
        """A session of that sandbox, without env, in the workspace."""
        with sandbox.session() as session:
            yield session
