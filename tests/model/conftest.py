"""A real small language model behind a real server, and the commands of a user in processes of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("newton-whiteness-from-colours.md", "jefferson-1803-louisiana.md", "doyle-the-blue-carbuncle.md")
DOCUMENT_CHARS = 7500


class LlamaServer:
    """A llama.cpp server with SmolLM2 on loopback; it keeps its port when it is started again."""

    def __init__(self, window: int, slots: int) -> None:
        self.window, self.slots = window, slots
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Start the process and wait until the model is loaded."""
        command = [sys.executable, Path(__file__).with_name("llama_server.py"), self.port, self.window, self.slots]
        self._process = subprocess.Popen(list(map(str, command)), stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 120
        while True:
            assert self._process.poll() is None, "the server ended while it started"
            try:
                with urllib.request.urlopen(f"{self.url}/models", timeout=5):
                    return
            except (urllib.error.URLError, ConnectionError):
                assert time.monotonic() < deadline, "the server did not start within 120 s"
                time.sleep(0.2)

    def kill(self) -> None:
        """End the process at once, in the middle of what it does."""
        self._process.kill()
        self._process.wait()


class Commands:
    """Runs `hirag-dist` in a folder with a configuration that names nothing but the endpoint."""

    def __init__(self, folder: Path, server: LlamaServer) -> None:
        self.folder = folder
        endpoint = {"base_url": server.url, "model": "smollm2", "price": {"input": 0}}
        roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "local")
        config = {"llm": {"endpoints": {"local": endpoint}, "roles": roles}}
        (folder / "hirag.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "hirag_dist", *arguments]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "RAY_USAGE_STATS_ENABLED": "0", "NO_COLOR": "1"}
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, env=environment, stdout=pipe, stderr=pipe, text=True)

    def json(self, *arguments: str) -> Any:
        """Return the object that a command prints with --json; exit code 3 says that a reply was cut off."""
        process = self.start(*arguments, "--json")
        out, err = process.communicate()
        assert process.returncode in (0, 3), f"exit {process.returncode}\n{out}\n{err}"
        return json.loads(out)


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Callable[..., LlamaServer]:
    """Start a server that ends with the test."""

    def start(window: int = 4096, slots: int = 2) -> LlamaServer:
        server = LlamaServer(window, slots)
        request.addfinalizer(server.kill)
        return server

    return start


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """A folder with the beginnings of three texts of the sample corpus."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for name in DOCUMENTS:
        text = (ROOT / "hirag_dist" / "samples" / "corpus" / name).read_text("utf-8")
        (folder / name).write_text(text[:DOCUMENT_CHARS], encoding="utf-8")
    return folder
