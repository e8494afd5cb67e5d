"""The plugin for pytest, by runs of pytest that use it."""

from __future__ import annotations

import configparser
import doctest
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import cast

import pytest

import sandboxsync
from sandboxsync import LocalTransport, Sandbox
from sandboxsync.testing._observed import COMMANDS, TAIL, Journal, Observed
from sandboxsync.transports.base import Transport

pytest_plugins = ["pytester"]

CHECKOUT = Path(__file__).resolve().parent.parent
MODULE = "sandboxsync.testing.plugin"
INSTALLED = bool(entry_points(group="pytest11", name="sandboxsync"))
LOAD = () if INSTALLED else ("-p", MODULE)
"""What loads the plugin: the entry point of an installed package, or its name in a checkout."""

Run = Callable[..., pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run pytest on the source of a test file; with `apart` in an interpreter of its own."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, sys.path)))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)

    def run(source: str, *arguments: str, apart: bool = False, load: tuple[str, ...] = LOAD) -> pytest.RunResult:
        pytester.makepyfile(source)
        start = pytester.runpytest_subprocess if apart else pytester.runpytest_inprocess
        return start(*load, "-p", "no:cacheprovider", "--strict-markers", *arguments)

    return run


@pytest.fixture
def run_locally(run: Run) -> Run:
    """The same with `--sandbox=local`."""

    def run_locally(source: str, *arguments: str, **options: bool) -> pytest.RunResult:
        return run(source, "--sandbox=local", *arguments, **options)

    return run_locally


@pytest.fixture
def fake() -> None:
    """For tests that need a `FakeTransport`."""
    try:
        sandboxsync.FakeTransport()
    except (AttributeError, ImportError) as error:
        if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") == "1":
            pytest.fail(str(error))
        pytest.skip(str(error))


def section(result: pytest.RunResult) -> str:
    """The commands that the one failing test shows."""
    (text,) = re.findall(r"^-+ sandbox commands -+\n(.*?)(?=^[-=_]{5,})", result.stdout.str(), re.M | re.S)
    return str(text)


# Where


def test_the_default_is_in_memory(run: Run, fake: None) -> None:
    """Without an option `sandbox` is on a `FakeTransport` of its own; what scripts one test is not there in another."""
    result = run(
        """
        import pytest
        from sandboxsync import FakeTransport

        seen = []

        @pytest.mark.parametrize("number", range(2))
        def test_it(sandbox, fake_sandbox, fake_transport, number):
            assert sandbox.exec("echo here").stdout == "here\\n"
            assert isinstance(sandbox.transport, FakeTransport)
            assert sandbox.id != fake_sandbox.id
            assert repr(sandbox.transport) == repr(fake_sandbox.transport) == repr(fake_transport)
            fake_transport.marked = number
            assert sandbox.transport.marked == fake_sandbox.transport.marked == number
            assert fake_transport not in seen
            seen.append(fake_transport)
        """
    )
    result.assert_outcomes(passed=2)


def test_a_missing_fake_says_what_to_install(run: Run, pytester: pytest.Pytester) -> None:
    """What the import of `FakeTransport` raises is the whole message of the error."""
    pytester.makeconftest(
        """
        import pytest
        import sandboxsync

        there = sandboxsync.__getattr__

        def missing(name):
            if name != "FakeTransport":
                return there(name)
            raise ImportError("pip install 'sandboxsync[fake]'")

        @pytest.fixture(autouse=True)
        def without(monkeypatch):
            monkeypatch.delitem(vars(sandboxsync), "FakeTransport", raising=False)
            monkeypatch.setattr(sandboxsync, "__getattr__", missing)
        """
    )
    result = run("def test_it(sandbox): pass")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["pip install 'sandboxsync[[]fake]'; --sandbox=local runs *"])
    result.stdout.no_fnmatch_line("*During handling*")


