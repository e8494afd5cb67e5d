"""The OpenAPI document of the bridge's API, of exactly the routes that an app has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.routing import BaseRoute, Route

__all__ = ["document"]

_JSON = "application/json"
_BYTES = "application/octet-stream"
_OK = {"type": "object", "required": ["ok"], "properties": {"ok": {"type": "boolean", "enum": [True]}}}
_SCHEMAS: Mapping[str, Any] = {
    "ErrorResponse": {
        "type": "object",
        "required": ["error", "code"],
        "properties": {"error": {"type": "string"}, "code": {"type": "string"}},
    },
    "ExecRequest": {
        "type": "object",
        "required": ["argv"],
        "properties": {
            "argv": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "timeout_ms": {"type": "integer", "description": "Milliseconds that the command may take."},
            "cwd": {"type": "string", "description": "Where it runs; within /workspace."},
        },
    },
    "OkResponse": _OK,
    "PoolStats": {
        "type": "object",
        "required": ["warm", "assigned", "total", "config", "maxInstances"],
        "properties": {
            "warm": {"type": "integer"},
            "assigned": {"type": "integer"},
            "total": {"type": "integer"},
            "config": {"type": "object"},
            "maxInstances": {"type": ["integer", "null"]},
        },
    },
    "RunningResponse": {
        "type": "object",
        "required": ["running"],
        "properties": {"running": {"type": "boolean"}},
    },
    "SandboxResponse": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
    "SessionDeleteResponse": {
        "type": "object",
        "required": ["success", "sessionId", "timestamp"],
        "properties": {
            "success": {"type": "boolean"},
            "sessionId": {"type": "string"},
            "timestamp": {"type": "string", "format": "date-time"},
        },
    },
    "SessionRequest": {
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "cwd": {"type": "string"},
            "env": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    },
    "SessionResponse": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}},
}
_OPERATIONS: Mapping[str, tuple[str, str, str | None, tuple[int, str | None], tuple[int, ...]]] = {
    # operation: (id, summary, schema or type of the request, (status, schema or type of the answer), errors)
    "GET /health": ("health", "Whether the bridge is up", None, (200, "OkResponse"), ()),
    "GET /v1/openapi.json": ("getOpenApi", "This document", None, (200, "object"), (401,)),
    "POST /v1/sandbox": ("createSandbox", "Make the id of a sandbox", None, (200, "SandboxResponse"), (401,)),
    "DELETE /v1/sandbox/{id}": ("deleteSandbox", "End a sandbox", None, (204, None), (400, 401)),
    "GET /v1/sandbox/{id}/running": (
        "isRunning",
        "Whether a sandbox is up; starts it",
        None,
        (200, "RunningResponse"),
        (400, 401),
    ),
    "POST /v1/sandbox/{id}/exec": (
        "execCommand",
        "Run a command: server-sent events `stdout`, `stderr` (base64), then `exit` or `error` (JSON)",
        "ExecRequest",
        (200, "text/event-stream"),
        (400, 401, 403, 502, 503),
    ),
    "POST /v1/sandbox/{id}/session": (
        "createSession",
        "Make a session",
        "SessionRequest",
        (200, "SessionResponse"),
        (400, 401, 502),
    ),
    "DELETE /v1/sandbox/{id}/session/{sid}": (
        "deleteSession",
        "End a session",
        None,
        (200, "SessionDeleteResponse"),
        (400, 401, 502),
    ),
    "GET /v1/sandbox/{id}/file/{path}": ("readFile", "Read a file", None, (200, _BYTES), (400, 401, 403)),
    "PUT /v1/sandbox/{id}/file/{path}": (
        "writeFile",
        "Write a file, and make its parents",
        _BYTES,
        (200, "OkResponse"),
        (400, 401, 403, 413, 502),
    ),
    "POST /v1/sandbox/{id}/persist": (
        "persistWorkspace",
        "The workspace as a tar; `excludes` are paths in it, with commas between",
        None,
        (200, _BYTES),
        (400, 401, 502),
    ),
    "POST /v1/sandbox/{id}/hydrate": (
        "hydrateWorkspace",
        "Unpack a tar into the workspace",
        _BYTES,
        (200, "OkResponse"),
        (400, 401, 502),
    ),
    "GET /v1/pool/stats": ("getPoolStats", "How many sandboxes there are", None, (200, "PoolStats"), (401,)),
    "POST /v1/pool/prime": ("primePool", "Nothing to prime here", None, (200, "OkResponse"), (401,)),
    "POST /v1/pool/shutdown-prewarmed": (
        "shutdownPrewarmed",
        "Nothing was prewarmed here",
        None,
        (200, "OkResponse"),
        (401,),
    ),
}


def document(routes: Iterable[BaseRoute]) -> dict[str, Any]:
    """Return the document of some routes. Raises `KeyError` for one that nothing is told about."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route):
            path = route.path.replace(":path}", "}")
            for method in sorted((route.methods or set()) - {"HEAD"}):
                paths.setdefault(path, {})[method.lower()] = _operation(method, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Cloudflare Sandbox Service API, served locally",
            "version": "1.0.0",
            "description": "The HTTP API of the bridge, served by sandboxsync.",
        },
        "components": {
            "securitySchemes": {"BearerAuth": {"type": "http", "scheme": "bearer"}},
            "schemas": dict(_SCHEMAS),
        },
        "security": [{"BearerAuth": []}],
        "paths": paths,
    }


def _operation(method: str, path: str) -> dict[str, Any]:
    name, summary, sent, (status, answered), errors = _OPERATIONS[f"{method} {path}"]
    operation: dict[str, Any] = {"operationId": name, "summary": summary}
    parameters = [_parameter("path", part, True) for part in re.findall(r"{(\w+)}", path)]
    if name == "execCommand":
        parameters.append(_parameter("header", "Session-Id", False))
    if name == "persistWorkspace":
        parameters.append(_parameter("query", "excludes", False))
    if name == "getOpenApi":
        parameters.append(_parameter("query", "token", False))
    if parameters:
        operation["parameters"] = parameters
    if name == "health":
        operation["security"] = []
    if sent is not None:
        operation["requestBody"] = {"required": name != "createSession", "content": _content(sent)}
    told: dict[str, Any] = {str(status): {"description": "Done."}}
    if answered is not None:
        told[str(status)]["content"] = _content(answered)
    for code in errors:
        told[str(code)] = {"description": "It failed.", "content": _content("ErrorResponse")}
    operation["responses"] = told
    return operation


def _parameter(place: str, name: str, required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": {"type": "string"}}


def _content(what: str) -> dict[str, Any]:
    """The content of a body: JSON of a schema by its name, or something of a media type."""
    if "/" in what:
        return {what: {"schema": {"type": "string"}}}
    schema = {"$ref": f"#/components/schemas/{what}"} if what in _SCHEMAS else {"type": what}
    return {_JSON: {"schema": schema}}
