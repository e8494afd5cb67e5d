"""The errors that the container's API tells."""

from __future__ import annotations

from collections.abc import Mapping

from sandboxsync.server._answers import Answer, now

__all__ = ["ContainerError", "command_failed", "file_not_found", "invalid", "start_failed"]

_SHAPE = "Check the request parameters and ensure they match the required format"


class ContainerError(Exception):
    """What a handler raises to answer with an error: its code, message, status and context."""

    def __init__(
        self,
        code: str,
        message: str,
        status: int = 500,
        context: Mapping[str, object] | None = None,
        *,
        operation: str | None = None,
        suggestion: str | None = None,
    ) -> None:
        super().__init__(message)
        self._body: dict[str, object] = {"code": code, "message": message, "context": dict(context or {})}
        if operation is not None:
            self._body["operation"] = operation
        self._status = status
        self._suggestion = suggestion

    def answer(self) -> Answer:
        """The answer that tells it."""
        body = {**self._body, "httpStatus": self._status, "timestamp": now()}
        if self._suggestion is not None:
            body["suggestion"] = self._suggestion
        return Answer(body, self._status)


def invalid(message: str, field: str | None = None, reason: str = "", code: str = "") -> ContainerError:
    """A request that makes no sense; `reason` and `code` say what is wrong with a field."""
    errors = {} if field is None else {"validationErrors": [{"field": field, "message": reason, "code": code}]}
    return ContainerError("VALIDATION_FAILED", message, 400, errors, suggestion=_SHAPE)


def file_not_found(path: str, operation: str, what: str = "File") -> ContainerError:
    """A file, or whatever `what` says, that is not there."""
    return ContainerError(
        "FILE_NOT_FOUND",
        f"{what} not found: {path}",
        404,
        {"path": path, "operation": operation},
        operation=operation,
        suggestion=f"Ensure the file exists at {path} before attempting to access it",
    )


def command_failed(command: str, session_id: str | None, why: str) -> ContainerError:
    """A command that could not be run, or not to its end; `session_id` is `None` for one without a session."""
    message = f"Failed to execute command '{command}' {_where(session_id)}: {why}"
    return ContainerError("COMMAND_EXECUTION_ERROR", message, 500, {"command": command, "stderr": why})


def start_failed(command: str, session_id: str | None, why: str) -> ContainerError:
    """A streamed command or a process that could not be started."""
    message = f"Failed to execute streaming command '{command}' {_where(session_id)}: {why}"
    return ContainerError("STREAM_START_ERROR", message, 500, {"command": command, "stderr": why})


def _where(session_id: str | None) -> str:
    return "in sessionless execution" if session_id is None else f"in session '{session_id}'"
