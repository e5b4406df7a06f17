"""`init` and `config`, as a user runs them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hirag_dist.cli._command_line import run

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
