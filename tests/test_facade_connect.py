"""``connect`` and what importing the package costs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandboxsync
from sandboxsync import ConfigurationError, InvalidRequestError, LocalTransport, Sandbox, connect
from sandboxsync.transports import local
from tests._stub_transport import StubTransport


class Recorder(StubTransport):
    """Stands for LocalTransport and keeps what it was made with."""

    made: list[Recorder]

    def __init__(self, workspace: str | None = None, **options: Any) -> None:
        super().__init__()
        self.workspace_given = workspace
        self.options = options
        type(self).made.append(self)


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Recorder]]:
    """The transports that connect has made."""
    Recorder.made = []
    monkeypatch.setattr(local, "LocalTransport", Recorder)
    monkeypatch.delenv("SANDBOX_URL", raising=False)
    return iter([Recorder.made])


@pytest.mark.parametrize(
    ("url", "workspace", "options"),
    [
        ("local:", None, {}),
        ("LOCAL:", None, {}),
        ("local:/srv/w", "/srv/w", {}),
        ("local:///srv/w", "/srv/w", {}),
        ("local:/a%20b%3Fc", "/a b?c", {}),
        ("local:?isolation=none", None, {}),
        ("local:/w?isolation=bubblewrap", "/w", {"isolation": "bubblewrap"}),
        ("local:?inherit_env=A,B", None, {"inherit_env": ("A", "B")}),
        ("local:/w?inherit_env=&bash=/opt/my%20bash", "/w", {"bash": "/opt/my bash"}),
    ],
)
def test_local_urls(made: Any, url: str, workspace: Any, options: Any) -> None:
    """local: is this machine; a path is the workspace; options are those of LocalTransport."""
    connect(url)
    (transport,) = next(made)
    assert transport.workspace_given == workspace
    assert transport.options == {"inherit_env": (), "bash": "bash", "isolation": "none", **options}
    assert transport.calls == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "local",
        "/srv/w",
        "local:rel/path",
        "local://host/w",
        "local:#x",
        "local:?nope=1",
        "local:?bash",
        "local:?bash=a&bash=b",
        "fake:x",
        "fake://host",
        "http:host",
        "https://user@host",
        "bridge+https://",
        "container+http://host?x=1",
        "ftp://host",
        5,
    ],
)
def test_other_urls_are_refused(made: Any, url: Any) -> None:
    """What this version cannot use raises ConfigurationError, and makes no transport."""
    with pytest.raises(ConfigurationError):
        connect(url)
    assert next(made) == []


def test_refusals_say_what_there_is(made: Any) -> None:
    """The message names what this version has, and no credential of the URL."""
    with pytest.raises(
        ConfigurationError, match="this version has 'local:', 'fake:', 'http://' and 'https://'"
    ) as caught:
        connect("ftp://user:hunter2@host")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="pass api_key") as caught:
        connect("https://user:hunter2@host")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="scheme") as caught:
        connect("hunter2")
    assert "hunter2" not in str(caught.value)
    with pytest.raises(ConfigurationError, match=r"'nope'.*bash, inherit_env, isolation"):
        connect("local:?nope=1")


def test_no_silent_default(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a URL anywhere it raises; SANDBOX_URL is taken when none is passed."""
    with pytest.raises(ConfigurationError, match="SANDBOX_URL"):
        connect()
    monkeypatch.setenv("SANDBOX_URL", "local:/srv/w")
    connect()
    assert [transport.workspace_given for transport in next(made)] == ["/srv/w"]


def test_the_sandbox_owns_its_transport(made: Any) -> None:
    """close(), and leaving a block, close the transport that connect made; destroy() leaves it."""
    sandbox = connect("local:", id="box")
    sandbox.close()
    with connect("local:"):
        pass
    with connect("local:", id="box"):
        pass
    connect("local:").destroy()
    names = [transport.names for transport in next(made)]
    assert names == [["close"], ["destroy", "close"], ["close"], ["destroy"]]


def test_a_transport_of_the_caller_is_left(made: Any) -> None:
    """close() of a Sandbox that was given its transport leaves that open."""
    transport = StubTransport()
    Sandbox(transport).close()
    assert transport.calls == []


def test_a_bad_option_closes_the_transport(made: Any) -> None:
    """When the Sandbox cannot be made nothing is left open."""
    with pytest.raises(InvalidRequestError):
        connect("local:", id="a/b")
    assert next(made)[0].names == ["close"]


def test_options_of_the_sandbox(made: Any) -> None:
    """The options of Sandbox are passed on."""
    sandbox = connect("local:", id="box", env={"A": "1"}, command_timeout=5, enable_default_session=False, api_key="k")
    assert (sandbox.id, sandbox.exec("x").session_id) == ("box", None)
    transport = next(made)[0]
    assert transport.last("run")[0].env == {"A": "1"}
    assert transport.last("run")[1].default_timeout == 5.0


# The package


def run(code: str) -> str:
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


# What `import sandboxsync` has no need of.
HEAVY = [
    *("requests", "urllib3", "websocket", "cattrs", "attrs", "http.client", "urllib.request", "socket", "ssl"),
    *("tarfile", "shutil", "tempfile", "subprocess", "multiprocessing", "asyncio", "concurrent.futures", "signal"),
    *("json", "logging", "email", "mimetypes", "uuid", "secrets", "random", "hashlib"),
    *("sandboxsync._sandbox", "sandboxsync.transports"),
]


def test_importing_the_package_is_light() -> None:
    """`import sandboxsync` imports nothing heavy and starts no thread."""
    loaded = run(
        f"import sys, sandboxsync; print([m for m in {HEAVY!r} if m in sys.modules]);"
        "import threading; print(threading.active_count())"
    )
    assert loaded.split("\n") == ["[]", "1"]


def test_importing_the_facade_is_light() -> None:
    """Sandbox itself needs nothing heavy but attrs and what that imports, and no transport."""
    heavy = [name for name in HEAVY if name not in ("attrs", "sandboxsync._sandbox", "sandboxsync.transports")]
    heavy += ["sandboxsync.transports.local", "sandboxsync._transfer", "sandboxsync._git"]
    loaded = run(
        "import sys, attrs; known = {*sys.modules}; from sandboxsync import Sandbox, connect, errors;"
        f"print([m for m in {heavy!r} if m in sys.modules and m not in known])"
    )
    assert loaded == "[]"


def test_every_public_name_is_there() -> None:
    """Each name of __all__ can be had, is the one of its module, and nothing else is promised."""
    for name in sandboxsync.__all__:
        assert getattr(sandboxsync, name) is not None
    assert sandboxsync.SandboxError is sandboxsync.errors.SandboxError
    assert sandboxsync.ExecResult is sandboxsync.models.ExecResult
    assert sandboxsync.LocalTransport is LocalTransport
    assert set(sandboxsync.__all__) <= set(dir(sandboxsync))
    with pytest.raises(AttributeError):
        getattr(sandboxsync, "no" + "pe")


def test_every_error_and_value_is_public() -> None:
    """All errors and values can be imported from the package itself."""
    for module in (sandboxsync.errors, sandboxsync.models):
        own = {
            name
            for name, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__ and not name.startswith("_")
        }
        assert own <= set(sandboxsync.__all__)


def test_version_is_that_of_the_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """__version__ is read from the installed metadata, when it is asked for."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: f"{name}-1.2.3")
    assert sandboxsync.__version__ == "sandboxsync-1.2.3"


def test_package_is_typed() -> None:
    """The wheel says that it has types."""
    assert (Path(sandboxsync.__file__).parent / "py.typed").exists()
