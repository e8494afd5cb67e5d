"""The container's routes for background processes and ports."""

from __future__ import annotations

import asyncio
import secrets
import signal
import string
import time
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response

from sandboxsync.errors import InvalidRequestError, ProcessNotFoundError
from sandboxsync.server._answers import Answer, Streamed, Writer, dump, now, stamp
from sandboxsync.server._commands import MISSING, TIMED_OUT, Texts
from sandboxsync.server._container_errors import ContainerError, invalid, start_failed
from sandboxsync.server._container_request import EVENTS, NO_SESSION, Site, command_of, json_of, session_in
from sandboxsync.transports.base import Exited, LogStream, Output, ProcessInfo, ProcessRequest

__all__ = ["ContainerProcesses", "start_process"]

_LETTERS = string.ascii_lowercase + string.digits
_MOST_AT_ONCE = 32 << 20
"""Bytes of old output that one event tells."""
_LOOK = 0.5
"""Seconds between looks whether the reader of a log is still there."""
_PROBE = 5.0
_STREAMS: tuple[Literal["stdout", "stderr"], ...] = ("stdout", "stderr")


async def start_process(site: Site, body: dict[str, Any], session_id: str | None) -> Response:
    """Start a background process and answer with what it is."""
    if not body.get("command"):
        raise ContainerError("INVALID_COMMAND", "Invalid command: empty command provided", 400)
    command = command_of(body, session_id)
    given = body.get("processId")
    made = f"proc_{time.time_ns() // 1_000_000}_{''.join(secrets.choice(_LETTERS) for _ in range(6))}"
    process_id = given if isinstance(given, str) and given else made
    request = ProcessRequest(process_id, command.text, command.env, command.cwd, command.timeout)
    try:
        info = await site.workers.short(site.transport.start_process, site.ref(session_id), request)
    except MISSING:
        why = "ENOENT: no such file or directory, posix_spawn '/bin/bash'"
        raise start_failed(command.text, session_id, why) from None
    except InvalidRequestError as exc:
        raise invalid(str(exc)) from exc
    answer = {"success": True, "processId": info.id, "pid": info.pid, "command": info.command, "timestamp": now()}
    return Answer(answer)


