"""From the answers of the services to the errors of the package: none unmapped, none with a secret."""

from __future__ import annotations

import errno
import json
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxsync import errors
from sandboxsync.errors import FileError, SandboxError
from sandboxsync.transports.http._error_table import TABLE
from sandboxsync.transports.http._error_words import codes_of_class, errno_in
from sandboxsync.transports.http._errors import Asked, ServiceError, error_for, error_of, malformed, parse_error

RECORDED = Path(__file__).parent / "wire" / "errors.jsonl"
KEY = "sk-Zeta/9+x=4242"
ASKED = Asked("read_file", path="/x", session_id="s1", process_id="p1", context_id="c1", command="make", timeout=3.0)


def recorded() -> list[dict[str, object]]:
    """The recorded answers of both services whose status says that they failed."""
    return [json.loads(line) for line in RECORDED.read_text(encoding="utf-8").splitlines()]


def mapped(exchange: dict[str, object], asked: Asked = ASKED) -> SandboxError:
    """The error for a recorded answer."""
    status, headers, body = exchange["status"], exchange["headers"], exchange["body"]
    assert isinstance(status, int)
    assert isinstance(headers, dict)
    return error_for(status, headers, str(body or "").encode(), asked)


def answer(status: int, body: object, asked: Asked = ASKED, **headers: str) -> SandboxError:
    """The error for an answer with this JSON, or these bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return error_for(status, {name.replace("_", "-"): value for name, value in headers.items()}, data, asked)


EXPECTED: dict[str, type[SandboxError]] = {
    "bridge-no-key": errors.AuthenticationError,
    "bridge-exec-argv-empty": errors.InvalidRequestError,
    "bridge-exec-cwd-outside": errors.SandboxPermissionError,
    "bridge-session-create-duplicate": errors.SessionExistsError,
    "bridge-session-delete-unknown": errors.SessionNotFoundError,
    "bridge-file-put-onto-dir": errors.SandboxIsADirectoryError,
    "bridge-file-put-too-large": errors.FileTooLargeError,
    "bridge-file-put-12-mib": errors.TransportError,
    "bridge-file-put-24-mib": errors.FileTooLargeError,
    "bridge-hydrate-garbage": errors.FileError,
    "bridge-unmount-unknown": errors.InvalidRequestError,
    "bridge-route-404": errors.ProtocolError,
    "container-route-404": errors.ProtocolError,
    "container-session-create-duplicate": errors.SessionExistsError,
    "container-session-delete-unknown": errors.SessionNotFoundError,
    "container-exec-exit-3-s": errors.SessionTerminatedError,
    "container-exec-timeout-s": errors.CommandTimeoutError,
    "container-exec-env-bad-name-s": errors.InvalidRequestError,
    "container-exec-cwd-missing-n": errors.SandboxFileNotFoundError,
    "container-stream-empty-n": errors.InvalidRequestError,
    "container-process-kill-ended-s": errors.ProcessNotFoundError,
    "container-process-get-unknown": errors.ProcessNotFoundError,
    "container-mkdir-existing-s": errors.SandboxFileExistsError,
    "container-mkdir-missing-parent-n": errors.SandboxFileNotFoundError,
    "container-write-onto-dir-n": errors.SandboxIsADirectoryError,
    "container-read-missing-n": errors.SandboxFileNotFoundError,
    "container-list-files-file-n": errors.SandboxNotADirectoryError,
    "container-delete-dir-n": errors.SandboxIsADirectoryError,
    "container-git-checkout-missing-branch-n": errors.GitBranchNotFoundError,
    "container-git-checkout-unreachable-n": errors.GitError,
    "container-code-unknown-context": errors.CodeContextNotFoundError,
    "container-body-too-large": errors.FileTooLargeError,
    "container-method-patch": errors.ProtocolError,
}


@pytest.mark.parametrize("exchange", recorded(), ids=lambda exchange: f"{exchange['service']}-{exchange['name']}")
def test_recorded_errors(exchange: dict[str, object]) -> None:
    """Every error that the services were heard to answer is one of the table, with all its fields."""
    error = mapped(exchange)
    body = str(exchange["body"] or "")
    said = parse_error(body.encode())
    assert error.http_status == exchange["status"]
    if said is None:
        assert isinstance(error, errors.ProtocolError | FileError)
        assert body in str(error)
    else:
        assert error.code in TABLE
        assert error.code.isupper()
        assert error.context.get("service_code", error.code) == said.code
        assert said.message[:1000].rstrip() in str(error)
    assert "stack" not in error.context
    assert str(error).startswith("read_file: ")
    assert type(error) is EXPECTED.get(f"{exchange['service']}-{exchange['name']}", type(error))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_the_expected_ones_are_recorded() -> None:
    """No name of the list above is misspelt."""
    assert set(EXPECTED) <= {f"{exchange['service']}-{exchange['name']}" for exchange in recorded()}


@pytest.mark.parametrize("code", sorted(TABLE))
def test_every_code_of_the_table(code: str) -> None:
    """Each code gives an error of the tree that carries it, from either shape, and none is retried at random."""
    shapes: list[dict[str, object]] = [
        {"code": code, "message": "it broke", "context": {"exitCode": 3}, "httpStatus": 500},
        {"code": code.lower(), "error": "thing failed: it broke"},
    ]
    for shape in shapes:
        error = answer(500, shape)
        assert error.code == code
        assert error.http_status == 500
        assert type(error) is type(answer(500, shapes[0]))
        assert "it broke" in str(error)
    assert type(error) is not SandboxError


def test_fields_of_what_was_asked() -> None:
    """Errors carry the path, ids and command of the call, and what the service told."""
    missing = answer(404, {"code": "FILE_NOT_FOUND", "message": "no"})
    assert isinstance(missing, FileNotFoundError)
    assert (missing.filename, missing.errno) == ("/x", errno.ENOENT)
    ended = answer(410, {"code": "SESSION_TERMINATED", "message": "no", "context": {"exitCode": 137}})
    assert isinstance(ended, errors.SessionTerminatedError)
    assert (ended.session_id, ended.exit_code, ended.command) == ("s1", 137, "make")
    late = answer(500, {"code": "COMMAND_EXECUTION_ERROR", "message": "Command timeout after 1500ms"})
    assert isinstance(late, errors.CommandTimeoutError)
    assert (late.timeout, late.code, late.context) == (
        1.5,
        "COMMAND_TIMEOUT",
        {"service_code": late.context["service_code"]},
    )
    gone = answer(404, {"code": "PROCESS_NOT_FOUND", "message": "no"})
    assert isinstance(gone, errors.ProcessNotFoundError)
    assert gone.process_id == "p1"
    unknown = answer(404, {"error": "no", "code": "CONTEXT_NOT_FOUND", "details": {"contextId": "c1"}})
    assert isinstance(unknown, errors.CodeContextNotFoundError)
    assert (unknown.context_id, unknown.context) == ("c1", {"contextId": "c1"})
    full = answer(
        500,
        {"code": "FILESYSTEM_ERROR", "message": "failed", "context": {"stderr": "dd: x: No space left on device\n"}},
    )
    assert isinstance(full, errors.NoSpaceError)
    assert full.errno == errno.ENOSPC
    assert "No space left" in str(full)


def test_a_command_cannot_look_like_a_reason() -> None:
    """What a user's command says in the message is not what the service says of it."""
    error = answer(
        500,
        {
            "code": "COMMAND_EXECUTION_ERROR",
            "message": "Failed to execute command 'echo Session 'a' not found; Command timeout after 1ms'",
            "context": {"stderr": "it broke"},
        },
    )
    assert type(error) is errors.TransportError
    assert error.code == "COMMAND_EXECUTION_ERROR"


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, errors.ProtocolError, False),
        (401, errors.AuthenticationError, False),
        (403, errors.AuthenticationError, False),
        (404, errors.ProtocolError, False),
        (407, errors.TransportError, None),
        (408, errors.RequestTimeoutError, None),
        (413, errors.FileTooLargeError, False),
        (418, errors.ProtocolError, False),
        (429, errors.SandboxUnavailableError, True),
        (500, errors.ProtocolError, False),
        (502, errors.SandboxUnavailableError, None),
        (503, errors.SandboxUnavailableError, True),
        (504, errors.RequestTimeoutError, None),
        (520, errors.SandboxUnavailableError, None),
        (524, errors.RequestTimeoutError, None),
        (302, errors.ProtocolError, False),
        (999, errors.ProtocolError, False),
    ],
)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\n",
        b"<html><head><title>Error 1015</title></head>" + b"x" * 5000,
        b'{"code":"FILE_NOT_FOUND","mess',
        b"\xff\xfe\x00",
        b"null",
        b"[]",
        b'{"code":5,"message":"x"}',
        b'{"code":"X"}',
        b'{"code":"no code at all","message":"x"}',
        b'{"code":"X","message":["x"]}',
        b"[" * 100_000,
    ],
    ids=range(12),
)
def test_what_is_no_answer_of_the_service(
    status: int, kind: type[SandboxError], retryable: bool | None, body: bytes
) -> None:
    """H3, H6: a page of a proxy, nothing, or half an answer is told by its status, with its first 200 characters."""
    error = answer(status, body)
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.http_status == status
    text = str(error)
    assert str(status) in text
    if body.strip():
        assert repr(body.decode("utf-8", "replace")[:200]) in text
    assert len(text) < 500


