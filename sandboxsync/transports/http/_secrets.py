"""The API key and what is like it: sent to the service, and shown to nobody."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote, urlencode, urlsplit

from sandboxsync.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["Bearer", "Masked", "Secrets", "check_key", "secrets_of"]

_KEY = re.compile(r"[\x21-\x7e]+")
_SECRET_NAME = re.compile(r"auth|cookie|key|password|secret|token", re.IGNORECASE)


class _HasHeaders(Protocol):
    @property
    def headers(self) -> MutableMapping[str, str]: ...


class Bearer:
    """The API key, as an `auth=` of requests. It shows itself to no one else: no `repr`, no pickle, no copy."""

    __slots__ = ("__key",)

    def __init__(self, key: str) -> None:
        self.__key = key

    def __call__(self, request: _HasHeaders) -> _HasHeaders:
        request.headers["Authorization"] = f"Bearer {self.__key}"
        return request

    def __repr__(self) -> str:
        return "Bearer(***)"

    def __reduce__(self) -> str:
        raise TypeError("an API key cannot be pickled or copied")

    def variants(self) -> tuple[str, ...]:
        """The key in the forms in which an answer may echo it, to take them out of texts.

        None for a key of less than 4 characters: those stand in every text.
        """
        key = self.__key
        if len(key) < 4:
            return ()
        return tuple({key, urlencode({"": key})[1:], key.replace("\\", "\\\\").replace('"', '\\"')})


class Secrets:
    """Texts to take out of errors and logs. It shows them to no one by itself."""

    __slots__ = ("__texts",)

    def __init__(self, texts: Iterable[str]) -> None:
        self.__texts = tuple(dict.fromkeys(texts))

    def __iter__(self) -> Iterator[str]:
        return iter(self.__texts)

    def __len__(self) -> int:
        return len(self.__texts)

    def __contains__(self, text: object) -> bool:
        return text in self.__texts

    def __repr__(self) -> str:
        return "Secrets(***)"

    def __reduce__(self) -> str:
        raise TypeError("secrets cannot be pickled or copied")


class Masked(dict[str, str]):
    """A mapping whose values may be secrets, and are not shown."""

    def __repr__(self) -> str:
        return f"Masked({list(self)})"


def check_key(key: object) -> Bearer | None:
    """Return what sends the key; `None` stays. Raises `ConfigurationError` without showing it."""
    if key is None:
        return None
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ConfigurationError("an API key is ASCII text without spaces and line ends, and not empty")
    return Bearer(key)


def secrets_of(key: Bearer | None, headers: Mapping[str, str], proxies: Mapping[str, str]) -> Secrets:
    """Return the texts that no error may show: the key, and values of headers and passwords of proxies like it."""
    found = [] if key is None else list(key.variants())
    found += [value for name, value in headers.items() if _SECRET_NAME.search(name) and len(value) >= 4]
    for url in proxies.values():
        password = urlsplit(url if "://" in url else f"http://{url}").password
        found += {password, unquote(password)} if password else ()
    return Secrets(found)