class ContainerProcesses:
    """The handlers."""

    def __init__(self, site: Site) -> None:
        self._site = site

    async def start(self, request: Request) -> Response:
        body = await json_of(request, self._site)
        return await start_process(self._site, body, session_in(body))

    async def list(self, request: Request) -> Response:
        infos = await self._site.workers.short(self._site.transport.list_processes, self._site.sandbox_id)
        told = [_told(info) for info in infos]
        wanted = request.query_params.get("status")
        processes = [
            {name: value for name, value in process.items() if name != "endTime"}
            for process in told
            if not wanted or process["status"] == wanted
        ]
        return Answer({"success": True, "processes": processes, "timestamp": now()})

    async def get(self, request: Request) -> Response:
        info = await self._info(request)
        return Answer({"success": True, "process": _told(info), "timestamp": now()})

    async def logs(self, request: Request) -> Response:
        info = await self._info(request)
        stdout, stderr = await self._site.workers.short(self._logs, info.id)
        answer = {"success": True, "processId": info.id, "stdout": stdout, "stderr": stderr, "timestamp": now()}
        return Answer(answer)

    def _logs(self, process_id: str) -> tuple[str, str]:
        stream = self._follow(process_id, live=False)
        printed = {"stdout": bytearray(), "stderr": bytearray()}
        try:
            while isinstance(item := stream.read(0), Output):
                printed[item.stream] += item.data
        finally:
            stream.close()
        return printed["stdout"].decode(errors="replace"), printed["stderr"].decode(errors="replace")

    async def kill(self, request: Request) -> Response:
        info = await self._info(request)
        if info.status not in ("starting", "running"):
            raise ContainerError(
                "COMMAND_NOT_FOUND",
                f"Command '{info.id}' not found or already completed in session '{info.session_id or NO_SESSION}'",
                404,
                {"command": info.id},
                suggestion=f'Check that "{info.id}" is installed and available in the system PATH',
            )
        await self._end(info.id)
        return Answer({"success": True, "processId": info.id, "timestamp": now()})

    async def kill_all(self, request: Request) -> Response:
        infos = await self._site.workers.short(self._site.transport.list_processes, self._site.sandbox_id)
        running = [info.id for info in infos if info.status in ("starting", "running")]
        await asyncio.gather(*map(self._end, running), return_exceptions=True)
        return Answer({"success": True, "cleanedCount": len(running), "timestamp": now()})

    async def _end(self, process_id: str) -> None:
        site = self._site
        await site.workers.short(site.transport.kill_process, site.sandbox_id, process_id, int(signal.SIGTERM))

    async def _info(self, request: Request) -> ProcessInfo:
        process_id = request.path_params["id"]
        try:
            return await self._site.workers.short(self._site.transport.get_process, self._site.sandbox_id, process_id)
        except ProcessNotFoundError:
            raise _unknown(process_id) from None

    # Logs as they come

    async def stream(self, request: Request) -> Streamed:
        info = await self._info(request)
        site = self._site
        return Streamed(site.workers, lambda writer: self._stream(writer, info), EVENTS, site.silence)

    def _follow(self, process_id: str, live: bool) -> LogStream:
        try:
            return self._site.transport.follow_logs(self._site.sandbox_id, process_id, live)
        except ProcessNotFoundError:
            raise _unknown(process_id) from None

    def _stream(self, writer: Writer, info: ProcessInfo) -> None:
        """Write the events of a log. In a worker thread."""
        stream = self._follow(info.id, live=True)
        texts = Texts()

        def tell(name: str, text: str) -> None:
            if text:
                _write(writer, name, data=text, processId=info.id)

        self._site.workers.opened(stream)
        try:
            _write(writer, "process_info", processId=info.id, command=info.command, status=_status(info))
            old = {"stdout": bytearray(), "stderr": bytearray()}
            while isinstance(item := stream.read(0), Output):
                old[item.stream] += item.data
                if len(old["stdout"]) + len(old["stderr"]) > _MOST_AT_ONCE:
                    break
            for name in _STREAMS:
                tell(name, texts(Output(name, bytes(old[name]))))
            while not isinstance(item, Exited) and not writer.gone.is_set():
                item = stream.read(_LOOK)
                if isinstance(item, Output):
                    tell(item.stream, texts(item))
        except ProcessNotFoundError:
            _write(writer, "error", error=f"Process {info.id} not found", processId=info.id)
        else:
            if isinstance(item, Exited):
                for name in _STREAMS:
                    tell(name, texts.rest(name))
                ended = self._site.transport.get_process(self._site.sandbox_id, info.id)
                told = f"Process {_status(ended)} with exit code {item.exit_code}"
                _write(writer, "exit", processId=info.id, exitCode=item.exit_code, data=told)
        finally:
            self._site.workers.ended(stream)
            stream.close()
        writer.end()

    # Ports

    async def port_watch(self, request: Request) -> Streamed:
        body = await json_of(request, self._site)
        port = body.get("port")
        if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536:
            raise invalid("Invalid port", "port", "Port must be a number from 1 to 65535", "INVALID_PORT")
        site = self._site
        return Streamed(site.workers, lambda writer: self._watch(writer, port, body), EVENTS, site.silence)

    def _watch(self, writer: Writer, port: int, body: dict[str, Any]) -> None:
        """Write the events of a port. In a worker thread."""
        site = self._site
        given = body.get("path")
        page = given if isinstance(given, str) and given else "/"
        path = page if body.get("mode", "http") == "http" else None
        low, high = _number(body.get("statusMin"), 200), _number(body.get("statusMax"), 399)
        pause = min(max(_number(body.get("interval"), 500), 10), 60_000) / 1000
        process_id = body.get("processId")

        def tell(kind: str, **more: object) -> None:
            writer.write(b"data: " + dump({"type": kind, "port": port, **more}) + b"\n\n")

        tell("watching")
        while not writer.gone.is_set() and not site.workers.closed.is_set():
            status = site.transport.probe_port(site.sandbox_id, port, path, _PROBE)
            if status is not None and (status == 0 or low <= status <= high):
                tell("ready", **({} if status == 0 else {"statusCode": status}))
                break
            if isinstance(process_id, str):
                try:
                    info = site.transport.get_process(site.sandbox_id, process_id)
                except ProcessNotFoundError:
                    tell("error", error="Process not found")
                    break
                if info.exit_code is not None:
                    tell("process_exited", exitCode=info.exit_code)
                    break
            writer.gone.wait(pause)
        writer.end()


def _number(value: object, default: int) -> float:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else default


def _write(writer: Writer, kind: str, **more: object) -> None:
    writer.write(b"data: " + dump({"type": kind, **more, "timestamp": now()}) + b"\n\n")


def _status(info: ProcessInfo) -> str:
    """The service counts a process that was stopped at its time limit as failed."""
    return "failed" if info.status == "killed" and info.exit_code == TIMED_OUT else info.status


def _told(info: ProcessInfo) -> dict[str, object]:
    told: dict[str, object] = {"id": info.id, "pid": info.pid, "command": info.command, "status": _status(info)}
    told["startTime"] = stamp(info.start_time)
    if info.end_time is not None:
        told["endTime"] = stamp(info.end_time)
    if info.exit_code is not None:
        told["exitCode"] = info.exit_code
    return told


def _unknown(process_id: str) -> ContainerError:
    return ContainerError(
        "PROCESS_NOT_FOUND",
        f"Process {process_id} not found",
        404,
        {"processId": process_id},
        suggestion="Verify the process ID is correct and the process has not already exited",
    )
