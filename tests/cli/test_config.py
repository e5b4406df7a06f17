"""`init` and `config`, as a user runs them."""

from __future__ import annotations

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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "hirag.yaml"
    file.write_text("llm: {endpoints: {main: {base_url: 'http://h/v1', model: m, api_key: '${MY_KEY}'}}}\n")
    monkeypatch.setenv("MY_KEY", SECRET)
    monkeypatch.setenv("HIRAG__SEED", "7")
    monkeypatch.setenv("COLUMNS", "300")
    assert run(["config", "show", "--config", str(file)]) == 0
    said = capsys.readouterr().out
    assert SECRET not in said
    lines = {line.split()[0]: line for line in said.splitlines() if line.strip()}
    assert "environment HIRAG__SEED" in lines["seed"]
    assert "***" in lines["llm.endpoints.main.api_key"]
    assert str(file) in lines["llm.endpoints.main.model"]
