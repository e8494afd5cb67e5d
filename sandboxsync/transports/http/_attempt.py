"""One attempt at a request, with the redirects that it meets, and its report."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import attrs

from sandboxsync._deadline import Deadline
from sandboxsync._redact import redact
from sandboxsync.errors import ProtocolError, SandboxError, StreamInterruptedError, TransportError

from ._errors import Asked
from ._events import Hook, RequestFinished
from ._exchange import Exchange
from ._lanes import Lanes
from ._response import Response
from ._retry import Failure, Kind, Reached
from ._settings import BaseURL, Bearer, bundle_of, check_url, proxy_for
from ._upload import SourceFailed, Upload

if TYPE_CHECKING:
    from ._adapter import Adapter, Head
    from ._failures import Where

__all__ = ["Broken", "Call", "Line"]

_log = logging.getLogger("sandboxsync.http")

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5

# Longer than this no idle connection is trusted to be open still.
_MAX_IDLE = 30.0
# For what cannot be sent again when its connection turns out to be closed: the limits of servers begin at 2 to 5 s.
_MAX_IDLE_ONCE = 1.0


@attrs.frozen
class Call:
    """What is asked for. `path` is as it goes over the wire, with its query; limits in seconds."""

    method: str
    path: str
    route: str
    kind: Kind
    asked: Asked
    common_headers: Mapping[str, str]
    headers: Mapping[str, str]
    upload: Upload
    load: bool
    read: float | None
    total: float | None
    deadline: Deadline


@attrs.frozen
class Broken:
    """An attempt without an answer: the error to raise, with its cause set, and what it means for the next attempt."""

    error: SandboxError
    failure: Failure


@attrs.frozen
class _Target:
    """Where the next request of an attempt goes; `trusted`: with the key and what else is for the service alone."""

    base: BaseURL
    path: str
    trusted: bool

    @property
    def url(self) -> str:
        return self.base.origin + self.path


class Line:
    """The way to one service: what each attempt needs. Holds no connection; safe for threads."""

    def __init__(
        self,
        base: BaseURL,
        key: Bearer | None,
        headers: Mapping[str, str],
        *,
        connect: float | None,
        verify: bool | str,
        proxies: Mapping[str, str] | None,
        secrets: tuple[str, ...],
        on_event: Hook | None,
    ) -> None:
        self._base = base
        self._key = key
        self._headers = headers
        self._connect = connect
        self._verify = verify
        self._proxies = proxies
        self._secrets = secrets
        self._on_event = on_event

    def attempt(self, call: Call, number: int, lanes: Lanes) -> Response | Broken:
        """Send it once. Raises what the next attempt would not heal: of settings, the body's source, and hooks."""
        report = _Report(call, number, self._on_event)
        try:
            target = _Target(self._base, self._base.path + call.path, trusted=True)
            for _ in range(_MOST_REDIRECTS + 1):
                outcome = self._hop(call, target, lanes, report)
                if not isinstance(outcome, str):
                    return outcome
                target = self._redirected(call, target, outcome)
            raise ProtocolError(f"{call.asked.operation}: more than {_MOST_REDIRECTS} redirects")
        except Exception as exc:
            report.finish(type(exc).__name__)
            raise

    def _hop(self, call: Call, target: _Target, lanes: Lanes, report: _Report) -> Response | Broken | str:
        """Send one request. Return where it redirects to, if that is to be followed."""
        # Late, because they import requests.
        from ._failures import FOREIGN, explain, fit_to_show

        exchange = report.exchange = Exchange(self._connect, call.read, call.deadline)
        proxy = proxy_for(target.base, self._proxies)
        where = self._where(call, target, proxy)
        lane = lanes.take(_MAX_IDLE_ONCE if call.kind is Kind.ONCE else _MAX_IDLE)
        try:
            head = self._send(call, target, proxy, exchange, lane, lanes)
        except SourceFailed:
            lane.close()
            error = call.upload.error
            if error is None:
                raise
            raise error from error.__cause__
        except FOREIGN as exc:
            lane.close()
            broken, failure = explain(exc, exchange, where)
            broken.__cause__ = fit_to_show(exc, self._secrets)
            report.finish(type(broken).__name__)
            return Broken(broken, failure)
        except BaseException:
            lane.close()
            raise
        location = head.headers.get("location")
        if location is not None and head.status in _REDIRECTS and call.method == "GET" and call.upload.is_empty:
            _give_back(head, lane, lanes)
            return location
        return self._answered(call, head, exchange, where, lane, lanes, report)

    def _send(
        self, call: Call, target: _Target, proxy: str | None, exchange: Exchange, lane: Adapter, lanes: Lanes
    ) -> Head:
        from ._adapter import send

        headers = dict(call.common_headers)
        if target.trusted:
            headers.update(self._headers)
            headers.update(call.headers)
        return send(
            lane,
            exchange,
            lanes.adopt,
            method=call.method,
            url=target.url,
            headers=headers,
            body=call.upload.begin(exchange),
            auth=self._key if target.trusted else None,
            verify=bundle_of(self._verify),
            proxies={} if proxy is None else {target.base.scheme: proxy},
        )

    def _redirected(self, call: Call, target: _Target, location: str) -> _Target:
        try:
            parts = urlsplit(urljoin(target.url, location))
        except ValueError as exc:
            raise ProtocolError(f"{call.asked.operation}: redirected to what is no URL: {location[:200]!r}") from exc
        base = check_url(f"{parts.scheme}://{parts.netloc}", ProtocolError)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        if not path.isascii() or not path.isprintable() or " " in path:
            raise ProtocolError(f"{call.asked.operation}: redirected to what is no URL: {location[:200]!r}")
        return _Target(base, path, target.trusted and self._base.keeps_key(base))

    def _answered(
        self,
        call: Call,
        head: Head,
        exchange: Exchange,
        where: Where,
        lane: Adapter,
        lanes: Lanes,
        report: _Report,
    ) -> Response | Broken:
        from ._failures import explain, fit_to_show

        report.answered(head.status)

        def broken(exc: BaseException) -> SandboxError:
            error, _ = explain(exc, exchange, where)
            error.__cause__ = fit_to_show(exc, self._secrets)
            return error

        def finished(error: str | None) -> None:
            _give_back(head, lane, lanes)
            report.finish(error)

        response = Response(
            head.status,
            head.headers,
            head.body,
            exchange,
            asked=call.asked,
            secrets=self._secrets,
            broken=broken,
            finished=finished,
        )
        if call.load and head.status < 400:
            try:
                response.read()
            except TransportError as exc:
                # What came is nonsense or too much: it would come again.
                is_final = not isinstance(exc, (StreamInterruptedError, TimeoutError)) or exchange.expired == "total"
                return Broken(exc, Failure(Reached.SENT, permanent=is_final))
            except BaseException:
                response.close()
                raise
        elif head.body.complete:
            # There is none: nobody has to read it for the connection to be of use.
            response.read()
        return response

    def _where(self, call: Call, target: _Target, proxy: str | None) -> Where:
        from ._failures import Where

        shown = None if proxy is None else urlsplit(proxy).netloc.rpartition("@")[2]
        return Where(call.asked.operation, target.base.origin, shown, self._connect, call.read, call.total)


