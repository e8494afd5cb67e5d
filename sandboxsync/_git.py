"""Clone a repository inside a sandbox, by a command in the session.

Credentials travel in environment variables of that one command, and only a credential helper in it reads them: they
are in no argument list and no file. Everything that depends on the session's directory happens in the command, when
its turn has come.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Protocol
from urllib.parse import unquote, urlsplit, urlunsplit

import attrs

from ._redact import MASK, redact
from ._unset import Timeout
from .errors import (
    CommandTimeoutError,
    GitAuthenticationError,
    GitBranchNotFoundError,
    GitError,
    GitRepositoryNotFoundError,
    InvalidRequestError,
    SandboxError,
    SandboxFileNotFoundError,
)
from .models import ExecResult, GitCheckoutResult
from .transports.base import CommandRequest, Exited, SessionRef, Transport

__all__ = ["Run", "checkout"]

_USERNAME = "SANDBOXSYNC_GIT_USERNAME"
_PASSWORD = "SANDBOXSYNC_GIT_PASSWORD"
_HELPER = (
    f'!f() {{ test "$1" = get || exit 0; printf \'username=%s\\npassword=%s\\n\' "${_USERNAME}" "${_PASSWORD}"; }}; f'
)
