"""The error tree: its shape, its builtins, its fields, and what it never shows."""

from __future__ import annotations

import ast
import copy
import errno
import inspect
import pickle
import re
from datetime import datetime, timezone
from pathlib import Path

import pytest

from sandboxsync import errors
from sandboxsync.errors import CommandFailedError, FileError, SandboxError, file_error
from sandboxsync.models import ExecResult, ProcessLogs

NOW = datetime(2024, 5, 1, tzinfo=timezone.utc)
RESULT = ExecResult(3, "out", "err\n", b"out", b"err\n", "false", 0.5, NOW, "s1")
SECRETS = ("hunter2", "ghp_abc123", "dXNlcjpwdw==")
LEAKY = (
    "GET https://user:hunter2@host/x?token=ghp_abc123 Authorization: Basic dXNlcjpwdw== then https://ghp_abc123@host"
)

FIELDS: dict[str, object] = {
    "code": "SOME_CODE",
    "context": {"path": "/x", "sizes": [1, 2], "nested": {"a": ("b",)}},
    "http_status": 418,
    "retryable": True,
    "result": RESULT,
    "command": "make all",
    "stdout": "é",
    "stderr": "oops",
    "stdout_bytes": b"\xc3\xa9",
    "stderr_bytes": b"oops",
    "timeout": 1.5,
    "started": False,
    "session_id": "s1",
    "exit_code": 137,
    "errno": errno.ELOOP,
    "filename": "/a b",
    "process_id": "p1",
    "logs": ProcessLogs("o", "e", "p1"),
    "context_id": "c1",
    "retry_after": 2.0,
}


def tree() -> list[type[SandboxError]]:
    """Return every public class of the tree, found from the root."""
    found: list[type[SandboxError]] = []
    todo: list[type[SandboxError]] = [SandboxError]
    while todo:
        cls = todo.pop()
        todo += cls.__subclasses__()
        if cls.__module__ == errors.__name__ and cls not in found and not cls.__name__.startswith("_"):
            found.append(cls)
    return sorted(found, key=lambda cls: cls.__name__)


