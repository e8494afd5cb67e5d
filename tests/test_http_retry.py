"""What may be repeated, and when."""

from __future__ import annotations

import math
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync.errors import ConfigurationError
from sandboxsync.transports.http._retry import (
    DEFAULT_POLICY,
    Failure,
    Kind,
    Reached,
    RetryPolicy,
    parse_retry_after,
)

NOW = datetime(2026, 5, 1, 12, 0, 0, tzinfo=timezone.utc)
UNSENT, SENT = Failure(Reached.UNSENT), Failure(Reached.SENT)

SECONDS = st.floats(0, 1e6)
POLICIES = st.builds(RetryPolicy, attempts=st.integers(1, 2000), total=SECONDS, base=SECONDS, cap=SECONDS)
FAILURES = st.builds(
    Failure,
    st.sampled_from(Reached),
    st.none() | st.integers(100, 599),
    st.none() | st.sampled_from(["", "INTERNAL_ERROR", "OPERATION_INTERRUPTED", "session_error"]),
    st.none() | st.text(max_size=5) | st.integers(0, 10**6).map(str),
    st.booleans(),
)


def answer(status: int, code: str | None = None, retry_after: str | None = None) -> Failure:
    """An attempt that was answered so."""
    return Failure(Reached.ANSWERED, status, code, retry_after)


def delay(kind: Kind, failure: Failure, policy: RetryPolicy = DEFAULT_POLICY, attempt: int = 1) -> float | None:
    """The policy's decision on the longest wait."""
    return policy.delay(kind, failure, attempt=attempt, elapsed=0.0, now=NOW, random=lambda: 1.0)


@pytest.mark.parametrize(
    ("failure", "kinds"),
    [
        (UNSENT, {Kind.READ, Kind.DELIVERY, Kind.ONCE}),
        (SENT, {Kind.READ, Kind.DELIVERY}),
        (answer(429), {Kind.READ, Kind.DELIVERY, Kind.ONCE}),
        (answer(503), {Kind.READ, Kind.DELIVERY, Kind.ONCE}),
        (answer(503, "capacity_exceeded"), {Kind.READ, Kind.DELIVERY, Kind.ONCE}),
        (answer(502), {Kind.READ, Kind.DELIVERY}),
        (answer(504), {Kind.READ, Kind.DELIVERY}),
        (answer(520), {Kind.READ, Kind.DELIVERY}),
        (answer(524), {Kind.READ, Kind.DELIVERY}),
        (answer(502, "session_error"), set()),
        (answer(504, "X"), set()),
        (answer(409, "OPERATION_INTERRUPTED"), set()),
        (answer(503, "OPERATION_INTERRUPTED"), set()),
        (answer(400), set()),
        (answer(401), set()),
        (answer(404), set()),
        (answer(408), set()),
        (answer(409), set()),
        (answer(500), set()),
        (answer(501), set()),
        (answer(530), set()),
        (answer(302), set()),
        (Failure(Reached.UNSENT, permanent=True), set()),
    ],
)
def test_what_may_be_repeated(failure: Failure, kinds: set[Kind]) -> None:
    """H2, H3: the table at the top of the module."""
    assert {kind for kind in Kind if delay(kind, failure) is not None} == kinds


@given(
    POLICIES,
    st.sampled_from(Kind),
    FAILURES,
    st.integers(1, 2000),
    st.floats(0, 2e6),
    st.floats(0, 1),
)
def test_every_decision_keeps_the_rules(
    policy: RetryPolicy, kind: Kind, failure: Failure, attempt: int, elapsed: float, chance: float
) -> None:
    """Whatever the numbers: within the attempts and the budget, never earlier than asked, never ONCE after SENT."""
    wait = policy.delay(kind, failure, attempt=attempt, elapsed=elapsed, now=NOW, random=lambda: chance)
    if wait is None:
        return
    assert attempt < policy.attempts
    assert wait >= 0
    assert elapsed + wait <= policy.total
    assert failure.reached is Reached.UNSENT or kind is not Kind.ONCE or failure.status in {429, 503}
    asked = parse_retry_after(failure.retry_after, NOW) if failure.retry_after is not None else None
    if asked:
        assert asked <= wait <= asked + policy.base
    else:
        assert wait <= policy.cap


def test_backoff_is_exponential_with_full_jitter() -> None:
    """The longest wait doubles up to the cap; chance takes any part of it."""
    policy = RetryPolicy(attempts=9, total=1000, base=0.5, cap=6)
    assert [delay(Kind.READ, SENT, policy, attempt) for attempt in range(1, 10)] == [0.5, 1, 2, 4, 6, 6, 6, 6, None]
    assert policy.delay(Kind.READ, SENT, attempt=4, elapsed=0, now=NOW, random=lambda: 0.25) == 1.0
    assert policy.delay(Kind.READ, SENT, attempt=4, elapsed=0, now=NOW, random=lambda: 0.0) == 0.0


def test_the_budget_ends_the_attempts() -> None:
    """No wait passes the total, and a `Retry-After` beyond it is an end at once, not a shorter wait."""
    policy = RetryPolicy(total=10, base=1, cap=5)
    assert policy.delay(Kind.READ, SENT, attempt=3, elapsed=5.9, now=NOW, random=lambda: 1.0) == 4.0
    assert policy.delay(Kind.READ, SENT, attempt=3, elapsed=6.1, now=NOW, random=lambda: 1.0) is None
    assert delay(Kind.ONCE, answer(503, retry_after="9"), policy) == 10.0
    assert delay(Kind.ONCE, answer(503, retry_after="11"), policy) is None
    assert delay(Kind.ONCE, UNSENT, RetryPolicy(attempts=1)) is None


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0.0),
        ("120", 120.0),
        (" 7 ", 7.0),
        ("9" * 400, math.inf),
        ("Fri, 01 May 2026 12:00:30 GMT", 30.0),
        ("Fri, 01 May 2026 11:59:00 GMT", 0.0),
        ("Friday, 01-May-26 12:00:05 GMT", 5.0),
        ("Fri, 01 May 2026 14:00:01 +0200", 1.0),
        ("Fri May  1 12:00:09 2026", 9.0),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("soon", None),
        ("Fri, 99 May 2026 12:00:30 GMT", None),
    ],
)
def test_retry_after_in_both_forms(value: str, seconds: float | None) -> None:
    """Seconds and dates are understood; the past is now; nonsense is nothing."""
    assert parse_retry_after(value, NOW) == seconds


@given(st.integers(0, 10**6))
def test_a_date_means_its_moment(seconds: int) -> None:
    """A date in the form of HTTP is as many seconds away as it says."""
    text = format_datetime(NOW + timedelta(seconds=seconds), usegmt=True)
    assert parse_retry_after(text, NOW) == seconds


@given(st.text(max_size=40))
def test_any_retry_after_is_survived(value: str) -> None:
    """Whatever a service sends there, it is a number of seconds or nothing."""
    seconds = parse_retry_after(value, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, "3", None])
def test_attempts_are_checked(attempts: object) -> None:
    """A number of attempts is a whole one from 1."""
    with pytest.raises(ConfigurationError, match="attempts"):
        RetryPolicy(attempts=attempts)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["total", "base", "cap"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, True, "3", None])
def test_seconds_are_checked(name: str, value: object) -> None:
    """Seconds are finite and not negative."""
    with pytest.raises(ConfigurationError, match=name):
        RetryPolicy(**{name: value})  # type: ignore[arg-type]
