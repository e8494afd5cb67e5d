"""What a connection is made with, checked before anything is sent. Reads the environment, and looks for a CA bundle."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import sys
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlencode, urlsplit

import attrs

from sandboxsync.errors import ConfigurationError, InvalidRequestError, SandboxError

if TYPE_CHECKING:
    pass

__all__ = [
    "BaseURL",
    "bundle_of",
    "check_headers",
    "check_proxies",
    "check_seconds",
    "check_target",
    "check_url",
    "check_verify",
    "is_loopback",
    "proxy_for",
    "user_agent",
]

_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,252}[A-Za-z0-9_.])?")
_PATH = re.compile(r"/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*")
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\x20-\x7e\t]*")
_PORTS = {"http": 80, "https": 443}
_OURS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "accept-encoding", "proxy-authorization", "expect"}
)


@attrs.frozen
class BaseURL:
    """Where a service is. `path` is what stands before every path of a request, without a slash at its end."""

    scheme: str
    host: str
    port: int
    path: str = ""

    @property
    def origin(self) -> str:
        """Scheme, host and port as a URL writes them, the port only where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    def keeps_key(self, target: BaseURL) -> bool:
        """Whether a key for this host may go to `target` too (H5): same host and port, or https in place of http."""
        if self.host != target.host:
            return False
        if self.scheme == target.scheme:
            return self.port == target.port
        return (self.scheme, self.port, target.scheme, target.port) == ("http", 80, "https", 443)


def check_url(url: object, error: type[SandboxError] = ConfigurationError) -> BaseURL:
    """Return the parts of an http or https URL without user, query and fragment. Raises `error`."""
    if not isinstance(url, str):
        raise error(f"the URL of a service must be str, not {type(url).__name__}")
    shape = "the URL of a service is http://host or https://host, with a port and a path if need be"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise error(f"{shape}; this one cannot be read") from None
    if not url.isascii() or re.search(r"[\x00-\x20\x7f\\]", url):
        raise error(f"{shape}; this one holds a character that none may hold")
    if parts.scheme not in _PORTS:
        raise error(f"{shape}; not {parts.scheme + ':' if parts.scheme else 'one without a scheme'}")
    if "@" in parts.netloc:
        # Not shown: what stands before the @ is a secret.
        raise error(f"{shape}; a user or a key does not belong into it: pass api_key")
    host = parts.hostname or ""
    # In brackets there is an address: not all versions of Python look.
    if not (_is_address(host) if "[" in parts.netloc else _HOST.fullmatch(host)):
        raise error(f"{shape}; this one has no valid host")
    if port == 0:
        raise error(f"{shape}; 0 is no port")
    if "?" in url or "#" in url:
        raise error(f"{shape}; not with a query or a fragment")
    path = parts.path.rstrip("/")
    if path and not _is_clean(path):
        raise error(f"{shape}; its path must be percent-encoded and hold no '.' or '..'")
    return BaseURL(parts.scheme, host, port or _PORTS[parts.scheme], path)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_clean(path: str) -> bool:
    # What is resolved on the way would be sent to another place than was asked for.
    return bool(_PATH.fullmatch(path)) and not any(unquote(part) in (".", "..") for part in path.split("/"))


def is_loopback(host: str) -> bool:
    """Whether what is sent to this host stays on this machine."""
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_target(path: object, query: Mapping[str, str] | None) -> str:
    """Return path and query as they go over the wire. Raises `InvalidRequestError` for a path that is not encoded."""
    if not isinstance(path, str) or not _is_clean(path):
        raise InvalidRequestError("the path of a request must begin with '/', be percent-encoded, without '.' and '..'")
    return f"{path}?{urlencode(query)}" if query else path