def fields_of(cls: type[SandboxError]) -> dict[str, object]:
    """Return a value for every keyword that the class takes."""
    names = {
        name
        for base in cls.__mro__
        if issubclass(base, SandboxError) and "__init__" in vars(base)
        for name, parameter in inspect.signature(vars(base)["__init__"]).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return {name: FIELDS[name] for name in sorted(names)}


def make(cls: type[SandboxError], message: str = "it broke", **changes: object) -> SandboxError:
    """Return an error of this class with every field set."""
    fields = fields_of(cls)
    fields.update(changes)
    built: SandboxError = cls.__call__(message, **fields)
    return built


def whole(error: SandboxError) -> dict[str, object]:
    """Return all that can be seen of an error."""
    state = dict(vars(error), type=type(error), args=error.args, text=str(error), shown=repr(error))
    if isinstance(error, OSError):
        state.update(errno=error.errno, strerror=error.strerror, filename=error.filename)
    return state


every_class = pytest.mark.parametrize("cls", tree(), ids=lambda cls: cls.__name__)


def test_tree_is_drawn_as_it_is() -> None:
    """The tree in the module's docstring is the real one: parents, builtins and [P]."""
    assert errors.__doc__ is not None
    drawn: dict[str, tuple[str | None, str | None, bool]] = {}
    path: list[str] = []
    for line in errors.__doc__.splitlines():
        match = re.fullmatch(r"    ([│├└─ ]*)(\w+)(?: \((\w+)\))?( \[P\])?", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        del path[depth:]
        drawn[match[2]] = (path[-1] if path else None, match[3], match[4] is not None)
        path.append(match[2])

    real: dict[str, tuple[str | None, str | None, bool]] = {}
    for cls in tree():
        parents = [base for base in cls.__mro__[1:] if base in tree()]
        builtin = [base.__name__ for base in cls.__bases__ if not issubclass(base, SandboxError)]
        real[cls.__name__] = (
            parents[0].__name__ if parents else None,
            builtin[0] if builtin and builtin != ["Exception"] else None,
            issubclass(cls, errors._PartialOutput),
        )
    assert drawn == real


def test_each_class_stands_below_its_nearest_parent() -> None:
    """A class of a family is found by the family's base: ``except SessionError`` sees every session error."""
    for cls in tree():
        drawn_parents = [base for base in cls.__mro__[1:] if base in tree()]
        for parent in drawn_parents[1:]:
            assert issubclass(drawn_parents[0], parent)


@every_class
def test_pickle_keeps_every_field(cls: type[SandboxError]) -> None:
    """Each error survives pickle, protocols 2 to 5, with every attribute that was set."""
    error = make(cls)
    error.__dict__["__notes__"] = ["a note"]
    for name, value in fields_of(cls).items():
        assert getattr(error, name) == value
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert whole(pickle.loads(pickle.dumps(error, protocol))) == whole(error)


@every_class
def test_copy_keeps_every_field(cls: type[SandboxError]) -> None:
    """Each error survives copy and deepcopy; a deep copy shares no context with its original."""
    error = make(cls)
    assert whole(copy.copy(error)) == whole(error)
    deep = copy.deepcopy(error)
    assert whole(deep) == whole(error)
    deep.context["path"] = "/other"
    assert error.context["path"] == "/x"


@every_class
def test_defaults(cls: type[SandboxError]) -> None:
    """Each class has a code in capitals of its own, and needs no argument (but a result)."""
    error: SandboxError = cls.__call__(**({"result": RESULT} if cls is CommandFailedError else {}))
    assert re.fullmatch(r"[A-Z]+(_[A-Z]+)*", error.code)
    assert [other.__name__ for other in tree() if other.code == cls.code] == [cls.__name__]
    assert error.context == {}
    assert error.http_status is None
    assert error.retryable in (True, False, None)
    assert isinstance(str(error), str)
    assert pickle.loads(pickle.dumps(error)).code == error.code


@every_class
def test_no_secret_is_shown(cls: type[SandboxError]) -> None:
    """No credential in the message, the context or the command is in the text, the repr or the attributes."""
    changes: dict[str, object] = {"context": {"url": LEAKY, "deep": [{"x": (LEAKY,)}], "token": "ghp_abc123"}}
    if issubclass(cls, errors._PartialOutput):
        changes["command"] = LEAKY
    if cls is CommandFailedError:
        changes["result"] = ExecResult(1, "", "", b"", b"", LEAKY, 0.1, NOW)
    error = make(cls, LEAKY, **changes)
    if cls is CommandFailedError:
        error_from_result = make(cls, "", **changes)
        assert not [s for s in SECRETS if s in str(error_from_result)]
    shown = f"{error} {error!r} {vars(error)!r}"
    assert not [secret for secret in SECRETS if secret in shown]


def test_context_is_a_copy() -> None:
    """A later change to the mapping that was passed does not reach the error."""
    given: dict[str, object] = {"a": 1}
    error = SandboxError("x", context=given)
    given["b"] = 2
    assert error.context == {"a": 1}


@pytest.mark.parametrize(
    ("number", "cls", "builtin"),
    [
        (errno.ENOENT, errors.SandboxFileNotFoundError, FileNotFoundError),
        (errno.EEXIST, errors.SandboxFileExistsError, FileExistsError),
        (errno.EACCES, errors.SandboxPermissionError, PermissionError),
        (errno.EPERM, errors.SandboxPermissionError, PermissionError),
        (errno.EROFS, errors.SandboxPermissionError, PermissionError),
        (errno.EISDIR, errors.SandboxIsADirectoryError, IsADirectoryError),
        (errno.ENOTDIR, errors.SandboxNotADirectoryError, NotADirectoryError),
        (errno.EFBIG, errors.FileTooLargeError, OSError),
        (errno.ENOSPC, errors.NoSpaceError, OSError),
        (errno.EDQUOT, errors.NoSpaceError, OSError),
        (errno.ENOTEMPTY, FileError, OSError),
        (errno.ELOOP, FileError, OSError),
        (errno.ENAMETOOLONG, FileError, OSError),
    ],
)
def test_file_error_maps_each_errno(number: int, cls: type[FileError], builtin: type[OSError]) -> None:
    """F3: an errno becomes the error of that name, which is the builtin too, with errno and filename."""
    error = file_error(OSError(number, "whatever", "/private/real"), "/workspace/a")
    assert type(error) is cls
    assert isinstance(error, builtin)
    assert (error.errno, error.filename) == (number, "/workspace/a")
    assert "/workspace/a" in str(error)
    assert "/private/real" not in str(error)


def test_file_error_without_errno() -> None:
    """An OSError without an errno keeps its text."""
    error = file_error(OSError("odd device"), "/x")
    assert (error.errno, error.filename) == (None, "/x")
    assert str(error) == "odd device: '/x'"


def test_file_errors_have_the_errno_of_their_class() -> None:
    """F3: a file error that was made from an answer, without an errno, has the right one and a clear text."""
    error = errors.SandboxIsADirectoryError(filename="/d")
    assert error.errno == errno.EISDIR
    assert str(error) == "Is a directory: '/d'"
    assert str(errors.FileError()) == "File operation failed"


def test_with_output_attaches_what_came_before() -> None:
    """[P]: the collected output is attached to the same object, decoded, and survives pickle."""
    error = errors.StreamInterruptedError("cut")
    assert error._with_output("cat https://u:hunter2@h/", b"a\xff", b"b", "utf-8", "strict") is error
    again = pickle.loads(pickle.dumps(error))
    assert again.command == "cat https://***@h/"
    assert (again.stdout_bytes, again.stderr_bytes) == (b"a\xff", b"b")
    assert (again.stdout, again.stderr) == ("a\\xff", "b")


def test_command_failed_tells_the_end_of_stderr() -> None:
    """CommandFailedError names the command and its exit code, and quotes a bounded end of stderr."""
    stderr = "first line\n" + "x" * 50_000 + "\nlast line\n"
    result = ExecResult(9, "", stderr, b"", stderr.encode(), "make " + "y" * 5_000, 0.1, NOW)
    text = str(CommandFailedError(result=result))
    assert text.startswith("Command 'make yyy")
    assert "exit code 9" in text
    assert text.endswith("last line")
    assert len(text) < 3_000


@pytest.mark.parametrize(
    ("cls", "retryable"),
    [
        (errors.TransportError, None),
        (errors.CommandTimeoutError, None),
        (errors.SandboxUnavailableError, True),
        (errors.AuthenticationError, False),
        (errors.InvalidRequestError, False),
    ],
)
def test_retryable_defaults(cls: type[SandboxError], retryable: bool | None) -> None:
    """``retryable`` is the class's own unless the caller knows better."""
    error: SandboxError = cls("x")
    assert error.retryable is retryable
    assert cls("x", retryable=not retryable).retryable is (not retryable)


def test_module_imports_nothing_heavy() -> None:
    """The error tree needs only the standard library and our own redaction at run time."""
    module = ast.parse(Path(errors.__file__).read_text(encoding="utf-8"))
    imported = {
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in module.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert imported <= {"__future__", "os", "collections.abc", "errno", "typing", "_redact"}
