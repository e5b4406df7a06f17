"""An OpenAI-compatible endpoint on loopback that answers what a function says, and a command run in this process."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from hirag_dist.cli import main


@dataclass(frozen=True, slots=True)
class Asked:
    """A chat request as it came over the wire."""

    body: Mapping[str, Any]

    @property
    def task(self) -> str:
        return str(self.body["messages"][0]["content"]).splitlines()[0].removeprefix("Task: ")

    @property
    def system(self) -> str:
        return str(self.body["messages"][0]["content"])

    @property
    def user(self) -> str:
        return str(self.body["messages"][1]["content"])

    @property
    def is_again(self) -> bool:
        """True if a reply was refused before."""
        return len(self.body["messages"]) > 2

    def between(self, tag: str) -> str:
        found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", self.user, re.DOTALL)
        assert found, f"no <{tag}> in {self.user}"
        return found[1]


Script = Callable[[Asked], str | int]  # the reply, or the status of a failure


@dataclass
class Endpoint:
    """Serves in threads of its own, also to other processes, until it is closed.

    Attributes:
        tokens: of the prompt of each request, as it says.
        alter: changes the body of a reply before it is sent.
        asked: every request, in the order in which they came.
    """

    script: Script
    tokens: int = 100
    alter: Callable[[dict[str, Any]], Any] = lambda body: body
    asked: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked = Asked(body)
                endpoint.asked.append(asked)
                said = endpoint.script(asked)
                if isinstance(said, int):
                    self._send(said, {"error": {"message": "as the script says"}})
                else:
                    message = {"role": "assistant", "content": said}
                    usage = {"prompt_tokens": endpoint.tokens, "completion_tokens": 10}
                    choice = {"message": message, "finish_reason": "stop"}
                    reply = {"choices": [choice], "usage": usage, "model": body["model"]}
                    self._send(200, endpoint.alter(reply))

            def _send(self, status: int, value: object) -> None:
                data = json.dumps(value).encode()
                try:
                    self.send_response(status)
                    self.send_header("content-type", "application/json")
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the caller was killed

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def count(self, task: str) -> int:
        """Return how many requests of a task came."""
        return sum(asked.task == task for asked in self.asked)


def write_config(path: Path, models: Mapping[str, str], roles: Mapping[str, str], **llm: Any) -> Path:
    """Write a configuration with one endpoint for each model, name → URL."""
    own = {"output": "delimited", "max_concurrent": 4}
    endpoints: dict[str, Any] = {name: {"base_url": url, "model": name, **own} for name, url in models.items()}
    endpoints["builtin-embedder"] = {"kind": "hashing", "dim": 32}  # as `toy_builds.Bench` has it
    path.write_text(yaml.safe_dump({"llm": {"endpoints": endpoints, "roles": dict(roles), **llm}}))
    return path


def run_command(
    arguments: Sequence[object], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> tuple[int, Any]:
    """Run `hirag-dist ARGUMENTS --json`; return its exit code and the object on stdout."""
    monkeypatch.setattr(sys, "argv", ["hirag-dist", *map(str, arguments), "--json"])
    stdout = os.dup(1)
    try:
        with pytest.raises(SystemExit) as end:
            main.main()
    finally:
        os.dup2(stdout, 1)  # --json has taken it, for good
        os.close(stdout)
    return int(end.value.code or 0), json.loads(capfd.readouterr().out)