def test_the_option_says_where(run: Run, tmp_path: Path) -> None:
    """`--sandbox` takes `local` and URLs."""
    source = """
        from sandboxsync import LocalTransport

        def test_it(sandbox):
            assert isinstance(sandbox.transport, LocalTransport)
            sandbox.write_file("written", sandbox.workspace)
        """
    run(source, "--sandbox=local").assert_outcomes(passed=1)
    run(source, f"--sandbox=local:{tmp_path}").assert_outcomes(passed=1)
    assert (tmp_path / "written").read_text() == str(tmp_path)


def test_the_mark_wins(run: Run, tmp_path: Path) -> None:
    """`transport` of a mark may be a place, a transport, or what makes one; `--sandbox` has no say then."""
    result = run(
        f"""
        import pytest
        from sandboxsync import LocalTransport

        own = LocalTransport({str(tmp_path)!r})

        @pytest.mark.parametrize("number", [
            pytest.param(number, marks=pytest.mark.sandbox(transport=transport))
            for number, transport in enumerate(
                ["local", "local:{tmp_path}", own, LocalTransport, lambda: LocalTransport({str(tmp_path)!r})]
            )
        ])
        def test_it(sandbox, number):
            assert isinstance(sandbox.transport, LocalTransport)
            assert (sandbox.workspace == {str(tmp_path)!r}) == (number in (1, 2, 4))
            assert sandbox.exec("echo ok").stdout == "ok\\n"

        def test_a_transport_that_was_given_is_not_closed():
            assert own.list_sessions("any") == []
            own.close()
        """,
        "--sandbox=nowhere://at.all",
    )
    result.assert_outcomes(passed=6)


def test_options_of_the_mark(run: Run) -> None:
    """Other arguments are those of `Sandbox`, for every fixture; the closest mark wins argument by argument."""
    result = run(
        """
        import pytest
        from sandboxsync import CommandTimeoutError

        @pytest.mark.sandbox(transport="local", env={"A": "class"}, command_timeout=0.5)
        class TestIt:
            @pytest.mark.sandbox(env={"A": "function"}, enable_default_session=False)
            def test_it(self, sandbox):
                assert sandbox.exec("echo $A").stdout == "function\\n"
                assert sandbox.list_sessions() == []
                with pytest.raises(CommandTimeoutError):
                    sandbox.exec("sleep 60")

            def test_another(self, local_sandbox):
                assert local_sandbox.exec("echo $A").stdout == "class\\n"
        """
    )
    result.assert_outcomes(passed=2)


