"""A web server that forks: one transport, made by the parent, serves the requests of all its workers (C3)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

import pytest
import requests

from tests._served import Served

APP = Path(__file__).resolve().parent.parent / "examples" / "gunicorn_app"
REQUESTS = 60


@pytest.fixture
def gunicorn(server: Served) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A gunicorn with two workers of four threads, and its URL."""
    if find_spec("gunicorn") is None:
        if os.environ.get("SANDBOXSYNC_REQUIRE_ALL") == "1":
            pytest.fail("gunicorn is not installed")
        pytest.skip("gunicorn is not installed")
    command = [
        sys.executable,
        "-m",
        "gunicorn",
        "--preload",
        "--workers=2",
        "--threads=4",
        "--bind=127.0.0.1:0",
        "app:app",
    ]
    env = {**os.environ, "SANDBOX_URL": server.url, "SANDBOX_API_KEY": server.api_key}
    with subprocess.Popen(command, cwd=APP, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            lines: list[str] = []
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"Listening at: (\S+)", line):
                    break
            else:
                pytest.fail("".join(lines))
            # What it says later must not fill the pipe.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            yield found[1], process
        finally:
            if process.poll() is None:
                process.kill()


def test_C3_workers_of_gunicorn_share_a_sandbox(gunicorn: tuple[str, subprocess.Popen[str]]) -> None:
    """No answer of one worker reaches another; both work; the server ends in peace."""
    url, process = gunicorn
    workers = set()

    def get(number: int) -> str:
        answer = requests.get(f"{url}/user-{number}", timeout=30)
        assert answer.status_code == 200
        workers.add(answer.headers["X-Worker"])
        return answer.text

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(get, range(REQUESTS)))
    assert answers == [f"hello user-{number} from /tmp\n" for number in range(REQUESTS)]
    assert len(workers) == 2
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
