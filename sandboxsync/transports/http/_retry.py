"""What may be sent again, and when: the one place that decides it (H2, H3). Pure: chance and time are passed in.

+----------------------------------+------+----------+------+
| what became of the attempt       | READ | DELIVERY | ONCE |
+==================================+======+==========+======+
| no byte of it was sent           | yes  | yes      | yes  |
+----------------------------------+------+----------+------+
| sent, and no answer came         | yes  | yes      | no   |
+----------------------------------+------+----------+------+
| 429, 503                         | yes  | yes      | yes  |
+----------------------------------+------+----------+------+
| 502, 504, 52x of something that  | yes  | yes      | no   |
| stands before the service        |      |          |      |
+----------------------------------+------+----------+------+
| 502, 504, 52x of the service     | no   | no       | no   |
+----------------------------------+------+----------+------+
| any other answer                 | no   | no       | no   |
+----------------------------------+------+----------+------+

The service's own answers are told by their JSON body with a `code`.

A connection that the service closed while it was idle, in the very moment of its next use, is "sent, and no answer
came": the bytes went out, and from here a service that never saw them and one that died after it began look the same.
Only where the system refused the first byte it is known that none was sent.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import attrs

from sandboxsync.errors import ConfigurationError

__all__ = ["DEFAULT_POLICY", "Failure", "Kind", "Reached", "RetryPolicy", "parse_retry_after"]


class Kind(enum.Enum):
    """What a second arrival of a request would do."""

    READ = "nothing: it only looks"
    DELIVERY = "nothing: it hands over a job under an id that the other side has then"
    ONCE = "perhaps something"


class Reached(enum.Enum):
    """How far an attempt came."""

    UNSENT = "no byte was sent"
    SENT = "bytes were sent, no answer came"
    ANSWERED = "an answer came"


@attrs.frozen
class Failure:
    """An attempt that did not succeed.

    `status`, `retry_after` (the header) and `code` (of the service's JSON body) are those of an answer. `permanent`:
    the next attempt would meet the same, as with a certificate that is not valid.
    """

    reached: Reached
    status: int | None = None
    code: str | None = None
    retry_after: str | None = None
    permanent: bool = False


_BUSY = frozenset({429, 503})
_GATEWAY = frozenset({502, 504, *range(520, 530)})

# Whatever status it comes with: the work had begun.
_BEGUN = frozenset({"OPERATION_INTERRUPTED"})


def _check_attempts(policy: object, field: object, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"retry attempts must be a whole number of at least 1, not {value!r}")


def _check_seconds(policy: object, field: attrs.Attribute[float], value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigurationError(f"retry {field.name} must be a number of seconds of at least 0, not {value!r}")


@attrs.frozen(kw_only=True)
class RetryPolicy:
    """How often and how patiently. Raises `ConfigurationError` for values that make no sense.

    `attempts` counts the first one too: 1 is no retry. `total` are the seconds from the first failure after which no
    attempt begins. Before the n-th retry a random time between 0 and `base` * 2 ** (n - 1) s passes, at most `cap` s.
    """

    attempts: int = attrs.field(default=6, validator=_check_attempts)
    total: float = attrs.field(default=30.0, validator=_check_seconds)
    base: float = attrs.field(default=0.25, validator=_check_seconds)
    cap: float = attrs.field(default=5.0, validator=_check_seconds)

    def delay(
        self,
        kind: Kind,
        failure: Failure,
        *,
        attempt: int,
        elapsed: float,
        now: datetime,
        random: Callable[[], float],
    ) -> float | None:
        """Return the seconds to wait before the next attempt, or `None` when there must be none.

        `attempt` is the number of the one that failed, from 1; `elapsed` are the seconds since the first one failed;
        `random` gives a number from 0 to 1. A `Retry-After` is a least wait; one that ends after the budget ends
        the attempts, since to come earlier is what the service asked not to do.
        """
        if attempt >= self.attempts or not _may_repeat(kind, failure):
            return None
        # The exponent is bounded because 2.0 ** 1024 is an error.
        wait = random() * min(self.cap, self.base * 2.0 ** min(attempt - 1, 60))
        asked = None if failure.retry_after is None else parse_retry_after(failure.retry_after, now)
        if asked:
            # Those who were told the same moment do not all come in it.
            wait = asked + random() * self.base
        return wait if elapsed + wait <= self.total else None


DEFAULT_POLICY = RetryPolicy()


def _may_repeat(kind: Kind, failure: Failure) -> bool:
    if failure.permanent:
        return False
    if failure.reached is Reached.UNSENT:
        return True
    harmless = kind is not Kind.ONCE
    if failure.reached is Reached.SENT:
        return harmless
    if failure.code in _BEGUN:
        return False
    if failure.status in _BUSY:
        return True
    return harmless and failure.status in _GATEWAY and failure.code is None


def parse_retry_after(value: str, now: datetime) -> float | None:
    """Return the seconds from `now` (aware) that a `Retry-After` means; 0 for the past, `None` for nonsense."""
    text = value.strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=timezone.utc)
    return max(0.0, (moment - now).total_seconds())
