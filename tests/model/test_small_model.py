"""The product behind a real small model that nobody here wrote: SmolLM2-135M on llama.cpp's server.

A model of this size writes poor descriptions. What is tested is the form: every chunk has a reply that was parsed, no
unit is lost because of its form, and every way to ask gives an answer.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.model.conftest import Commands, LlamaServer

pytestmark = pytest.mark.timeout(3600)
QUESTION = "What did Newton write about whiteness?"


def assert_read(commands: Commands, report: dict[str, Any], n_documents: int) -> None:
    """Every document was read, and no unit was lost; of a reply without end the complete records are kept."""
    counts = report["counts"]
    assert counts["documents"] == n_documents
    assert counts["entities"] >= n_documents
    reasons = [letter["reason"] for letter in commands.json("status", "--index", "index")["letters"]]
    assert all(reason.startswith("only its complete records were kept") for reason in reasons), reasons


def wait_for(process: subprocess.Popen[str], pattern: str) -> str:
    """Read the log of a service up to a line that fits; return the first group."""
    for line in iter(process.stderr.readline, ""):
        if found := re.search(pattern, line):
            return found.group(1)
    raise AssertionError(f"the service ended without a line that fits {pattern}")


def test_an_index_is_built_updated_and_answers_at_every_door(
    serve: Callable[..., LlamaServer], documents: Path, tmp_path: Path
) -> None:
    commands = Commands(tmp_path, serve())
    report = commands.json("index", str(documents), "--index", "index")
    assert_read(commands, report, 3)
    calls = {row["stage"]: row["calls"] for row in report["usage"] if row["calls"]}
    assert calls["extract"] <= 3 * report["counts"]["chunks"], "no chunk takes more than its attempts"
    assert commands.json("index", str(documents), "--index", "index")["this_run"]["calls"] == 0

    (documents / "note.md").write_text("Ada Lovelace wrote the first program for the engine of Charles Babbage.\n")
    assert_read(commands, commands.json("index", str(documents), "--index", "index"), 4)

    answer = commands.json("query", "--index", "index", QUESTION)
    assert answer["text"]
    service = commands.start("serve", "--index", "index", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    try:
        address = wait_for(service, r"Serving on (\S+)\.")
        page = wait_for(service, r"OpenAI-compatible API: (\S+)\. ")
        assert commands.json("query", "--server", address, QUESTION)["text"]
        body = {"model": "hirag", "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 100}
        request = urllib.request.Request(
            f"{page}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=600) as response:
            choice = json.load(response)["choices"][0]
        assert choice["message"]["content"]
        assert choice["finish_reason"] in ("stop", "length")
    finally:
        service.send_signal(signal.SIGTERM)
        service.communicate(timeout=60)


@pytest.mark.parametrize(("window", "slots"), [(1024, 2), (2048, 1)])
def test_prompts_and_replies_fit_into_a_small_window(
    serve: Callable[..., LlamaServer], documents: Path, tmp_path: Path, window: int, slots: int
) -> None:
    commands = Commands(tmp_path, serve(window, slots))
    plan = commands.json("plan", str(documents))
    assert plan["chunks"] > 3, "a chunk of the default size does not fit"
    assert_read(commands, commands.json("index", str(documents), "--index", "index"), 3)
    assert commands.json("query", "--index", "index", QUESTION)["text"]


def test_a_build_goes_on_after_the_server_was_killed(
    serve: Callable[..., LlamaServer], documents: Path, tmp_path: Path
) -> None:
    server = serve()
    commands = Commands(tmp_path, server)
    build = commands.start("index", str(documents), "--index", "index", "--executor", "inline", "--json")
    time.sleep(15)  # the first chunks are being read
    server.kill()
    time.sleep(5)
    server.start()
    out, err = build.communicate()
    assert build.returncode in (0, 3), err
    assert "connection refused" in err.lower()
    assert_read(commands, json.loads(out), 3)
