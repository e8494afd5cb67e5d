"""What somebody would write with bare `requests`: plain execs and whole files, in either dialect."""

from __future__ import annotations

import base64
import json
from abc import abstractmethod
from collections.abc import Iterator
from typing import Protocol

import requests

from benchmarks._http_server import Served

PIECE = 11 << 20


class Bare(Protocol):
    """One sandbox, with one connection that is kept open."""

    @abstractmethod
    def exec(self, command: str) -> int:
        """Run it with no session, and read what it prints: returns how many bytes."""

    @abstractmethod
    def read(self, path: str) -> int:
        """Read a file: returns how many bytes came over the wire."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Write a file that is small enough."""


class BareBridge(Bare):
    """The bridge's API."""

    def __init__(self, served: Served, sandbox_id: str) -> None:
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {served.api_key}"
        self._url = f"{served.url}/v1/sandbox/{sandbox_id}"

    def exec(self, command: str) -> int:
        size = 0
        body = {"argv": ["bash", "-c", command]}
        with self._session.post(f"{self._url}/exec", json=body, stream=True, timeout=60) as answer:
            answer.raise_for_status()
            name = ""
            for line in answer.iter_lines(1 << 16):
                if line.startswith(b"event: "):
                    name = line[7:].decode()
                elif line.startswith(b"data: ") and name != "exit":
                    size += len(base64.b64decode(line[6:]))
        return size

    def read(self, path: str) -> int:
        with self._session.get(f"{self._url}/file{path}", stream=True, timeout=60) as answer:
            answer.raise_for_status()
            return sum(map(len, answer.iter_content(1 << 16)))

    def write(self, path: str, data: bytes) -> None:
        self._session.put(f"{self._url}/file{path}", data=data, timeout=60).raise_for_status()


class BareContainer(Bare):
    """The container's API."""

    def __init__(self, served: Served, sandbox_id: str) -> None:
        self._session = requests.Session()
        self._url = f"{served.container_url}/api"

    def _events(self, route: str, body: dict[str, str]) -> Iterator[dict[str, str]]:
        body = {**body, "sessionId": "__DISABLE_SESSION__"}
        with self._session.post(f"{self._url}/{route}", json=body, stream=True, timeout=60) as answer:
            answer.raise_for_status()
            for line in answer.iter_lines(1 << 16):
                if line.startswith(b"data: "):
                    yield json.loads(line[6:])

    def exec(self, command: str) -> int:
        events = self._events("execute/stream", {"command": command})
        return sum(len(event["data"].encode()) for event in events if event["type"] == "stdout")

    def read(self, path: str) -> int:
        events = self._events("read/stream", {"path": path})
        return sum(len(base64.b64decode(event["data"])) for event in events if event["type"] == "chunk")

    def write(self, path: str, data: bytes) -> None:
        content = base64.b64encode(data).decode()
        body = {"path": path, "content": content, "encoding": "base64", "sessionId": "__DISABLE_SESSION__"}
        self._session.post(f"{self._url}/write", json=body, timeout=60).raise_for_status()


def bare(served: Served, dialect: str, sandbox_id: str) -> Bare:
    """One for a dialect."""
    return BareBridge(served, sandbox_id) if dialect == "bridge" else BareContainer(served, sandbox_id)
