"""What to clone, and with which credentials. Pure functions."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, unquote

import attrs

from ._redact import MASK, redact
from .errors import InvalidRequestError

__all__ = ["PASSWORD", "USERNAME", "Source", "parse"]

USERNAME = "SANDBOXSYNC_GIT_USERNAME"
PASSWORD = "SANDBOXSYNC_GIT_PASSWORD"

# Runs in the shell of git, as a command with the argument "get" among others; printf is part of that shell,
# so the
# secret is in no argument list.
_HELPER = (
    f'!f() {{ test "$1" = get || exit 0; printf \'username=%s\\npassword=%s\\n\' "${USERNAME}" "${PASSWORD}"; }}; f'
)
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://", re.IGNORECASE)
_SCHEMES = frozenset({"https", "http", "ssh", "git+ssh", "ssh+git", "git", "file"})
_HELPER_TRANSPORT = re.compile(r"[a-z0-9][a-z0-9+.-]*::", re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@attrs.frozen
class Source:
    """A repository: *url* holds no credentials, *site* is the part of it that they are for."""

    url: str
    site: str = ""
    username: str = attrs.field(default="", repr=False)
    password: str | None = attrs.field(default=None, repr=False)
    secrets: tuple[str, ...] = attrs.field(default=(), repr=False)

    @property
    def environment(self) -> dict[str, str]:
        """The variables that the options refer to."""
        return {} if self.password is None else {USERNAME: self.username, PASSWORD: self.password}

    @property
    def options(self) -> list[str]:
        """The options of git that use the credentials for this site alone, and keep other helpers from
        them.
        """
        if self.password is None:
            return []
        return ["-c", "credential.helper=", "-c", f"credential.{self.site}.helper={_HELPER}"]

    @property
    def name(self) -> str:
        """The name of the directory that git would choose. Raises :class:`InvalidRequestError` without
        one.
        """
        path = re.sub(r"/*(\.git)?/*$", "", self.url.rstrip("/"))
        name = re.split(r"[/:]", path)[-1]
        if not name or name in (".", "..") or path.endswith("://"):
            raise InvalidRequestError(f"no directory can be named after {self.url!r}; give target_dir")
        return name

    def hide(self, text: str) -> str:
        """Return *text* with each secret, in any spelling that git or a server could use, as ``***``."""
        for secret in self.secrets:
            text = text.replace(secret, MASK)
        return redact(text)


def parse(repo_url: str, token: str | None) -> Source:
    """Take *repo_url* apart. Credentials are those of http(s); other URLs lose theirs, but for the user of
    ssh.

    Raises :class:`InvalidRequestError` for a URL that git would take for an option or a program, for one
    whose credentials are not percent-encoded so that it has two meanings, and for an empty token.
    """
    if not repo_url or _CONTROL.search(repo_url):
        raise InvalidRequestError("repo_url is empty, or holds a control character")
    if token is not None and (not token or _CONTROL.search(token)):
        raise InvalidRequestError("the token is empty, or holds a control character")
    if repo_url.startswith("-") or _HELPER_TRANSPORT.match(repo_url):
        raise InvalidRequestError(f"not the URL of a repository: {repo_url!r}")
    match = _SCHEME.match(repo_url)
    if match is None:
        return Source(repo_url)
    scheme = match.group(1).lower()
    if scheme not in _SCHEMES:
        raise InvalidRequestError(f"git cannot be used over {scheme!r}: {repo_url!r}")
    authority, path = re.fullmatch(r"([^/?#]*)(.*)", repo_url[match.end() :]).groups()  # type: ignore[union-attr]
    userinfo, _, host = authority.rpartition("@")
    bare = f"{scheme}://{host}{path}"
    if redact(bare) != bare or (host.endswith(":") and "@" in path):
        # Not shown: it cannot be told which part is secret.
        raise InvalidRequestError("the credentials in repo_url must be percent-encoded, and before its host")
    user, has_password, password = userinfo.partition(":")
    if scheme not in ("https", "http"):
        keep = user if "ssh" in scheme else ""
        return Source(f"{scheme}://{keep}@{host}{path}" if keep else bare)
    if not re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s=:\[\]\\]+)(:\d*)?", host):
        raise InvalidRequestError(f"a URL without a proper host: {repo_url!r}")
    if token is None and not userinfo:
        return Source(bare)
    username, secret = unquote(user), unquote(password) if token is None else token
    secrets = _spellings(username, secret, secret_user=token is None and not has_password)
    return Source(bare, f"{scheme}://{host}", username or "x-access-token", secret, secrets)


def _spellings(username: str, password: str, secret_user: bool) -> tuple[str, ...]:
    words = [password, username] if secret_user else [password]
    pair = f"{username or 'x-access-token'}:{password}".encode()
    spelled = {base64.b64encode(pair).decode()}
    for word in words:
        spelled |= {word, quote(word), quote(word, safe="")}
    return tuple(sorted(spelled - {""}, key=len, reverse=True))
