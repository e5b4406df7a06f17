"""`serve` with several processes, and callers with tokens, as an operator runs it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

QUESTION = "What did Newton write about whiteness and colours?"


@pytest.fixture
def index(built: Any, tmp_path: Path) -> Path:
    return Path(shutil.copytree(built.folder, tmp_path / "copy"))


def until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Read the process's log until a line fits."""
    assert process.stderr is not None
    return next(found for line in iter(process.stderr.readline, "") if (found := re.search(pattern, line)))


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
def served(cli: Any, index: Path, token: Path) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    callers = ("--set", f"service.callers_file={token.with_name('callers.yaml')}")
    metrics = ("--set", "service.metrics_listen=127.0.0.1:0", "--set", "service.access_log=json")
    process = cli.start("serve", "-i", index, "--listen", "127.0.0.1:0", "--processes", "2", *callers, *metrics)
    page = until(process, r"metrics on (\S+)").group(1)
    yield process, until(process, r"Serving on (\S+)\.").group(1), page
    process.kill()
    process.communicate()


def test_two_processes_behind_one_port(
    cli: Any, served: tuple[subprocess.Popen[str], str, str], token: Path, index: Path
) -> None:
    process, address, metrics = served
    ask = ("query", QUESTION, "--server", address, "--context-only")
    assert cli.json(*ask, "--token-file", token)["local"]
    line = json.loads(until(process, r"^\{.*\}$").group())
    assert line.items() >= {"method": "Retrieve", "code": "OK", "caller": "web", "labels": "all"}.items()
    assert "bearer token" in cli(*ask, code=1).stderr
    port = address.rpartition(":")[2]
    again = ("serve", "-i", index, "--listen", address, "--processes", "2")
    assert f"port {port} is in use" in cli(*again, code=1).stderr
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[0]), signal.SIGKILL)
    until(process, r"worker \d \(process \d+\) was killed by SIGKILL; it starts again in")
    until(process, r"\[worker \d\] listening on " + re.escape(address))
    assert cli.json(*ask, "--token-file", token)["local"]
    counted = urllib.request.urlopen(metrics).read().decode()
    assert 'hirag_service_requests_total{caller="token",code="OK",method="Retrieve"} 2.0' in counted  # also of the dead
    assert "hirag_service_worker_deaths_total 1.0" in counted
    assert re.search(r'hirag_snapshot_info{snapshot="\w+"} 2.0', counted)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 0
    assert "Traceback" not in process.stderr.read()  # type: ignore[union-attr]


def test_several_processes_that_cannot_start(cli: Any, index: Path, tmp_path: Path) -> None:
    serve = ("serve", "--listen", "127.0.0.1:0", "--processes", "2", "-i")
    assert "holds no index" in cli(*serve, tmp_path, code=1).stderr
    lite = ("--set", "vectors.backend=milvus-lite")
    assert "milvus-lite belongs to one process" in cli(*serve, index, *lite, code=2).stderr
    callers = ("--set", f"service.callers_file={tmp_path / 'missing'}")
    assert "the callers file" in cli(*serve, index, *callers, code=2).stderr


def test_a_token_for_people(cli: Any) -> None:
    said = cli("serve", "token", "web").stdout
    assert re.search(r"hirag_[\w-]{43}\n", said)
    lines = yaml.safe_load(said[said.index("callers:\n") :])
    assert re.fullmatch(r"[0-9a-f]{64}", lines["callers"]["web"]["tokens"][0]["sha256"])
    assert "is not a valid caller name" in cli("serve", "token", "a b", code=2).stderr