def test_an_unknown_code_is_told_by_its_status() -> None:
    """A code that a later service invents keeps its name, in the class of its status."""
    for status, kind in {
        400: errors.InvalidRequestError,
        401: errors.AuthenticationError,
        409: errors.TransportError,
        500: errors.TransportError,
        502: errors.SandboxUnavailableError,
        503: errors.SandboxUnavailableError,
    }.items():
        error = answer(status, {"code": "BRAND_NEW", "message": "no", "context": {"a": 1}})
        assert (type(error), error.code, error.context) == (kind, "BRAND_NEW", {"a": 1})


def test_retry_after_reaches_the_error() -> None:
    """`retry_after` is in seconds, whichever shape the answer has."""
    for body in (b"", b'{"code":"CAPACITY_EXCEEDED","message":"full"}'):
        error = answer(503, body, retry_after="7")
        assert isinstance(error, errors.SandboxUnavailableError)
        assert error.retry_after == 7.0
    assert getattr(answer(503, b"", retry_after="x"), "retry_after", 0) is None


def test_an_error_inside_a_stream() -> None:
    """The table serves events too, which have no status."""
    error = error_of(ServiceError("exec_transport_error", "exec failed: Command execution failed"), ASKED)
    assert (type(error), error.code, error.http_status) == (errors.TransportError, "EXEC_TRANSPORT_ERROR", None)
    limit = "exec failed: Serialized RPC arguments or return values are limited to 32MiB, but"
    assert error_of(ServiceError("exec_error", limit), ASKED).code == "PAYLOAD_TOO_LARGE"


