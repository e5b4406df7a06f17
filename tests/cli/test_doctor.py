"""Checks of the installation that need no command."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

from hirag_dist.cli.doctor import examine
from hirag_dist.config.model import Config, ExecutionConfig, VectorsConfig
from hirag_dist.storage.store import Store
from tests.scripted_endpoint import Asked, Endpoint
from tests.storage.snapshots import publish


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


def test_the_vector_search_and_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def found(backend: str, index: str | None = None) -> tuple[str, str]:
        config = Config(
            execution=ExecutionConfig(executor="inline"), vectors=VectorsConfig.model_validate({"backend": backend})
        )
        (finding,) = [one for one in examine(config, index) if one.subject == "vectors"]
        return finding.state, finding.seen

    assert found("auto")[1].startswith("auto, memory: an exact scan")
    assert found("auto", str(tmp_path / "none"))[1].startswith("auto, memory: an exact scan")
    manifest = publish(Store(str(tmp_path / "index")))
    n, dim = manifest.counts["entities"], manifest.dim
    assert found("auto", str(tmp_path / "index")) == (
        "ok",
        found("auto")[1] + f"; the index has {n} of {dim} numbers, of which a question reads 0 MB",
    )
    assert found("milvus-lite", str(tmp_path / "index"))[0] == "note"
    monkeypatch.setattr("hirag_dist.cli.doctor._MAX_IN_MEMORY", n - 1)
    assert found("memory", str(tmp_path / "index"))[0] == "note"


def test_the_window_and_the_speed_of_an_endpoint_are_named() -> None:
    def reply(asked: Asked) -> str:
        return "A probe that is asked once."

    endpoint = Endpoint(reply, window=2048)
    try:
        named = {"base_url": endpoint.url, "model": "small", "output": "delimited"}
        llm = {"endpoints": {"local": named}, "roles": {"extract": "local"}}
        config = Config.model_validate({"execution": {"executor": "inline"}, "llm": llm})
        (finding,) = [one for one in examine(config, None) if one.subject == "endpoint local"]
    finally:
        endpoint.close()
    assert finding.state == "ok"
    assert "window 2,048 tokens, about " in finding.seen
    assert "2 at a time: 1,000 tokens of text take about " in finding.seen