def check_headers(headers: object, error: type[SandboxError], reserved: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return a copy. Raises `error` for names and values that are none (a line end in them), and for those we set."""
    if headers is None:
        return {}
    if not isinstance(headers, Mapping):
        raise error(f"headers must be a mapping, not {type(headers).__name__}")
    checked: dict[str, str] = {}
    for name, value in headers.items():
        if not isinstance(name, str) or not _TOKEN.fullmatch(name):
            raise error("a header's name is made of ASCII letters, digits and hyphens")
        if name.lower() in _OURS or name.lower() in reserved:
            raise error(f"the header {name!r} is set by the client itself")
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            # Not shown: it may be a secret.
            raise error(f"the value of the header {name!r} must be ASCII text without control characters")
        checked[name] = value.strip(" \t")
    return checked


def check_seconds(value: object, what: str, error: type[SandboxError] = ConfigurationError) -> float | None:
    """Return a limit in seconds; infinity is none. Raises `error` unless it is `None` or a number above 0."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise error(f"{what} must be None or a number of seconds above 0, not {value!r}")
    return None if value == math.inf else float(value)


def check_verify(verify: object) -> bool | str:
    """Return whether to check certificates, or the path of the CA bundle to check them with."""
    if isinstance(verify, bool):
        return verify
    path = os.fspath(verify) if isinstance(verify, (str, os.PathLike)) else None
    if not isinstance(path, str) or not os.path.exists(path):
        raise ConfigurationError(f"verify must be True, False or the path of a CA bundle that exists, not {verify!r}")
    return path


def check_proxies(proxies: object) -> dict[str, str] | None:
    """Return a copy; `None`, which stays, means those of the environment, `{}` none at all.

    Raises `ConfigurationError`, without showing a password.
    """
    if proxies is None:
        return None
    if not isinstance(proxies, Mapping):
        raise ConfigurationError(f"proxies must be a mapping, not {type(proxies).__name__}")
    for scheme, url in proxies.items():
        check_proxy(scheme, url)
    return dict(proxies)


def check_proxy(scheme: object, url: object) -> None:
    """Raises `ConfigurationError` unless it is a proxy that can be used."""
    if not isinstance(scheme, str) or not isinstance(url, str):
        raise ConfigurationError("proxies map 'http', 'https' or 'all' to the URL of a proxy")
    name = f"the {scheme!r} proxy"
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
        parts = urlsplit("")
    if not usable or re.search(r"[\x00-\x20\x7f]", url):
        raise ConfigurationError(f"{name} is not the URL of a host")
    if parts.scheme not in _PORTS:
        raise ConfigurationError(f"{name} must be http:// or https://, not {parts.scheme}://")


def proxy_for(target: BaseURL, proxies: Mapping[str, str] | None) -> str | None:
    """Return the URL of the proxy to use, of `proxies` or else of the environment; `None` to go straight.

    The environment's is never used for this machine: a proxy cannot reach it, and would see what is not encrypted.
    Raises `ConfigurationError` for one that cannot be used.
    """
    from requests.utils import get_environ_proxies, select_proxy

    url = f"{target.origin}/"
    if proxies is None:
        if is_loopback(target.host):
            return None
        proxies = get_environ_proxies(url)
    found = select_proxy(url, dict(proxies))
    if not found:
        return None
    check_proxy(target.scheme, found)
    return found if "://" in found else f"http://{found}"


def bundle_of(verify: bool | str) -> bool | str:
    """Return what requests is to check certificates with; the environment names a bundle as it does for requests.

    Raises `ConfigurationError` when the environment names one that does not exist.
    """
    if verify is not True:
        return verify
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        if path := os.environ.get(name):
            if not os.path.exists(path):
                raise ConfigurationError(f"{name} is the path of a CA bundle that does not exist: {path!r}")
            return path
    return True


@lru_cache(maxsize=1)
def user_agent() -> str:
    """Return the name and version of this package and of Python."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        own = version("sandboxsync")
    except PackageNotFoundError:
        # Run from a checkout.
        own = "0"
    return f"sandboxsync/{own} python/{sys.version_info.major}.{sys.version_info.minor}"