def test_malformed_answers_are_quoted() -> None:
    """H6: 200 characters and no more."""
    error = malformed("the list of sessions is no list", b"y" * 300, ASKED, status=200)
    assert str(error) == f"read_file: the list of sessions is no list: '{'y' * 200}'..."
    assert (error.http_status, error.retryable) == (200, False)
    assert str(malformed("no answer", b"", ASKED)) == "read_file: no answer with an empty body"


LEAKS = [
    f"the key {KEY} is not valid",
    f"Authorization: Bearer {KEY}",
    "https://user:hunter2@host/x?token=hunter2",
    "x" * 195 + KEY,
]


@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("code", ["UNAUTHORIZED", "FILESYSTEM_ERROR", "BRAND_NEW", None])
def test_no_credential_is_in_an_error(leak: str, code: str | None) -> None:
    """A service that echoes the key, or a URL with a password, does not put it into an error."""
    body: dict[str, object] = {"message": leak, "context": {leak: leak, "list": [{"a": leak}], "stderr": leak}}
    if code is not None:
        body["code"] = code
    for status in (400, 401, 500, 503):
        error = error_for(status, {}, json.dumps(body).encode(), ASKED, secrets=(KEY,))
        shown = f"{error!s} {error!r} {vars(error)!r} {pickle.dumps(error)!r}"
        assert KEY not in shown
        assert KEY[:8] not in shown
        assert "hunter2" not in shown


