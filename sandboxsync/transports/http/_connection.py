"""Requests to one service: kept-open connections, time limits, retries, the key, and one error for each way to fail."""

from __future__ import annotations

import itertools
import json as json_module
import logging
import os
import random
import re
from collections.abc import Iterable, Mapping

from sandboxsync._clock import SYSTEM_CLOCK, Clock
from sandboxsync._deadline import Deadline
from sandboxsync._redact import redact
from sandboxsync._unset import UNSET, Timeout
from sandboxsync.errors import ConfigurationError, InvalidRequestError, SandboxError, TransportError

from ._attempt import Broken, Line
from ._errors import Asked, parse_error
from ._events import Hook, RetryScheduled
from ._lanes import Lanes
from ._late import load as load_late
from ._report import Call
from ._response import Response
from ._retry import DEFAULT_POLICY, Failure, Kind, Reached, RetryPolicy
from ._secrets import Secrets, check_key, secrets_of
from ._settings import (
    check_headers,
    check_proxies,
    check_seconds,
    check_target,
    check_url,
    check_verify,
    is_loopback,
    user_agent,
)
from ._upload import Upload

__all__ = ["Connection"]

_log = logging.getLogger("sandboxsync.http")

_METHOD = re.compile(r"[A-Z]{1,20}")