def test_each_test_has_its_own(run_locally: Run) -> None:
    """Sandboxes of two tests, and those of one, have different ids; they and their transports end with the test."""
    result = run_locally(
        """
        import os
        import pytest
        from sandboxsync import ConfigurationError

        seen = []

        @pytest.mark.parametrize("number", range(2))
        def test_it(sandbox, local_sandbox, number):
            for each in (sandbox, local_sandbox):
                assert not each.exists("file")
                each.write_file("file", "")
                seen.append((each.id, each.workspace, each.transport))

        def test_they_have_ended():
            assert len({id for id, _, _ in seen}) == 4
            for _, workspace, transport in seen:
                assert not os.path.exists(workspace)
                with pytest.raises(ConfigurationError):
                    transport.list_sessions("any")
        """
    )
    result.assert_outcomes(passed=3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("'local'", "it takes keyword arguments only"),
        ("leak='ignore'", "no argument is named 'leak'; there are transport, leaks, command_timeout, *"),
        ("leaks=True", "leaks is 'fail' or 'ignore', not True"),
        ("transport='lokal'", "transport is a place such as 'local', *: 'lokal'"),
        ("transport=3", "transport is a place such as 'local', *: 3"),
        ("transport=dict", "transport made {}, which is no transport"),
        ("transport='local', env={'1': ''}", "*1*"),
        ("transport='local', command_timeout=0", "command_timeout*"),
    ],
)
def test_wrong_marks(run: Run, arguments: str, message: str) -> None:
    """A mark that makes no sense is an error of its test, which says why in one line."""
    result = run(
        f"""
        import pytest

        @pytest.mark.sandbox({arguments})
        def test_it(sandbox):
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ERROR at setup of test_it*", f"@pytest.mark.sandbox: {message}", "*short test*"])
    result.stdout.no_fnmatch_line("*During handling*")


def test_wrong_places(run: Run) -> None:
    """An option that can mean nothing ends the run at once; a URL that leads nowhere is an error of each test."""
    result = run("def test_it(sandbox): pass", "--sandbox=lokal")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --sandbox takes 'fake', 'local' or a URL, not 'lokal'"])
    result = run("def test_it(sandbox): pass", "--sandbox=nowhere://at.all")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["no sandbox at 'nowhere://at.all': *"])


# What is left behind


def test_leaks_are_named(run_locally: Run) -> None:
    """Sessions and running processes that a test leaves are an error of its own, and do not outlive the test."""
    result = run_locally(
        """
        def test_it(sandbox):
            sandbox.exec("true", session_id="work")
            sandbox.create_session("build")
            sandbox.start_process("sleep 60", process_id="web")

        def test_next(sandbox):
            assert sandbox.list_sessions() == [] == sandbox.list_processes()
        """
    )
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*ERROR at teardown of test_it*",
            "the test left behind in its sandbox: session 'build', session 'work', process 'web' (sleep 60)",
            "*leaks='ignore'*",
        ]
    )


def test_what_is_no_leak(run_locally: Run) -> None:
    """The default session, what has ended, and what the test allowed, ended or closed."""
    result = run_locally(
        """
        import pytest
        from sandboxsync import Sandbox

        def leave(sandbox):
            sandbox.create_session("left")
            sandbox.start_process("sleep 60")

        def test_clean(sandbox):
            sandbox.exec("sleep 60 &")
            with sandbox.session() as session:
                session.exec("true")
            sandbox.start_process("sleep 60").kill()

        def test_about_to_end(sandbox):
            sandbox.start_process("sleep 0.2; exit 3", auto_cleanup=True)
            sandbox.start_process("sleep 0.2; exit 3")

        @pytest.fixture
        def cleaned(sandbox):
            with sandbox.session("of-a-fixture"):
                yield

        def test_of_a_fixture(cleaned):
            pass

        def test_unused(sandbox):
            pass

        @pytest.mark.sandbox(leaks="ignore")
        def test_allowed(sandbox):
            leave(sandbox)

        @pytest.mark.parametrize("end", ["destroy", "close"])
        def test_ended(sandbox, end):
            leave(sandbox)
            getattr(sandbox, end)()

        def test_transport_closed(sandbox):
            leave(sandbox)
            with sandbox.transport:
                pass

        def test_ended_by_somebody_else(sandbox):
            leave(sandbox)
            Sandbox(sandbox.transport, id=sandbox.id).destroy()
        """
    )
    result.assert_outcomes(passed=9)


def test_a_failure_is_not_hidden(run_locally: Run) -> None:
    """A test that failed, was skipped, or is expected to fail may have stopped before it could clean up."""
    result = run_locally(
        """
        import pytest

        def test_fails(sandbox):
            sandbox.create_session("left")
            assert 0, "the failure itself"

        def test_skips(sandbox):
            sandbox.create_session("left")
            pytest.skip("enough")

        @pytest.mark.xfail
        def test_expected(sandbox):
            sandbox.create_session("left")
            assert 0
        """
    )
    result.assert_outcomes(failed=1, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(["*the failure itself*"])


def test_an_unused_sandbox_is_not_started(run: Run) -> None:
    """A test that does not use its sandbox costs nothing: its transport is only closed."""
    result = run(
        """
        import pytest

        calls = []

        class Transport:
            name = "Transport"

            def __getattr__(self, name):
                calls.append(name)
                return lambda *args: []

            def run(self, ref, request): ...

        @pytest.mark.sandbox(transport=Transport)
        def test_it(sandbox):
            repr(sandbox)

        def test_calls():
            assert calls == ["close"]
        """
    )
    result.assert_outcomes(passed=2)


# The commands of a failed test


def test_a_failing_test_shows_its_commands(run_locally: Run) -> None:
    """With session, exit code or error, and both outputs; a test that passes shows none."""
    result = run_locally(
        """
        import pytest
        from sandboxsync import CommandTimeoutError

        def test_passes(sandbox):
            sandbox.exec("echo unseen")

        def test_fails(sandbox):
            sandbox.exec("for n in 1 2; do\\n  echo out $n\\ndone; echo err >&2; false")
            with sandbox.session("work") as session, pytest.raises(CommandTimeoutError):
                session.exec("echo so far; sleep 60", timeout=0.5)
            with sandbox.exec_stream("echo begun; sleep 60") as stream:
                next(stream)
            stream = sandbox.exec_stream("sleep 60", session_id="still")
            try:
                sandbox.exec(["exit", "a b"], check=True)
            finally:
                sandbox.transport.close()
        """,
        apart=True,  # it drops a stream, which would be complained of whenever that is collected here
    )
    result.assert_outcomes(passed=1, failed=1)
    text = re.sub(r"\d\.\d\d s$", "TIME", section(result), flags=re.M)
    assert text.splitlines() == [
        "$ for n in 1 2; do",
        ">   echo out $n",
        "> done; echo err >&2; false",
        "  session 'default': exit code 1, TIME",
        "  stdout | out 1",
        "  stdout | out 2",
        "  stderr | err",
        "$ echo so far; sleep 60",
        "  session 'work': CommandTimeoutError: the command was stopped after 0.5 s, TIME",
        "  stdout | so far",
        "$ echo begun; sleep 60",
        "  session 'default': closed before its end was read, TIME",
        "$ sleep 60",
        "  session 'still': still runs",
        "$ 'exit' 'a b'",
        *text.splitlines()[15:],
    ]
    assert "numeric argument required" in text


def test_commands_of_the_code_under_test(run_locally: Run) -> None:
    """Other sandboxes on the same transport are seen too, and told apart."""
    result = run_locally(
        """
        from sandboxsync import Sandbox

        def test_it(sandbox):
            sandbox.exec("echo one")
            Sandbox(sandbox.transport, id="of-the-app", enable_default_session=False).exec("echo two")
            assert 0
        """
    )
    text = section(result)
    assert re.search(r"session 'default' of sandbox 's\w+': exit code 0", text)
    assert "no session of sandbox 'of-the-app': exit code 0" in text


def test_setup_and_teardown_show_commands_too(run_locally: Run) -> None:
    """A fixture that fails on top of `sandbox` shows what it ran, and so does a leak."""
    source = """
        import pytest

        @pytest.fixture
        def project(sandbox):
            sandbox.exec("echo made", check=True)
            assert {passes}

        def test_it(sandbox, project):
            sandbox.create_session("left")
        """
    for passes in (True, False):
        result = run_locally(source.format(passes=passes))
        result.assert_outcomes(passed=int(passes), errors=1)
        assert section(result).startswith("$ echo made\n")


def test_without_commands_there_is_no_section(run_locally: Run) -> None:
    """Nothing is shown when nothing was run."""
    result = run_locally("def test_it(sandbox): assert 0")
    result.assert_outcomes(failed=1)
    result.stdout.no_fnmatch_line("*sandbox commands*")


@pytest.fixture
def journal() -> Journal:
    """An empty journal."""
    return Journal()


@pytest.fixture
def observed(journal: Journal) -> Iterator[Sandbox]:
    """A local sandbox whose commands are noted there."""
    with LocalTransport() as transport:
        observed = cast(Transport, Observed(transport, journal))
        yield Sandbox(observed)


def test_the_last_commands_are_kept(journal: Journal, observed: Sandbox) -> None:
    """Only so many, and the text says how many are missing."""
    assert str(journal) == ""
    for number in range(COMMANDS + 3):
        observed.exec(f"echo {number}")
    lines = str(journal).splitlines()
    assert lines[0] == "... (3 earlier)"
    assert [line for line in lines if line.startswith("$")] == [f"$ echo {number}" for number in range(3, COMMANDS + 3)]


def test_much_text_is_cut(journal: Journal, observed: Sandbox) -> None:
    """A long command shows its begin, a long output its end, also one of wide characters."""
    observed.exec("for n in {1..9000}; do printf '\\xf0\\x9f\\x90\\x8d'; done; echo -n end # " + "x" * 9_000)
    first, _, missing, output = str(journal).splitlines()
    assert (len(first), first[-4:]) == (TAIL + 5, "x...")
    assert missing == f"  stdout | ... ({4 * 9_000 - 4 * (TAIL - 3)} bytes before)"
    assert output == "  stdout | " + "\N{SNAKE}" * (TAIL - 3) + "end"


def test_no_credential_is_shown(journal: Journal, observed: Sandbox) -> None:
    """Those of a URL are masked, in commands and outputs."""
    observed.exec("echo https://user:secret@example.com/")
    assert "secret" not in str(journal)
    assert str(journal).count("https://***@example.com/") == 2


def test_odd_text_can_be_reported(journal: Journal, observed: Sandbox) -> None:
    """What no encoding takes does not break the report."""
    observed.exec("printf '\\xff\\0'; true \udcff")
    observed.exec(" \n")
    assert "true \\udcff" in str(journal)
    str(journal).encode()


def test_the_transport_can_be_used_as_it_is(observed: Sandbox) -> None:
    """What it has beyond the protocol is there, as are its class, its name and its end."""
    assert isinstance(observed.transport, LocalTransport)
    assert repr(observed.transport) == "LocalTransport()"
    assert repr(observed).endswith("on LocalTransport>")
    assert not hasattr(observed.transport, "no_such_thing")
    with observed.transport as transport:
        assert transport is observed.transport


def test_an_observed_transport_keeps_the_rules(pytester: pytest.Pytester, run: Run) -> None:
    """The suite passes on it as on the one inside. Some groups of it stand for all."""
    source = """
        import pytest
        from sandboxsync import FakeTransport
        from sandboxsync.testing import TransportSuite
        from sandboxsync.testing._observed import Journal, Observed

        class TestObserved(TransportSuite):
            @pytest.fixture
            def transport(self):
                with FakeTransport() as transport:
                    yield Observed(transport, Journal())

            @pytest.fixture
            def transport_source(self):
                return "sandboxsync.FakeTransport()"
        """
    result = run(source, "-k", "S4_ or E3_ or E13_ or T4_ or T6_ or stream", apart=True)
    assert result.ret == 0
    assert result.parseoutcomes()["passed"] > 10


# How it gets along with others


def test_closer_fixtures_win(run: Run) -> None:
    """A project's own fixtures of these names are its own, and are left alone."""
    result = run(
        """
        import pytest

        @pytest.fixture
        def sandbox():
            return "mine"

        def test_it(sandbox):
            assert sandbox == "mine"
        """
    )
    result.assert_outcomes(passed=1)


def test_under_xdist(run_locally: Run) -> None:
    """Workers check and report as one process does, whatever the text."""
    result = run_locally(
        """
        import pytest

        @pytest.mark.parametrize("number", range(4))
        def test_it(sandbox, number):
            assert sandbox.exec("printf 'A\\\\xff'; true \\udcff").stdout == "A"

        def test_leaks(sandbox):
            sandbox.create_session("left")
        """,
        "-n2",
        apart=True,
    )
    result.assert_outcomes(failed=4, passed=1, errors=1)
    assert result.stdout.str().count("- sandbox commands -") == 4
    result.stdout.fnmatch_lines(["*left behind in its sandbox: session 'left'"])


def test_strict_runs_have_no_complaint(run_locally: Run) -> None:
    """Warnings as errors, strict markers and the import mode `importlib` are fine."""
    result = run_locally(
        """
        import pytest

        @pytest.mark.sandbox(env={"A": "1"})
        def test_it(sandbox):
            assert sandbox.exec("echo $A").stdout == "1\\n"
        """,
        "-Werror",
        "--import-mode=importlib",
        "--strict-config",
        apart=True,
    )
    result.assert_outcomes(passed=1)


def test_the_entry_point(run: Run, pytester: pytest.Pytester) -> None:
    """The plugin of an installed package is found by itself, and `-p no:sandboxsync` keeps it out."""
    setup = configparser.ConfigParser()
    setup.read(CHECKOUT / "setup.cfg")
    entry = setup["options.entry_points"]["pytest11"].strip()
    assert entry == f"sandboxsync = {MODULE}"
    if not INSTALLED:
        # What an installer would have made of it.
        info = pytester.mkdir("entry-1.dist-info")
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: entry\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[pytest11]\n{entry}\n")
    source = "def test_it(local_sandbox): local_sandbox.exec('true', check=True)"
    run(source, "-Werror", apart=True, load=()).assert_outcomes(passed=1)
    result = run(source, "-p", "no:sandboxsync", apart=True, load=())
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fixture 'local_sandbox' not found*"])


def test_the_help(run: Run) -> None:
    """`--help`, `--markers` and `--fixtures` tell of it."""
    run("", "--help").stdout.fnmatch_lines(
        ["sandboxes:", "  --sandbox=WHERE *where the sandbox fixture runs commands*"]
    )
    run("", "--markers").stdout.fnmatch_lines(["@pytest.mark.sandbox(*): what the sandbox fixtures give this test. *"])
    shown = run("", "--fixtures").stdout.str()
    for name in ("sandbox", "fake_sandbox", "local_sandbox", "fake_transport"):
        assert re.search(rf"^{name} -- .*\n    [A-Z]", shown, re.M), name


def test_the_page_shows_what_is_printed(pytester: pytest.Pytester, run: Run, fake: None) -> None:
    """The files of `docs/pytest-plugin.md` run, and its reports are real: `...` in them stands for anything."""
    page = (CHECKOUT / "docs" / "pytest-plugin.md").read_text(encoding="utf-8")
    for name, text in re.findall(r"^```python file=(\S+)\n(.*?)^```$", page, re.M | re.S):
        pytester.path.joinpath(name).write_text(text, encoding="utf-8")
    shown = re.findall(r"^```console\n\$ pytest ([^\n]*)\n```\n\n```text\n(.*?)^```$", page, re.M | re.S)
    assert len(shown) == 2
    for arguments, expected in shown:
        printed = run("", *arguments.split(), apart=True).stdout.str()
        assert doctest.OutputChecker().check_output(expected, f"{printed}\n", doctest.ELLIPSIS), printed
    run("", "test_greeting.py", "test_marked.py").assert_outcomes(passed=3)


def test_a_run_that_does_not_use_it_does_not_pay() -> None:
    """Loading takes less than 10 ms and imports nothing that is heavy, nor any of the package but its names."""
    program = f"""
import importlib, sys, time
import pytest
before = set(sys.modules)
times = []
for _ in range(5):
    for name in set(sys.modules) - before:
        del sys.modules[name]
    started = time.process_time()
    importlib.import_module({MODULE!r})
    times.append(time.process_time() - started)
print(min(times), *sorted(set(sys.modules) - before))
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    out = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True).stdout
    seconds, *modules = out.split()
    assert float(seconds) < 0.01
    assert modules == ["sandboxsync", "sandboxsync.testing", MODULE]
