"""The container's routes for files."""

from __future__ import annotations

import base64
import itertools
import posixpath
import re
import stat
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxsync.errors import FileError, SandboxIsADirectoryError
from sandboxsync.models import FileInfo
from sandboxsync.server._answers import Answer, Streamed, Writer, dump, now
from sandboxsync.server._commands import MISSING
from sandboxsync.server._container_errors import ContainerError, file_not_found, invalid
from sandboxsync.server._container_request import EVENTS, Site, json_of, path_in, session_in
from sandboxsync.server._kinds import TextOf, is_text, kind_of
from sandboxsync.transports.base import SessionRef

__all__ = ["ContainerFiles"]

_MOST = 32 << 20
"""Bytes of a file that one answer holds."""
_CHUNK = 65_535
"""Bytes of a file that one event holds: whole groups of base64."""
_BASE64 = re.compile(r"[A-Za-z0-9+/=]*")


class ContainerFiles:
    """The handlers."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def read(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        return await self._site.workers.short(self._read_answer, ref, path_in(body), body.get("encoding"))

    def _read_answer(self, ref: SessionRef, path: str, encoding: object) -> Answer:
        content = self._read(ref, path)
        kind = kind_of(path, content[:_CHUNK])
        binary = encoding == "base64" or (encoding not in ("utf-8", "utf8") and not is_text(kind))
        text = base64.b64encode(content).decode() if binary else TextOf()(content, True)
        answer = {"success": True, "path": path, "content": text, "timestamp": now()}
        answer.update(_described(kind, len(content), binary))
        return Answer(answer)

    def _read(self, ref: SessionRef, path: str) -> bytes:
        info = self._regular(ref, path)
        if info is None:
            raise file_not_found(path, "file.read")
        if info.size > _MOST:
            context = {"path": path, "operation": "file.read", "actualSize": info.size, "maxSize": _MOST}
            raise ContainerError("FILE_TOO_LARGE", f"File too large: {path}", 413, context, operation="file.read")
        with_size = self._site.transport.read_file(ref, path, _MOST)
        try:
            # What tells no size, as in /proc, is read as empty.
            return next(with_size, b"")[: info.size]
        except FileError:
            raise file_not_found(path, "file.read") from None
        finally:
            with_size.close()

    def _regular(self, ref: SessionRef, path: str) -> FileInfo | None:
        """The regular file at a path, or `None` when there is none."""
        try:
            info = self._site.transport.stat(ref, path, True)
        except FileError:
            return None
        return info if info.type == "file" else None

    async def read_stream(self, request: Request) -> Streamed:
        ref, body = await self._asked(request)
        path = path_in(body)
        site = self._site
        return Streamed(site.workers, lambda writer: self._read_stream(writer, ref, path), EVENTS, site.silence)

    def _read_stream(self, writer: Writer, ref: SessionRef, path: str) -> None:
        """Write a file as events. In a worker thread."""

        def tell(kind: str, **more: object) -> None:
            writer.write(b"data: " + dump({"type": kind, **more}) + b"\n\n")

        if self._regular(ref, path) is None:
            tell("error", error=f"File not found: {path}")
            writer.end()
            return
        count = 0
        try:
            stream = self._site.transport.read_file(ref, path, _CHUNK)
            try:
                head = next(stream, b"")
                kind = kind_of(path, head)
                text = TextOf() if is_text(kind) else None
                described = _described(kind, stream.size, text is None)
                tell("metadata", **{name: described[name] for name in ("mimeType", "size", "isBinary", "encoding")})
                for chunk in itertools.chain([head] if head else [], stream):
                    if writer.gone.is_set():
                        break
                    count += len(chunk)
                    tell("chunk", data=base64.b64encode(chunk).decode() if text is None else text(chunk))
                if text is not None and (rest := text(b"", True)):
                    tell("chunk", data=rest)
            finally:
                stream.close()
        except FileError as exc:
            tell("error", error=str(exc))
        else:
            tell("complete", bytesRead=count)
        writer.end()

    async def write(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        path = path_in(body)
        content = body.get("content")
        if not isinstance(content, str):
            raise _write_failed(path, "Bun.write(pathOrFdOrBlob, blob) expects a Blob-y thing to write")
        if body.get("encoding") == "base64" and _BASE64.fullmatch(content) is None:
            told = f"Invalid base64 content for '{path}': must contain only A-Z, a-z, 0-9, +, /, ="
            raise invalid(told, "content", "Invalid base64 characters", "INVALID_BASE64")
        await self._site.workers.short(self._write, ref, path, content, body.get("encoding") == "base64")
        return _done(path)

    def _write(self, ref: SessionRef, path: str, content: str, in_base64: bool) -> None:
        data = _decode(content) if in_base64 else content.encode("utf-8", "replace")
        try:
            self._site.transport.write_file(ref, path, [data])
        except SandboxIsADirectoryError:
            raise _write_failed(path, f"EISDIR: illegal operation on a directory, open '{path}'") from None
        except FileError as exc:
            raise _write_failed(path, f"{exc.strerror or exc}, open '{path}'") from exc

    async def mkdir(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        path = path_in(body)
        recursive = body.get("recursive") is True
        try:
            await self._site.workers.short(self._site.transport.make_directory, ref, path, recursive)
        except FileError as exc:
            said = _said(ref, f"mkdir: cannot create directory {{0}}{path}{{1}}: {exc.strerror}")
            options = {"recursive": True} if recursive else {}
            raise ContainerError(
                "FILESYSTEM_ERROR",
                "mkdir operation failed with exit code 1",
                500,
                {"path": path, "options": options, "exitCode": 1, "stderr": said},
            ) from None
        return _done(path, recursive=recursive)

    async def exists(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        path = path_in(body)
        return _done(path, exists=await self._site.workers.short(self._info, ref, path) is not None)

    def _info(self, ref: SessionRef, path: str) -> FileInfo | None:
        """What a path leads to, or `None` when it leads nowhere."""
        try:
            return self._site.transport.stat(ref, path, True)
        except FileError:
            return None

    async def delete(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        path = path_in(body)
        await self._site.workers.short(self._delete, ref, path)
        return _done(path)

    def _delete(self, ref: SessionRef, path: str) -> None:
        info = self._info(ref, path)
        if info is None:
            raise file_not_found(path, "file.delete")
        if info.type == "directory":
            raise ContainerError(
                "IS_DIRECTORY",
                f"Cannot delete directory with deleteFile() at '{path}'. Use exec('rm -rf <path>') instead.",
                400,
                {"path": path, "operation": "file.delete"},
                operation="file.delete",
                suggestion=f"Cannot perform this operation on a directory. Path {path} is a directory",
            )
        try:
            self._site.transport.remove_file(ref, path)
        except MISSING:
            raise file_not_found(path, "file.delete") from None

    async def rename(self, request: Request) -> Response:
        return await self._move(request, ("oldPath", "newPath"), "Rename", "file.rename")

    async def move(self, request: Request) -> Response:
        return await self._move(request, ("sourcePath", "destinationPath"), "Move", "file.move")

    async def _move(self, request: Request, names: tuple[str, str], what: str, operation: str) -> Response:
        ref, body = await self._asked(request)
        old, new = (path_in(body, name) for name in names)
        try:
            await self._site.workers.short(self._rename, ref, old, new, operation)
        except FileError as exc:
            said = _said(ref, f"mv: cannot move '{old}' to '{new}': {exc.strerror}")
            context = {names[0]: old, names[1]: new, "exitCode": 1, "stderr": said}
            told = f"{what} operation failed with exit code 1"
            raise ContainerError("FILESYSTEM_ERROR", told, 500, context) from None
        return _done(old, newPath=new)

    def _rename(self, ref: SessionRef, old: str, new: str, operation: str) -> None:
        if self._info(ref, old) is None:
            raise file_not_found(old, operation, "Source file")
        # As mv has it: into a directory that is there.
        onto = self._info(ref, new)
        if onto is not None and onto.type == "directory":
            new = posixpath.join(new, posixpath.basename(old.rstrip("/")))
        self._site.transport.rename(ref, old, new)

    async def list_files(self, request: Request) -> Response:
        ref, body = await self._asked(request)
        path = path_in(body)
        given = body.get("options")
        options: dict[str, Any] = given if isinstance(given, dict) else {}
        files = await self._site.workers.short(self._list, ref, path, options.get("recursive") is True)
        if options.get("includeHidden") is not True:
            files = [info for info in files if not f"/{info.relative_path}".count("/.")]
        told = [_listed(info) for info in files]
        return _done(path, files=told, count=len(told))

    def _list(self, ref: SessionRef, path: str, recursive: bool) -> list[FileInfo]:
        info = self._info(ref, path)
        if info is None:
            raise file_not_found(path, "directory.list", "Directory")
        if info.type != "directory":
            raise ContainerError(
                "NOT_DIRECTORY",
                f"Path is not a directory: {path}",
                400,
                {"path": path, "operation": "directory.list"},
                operation="directory.list",
                suggestion=f"Expected a directory but found a file at {path}",
            )
        return self._site.transport.list_files(ref, path, recursive)

    async def _asked(self, request: Request) -> tuple[SessionRef, dict[str, Any]]:
        body = await json_of(request, self._site)
        return self._site.ref(session_in(body)), body


def _done(path: str, **more: object) -> Answer:
    return Answer({"success": True, "path": path, **more, "timestamp": now()})


def _described(kind: str, size: int, binary: bool) -> dict[str, Any]:
    encoding = "base64" if binary else "utf-8"
    return {"encoding": encoding, "isBinary": binary, "mimeType": kind, "size": size}


def _decode(content: str) -> bytes:
    """The bytes of base64, with or without the signs at its end."""
    plain = content.partition("=")[0]
    if len(plain) % 4 == 1:
        plain = plain[:-1]
    return base64.b64decode(plain + "=" * (-len(plain) % 4))


def _write_failed(path: str, why: str) -> ContainerError:
    context = {"path": path, "operation": "file.write", "stderr": why}
    told = f"Failed to write file '{path}': {why}"
    return ContainerError("FILESYSTEM_ERROR", told, 500, context, operation="file.write")


def _said(ref: SessionRef, message: str) -> str:
    """What a program says on standard error; the quotes of a session's locale are others."""
    if ref.session_id is None:
        return message.replace("{0}", "'").replace("{1}", "'") + "\n"
    return message.replace("{0}", "‘").replace("{1}", "’")


def _listed(info: FileInfo) -> Mapping[str, object]:
    mode = info.mode
    return {
        "name": info.name,
        "absolutePath": info.path,
        "relativePath": info.relative_path,
        "type": info.type,
        "size": info.size,
        "modifiedAt": f"{info.modified_at:%Y-%m-%dT%H:%M:%S.%f}0000",
        "mode": stat.filemode(mode)[1:],
        "permissions": {
            "readable": bool(mode & stat.S_IRUSR),
            "writable": bool(mode & stat.S_IWUSR),
            "executable": bool(mode & stat.S_IXUSR),
        },
    }
