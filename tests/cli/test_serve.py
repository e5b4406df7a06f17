"""`hirag-dist simulate-llm` as a process, and options of `mcp`."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.cli.serve import _connection_options
from hirag_dist.config.service import ServiceConfig

COMMAND = [sys.executable, "-m", "hirag_dist", "simulate-llm", "--listen", "127.0.0.1:0"]


TLS = {"tls_cert": "a.pem", "tls_key": "a.key"}


@pytest.mark.parametrize(
    ("service", "options"),
    [
        ({}, ""),
        ({"callers_file": "callers.yaml"}, " --token-file FILE"),
        (TLS | {"callers_file": "callers.yaml"}, " --ca CA.pem --token-file FILE"),
        (TLS | {"tls_client_ca": "ca.pem", "callers_file": "c.yaml"}, " --ca CA.pem --cert CERT.pem --key KEY.pem"),
    ],
)
def test_serve_names_the_options_by_which_it_can_be_asked(service: dict[str, str], options: str) -> None:
    assert _connection_options(ServiceConfig.model_validate(service)) == options


@pytest.mark.integration
def test_its_options_reach_the_endpoint() -> None:
    options = ["--truncate-rate", "1", "--no-limit-headers", "--rpm", "100", "--dim", "8"]
    with subprocess.Popen(
        [*COMMAND, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"COLUMNS": "300"},
    ) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+/v1", process.stderr.readline())
        with openai.OpenAI(api_key="any", base_url=found.group(0), max_retries=0) as client:
            task = "Task: answer\n\nAnswer."
            said = client.chat.completions.create(model="c", messages=[{"role": "system", "content": task}])
            vectors = client.embeddings.with_raw_response.create(model="e", input=["one"])
        assert said.choices[0].finish_reason == "length"
        assert len(vectors.parse().data[0].embedding) == 8
        assert not [name for name in vectors.headers if name.lower().startswith("x-ratelimit")]
        process.send_signal(signal.SIGTERM)
        stats: dict[str, Any] = json.loads(process.communicate(timeout=120)[0])
    assert (stats["total"]["calls"], stats["total"]["faults"]) == (2, {"truncate": 1})


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def mcp(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Runs the command; returns its exit code and its line on stderr."""
    monkeypatch.chdir(tmp_path)

    def run_mcp(*arguments: str) -> tuple[int, str]:
        code = run(["mcp", *arguments])
        out, err = capfd.readouterr()
        assert out == ""
        return code, " ".join(err.split())

    return run_mcp


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --index URI or --server HOST:PORT"),
        (["--index", "a", "--ca", "c", "--tls"], "--ca, --tls cannot go with --index"),
        (["--server", "b:1", "--as-label", "x", "--max-usd", "1"], "--max-usd, --as-label cannot go with --server"),
        (["--server", "b:1", "--http", "127.0.0.1:0", "--token-file", "t"], "every caller would have the same rights"),
        (["--index", "a", "--http", "0.0.0.0:80"], "opens the whole index to the network"),
        (["--server", "b:1", "--http", "0.0.0.0:80"], "would send tokens over the network in the clear"),
    ],
)
def test_refused(mcp: Run, arguments: list[str], message: str) -> None:
    code, said = mcp(*arguments)
    assert code in (1, 2)
    assert said.startswith("hirag-dist: ")
    assert message in said


def test_without_the_extra(mcp: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    find: Any = importlib.util.find_spec
    monkeypatch.setattr("hirag_dist.cli.serve.find_spec", lambda name: None if name == "mcp" else find(name))
    assert mcp("--index", "a") == (2, "hirag-dist: this needs the extra mcp: run `pip install 'hirag-dist[mcp]'`")
