"""One attempt at a request, with the redirects that it meets, and its report."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

import attrs

from sandboxsync.errors import ProtocolError, SandboxError, StreamInterruptedError, TransportError

from ._events import Hook
from ._exchange import Exchange
from ._lanes import Lanes
from ._report import Call, Report
from ._response import Response
from ._retry import Failure, Kind, Reached
from ._secrets import Bearer, Masked, Secrets
from ._settings import BaseURL, bundle_of, check_url, proxy_for
from ._upload import SourceFailed

if TYPE_CHECKING:
    from ._adapter import Adapter, Head
    from ._failures import Where

__all__ = ["Broken", "Line"]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5

# Longer than this no idle connection is trusted to be open still.
_MAX_IDLE = 30.0
# For what cannot be sent again when its connection turns out to be closed: the limits of servers begin at 2 to 5 s.
_MAX_IDLE_ONCE = 1.0


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
        secrets: Secrets,
        on_event: Hook | None,
    ) -> None:
        self._base = base
        self._key = key
        self._headers = Masked(headers)
        self._connect = connect
        self._verify = verify
        self._proxies = None if proxies is None else Masked(proxies)
        self.secrets = secrets
        self._on_event = on_event

    def attempt(self, call: Call, number: int, lanes: Lanes) -> Response | Broken:
        """Send it once. Raises what the next attempt would not heal: of settings, the body's source, and hooks."""
        report = Report(call, number, self._on_event)
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

    def _hop(self, call: Call, target: _Target, lanes: Lanes, report: Report) -> Response | Broken | str:
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
        except SandboxError:
            # Which are also errors of the system, by class.
            lane.close()
            raise
        except FOREIGN as exc:
            lane.close()
            broken, failure = explain(exc, exchange, where)
            broken.__cause__ = fit_to_show(exc, self.secrets)
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
        bundle = bundle_of(self._verify)
        return send(
            lane,
            exchange,
            lanes.adopt,
            None if bundle is False else partial(lanes.context, bundle),
            method=call.method,
            url=target.url,
            headers=headers,
            body=call.upload.begin(exchange),
            auth=self._key if target.trusted else None,
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
        report: Report,
    ) -> Response | Broken:
        from ._failures import explain, fit_to_show

        report.answered(head.status)

        def broken(exc: BaseException) -> SandboxError:
            error, _ = explain(exc, exchange, where)
            error.__cause__ = fit_to_show(exc, self.secrets)
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
            secrets=self.secrets,
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