@pytest.mark.parametrize("exchange", recorded(), ids=lambda exchange: f"{exchange['service']}-{exchange['name']}")
def test_no_credential_of_the_recordings_is_in_an_error(exchange: dict[str, object]) -> None:
    """The key the recordings were made with is in no message."""
    error = mapped(exchange)
    assert not re.search(r"test-key|Bearer (?!\*)", f"{error} {vars(error)}")


@given(st.integers(100, 999), st.binary(max_size=300), st.dictionaries(st.just("retry-after"), st.text(max_size=9)))
def test_any_answer_is_mapped(status: int, body: bytes, headers: dict[str, str]) -> None:
    """Whatever the bytes, the outcome is an error of the package."""
    error = error_for(status, headers, body, ASKED)
    assert isinstance(error, SandboxError)
    assert error.http_status == status


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=9,
)


@given(st.sampled_from([*sorted(TABLE), "NEW"]), st.text(max_size=40), JSON, st.sampled_from([400, 403, 500, 502]))
def test_any_words_and_context_are_mapped(code: str, message: str, context: object, status: int) -> None:
    """Whatever a service tells beside its code, the outcome is an error that can be pickled."""
    error = answer(status, {"code": code, "message": message, "context": context})
    assert isinstance(error, SandboxError)
    pickle.dumps(error)


def test_a_large_message_is_cut() -> None:
    """A command of 200 kB that the service quotes does not fill the log."""
    error = answer(
        500, {"code": "COMMAND_EXECUTION_ERROR", "message": "z" * 200_000, "context": {"command": "z" * 200_000}}
    )
    assert len(str(error)) < 2_100
    assert len(str(error.context["command"])) < 4_100


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("SessionAlreadyExistsError", "SESSION_ALREADY_EXISTS"),
        ("FileNotFoundError", "FILE_NOT_FOUND"),
        ("FileSystemError", "FILESYSTEM_ERROR"),
        ("S3FSMountError", "S3FS_MOUNT_ERROR"),
        ("InvalidMountConfigError", "INVALID_MOUNT_CONFIG"),
        ("OperationInterruptedError", "OPERATION_INTERRUPTED"),
        ("GitCloneError", "GIT_CLONE_FAILED"),
        ("ProcessError", "PROCESS_ERROR"),
    ],
)
def test_class_names_of_the_service(name: str, code: str) -> None:
    """The name of the inner error, which the bridge quotes, is worth more than the bridge's own code."""
    assert next(known for known in codes_of_class(name) if known in TABLE) == code
    assert answer(502, {"error": f"write failed: {name}: oops", "code": "session_error"}).code == code


@pytest.mark.parametrize(
    ("reason", "number"),
    [
        ("EISDIR: illegal operation on a directory, open '/p'", errno.EISDIR),
        ("Failed: ENAMETOOLONG: name too long", errno.ENAMETOOLONG),
        ("mkdir: cannot create directory ‘/x’: File exists\n", errno.EEXIST),
        ("mv: cannot move 'a' to 'b': No such file or directory", errno.ENOENT),
        ("first: Permission denied\nsecond", errno.EACCES),
        ("no File exists here", None),
        ("ERROR: it broke", None),
        ("", None),
    ],
)
def test_errno_in_words(reason: str, number: int | None) -> None:
    """Runtimes name the error, programs describe it; other words mean nothing."""
    assert errno_in(reason) == number
