"""From what a service answers to the errors of this package. No I/O.

An error's `code` is the service's own, in capitals, unless its words say more than its code does: then it is the code
of what they say, and `context["service_code"]` is what was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timezone
from http import HTTPStatus

import attrs

from sandboxsync._redact import MASK, redact
from sandboxsync.errors import (
    AuthenticationError,
    FileTooLargeError,
    InvalidRequestError,
    ProtocolError,
    RequestTimeoutError,
    SandboxError,
    SandboxUnavailableError,
    TransportError,
)

from ._error_table import TABLE, Asked, Said
from ._error_words import codes_of_class, narrowed
from ._retry import parse_retry_after

__all__ = ["Asked", "ServiceError", "error_for", "error_of", "hide", "malformed", "parse_error"]

_QUOTED = 200
_MESSAGE = 2_000
_CONTEXT = 4_000

_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")
_BY_CLASS = re.compile(r"(?:[A-Za-z ]{1,60} failed: )?(?P<class>[A-Z]\w{0,60}Error): (?P<reason>.*)", re.DOTALL)
_BY_VERB = re.compile(r"[a-z ]{1,60} failed: (?P<reason>.*)", re.DOTALL)


@attrs.frozen
class ServiceError:
    """What the JSON of a service says of an error: `code` and `message` as sent."""

    code: str
    message: str
    context: Mapping[str, object] = attrs.field(factory=dict)


def parse_error(body: bytes) -> ServiceError | None:
    """Return the service's error that a body holds, in any of its shapes; `None` when it is something else."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return _parse_value(value)


def _parse_value(value: object) -> ServiceError | None:
    if not isinstance(value, dict):
        return None
    code, message = value.get("code"), value.get("message", value.get("error"))
    if not isinstance(code, str) or not _CODE.fullmatch(code) or not isinstance(message, str):
        return None
    context = value.get("context", value.get("details"))
    return ServiceError(code, message, context if isinstance(context, dict) else {})


def error_for(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    asked: Asked,
    *,
    secrets: Collection[str] = (),
    now: datetime | None = None,
) -> SandboxError:
    """Return (not raise) the error for an answer that is none of success. `headers` have lower-case names.

    `body` may be anything: what is no JSON of the service is mapped by its status, and quoted. None of `secrets` is in
    the error, even if the answer holds it.
    """
    told = headers.get("retry-after")
    retry_after = None if told is None else parse_retry_after(told, now or datetime.now(timezone.utc))
    error = parse_error(body)
    if error is not None:
        return error_of(error, asked, status=status, retry_after=retry_after, secrets=secrets)
    text = f"{_answered(status)}{_quote(body, secrets)}"
    if 300 <= status < 400 and "location" in headers:
        text += f"; it points to {hide(headers['location'], secrets)[:_QUOTED]!r}, and is not followed"
    if status in (404, 405):
        text += "; is the URL that of a sandbox service?"
    return _by_status(status, _message(asked, text, ()), asked, retry_after=retry_after)


def error_of(
    error: ServiceError,
    asked: Asked,
    *,
    status: int | None = None,
    retry_after: float | None = None,
    secrets: Collection[str] = (),
) -> SandboxError:
    """Return (not raise) the error for what a service said, in an answer or in an event of a stream."""
    code, reason = error.code.upper(), error.message
    inner = _BY_CLASS.fullmatch(reason)
    if inner is not None:
        reason = inner["reason"]
        code = next((known for known in codes_of_class(inner["class"]) if known in TABLE), code)
    elif (inner := _BY_VERB.fullmatch(reason)) is not None:
        reason = inner["reason"]
    text, told = error.message, error.context.get("stderr")
    if isinstance(told, str) and told.strip():
        # Without the command around it, whose text could look like a reason.
        reason = told.strip()
        text += "" if reason in text else f": {reason}"
    code = narrowed(code, reason)
    text = _message(asked, text, secrets)
    context = _trim_items({key: value for key, value in error.context.items() if key != "stack"}, secrets, 0)
    builder = TABLE.get(code)
    if builder is not None:
        built = builder(Said(code, text, reason, context, status, retry_after, asked))
    else:
        built = _by_status(status, text, asked, code=code, context=context, retry_after=retry_after)
    if built.code != error.code:
        built.context["service_code"] = error.code
    return built


def _by_status(
    status: int | None,
    message: str,
    asked: Asked,
    *,
    code: str | None = None,
    context: Mapping[str, object] | None = None,
    retry_after: float | None = None,
) -> SandboxError:
    """The error for an answer whose status is all that is understood of it; `code` where a service sent one."""

    def built(cls: type[SandboxError], own_code: str | None = None) -> SandboxError:
        return cls(message, code=code or own_code, context=context, http_status=status)

    if status in (401, 403):
        return built(AuthenticationError)
    if status == 407:
        return built(TransportError, "PROXY_ERROR")
    if status in (408, 504, 524):
        return built(RequestTimeoutError)
    if status == 413:
        if asked.path is None:
            return built(InvalidRequestError, "PAYLOAD_TOO_LARGE")
        return FileTooLargeError(message, filename=asked.path, code=code, context=context, http_status=status)
    if status in (429, 502, 503, *range(520, 531)):
        error = SandboxUnavailableError(
            message, retry_after=retry_after, code=code, context=context, http_status=status
        )
        if status not in (429, 503):
            # What stands before the service cannot know whether the service did it.
            error.retryable = None
        return error
    if code is None:
        return built(ProtocolError)
    return built(InvalidRequestError if status in (400, 422) else TransportError)


def malformed(
    what: str, body: bytes, asked: Asked, *, status: int | None = None, secrets: Collection[str] = ()
) -> ProtocolError:
    """Return (not raise) the error for an answer that makes no sense (H6): `what` is wrong with it, as a clause."""
    return ProtocolError(_message(asked, f"{what}{_quote(body, secrets)}", ()), http_status=status)


def hide(text: str, secrets: Collection[str]) -> str:
    """Return the text with each secret, and each credential that looks like one, replaced by `***`."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return redact(text)


def _answered(status: int) -> str:
    try:
        return f"the service answered {status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"the service answered {status}"


def _quote(body: bytes, secrets: Collection[str]) -> str:
    if not body.strip():
        return " with a blank body" if body else " with an empty body"
    # Cut after it is redacted: half a credential no longer looks like one.
    text = hide(body[: 20 * _QUOTED].decode("utf-8", "replace"), secrets)
    return f": {text[:_QUOTED]!r}" + ("..." if len(text) > _QUOTED else "")


def _message(asked: Asked, text: str, secrets: Collection[str]) -> str:
    text = hide(text[: 10 * _MESSAGE], secrets)
    return f"{asked.operation}: {text if len(text) <= _MESSAGE else text[:_MESSAGE] + '...'}"


def _trim(value: object, secrets: Collection[str], depth: int = 0) -> object:
    if isinstance(value, str):
        text = hide(value[: 10 * _CONTEXT], secrets)
        return text if len(text) <= _CONTEXT else text[:_CONTEXT] + "..."
    if depth == 4:
        return "..."
    if isinstance(value, dict):
        return _trim_items(value, secrets, depth + 1)
    if isinstance(value, list):
        return [_trim(item, secrets, depth + 1) for item in value[:100]]
    return value


def _trim_items(value: Mapping[str, object], secrets: Collection[str], depth: int) -> dict[str, object]:
    return {hide(key, secrets): _trim(item, secrets, depth) for key, item in list(value.items())[:100]}
