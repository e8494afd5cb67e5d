"""From a URL to a sandbox. Only this module knows the transports; it imports each when asked for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, cast

from ._sandbox import Sandbox, own_transport
from ._unset import UNSET, Timeout
from ._validate import Env
from .errors import ConfigurationError

if TYPE_CHECKING:
    from .transports.base import Transport

_SCHEMES = "'local:', 'fake:', 'http://' and 'https://'"
_HTTP = ("http", "https")
_DIALECTS = ("bridge", "container")
_LOCAL_OPTIONS = "bash, inherit_env, isolation"


def connect(
    url: str | None = None,
    *,
    id: str | None = None,
    api_key: str | None = None,
    on_exit: Literal["destroy", "close"] | None = None,
    enable_default_session: bool = True,
    env: Env | None = None,
    command_timeout: Timeout = UNSET,
) -> Sandbox:
    """Return a ``Sandbox`` on the transport that ``url`` names, or the environment variable ``SANDBOX_URL``.

    - ``local:`` is this machine, each sandbox in a private temporary directory.
    - ``local:/path`` is this machine with the existing directory ``/path`` as the workspace.
    - ``local:?isolation=bubblewrap`` is this machine, each sandbox in a container; a path works as well.
    - ``local:?inherit_env=A,B&bash=/opt/bash`` passes variables of this process, and names the shell.
    - ``fake:`` is in memory; it needs the extra ``fake``.
    - ``https://host`` or ``http://host:8787`` is a service; ``bridge+https://host`` and ``container+http://host`` say
      which of the two APIs it has, which is found out otherwise.

    The sandbox owns that transport: ``close()`` and leaving a ``with`` block close it. ``api_key`` is for
    services over HTTP; the others have no use for it. Left out, it is the environment variable ``SANDBOX_API_KEY``,
    unless ``SANDBOX_URL`` is set and names another host. The other options are those of ``Sandbox``. Nothing is
    started yet.

    Raises ``ConfigurationError`` when there is no URL, or one that this version cannot use, and
    ``InvalidRequestError`` for a bad option of ``Sandbox``.
    """
    if url is None:
        url = os.environ.get("SANDBOX_URL")
    if not url:
        raise ConfigurationError("no sandbox URL: pass one to connect() or set SANDBOX_URL")
    transport = _transport(url, api_key)
    try:
        sandbox = Sandbox(
            transport,
            id,
            on_exit=on_exit,
            enable_default_session=enable_default_session,
            env=env,
            command_timeout=command_timeout,
        )
    except BaseException:
        transport.close()
        raise
    own_transport(sandbox)
    return sandbox


def _transport(url: object, api_key: str | None) -> Transport:
    if not isinstance(url, str):
        raise ConfigurationError(f"a sandbox URL must be str, not {type(url).__name__}")
    scheme, colon, rest = url.partition(":")
    if not colon:
        # Not shown: who mixes up the arguments passes an API key here.
        raise ConfigurationError(f"a sandbox URL begins with a scheme; this version has {_SCHEMES}")
    if scheme.lower() == "fake":
        return _fake(url, rest)
    dialect, plus, http = scheme.lower().rpartition("+")
    if http in _HTTP and (dialect in _DIALECTS or not plus):
        return _http(f"{http}:{rest}", api_key, dialect or "auto")
    if scheme.lower() != "local":
        raise ConfigurationError(f"no transport for {scheme + ':'!r}; this version has {_SCHEMES}")
    return _local(url, rest)


def _http(url: str, api_key: str | None, dialect: str) -> Transport:
    from .transports.http import HTTPTransport

    if api_key is None and _is_the_usual_host(url):
        api_key = os.environ.get("SANDBOX_API_KEY") or None
    return HTTPTransport(url, api_key=api_key, dialect=cast('Literal["auto", "bridge", "container"]', dialect))


def _is_the_usual_host(url: str) -> bool:
    """Whether the key of the environment is meant for a URL: a key for one host is none of another's (H5)."""
    from urllib.parse import urlsplit

    usual = os.environ.get("SANDBOX_URL")
    if not usual:
        return True
    try:
        return urlsplit(usual.rpartition("+")[2]).hostname == urlsplit(url).hostname
    except ValueError:
        return False


def _fake(url: str, rest: str) -> Transport:
    if rest:
        raise ConfigurationError(f"a 'fake:' URL has nothing after the colon: {url!r}")
    try:
        from .transports.fake import FakeTransport

        return FakeTransport()
    except ImportError as exc:
        raise ConfigurationError(str(exc)) from exc


def _local(url: str, rest: str) -> Transport:
    from urllib.parse import parse_qsl, unquote

    from .transports.local import LocalTransport

    rest, _, fragment = rest.partition("#")
    path, _, query = rest.partition("?")
    if path.startswith("//"):
        # local:///abs/path, as file URLs are written: the host is empty.
        host, slash, path = path[2:].partition("/")
        path = slash + path
        if host:
            raise ConfigurationError(f"a 'local:' URL has no host: {url!r}")
    if fragment or (path and not path.startswith("/")):
        raise ConfigurationError(f"a 'local:' URL is 'local:' or 'local:/absolute/path': {url!r}")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError:
        raise ConfigurationError(f"the options of a 'local:' URL make no sense: {url!r}") from None
    options = dict(pairs)
    if len(options) < len(pairs):
        raise ConfigurationError(f"an option of a 'local:' URL is there twice: {url!r}")
    isolation = options.pop("isolation", "none")
    names = options.pop("inherit_env", "")
    bash = options.pop("bash", "bash")
    if options:
        raise ConfigurationError(f"unknown option {min(options)!r} of a 'local:' URL; there are {_LOCAL_OPTIONS}")
    return LocalTransport(
        unquote(path) or None,
        inherit_env=tuple(name for name in names.split(",") if name),
        bash=bash,
        isolation=cast('Literal["none", "bubblewrap"]', isolation),  # the transport checks it
    )