def _give_back(head: Head, lane: Adapter, lanes: Lanes) -> None:
    try:
        head.body.give_back()
    except OSError:
        # It cannot be closed in order, so it is not used again.
        lane.close()
        return
    lanes.give(lane)


class _Report:
    """Says once what became of an attempt: one line in the log, one event."""

    def __init__(self, call: Call, number: int, on_event: Hook | None) -> None:
        self.exchange: Exchange | None = None
        self._call = call
        self._number = number
        self._on_event = on_event
        self._started = time.monotonic()
        self._first_byte: float | None = None
        self._status: int | None = None
        self._finished = False

    def answered(self, status: int) -> None:
        self._status = status
        self._first_byte = time.monotonic() - self._started

    def finish(self, error: str | None) -> None:
        if self._finished:
            return
        self._finished = True
        duration = time.monotonic() - self._started
        call, exchange = self._call, self.exchange
        sent = 0 if exchange is None else exchange.bytes_sent
        received = 0 if exchange is None else exchange.bytes_received
        _log.debug(
            "%s %s: %s in %.3f s, attempt %d, %d bytes sent, %d received%s",
            call.method,
            redact(call.path),
            "no answer" if self._status is None else self._status,
            duration,
            self._number,
            sent,
            received,
            "" if error is None else f", {error}",
        )
        if self._on_event is not None:
            self._on_event(
                RequestFinished(
                    call.method,
                    call.route,
                    self._status,
                    duration,
                    self._first_byte,
                    self._number,
                    sent,
                    received,
                    error,
                )
            )
