"""`serve --http`, as an operator runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

QUESTION = "What did Newton write about whiteness and colours?"


def until(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the process's log until a line fits."""
    assert process.stderr is not None
    return next(found.group(1) for line in iter(process.stderr.readline, "") if (found := re.search(pattern, line)))


def ask(url: str, token: str | None = None) -> list[Any]:
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    body = json.dumps({"question": QUESTION}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}api/ask", body, headers), timeout=60) as response:
        return [json.loads(line) for line in response]


def again(url: str, token: str) -> list[Any]:
    """Ask until the port has a listener."""
    give_up_at = time.monotonic() + 60
    while True:
        try:
            return ask(url, token)
        except urllib.error.URLError:
            assert time.monotonic() < give_up_at
            time.sleep(0.1)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_page_beside_the_service(cli: Any, built: Any, tmp_path: Path, processes: int) -> None:
    made = cli.json("serve", "token", "web")
    callers = tmp_path / "callers.yaml"
    callers.write_text(yaml.safe_dump({"callers": {"web": {"tokens": [{"sha256": made["sha256"]}], "labels": "all"}}}))
    address = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--processes", processes)
    settings = ("--set", f"service.callers_file={callers}", "--set", "vectors.backend=memory")
    process = cli.start("serve", "-i", built.folder, *address, *settings)
    try:
        url = until(process, r"Browser page: (\S+)")
        with urllib.request.urlopen(url, timeout=60) as response:
            assert "Ask the index" in response.read().decode()
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask(url)
        assert refused.value.code == 401
        assert "bearer token" in json.load(refused.value)["error"]["message"]
        lines = ask(url, made["token"])
        assert lines[0]["retrieval"]["local"]
        assert lines[-1]["answer"]["text"]
        assert until(process, r"caller=(\S+)") == "web"  # the service's log knows whom the page asked for
        if processes == 2:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            assert len(children) == 3
            os.kill(int(children[-1]), signal.SIGKILL)
            until(process, r"(page) \(process \d+\) was killed by SIGKILL; it starts again in")
            assert again(url, made["token"])[0]["retrieval"]["local"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert "Traceback" not in process.communicate()[1]
    finally:
        process.kill()
        process.communicate()


def test_a_page_that_cannot_be_served(cli: Any, built: Any, tmp_path: Path) -> None:
    serve = ("serve", "-i", built.folder, "--listen", "127.0.0.1:0", "--set", "vectors.backend=memory")
    assert "opens the index to the network" in cli(*serve, "--http", "0.0.0.0:0", code=2).stderr
    for processes in (1, 2):
        taken = cli(*serve, "--http", "192.0.2.1:80", "--processes", processes, code=2).stderr
        assert "opens the index to the network" in taken
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        where = f"127.0.0.1:{held.getsockname()[1]}"
        for processes in (1, 2):
            assert "in use" in cli(*serve, "--http", where, "--processes", processes, code=1).stderr
