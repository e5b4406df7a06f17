"""The embedder of kind auto: of the index where there is one, else the best that is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist import Config, build_index, open_index, reembed_index
from hirag_dist.composition.build_records import recorded_embedder
from hirag_dist.composition.models import make_coordinator, settle_embedder
from hirag_dist.composition.query import SharedModels, make_engine
from hirag_dist.llm.endpoints import onnx_models
from hirag_dist.llm.endpoints.onnx_models import FORMER_NAME, NAME, MiniLmEmbedder
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.storage.layout import BUILD, CURRENT
from hirag_dist.storage.snapshot.reader import open_snapshot
from hirag_dist.storage.store import Store

INLINE = {"execution": {"executor": "inline"}, "vectors": {"backend": "memory"}}
needs_weights = pytest.mark.skipif(not onnx_models.is_installed(), reason="the extra minilm is not installed")


def settings(config: Config) -> tuple[str, str | None, int | None]:
    endpoint = config.llm.endpoints[config.llm.roles.embed]
    return endpoint.kind, endpoint.model, endpoint.dim


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / "bees.txt"
    path.write_text("The queen bee lays eggs. The workers of the hive feed the larvae of the queen bee.")
    return path


def test_a_new_index_takes_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings(settle_embedder(Config(), None)) == ("hashing", None, None)
    monkeypatch.setattr(onnx_models, "is_installed", lambda: True)
    assert settings(settle_embedder(Config(), None)) == ("minilm", NAME, None)


MINILM = {"llm": {"endpoints": {"v": {"kind": "minilm"}}, "roles": {"embed": "v"}}}


@pytest.mark.parametrize(
    ("given", "built_with", "expected"),
    [
        ({}, "hashing-384", ("hashing", None, 384)),
        ({}, NAME, ("minilm", NAME, None)),
        ({}, FORMER_NAME, ("minilm", FORMER_NAME, None)),
        ({}, "text-embedding-3-small", ("minilm", NAME, None)),  # not local: as if the index were new
        (MINILM, FORMER_NAME, ("minilm", FORMER_NAME, None)),
        (MINILM, "hashing-384", settings(Config.model_validate(MINILM))),
    ],
)
def test_an_index_keeps_its_embedder(
    monkeypatch: pytest.MonkeyPatch, given: Any, built_with: str, expected: tuple[str, str | None, int | None]
) -> None:
    monkeypatch.setattr(onnx_models, "is_installed", lambda: True)
    assert settings(settle_embedder(Config.model_validate(given), built_with)) == expected


@needs_weights
def test_builds_and_questions_settle_it(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = Config.model_validate(INLINE)
    index = str(tmp_path / "index")
    assert build_index(document, index, config=config).complete
    monkeypatch.setattr(onnx_models, "is_installed", lambda: True)
    with open_index(index) as opened:
        assert opened.info.embedder == "hashing-384"
        assert opened.retrieve("Who feeds the larvae?").local
    for fresh, embedder in ((False, "hashing-384"), (True, NAME)):
        build_index(document, index, config=config, fresh=fresh)
        assert open_snapshot(Store(index)).manifest.embedder == embedder


async def test_an_engine_has_read_the_weights_of_its_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    vectors: list[str] = []
    monkeypatch.setattr(onnx_models, "is_installed", lambda: True)
    monkeypatch.setattr(MiniLmEmbedder, "vector", lambda self, text: vectors.append(text) or np.ones(384))
    config = settle_embedder(Config(), NAME)
    models = SharedModels(config, make_coordinator(config), n_engines=2)
    for _ in range(2):
        models.lend(config, keep=True)
    assert vectors == ["a probe"]
    await models.close()


async def test_indexes_of_one_process_have_their_own_embedders(document: Path, tmp_path: Path) -> None:
    config = Config.model_validate(INLINE)
    models = SharedModels(config, make_coordinator(config), n_engines=2)
    engines = []
    for dim in (64, 128):
        own = {"builtin-embedder": {"kind": "hashing", "dim": dim}}
        built = Config.model_validate(config.model_dump(exclude_unset=True) | {"llm": {"endpoints": own}})
        index = str(tmp_path / str(dim))
        build_index(document, index, config=built)
        engines.append(make_engine(config, open_snapshot(Store(index)), load_prompts(None), models=models))
    assert [engine.info.embedder for engine in engines] == ["hashing-64", "hashing-128"]
    for engine in engines:
        await engine.close()
    await models.close()


def test_an_interrupted_change_of_the_embedder_does_not_count(document: Path, tmp_path: Path) -> None:
    store, config = Store(str(tmp_path / "index")), {"execution": {"executor": "inline"}}
    first = build_index(document, store.uri, config=config).snapshot_id
    endpoint = {"kind": "hashing", "dim": 64}
    reembed_index(store.uri, config=config | {"llm": {"endpoints": {"builtin-embedder": endpoint}}})
    assert recorded_embedder(store) == "hashing-64"
    store.write_bytes(CURRENT, first.encode())
    store.write_json(BUILD, store.read_json(BUILD) | {"state": "interrupted"})
    assert recorded_embedder(store) == open_snapshot(store).manifest.embedder != "hashing-64"