class Connection:
    """A service, reached over HTTP. Safe for threads; a forked child may go on using it, on connections of its own.

    Limits, in seconds, `None` is none: `connect_timeout` for the way to each address of the service, `read_timeout`
    for each silence of it and for the head of an answer from its first byte on, `total_timeout` for a call with its
    retries and the reading of its answer. None of them interrupts the look-up of a name.

    `verify` is `False`, `True` (then `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE` count) or the path of a CA bundle.
    `proxies` maps `http`, `https` or `all` to URLs; left out, those of the environment are used, but never for this
    machine itself. `.netrc` and cookies are not used. `headers` are sent with each request to this service, and like
    the key to no other that it redirects to.

    `on_event` is called with `RequestFinished` and `RetryScheduled`, on the thread of the request. What it raises
    reaches the caller of `request`, or of what ended the answer.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        connect_timeout: float | None = 10.0,
        read_timeout: float | None = 60.0,
        total_timeout: float | None = None,
        retry: RetryPolicy = DEFAULT_POLICY,
        verify: bool | str | os.PathLike[str] = True,
        proxies: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        allow_insecure: bool = False,
        on_event: Hook | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """No I/O. Raises `ConfigurationError` for what cannot be used.

        That is also a key, or a header that looks like one, for a service over plain http that is not on this machine,
        unless `allow_insecure`. `clock` is what the waits between attempts and the total limit are measured on.
        """
        url = check_url(base_url)
        key = check_key(api_key)
        own_headers = check_headers(
            headers, ConfigurationError, frozenset({"authorization", "user-agent"} if key else {"user-agent"})
        )
        if not isinstance(retry, RetryPolicy):
            raise ConfigurationError(f"retry must be a RetryPolicy, not {type(retry).__name__}")
        if on_event is not None and not callable(on_event):
            raise ConfigurationError("on_event must be callable")
        given = check_proxies(proxies)
        secrets = secrets_of(key, own_headers, given or {})
        has_secret = key is not None or any(value in secrets for value in own_headers.values())
        if url.scheme == "http" and has_secret and not allow_insecure:
            if not is_loopback(url.host):
                raise ConfigurationError(
                    f"the key would go unencrypted to {url.host!r}: use https, or pass allow_insecure=True"
                )
            if given and not {"http", "all"}.isdisjoint(given):
                raise ConfigurationError("the key would go unencrypted to a proxy: pass allow_insecure=True to do that")
        self._url = url
        self._read = check_seconds(read_timeout, "read_timeout")
        self._total = check_seconds(total_timeout, "total_timeout")
        self._retry = retry
        self._clock = clock
        self._on_event = on_event
        self._random = random.Random().random
        self._closed = False
        self._line = Line(
            url,
            key,
            own_headers,
            connect=check_seconds(connect_timeout, "connect_timeout"),
            verify=check_verify(verify),
            proxies=given,
            secrets=secrets,
            on_event=on_event,
        )
        self._lanes: dict[int, Lanes] = {}

    def __repr__(self) -> str:
        return f"Connection({self.base_url!r})"

    def __reduce__(self) -> str:
        raise TypeError("a Connection cannot be pickled or copied: it has open connections, and may have a key")

    @property
    def secrets(self) -> Secrets:
        """What no error may show, for `error_of` and `malformed`."""
        return self._line.secrets

    @property
    def read_timeout(self) -> float | None:
        """Seconds of silence that a call allows unless it says otherwise, `None` for any."""
        return self._read

    @property
    def base_url(self) -> str:
        """The URL of the service, without a slash at its end."""
        return self._url.origin + self._url.path

    def request(
        self,
        method: str,
        path: str,
        *,
        kind: Kind,
        asked: Asked | None = None,
        route: str | None = None,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        json: object = UNSET,
        body: bytes | Iterable[bytes] | None = None,
        length: int | None = None,
        load: bool = False,
        read_timeout: Timeout = UNSET,
        total_timeout: Timeout = UNSET,
    ) -> Response:
        """Send a request, again where `kind` allows it, and return the answer whatever its status. Blocks until then.

        `path` is percent-encoded, `query` is not. `json` is a value to send as JSON; `body` are bytes, or an iterable
        of them that is read while it is sent, `length` in all where that is known. `asked` is for the errors, `route`
        (the path with names in place of ids) for events. With `load` the body of the answer is read before this
        returns, and one that breaks off counts as none.

        The body of an answer of 400 and more is read already. Redirects are followed only where there is no body.

        Raises `InvalidRequestError` for arguments that cannot be sent and `ConfigurationError` for a setting that turns
        out not to be usable (both before anything is sent), `RequestTimeoutError` when a limit passes,
        `ProtocolError` for an answer that is not HTTP, `TransportError` for each other way not to get one, and what
        the iterable or the hook raises.
        """
        if not _METHOD.fullmatch(method):
            raise InvalidRequestError(f"not a method of HTTP: {method!r}")
        target = check_target(path, query)
        total = self._total if total_timeout is UNSET else self._seconds(total_timeout, "total_timeout")
        own = check_headers(headers, InvalidRequestError, frozenset({"authorization", "user-agent"}))
        if json is not UNSET:
            if body is not None:
                raise InvalidRequestError("a request has either json or a body")
            body = _encode(json)
            if all(name.lower() != "content-type" for name in own):
                own["Content-Type"] = "application/json"
        load_late()
        call = Call(
            method,
            target,
            route or path,
            kind,
            Asked(f"{method} {route or path}") if asked is None else asked,
            {"User-Agent": user_agent(), "Accept": "*/*", "Accept-Encoding": "identity"},
            own,
            Upload(body, length),
            load,
            self._read if read_timeout is UNSET else self._seconds(read_timeout, "read_timeout"),
            total,
            Deadline(total, self._clock),
        )
        return self._run(call)

    @staticmethod
    def _seconds(value: object, what: str) -> float | None:
        return check_seconds(value, what, InvalidRequestError)

    def _run(self, call: Call) -> Response:
        first_failed: float | None = None
        for attempt in itertools.count(1):
            if self._closed:
                raise ConfigurationError(f"{call.asked.operation}: this connection is closed")
            outcome = self._line.attempt(call, attempt, self._own_lanes())
            failure, reason = _judged(outcome, call)
            if failure is None and isinstance(outcome, Response):
                return outcome
            now = self._clock.monotonic()
            first_failed = now if first_failed is None else first_failed
            delay = self._delay(call, failure, attempt, now - first_failed) if failure is not None else None
            if delay is None:
                if isinstance(outcome, Response):
                    return outcome
                raise self._seen(outcome.error, call) from outcome.error.__cause__
            if isinstance(outcome, Response):
                outcome.close()
            _log.warning(
                "%s %s: %s; attempt %d of %d in %.2f s",
                call.method,
                redact(call.path),
                reason,
                attempt + 1,
                self._retry.attempts,
                delay,
            )
            if self._on_event is not None:
                self._on_event(RetryScheduled(call.method, call.route, attempt, delay, reason))
            self._clock.sleep(delay)
        raise AssertionError("unreachable")

    def _delay(self, call: Call, failure: Failure, attempt: int, elapsed: float) -> float | None:
        if self._closed or not call.upload.can_repeat:
            return None
        delay = self._retry.delay(
            call.kind, failure, attempt=attempt, elapsed=elapsed, now=self._clock.now(), random=self._random
        )
        left = call.deadline.left()
        return None if delay is not None and left is not None and delay >= left else delay

    def _seen(self, error: SandboxError, call: Call) -> SandboxError:
        if not self._closed:
            return error
        return TransportError(f"{call.asked.operation}: the connection was closed meanwhile", code="CONNECTION_CLOSED")

    def _own_lanes(self) -> Lanes:
        """The lanes of this process: a forked child finds none of its own and makes them, with a lock of their own."""
        pid = os.getpid()
        lanes = self._lanes.get(pid)
        return self._lanes.setdefault(pid, Lanes()) if lanes is None else lanes

    def close(self) -> None:
        """End it: calls in flight break off, later ones raise `ConfigurationError`. Idempotent, from any thread.

        In a forked child it ends what the child made, and nothing of the parent.
        """
        self._closed = True
        # Made if there are none, so that a call that begins in this moment finds closed ones.
        self._own_lanes().close()


def _encode(value: object) -> bytes:
    try:
        return json_module.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as exc:
        raise InvalidRequestError(f"the body is no JSON: {exc}") from exc


def _judged(outcome: Response | Broken, call: Call) -> tuple[Failure | None, str]:
    """What an outcome means for the next attempt, `None` when it is none to repeat, with the reason in words."""
    if not isinstance(outcome, Response):
        return outcome.failure, str(outcome.error).removeprefix(f"{call.asked.operation}: ")
    if outcome.status < 400:
        return None, ""
    said = parse_error(outcome.load_error())
    code = None if said is None else said.code.upper()
    failure = Failure(Reached.ANSWERED, outcome.status, code, outcome.headers.get("retry-after"))
    return failure, f"answered {outcome.status}" + ("" if code is None else f" {code}")
