"""The transports that the tests run on; this is the one list of them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest

from sandboxsync import Sandbox, Session
from sandboxsync.testing import make_transport, skip_unless_able, time_of
from sandboxsync.transports.base import Transport
from tests._served import Served, served

collect_ignore = (
    [
        *("test_docs.py", "test_examples_web.py", "test_isolation.py", "test_plugin.py", "test_recording.py"),
        "test_server_recorded.py",
        *("test_fault_proxy.py", "test_gunicorn.py", "test_hosted_trees.py", "test_hosted_users.py"),
        "test_http_faults.py",
        *("test_http_errors.py", "test_http_retry.py", "test_http_settings.py", "test_http_sse.py"),
    ]
    if os.environ.get("SANDBOXSYNC_QUICK") == "1"
    else []
)
"""With that, what hardly depends on the version of Python is left out. Isolation is still tried, by its examples."""

TRANSPORTS: Mapping[str, str] = {
    "local": "sandboxsync.LocalTransport()",
    "fake": "sandboxsync.FakeTransport()",
    "bubblewrap": "sandboxsync.LocalTransport(isolation='bubblewrap')",
    "local-workspace": "sandboxsync.LocalTransport(workspace={directory!r})",
    "bridge": "sandboxsync.HTTPTransport({url!r}, api_key={api_key!r}, dialect='bridge')",
    "container": "sandboxsync.HTTPTransport({container_url!r}, dialect='container')",
}
"""A name for each kind of transport, and the Python that makes it; `directory` is one that a test may use, the others
are those of a server that runs beside the tests."""

CHOSEN = [name for name in os.environ.get("SANDBOXSYNC_TRANSPORTS", "").split(",") if name] or list(TRANSPORTS)
"""Those that the suite runs on here: all, unless the environment names some, as `tox.ini` does for each Python."""

if not TRANSPORTS.keys() >= set(CHOSEN):
    raise pytest.UsageError(f"SANDBOXSYNC_TRANSPORTS={','.join(CHOSEN)}: there are {', '.join(TRANSPORTS)}")

NEEDED_PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "LocalTransport": ("bash", "git", "python3", "setsid"),
    "bubblewrap": ("bwrap",),
    "HTTPTransport": ("bash", "bwrap", "git", "python3", "setsid"),
}
"""What must be installed for the tests of a transport, by a part of the Python that makes it."""


def need_programs(name: str) -> None:
    """Skip, or fail where everything must be there, when a program that *name* needs is missing."""
    missing = [program for program in NEEDED_PROGRAMS[name] if shutil.which(program) is None]
    if missing:
        message = f"{name} is not tested: {', '.join(missing)} not installed"
        if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") == "1":
            pytest.fail(message)
        pytest.skip(message)


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    """For tests of isolated sandboxes."""
    need_programs("bubblewrap")


@pytest.fixture(scope="session")
def transports() -> Mapping[str, str]:
    """The list of transports, for the test that none is missing."""
    return TRANSPORTS


@pytest.fixture(scope="session")
def server(bubblewrap: None) -> Iterator[Served]:
    """Serves sandboxes over HTTP, to all tests of this process."""
    with served() as server:
        yield server


@pytest.fixture(params=CHOSEN)
def transport_source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The Python that makes the transport, once for each transport."""
    source = TRANSPORTS[request.param]
    for name in NEEDED_PROGRAMS:
        if name in source:
            need_programs(name)
    directory = tmp_path / "workspace"
    directory.mkdir()
    if "HTTPTransport" not in source:
        yield source.format(directory=str(directory))
        return
    server = request.getfixturevalue("server")
    yield source.format(url=server.url, api_key=server.api_key, container_url=server.container_url)
    if request.param == "container":
        server.renew_container()


@pytest.fixture
def transport(request: pytest.FixtureRequest, transport_source: str) -> Iterator[Transport]:
    """A transport that this test alone uses."""
    with closing(make_transport(transport_source)) as transport, time_of(request, transport):
        yield transport


@pytest.fixture
def sandbox(request: pytest.FixtureRequest, transport: Transport) -> Iterator[Sandbox]:
    """A sandbox that nobody has used yet."""
    skip_unless_able(request, transport)
    with Sandbox(transport) as sandbox:
        yield sandbox


@pytest.fixture
def session(sandbox: Sandbox) -> Iterator[Session]:
    """A session of that sandbox, without env, in the workspace."""
    with sandbox.session() as session:
        yield session
