"""Checks of the installation that need no command."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from hirag_dist.cli.doctor import examine
from hirag_dist.config.model import Config, ExecutionConfig, VectorsConfig


def test_two_distributions_with_the_same_files_are_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def faults() -> list[str]:
        findings = examine(Config(execution=ExecutionConfig(executor="inline")), None)
        return [one.seen for one in findings if (one.subject, one.state) == ("hirag-dist-client", "fault")]

    assert faults() == []
    folder = tmp_path / "hirag_dist_client-9.8.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.4\nName: hirag-dist-client\nVersion: 9.8\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert faults() == ["9.8 is installed too, and has files of this distribution"]


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
