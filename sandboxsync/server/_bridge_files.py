"""The bridge's routes for files: one at a time, and the workspace as a tar."""

from __future__ import annotations

import itertools
import posixpath
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from sandboxsync.errors import FileError, SandboxError, SandboxIsADirectoryError
from sandboxsync.server._answers import Answer, ConnectionCloseError, Streamed, Writer
from sandboxsync.server._guard import BodyTooLargeError, read_body
from sandboxsync.server._kinds import TextOf, is_text, kind_of
from sandboxsync.server._refusal import RefusedError, session_of
from sandboxsync.server._workers import Workers
from sandboxsync.transports.base import CommandRequest, Exited, Output, SessionRef, Transport

__all__ = ["BridgeFiles"]

_MOST = 32 << 20
"""Bytes that a route takes."""
_FRAME = 12 << 20
"""Bytes from which on they do not fit into one frame of the connection to the container, being base64 there."""
_RPC = 24 << 20
"""Bytes from which on they do not even fit into one call."""
_CHUNK = 1 << 16
_BYTES = {"content-type": "application/octet-stream"}
_BROKEN = "workspace_archive_write_error"
_GZIP = b"\x1f\x8b"
_PACK = r"""mapfile -d '' -t given; exec tar -cf - -C "${given[0]}" "${given[@]:1}" ."""


class BridgeFiles:
    """The handlers. `sandbox_id` tells of a request which sandbox it is about."""

    def __init__(self, transport: Transport, workers: Workers, sandbox_id: Callable[[Request], str]) -> None:
        self._transport = transport
        self._workers = workers
        self._sandbox_id = sandbox_id

    async def get(self, request: Request) -> Streamed:
        ref, path = self._file(request)
        return Streamed(self._workers, lambda writer: self._get(writer, ref, path), _BYTES)

    def _get(self, writer: Writer, ref: SessionRef, path: str) -> None:
        try:
            stream = self._transport.read_file(ref, path, _CHUNK)
        except FileError:
            # Headers are out before the service finds that there is nothing.
            writer.end()
            raise ConnectionCloseError from None
        try:
            writer.begin()
            head = next(stream, b"")
            text = TextOf() if is_text(kind_of(path, head)) else None
            for chunk in itertools.chain([head], stream):
                writer.write(chunk if text is None else text(chunk).encode())
            if text is not None:
                writer.write(text(b"", True).encode())
        finally:
            stream.close()
        writer.end()

    async def put(self, request: Request) -> Response:
        ref, path = self._file(request)
        try:
            body = await read_body(request, _MOST)
        except BodyTooLargeError as exc:
            told = f"payload too large: {exc.size} bytes exceeds the {_MOST}-byte limit"
            raise RefusedError(told, 413, "payload_too_large") from None
        _check_frame(body)
        try:
            await self._workers.short(self._transport.write_file, ref, path, [body])
        except SandboxIsADirectoryError:
            told = f"Failed to write file '{path}': EISDIR: illegal operation on a directory, open '{path}'"
            raise RefusedError(f"write failed: FileSystemError: {told}", 502, _BROKEN) from None
        except FileError as exc:
            told = f"Failed to write file '{path}': {exc.strerror}, open '{path}'"
            raise RefusedError(f"write failed: FileSystemError: {told}", 502, _BROKEN) from exc
        return Answer({"ok": True})

    def _file(self, request: Request) -> tuple[SessionRef, str]:
        ref = SessionRef(self._sandbox_id(request), None)
        session_of(request)  # paths are absolute, so that it is only checked
        path = posixpath.normpath("/" + request.path_params["path"].lstrip("/"))
        if not path.startswith("/workspace/") and path != "/workspace":
            raise RefusedError("path must resolve to a location within /workspace", 403)
        if "\0" in path:
            raise RefusedError("path contains null bytes")
        return ref, path

    # The workspace as a tar

    async def persist(self, request: Request) -> Streamed:
        sandbox_id = self._sandbox_id(request)
        excludes = [item.strip() for item in request.query_params.get("excludes", "").split(",") if item.strip()]
        if any(".." in item.split("/") for item in excludes):
            raise RefusedError('exclude paths must not contain ".."')
        return Streamed(self._workers, lambda writer: self._persist(writer, sandbox_id, excludes), _BYTES)

    def _persist(self, writer: Writer, sandbox_id: str, excludes: list[str]) -> None:
        options = [f"--exclude=./{item.removeprefix('./').strip('/')}" for item in excludes]
        given = [self._transport.workspace(sandbox_id), *options]
        stdin = b"".join(item.encode("utf-8", "replace") + b"\0" for item in given)
        stream = self._transport.run(SessionRef(sandbox_id, None), CommandRequest(_PACK, stdin=stdin, timeout=None))
        said = b""
        self._workers.opened(stream)
        try:
            while isinstance(item := stream.read(), Output):
                if item.stream == "stdout":
                    writer.write(item.data)
                else:
                    said += item.data
        finally:
            self._workers.ended(stream)
            stream.close()
        # 1 is a file that changed meanwhile.
        if item.exit_code > 1:
            told = f"tar failed (exit {item.exit_code}): {said.decode(errors='replace')}"
            raise RefusedError(told, 502, "workspace_archive_read_error")
        writer.end()

    async def hydrate(self, request: Request) -> Response:
        sandbox_id = self._sandbox_id(request)
        try:
            body = await read_body(request, _MOST)
        except BodyTooLargeError:
            raise RefusedError("tar payload too large") from None
        if not body:
            raise RefusedError("Empty tar payload")
        _check_frame(body)
        code, said = await self._workers.long(self._unpack, sandbox_id, body)
        if code != 0:
            raise RefusedError(f"tar extract failed (exit {code}): {said}", 502, _BROKEN)
        return Answer({"ok": True})

    def _unpack(self, sandbox_id: str, body: bytes) -> tuple[int, str]:
        """Unpack a tar; the exit code, and what was said on standard error."""
        zipped = "z" if body.startswith(_GZIP) else ""
        script = f'exec tar -x{zipped}f - -C "$SANDBOX_WORKSPACE"'
        env = {"SANDBOX_WORKSPACE": self._transport.workspace(sandbox_id), "LC_ALL": "C"}
        request = CommandRequest(script, env=env, stdin=body, timeout=None)
        stream = self._transport.run(SessionRef(sandbox_id, None), request)
        said = b""
        self._workers.opened(stream)
        try:
            while not isinstance(item := stream.read(), Exited):
                said += item.data
        except SandboxError:
            stream.close()
            raise
        finally:
            self._workers.ended(stream)
        return item.exit_code, said.decode(errors="replace")


def _check_frame(body: bytes) -> None:
    """Refuse what the connection between bridge and container cannot carry."""
    if len(body) >= _RPC:
        size = (len(body) + 2) // 3 * 4 + 81
        told = f"Serialized RPC arguments or return values are limited to 32MiB, but the size of this value was: {size}"
        raise RefusedError(f"write failed: {told} bytes.", 502, _BROKEN)
    if len(body) >= _FRAME:
        told = "Sandbox operation files.writeFile was interrupted while the runtime connection was closing"
        raise RefusedError(f"write failed: OperationInterruptedError: {told}", 502, _BROKEN)
