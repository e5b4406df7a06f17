"""Another embedder for an index that exists: new vectors, and everything else as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist.config.model import Config
from hirag_dist.errors import BackendUnavailable, ConfigError, StageFailed
from hirag_dist.indexing.pipeline import Build, BuildResult
from hirag_dist.indexing.reembed import estimate_reembedding
from hirag_dist.indexing.stages.embed import EmbedChunks, EmbedEntities, entity_texts
from hirag_dist.llm.embedding import TextsRefused
from hirag_dist.llm.endpoints.hashing import HashingEmbedder
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.types import FloatMatrix
from tests.indexing.test_updates import MORE, PAID, LivingBench, check_base_layer, check_consistent, corpus
from tests.labelled_builds import build as build_labelled
from tests.toy_builds import LAYER_0_ALONE, Bench


def reembed(living: LivingBench, dim: int = 16, **keys: Any) -> Snapshot:
    living.bench.dim = dim
    return living._done(living.bench.run_work(lambda build: build.reembed(), llm=PAID, **keys))


def test_vectors_are_the_other_embedder_s_and_everything_else_stays(living: LivingBench) -> None:
    before = living.index(corpus(12))
    after = reembed(living)
    assert not living.n_asked
    assert (after.manifest.embedder, after.manifest.dim) == ("hashing-16", 16)
    changed = dict(after.manifest.content.items() ^ before.manifest.content.items())
    assert changed.keys() == {"vectors/entities", "vectors/chunks"}
    embedder = HashingEmbedder(16)
    named = entity_texts(after.table("entities", ["name", "description"]))
    np.testing.assert_array_equal(after.entity_vectors, embedder.embed_now(named))
    np.testing.assert_array_equal(after.chunk_vectors, embedder.embed_now(after.table("chunks")["text"].to_pylist()))
    assert current_id(living.bench.store) == after.manifest.snapshot_id
    update = living.result.update
    assert (update.number, update.base, update.other_changes) == (1, before.manifest.snapshot_id, ("vectors",))
    counts = before.manifest.counts
    assert (update.summaries.kept, update.reports.kept) == (counts["summaries"], counts["report_inputs"])
    assert after.manifest.notes["update"]["clustered_with"] == "hashing-32"
    assert reembed(living).manifest.snapshot_id == after.manifest.snapshot_id
    assert living.result.up_to_date
    assert reembed(living, 32).manifest.snapshot_id == before.manifest.snapshot_id == current_id(living.bench.store)


def test_updates_go_on_from_new_vectors_and_return_to_no_others(living: LivingBench) -> None:
    first = living.index(corpus(12))
    living.index(corpus(12) | MORE)
    new = reembed(living)
    updated = living.index(corpus(12))
    assert living.result.update.number == 3
    assert updated.manifest.snapshot_id != first.manifest.snapshot_id
    bench = Bench(living.folder / "fresh", dim=16, counts_tokens=True)
    bench.run_on([living.write(corpus(12))], llm=PAID, **LAYER_0_ALONE)
    check_base_layer(updated, open_snapshot(bench.store))
    check_consistent(updated)
    assert updated.manifest.notes["update"]["clustered_with"] == "hashing-32"
    back = living.index(corpus(12) | MORE)
    assert back.manifest.snapshot_id == new.manifest.snapshot_id
    assert not living.n_asked


def test_another_embedder_is_refused_unless_it_is_asked_for(living: LivingBench) -> None:
    living.index(corpus(3), **LAYER_0_ALONE)
    before = current_id(living.bench.store)
    living.bench.dim = 16
    inputs = [living.write(corpus(3) | MORE)]
    works: list[Callable[[Build], Any]] = [
        lambda build: build.index(inputs),
        lambda build: build.add(inputs),
        lambda build: build.refresh(),
        lambda build: build.check_base(),
    ]
    for work in works:
        with pytest.raises(ConfigError, match=r"hashing-32 of 32 .* hashing-16 of 16 .*--reembed.*--rebuild"):
            living.bench.run_work(work, llm=PAID, **LAYER_0_ALONE)
    assert current_id(living.bench.store) == before
    living.index(corpus(3), chunk_tokens=500, **LAYER_0_ALONE)  # another configuration too: it is built from nothing
    assert "chunk_tokens" in living.result.rebuilt_because
    assert open_snapshot(living.bench.store).manifest.dim == 16


class Faulty(HashingEmbedder):
    """An embedder that is out of reach for, or refuses, texts with a word; it notes the texts that it is asked for."""

    def __init__(self, dim: int, word: str = "", error: str = "", asked: list[str] | None = None) -> None:
        super().__init__(dim)
        self.word, self.error, self.asked = word, error, [] if asked is None else asked

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.asked += texts
        bad = [at for at, text in enumerate(texts) if self.word and self.word in text]
        if bad and self.error:
            raise BackendUnavailable(self.error)
        vectors = self.embed_now(texts)
        vectors[bad] = 0
        if bad:
            raise TextsRefused(vectors, dict.fromkeys(bad, "too odd"))
        return vectors


def test_an_interruption_leaves_the_old_index_and_costs_nothing_twice(living: LivingBench) -> None:
    before = living.index(corpus(3), **LAYER_0_ALONE)
    first: list[str] = []
    second: list[str] = []
    described = " is a word."  # descriptions of entities
    living.bench.make_embedder = partial(Faulty, word=described, error="the endpoint is out of reach", asked=first)
    with pytest.raises(BackendUnavailable):
        reembed(living, **LAYER_0_ALONE)
    assert current_id(living.bench.store) == before.manifest.snapshot_id
    living.bench.make_embedder = partial(Faulty, asked=second)
    after = reembed(living, **LAYER_0_ALONE)
    assert len(first) == before.manifest.counts["chunks"] + before.manifest.counts["entities"]
    assert len(second) == before.manifest.counts["entities"]
    assert after.manifest.complete


def test_a_refused_text_is_a_dead_letter_until_it_has_a_vector(living: LivingBench) -> None:
    before = living.index(corpus(3), **LAYER_0_ALONE)
    word = before.table("entities")["name"][-1].as_py()
    living.bench.make_embedder = partial(Faulty, word=word)

    def complete(build: Build) -> BuildResult:
        return Build(build.context, require_complete=True, base_id="").reembed()

    living.bench.dim = 16
    with pytest.raises(StageFailed, match="--require-complete"):
        living.bench.run_work(complete, llm=PAID, **LAYER_0_ALONE)
    assert current_id(living.bench.store) == before.manifest.snapshot_id
    some = reembed(living, **LAYER_0_ALONE)
    letters = some.table("rejects").to_pylist()
    assert {letter["stage"] for letter in letters} == {EmbedChunks.name, EmbedEntities.name}
    assert all("too odd" in letter["reason"] and word in letter["request"] for letter in letters)
    refused = {letter["unit_id"] for letter in letters}
    ids = [*some.table("entities")["entity_id"].to_pylist(), *some.table("chunks")["chunk_id"].to_pylist()]
    vectors = np.concatenate([some.entity_vectors, some.chunk_vectors])
    assert {own for own, vector in zip(ids, vectors, strict=True) if not vector.any()} == refused
    assert not some.manifest.complete
    living.bench.make_embedder = HashingEmbedder
    living.bench.base_id = before.manifest.snapshot_id
    result = living.bench.run_work(lambda build: build.reembed(), retry=True, llm=PAID, **LAYER_0_ALONE)
    assert result.manifest.complete
    living.bench.base_id, living.bench.make_embedder = "", partial(Faulty, word=word)
    assert not reembed(living, 24, **LAYER_0_ALONE).manifest.complete
    living.bench.make_embedder = HashingEmbedder
    assert reembed(living, 16, **LAYER_0_ALONE).manifest.complete, "letters about vectors go with the vectors"


def test_what_each_label_set_says_has_new_vectors_too(tmp_path: Path) -> None:
    documents = [
        ("Ada/person: Ada is a poet.\nEngine/technology: A machine.\nAda + Engine: Ada praised it. 3", ["public"]),
        ("Ada/person: Ada is a spy.\nEngine/technology: A weapon.\nAda + Engine: Ada stole it. 4", ["secret"]),
    ]
    living, fresh = Bench(tmp_path / "living", base_id=""), Bench(tmp_path / "fresh", dim=16)
    build_labelled(living, documents, **LAYER_0_ALONE)
    expected = build_labelled(fresh, documents, **LAYER_0_ALONE)
    living.dim = 16
    result = living.run_work(lambda build: build.reembed(), **LAYER_0_ALONE)
    found = open_snapshot(living.store, result.manifest.snapshot_id, full_check=True)
    assert found.manifest.content["vectors/parts"] == expected.manifest.content["vectors/parts"]
    assert found.manifest.content == expected.manifest.content


def test_the_estimate_counts_all_texts_and_their_price(living: LivingBench) -> None:
    snapshot = living.index(corpus(3), **LAYER_0_ALONE)
    endpoint = {"base_url": "http://x", "model": "m", "dim": 16, "price": {"input": 1000.0}}
    config = {"llm": {"endpoints": {"vectors": endpoint}, "roles": {"embed": "vectors"}}}
    made = estimate_reembedding(snapshot, Config.model_validate(config))
    counts = snapshot.manifest.counts
    assert made.texts == counts["chunks"] + counts["entities"]
    assert made.tokens > sum(snapshot.table("chunks")["n_tokens"].to_pylist())
    assert made.cost_usd == pytest.approx(made.tokens / 1000)
