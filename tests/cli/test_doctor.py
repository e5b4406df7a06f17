"""Checks of the installation that need no command."""

from __future__ import annotations

import importlib.metadata

import pytest

from hirag_dist.cli.doctor import examine
from hirag_dist.config.model import Config, ExecutionConfig, VectorsConfig


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
