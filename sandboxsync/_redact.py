"""Take secrets out of text that a person or a log may see. Pure functions; safe for threads."""

from __future__ import annotations

import re
from collections.abc import Mapping

MASK = "***"

# Up to the last "@" before the path: a password may hold an unquoted "@", a path may hold one too.
_USERINFO = re.compile(r'://[^\s/?#"<>`]*@')
# A password with an unquoted "/", "?" or "#" ends the authority early; what then stands where a port
# belongs is not a number. The length is bounded because the search starts again at each "://".
_BROKEN_USERINFO = re.compile(r'://[^\s/?#:@\["<>`]{0,256}:(?!\d{0,5}(?:[/?#\s]|$))[^\s"<>`@]{0,1024}@')
_AUTHORIZATION = re.compile(
    r"""((?:^|[^a-z])(?:proxy-)?authorization["']?\s*[:=]\s*["']?"""
    r"""(?:(?:bearer|basic|digest|token|negotiate)\s+)?)[^\s"',;]+""",
    re.IGNORECASE,
)
# A bare "Bearer" is also an English word, so only what looks like a credential goes with it.
_BEARER = re.compile(r"\b(bearer\s+)(?=[\w.~+/-]*\d|[\w.~+/=-]{16})[\w.~+/-]+=*", re.IGNORECASE)
_QUERY = re.compile(
    r"([?&](?:access_token|auth_token|token|api_?key|password|secret|x-amz-signature)=)[^&\s\"'#<>]+",
    re.IGNORECASE,
)
_SECRET_KEY = re.compile(
    r"(?:proxy[-_])?authorization|(?:\w+[-_])?(?:token|password|passwd|secret)|(?:x[-_])?api[-_]?key",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """Return *text* with each credential replaced by ``***``.

    Credentials are those of a URL (``scheme://user:pw@``, ``scheme://token@``, ``?token=``) and the value
    of an ``Authorization`` header. The rest of the text stays as it is; a second call changes nothing.
    """
    # In this order, for what the first leaves of a password that also holds an unquoted "@" is the second's.
    text = _BROKEN_USERINFO.sub(f"://{MASK}@", text)
    text = _USERINFO.sub(f"://{MASK}@", text)
    text = _AUTHORIZATION.sub(rf"\g<1>{MASK}", text)
    text = _BEARER.sub(rf"\g<1>{MASK}", text)
    return _QUERY.sub(rf"\g<1>{MASK}", text)


def redact_value(value: object) -> object:
    """Return a copy of *value* with :func:`redact` applied to every string in its mappings, lists and tuples.

    The value of a key such as ``token``, ``password`` or ``Authorization`` is replaced as a whole.
    Other objects are returned as they are.
    """
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        return {key: _redact_item(key, item) for key, item in value.items()}
    if isinstance(value, list):
        return [redact_value(item) for item in value]
    if isinstance(value, tuple):
        return tuple(redact_value(item) for item in value)
    return value


def redact_context(context: Mapping[str, object] | None) -> dict[str, object]:
    """Return a redacted copy of *context*, empty for ``None``."""
    return {key: _redact_item(key, item) for key, item in (context or {}).items()}


def _redact_item(key: object, value: object) -> object:
    if isinstance(key, str) and isinstance(value, str) and value and _SECRET_KEY.fullmatch(key):
        return MASK
    return redact_value(value)
