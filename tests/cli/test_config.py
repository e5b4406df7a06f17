"""`init`, `config` and `doctor`, as a user runs them."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hirag_dist.cli._command_line import run
from hirag_dist.cli.doctor import examine
from hirag_dist.config.model import Config, ExecutionConfig, VectorsConfig
from hirag_dist.testing.simulator import SimulatorOptions
from tests.simulator_thread import SimulatorThread

SECRET = "sk-very-secret"


def test_init_writes_a_valid_configuration_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "hirag.yaml"
    assert run(["init", str(tmp_path)]) == 0
    assert run(["config", "validate", "--config", str(file)]) == 0
    file.write_text("sed: 1\n", encoding="utf-8")
    assert run(["init", str(tmp_path)]) == 2
    assert "--force overwrites it" in capsys.readouterr().err
    assert run(["config", "validate", "--config", str(file)]) == 2
    assert "unknown key sed; did you mean seed?" in " ".join(capsys.readouterr().err.split())
    assert run(["init", str(tmp_path), "--force"]) == 0
    assert run(["config", "validate", "--config", str(file)]) == 0


def test_show_names_the_origin_of_a_value_and_masks_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hirag.yaml"
    file.write_text("llm: {endpoints: {main: {base_url: 'http://h/v1', model: m, api_key: '${MY_KEY}'}}}\n")
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("HIRAG__SEED", "7")
    assert run(["config", "show", "--config", str(file)]) == 0
    assert SECRET not in capfd.readouterr().out
    assert run(["config", "show", "--config", str(file), "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert "***" in found["config"]["llm"]["endpoints"]["main"]["api_key"]
    assert SECRET not in json.dumps(found)
    assert found["origins"]["seed"] == "environment HIRAG__SEED"
    assert found["origins"]["llm.endpoints.main.model"] == str(file)


@pytest.mark.integration
@pytest.mark.parametrize(
    ("told", "is_whole"),
    [({}, True), ({"COLUMNS": ""}, True), ({"COLUMNS": "80"}, False), ({"FORCE_COLOR": "1"}, False)],
)
def test_a_key_is_on_one_line_and_without_a_terminal_its_row_is(told: dict[str, str], is_whole: bool) -> None:
    """A pipe into a pager that shows colours is as wide as a terminal."""
    unset = ("COLUMNS", "FORCE_COLOR", "TTY_COMPATIBLE")
    environment = {name: value for name, value in os.environ.items() if name not in unset} | told
    command = [sys.executable, "-m", "hirag_dist", "config", "show"]
    lines = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    key = next(line.split() for line in lines if "first_token_timeout_s" in line)
    assert key == ["llm.endpoints.builtin.first_token_timeout_s", "600.0", "default"]
    types = next(line for line in lines if line.startswith("entity_types"))
    assert ('"concept"]' in types) is is_whole


def test_the_extra_milvus_is_a_fault_only_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    def finding(**vectors: str) -> tuple[str, str]:
        config = Config(execution=ExecutionConfig(executor="inline"), vectors=VectorsConfig.model_validate(vectors))
        found = next(one for one in examine(config, None) if one.subject == "Milvus packages")
        return found.state, found.fix

    def version(name: str) -> str:
        if name == "milvus-lite":
            raise importlib.metadata.PackageNotFoundError(name)
        return "1"

    assert finding() == ("ok", "")
    monkeypatch.setattr(importlib.metadata, "version", version)
    assert finding() == ("ok", "")
    assert finding(backend="milvus-lite") == ("fault", "pip install 'hirag-dist[milvus-lite]'")


@pytest.mark.parametrize(
    ("extract", "answer", "state", "said"),
    [
        (512, 4096, "fault", "window of the extract model"),
        (4096, 512, "fault", "window of the model that answers"),
        (4096, 4096, "ok", "chunks of up to"),
    ],
)
def test_doctor_says_where_a_window_has_no_room_for_a_text(extract: int, answer: int, state: str, said: str) -> None:
    sizes = {"extract": extract, "answer": answer}
    url = "http://127.0.0.1:9/v1"
    endpoints = {role: {"base_url": url, "model": "m", "context_window": size} for role, size in sizes.items()}
    llm = {"endpoints": endpoints, "roles": {role: role for role in sizes}}
    config = Config.model_validate({"llm": llm, "execution": {"executor": "inline"}})
    found = next(one for one in examine(config, None) if one.subject == "context windows")
    assert (found.state, said in found.seen) == (state, True)


@pytest.mark.integration
def test_each_endpoint_is_asked_once_and_a_fault_names_what_is_wrong() -> None:
    def findings(chat_url: str, vectors_url: str, dim: int) -> dict[str, tuple[str, str]]:
        chat = {"base_url": chat_url, "model": "extractive"}
        vectors = {"base_url": vectors_url, "model": "hashing", "dim": dim}
        roles = dict.fromkeys(("extract", "summarise", "report", "answer", "judge"), "chat") | {"embed": "vectors"}
        llm = {"endpoints": {"chat": chat, "vectors": vectors}, "roles": roles}
        config = Config.model_validate({"llm": llm, "execution": {"executor": "inline"}})
        return {one.subject: (one.state, one.seen) for one in examine(config, None)}

    thread = SimulatorThread(SimulatorOptions(listen="127.0.0.1:0", dim=64))
    with thread as url:
        found = findings(url, url, 64)
        assert found["endpoint chat"][0] == found["embedder vectors"][0] == "ok"
        assert "structured outputs on" in found["endpoint chat"][1]
        assert "64 dimensions" in found["embedder vectors"][1]
        assert thread.stats()["endpoints"]["/v1/embeddings"]["calls"] == 1
        state, seen = findings(url, url, 32)["embedder vectors"]
        assert (state, "64" in seen, "32" in seen) == ("fault", True, True)
    state, seen = findings(url, url, 64)["endpoint chat"]
    assert (state, url.partition("//")[2].partition("/")[0] in seen) == ("fault", True)
