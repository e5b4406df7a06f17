"""`serve` with several processes, a page and callers with tokens, as an operator runs it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

QUESTION = "What did Newton write about whiteness and colours?"


def until(service: subprocess.Popen[str], pattern: str, **fields: Any) -> re.Match[str]:
    """Read the service's log, which is JSON, until the message and other fields of a line fit."""
    for line in map(json.loads, iter(service.stderr.readline, "")):
        assert line["time"]
        assert line["level"]
        assert line["logger"]
        found = re.search(pattern, line["message"])
        if found is not None and fields.items() <= line.items():
            return found
    raise AssertionError(f"the log ended before {pattern}")


def ask(url: str, token: str | None = None) -> list[Any]:
    """Ask as the page does; wait for its port to have a listener."""
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    asked = json.dumps({"query": {"question": QUESTION}}).encode()
    request = urllib.request.Request(f"{url}hirag.query.v1.QueryService/Answer", asked, headers)
    give_up_at = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return [json.loads(line[6:]) for line in response if line.startswith(b"data: ")]
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)


@pytest.fixture
def token(cli: Any, tmp_path: Path) -> Path:
    """A file with the token of caller web, next to callers.yaml with its entry."""
    made = cli.json("serve", "token", "web", "--days", "30")
    callers = {"web": {"tokens": [{"sha256": made["sha256"], "expires": made["expires"]}], "labels": "all"}}
    (tmp_path / "callers.yaml").write_text(yaml.safe_dump({"callers": callers}))
    file = tmp_path / "token"
    file.write_text(made["token"])
    return file


@pytest.fixture
def served(cli: Any, built: Any, token: Path) -> Iterator[tuple[subprocess.Popen[str], str, str, str]]:
    """The process, the address of the service, and the URLs of its metrics and of its page."""
    cli.environ["HIRAG_LOG_FORMAT"] = "json"
    callers = ("--set", f"service.callers_file={token.with_name('callers.yaml')}")
    settings = ("--set", "service.metrics_listen=127.0.0.1:0")
    listen = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--processes", "2")
    process = cli.start("serve", "-i", built.folder, *listen, *callers, *settings)
    metrics = until(process, r"metrics on (\S+)").group(1)
    address = until(process, r"Serving on (\S+)\.").group(1)
    yield process, address, metrics, until(process, r"Browser page: (\S+)").group(1)
    process.kill()
    process.communicate()


def test_two_processes_and_a_page_outlive_the_death_of_each(
    cli: Any, served: tuple[subprocess.Popen[str], str, str, str], token: Path, built: Any
) -> None:
    process, address, metrics, page = served
    query = ("query", QUESTION, "--server", address, "--context-only")
    assert cli.json(*query, "--token-file", token)["local"]
    until(process, "^request$", method="Retrieve", code="OK", caller="web", labels="all")
    assert "bearer token" in cli(*query, code=1).stderr
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(page)
    assert refused.value.code == 401
    lines = ask(page, token.read_text())
    assert lines[0]["retrieval"]["local"]
    assert lines[-1]["answer"]["text"]
    port = address.rpartition(":")[2]
    again = ("serve", "-i", built.folder, "--listen", address, "--processes", "2")
    assert f"port {port} is in use" in cli(*again, code=1).stderr
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 3
    os.kill(int(children[0]), signal.SIGKILL)
    killed = until(process, r"(worker \d) \(process \d+\) was killed by SIGKILL; it starts again in").group(1)
    until(process, "listening on " + re.escape(address), process=killed)
    assert cli.json(*query, "--token-file", token)["local"]
    os.kill(int(children[-1]), signal.SIGKILL)
    until(process, r"page \(process \d+\) was killed by SIGKILL; it starts again in")
    assert ask(page, token.read_text())[0]["retrieval"]["local"]
    counted = urllib.request.urlopen(metrics).read().decode()
    asked = re.search(r'hirag_service_requests_total{caller="token",code="OK",method="Retrieve"} (\d+)', counted)
    assert asked
    assert int(asked[1]) >= 2, "the requests of the worker that died are counted too"
    assert "hirag_service_worker_deaths_total" in counted
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert not [line for line in map(json.loads, process.stderr) if "exception" in line]
