"""An OpenAI-compatible endpoint on loopback that answers what a function says, and a command run in this process."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
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

    def between(self, tag: str) -> str:
        found = re.search(rf"<{tag}>\n(.*?)\n</{tag}>", self.user, re.DOTALL)
        assert found, f"no <{tag}> in {self.user}"
        return found[1]


Script = Callable[[Asked], str | int]  # the reply, or the status of a failure


@dataclass
class Endpoint:
    """Serves in threads of its own, also to other processes, until it is closed.

    Attributes:
        alter: changes the body of a reply before it is sent, whole or as a stream.
        asked: every request, in the order in which they came.
        window: Tokens of a prompt and its reply together, as llama.cpp tells it; a larger request is refused. None for
            an endpoint that tells none.
        count_tokens: Counts the tokens of a text as the model does, for the window.
        refused: Requests that were larger than the window.
    """

    script: Script
    alter: Callable[[dict[str, Any]], Any] = lambda body: body
    asked: list[Asked] = field(default_factory=list)
    window: int | None = None
    count_tokens: Callable[[str], int] = len
    refused: list[Asked] = field(default_factory=list)

    def __post_init__(self) -> None:
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if endpoint.window is None or self.path != "/props":
                    self._send(404, {"error": {"message": "not here"}})
                else:
                    settings = {"n_ctx": endpoint.window}
                    self._send(200, {"default_generation_settings": settings, "total_slots": 2})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                asked = Asked(body)
                endpoint.asked.append(asked)
                if endpoint.window is not None and endpoint._size(asked) > endpoint.window:
                    endpoint.refused.append(asked)
                    self._send(400, _too_large(endpoint._size(asked), endpoint.window))
                    return
                said = endpoint.script(asked)
                if isinstance(said, int):
                    self._send(said, {"error": {"message": "as the script says"}})
                else:
                    said, reason = endpoint._cut(asked, said)
                    message = {"role": "assistant", "content": said}
                    tokens = 100 if endpoint.window is None else endpoint._prompt_size(asked)
                    usage = {"prompt_tokens": tokens, "completion_tokens": 10}
                    choice = {"message": message, "finish_reason": reason}
                    reply = endpoint.alter({"choices": [choice], "usage": usage, "model": body["model"]})
                    if body.get("stream"):
                        events = [json.dumps(event) for event in _events(reply)]
                        data = "".join(f"data: {event}\n\n" for event in (*events, "[DONE]"))
                        self._send_data(200, data, "text/event-stream")
                    else:
                        self._send(200, reply)

            def _send(self, status: int, value: object) -> None:
                self._send_data(status, json.dumps(value), "application/json")

            def _send_data(self, status: int, text: str, kind: str) -> None:
                data = text.encode()
                with suppress(BrokenPipeError, ConnectionResetError):  # the caller was killed
                    self.send_response(status)
                    self.send_header("content-type", kind)
                    self.send_header("content-length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _cut(self, asked: Asked, said: str) -> tuple[str, str]:
        """Return a reply as far as the request's limit goes, and why it ended; without a window there is no limit."""
        most = asked.body.get("max_tokens")
        if self.window is None or most is None or (size := self.count_tokens(said)) <= most:
            return said, "stop"
        return said[: len(said) * most // size], "length"

    def _prompt_size(self, asked: Asked) -> int:
        return sum(self.count_tokens(message["content"]) + 4 for message in asked.body["messages"])

    def _size(self, asked: Asked) -> int:
        return self._prompt_size(asked) + int(asked.body.get("max_tokens", 0))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def count(self, task: str) -> int:
        """Return how many requests of a task came."""
        return sum(asked.task == task for asked in self.asked)


def _events(reply: Any) -> list[Any]:
    """Return the events of a streamed reply: its text, why it ended, its usage; one of an odd shape as a whole."""
    try:
        (choice,) = reply["choices"]
        text, end = choice["message"], choice["finish_reason"]
    except (LookupError, TypeError, ValueError):
        return [reply]
    rest = {key: value for key, value in reply.items() if key not in ("choices", "usage")}
    first = rest | {"choices": [{"index": 0, "delta": text, "finish_reason": None}]}
    last: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": end}]}
    return [first, last] + ([{"choices": [], "usage": reply["usage"]}] if "usage" in reply else [])


def _too_large(tokens: int, window: int) -> dict[str, Any]:
    """Return the refusal of llama.cpp's server."""
    message = f"request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
    kind = "exceed_context_size_error"
    return {"error": {"code": 400, "message": message, "type": kind, "n_prompt_tokens": tokens, "n_ctx": window}}


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
