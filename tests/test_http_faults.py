"""Commands through a service whose answers break off: all output exact, and each command run once (H1, H2)."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sandboxsync import HTTPTimeouts, HTTPTransport, RetryPolicy, Sandbox, Session, StreamInterruptedError
from sandboxsync.testing import Answer, Drop, FaultProxy, HangUp, Twice
from tests._served import Served

COMMANDS = int(os.environ.get("SANDBOXSYNC_DROPS", "60"))
"""How many commands are run, each with an answer that breaks off: by hand it may be a thousand."""
QUICK = RetryPolicy(attempts=6, total=20.0, base=0.01, cap=0.02)


@contextmanager
def session_through(proxy: FaultProxy, served: Served, dialect: str, retry: RetryPolicy = QUICK) -> Iterator[Session]:
    """A session of a sandbox behind a proxy, which does no harm before the block and after it."""
    transport = HTTPTransport(
        proxy.url,
        api_key=served.api_key if dialect == "bridge" else None,
        dialect=dialect,  # type: ignore[arg-type]
        retry=retry,
        timeout=HTTPTimeouts(read=20.0),
    )
    with transport, Sandbox(transport) as sandbox:
        session = sandbox.create_session()
        session.exec("true")
        try:
            yield session
        finally:
            proxy.heal()


@pytest.fixture(params=["bridge", "container"])
def dialect(request: pytest.FixtureRequest, server: Served) -> Iterator[str]:
    """Each of the two."""
    yield request.param
    if request.param == "container":
        server.renew_container()


@pytest.fixture
def proxy(server: Served, dialect: str) -> Iterator[FaultProxy]:
    """What stands before the server."""
    with FaultProxy(server.url if dialect == "bridge" else server.container_url) as proxy:
        yield proxy


def test_H2_commands_whose_answers_break_off_run_once_and_lose_nothing(
    server: Served, dialect: str, proxy: FaultProxy
) -> None:
    """A connection is dropped at a random byte of each answer; every command appends to a file."""
    chance = random.Random(7)
    with session_through(proxy, server, dialect) as session:
        for number in range(COMMANDS):
            lines = chance.choice([1, 10, 2000])
            proxy.on("POST", "exec", Drop(after=range(400 + 8 * lines), reset=bool(number % 2)))
            result = session.exec(f"echo {number} >>log; seq {lines}; seq {lines} >&2; (exit {number % 7})")
            assert result.stdout == result.stderr == "".join(f"{line}\n" for line in range(1, lines + 1))
            assert result.exit_code == number % 7
        proxy.heal()
        assert session.exec("cat log").stdout == "".join(f"{number}\n" for number in range(COMMANDS))


@pytest.mark.parametrize(
    "fault",
    [
        HangUp("forwarding"),
        HangUp("answering"),
        HangUp("answering", reset=False),
        Answer(503),
        Answer(502, forward=True),
        Answer.page(504, forward=True),
        Twice(),
    ],
    ids=str,
)
def test_H2_a_delivery_that_goes_wrong_is_made_again_and_runs_once(
    server: Served, dialect: str, proxy: FaultProxy, fault: HangUp | Answer | Twice
) -> None:
    """Whatever became of the request, and of its answer."""
    with session_through(proxy, server, dialect) as session:
        for number in range(4):
            proxy.on("POST", "exec", fault)
            assert session.exec(f"echo {number} >>log; echo {number}").stdout == f"{number}\n"
        proxy.heal()
        assert session.exec("cat log").stdout == "0\n1\n2\n3\n"


@pytest.mark.parametrize("attempts", [1, 3])
def test_H1_what_stays_broken_is_an_error_with_the_output_so_far(
    server: Served, dialect: str, proxy: FaultProxy, attempts: int
) -> None:
    """After as many attempts as the transport's own policy says, and never as exit code 0."""
    with session_through(proxy, server, dialect, RetryPolicy(attempts=attempts, total=20.0, base=0.01)) as session:
        before = len(proxy.requests)
        proxy.on("POST", "exec", Drop(after=400_000))
        proxy.on("POST", "exec", Drop(after=0), times=1000)
        with pytest.raises(StreamInterruptedError) as caught:
            session.exec("seq 100000; sleep 1; seq 100000")
        expected = "".join(f"{number}\n" for number in range(1, 100_001))
        assert caught.value.stdout
        assert expected.startswith(caught.value.stdout)
        # That which began it, and each attempt of those that follow, by the connection too.
        assert len(proxy.requests) - before <= 1 + attempts * attempts
