"""Generated indexes are what a build would have published: sorted, nested, connected, and the same for a seed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from benchmarks.generated import generate, questions
from hirag_dist.core.graph.csr import components, rows_of, within
from hirag_dist.storage.snapshot.manifest import Manifest
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.store import Store

N = 3000


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, Manifest]:
    store = Store(str(tmp_path_factory.mktemp("generated")))
    return store, generate(store, N)


@pytest.fixture(scope="module")
def snapshot(made: tuple[Store, Manifest]) -> Snapshot:
    return open_snapshot(made[0], full_check=True)


def test_sizes_are_what_was_asked_for_and_the_snapshot_is_current(made: tuple[Store, Manifest]) -> None:
    store, manifest = made
    assert manifest.counts["entities"] == N
    assert manifest.counts["relations"] == 5 * N
    assert current_id(store) == manifest.snapshot_id


def test_a_seed_gives_one_snapshot_and_another_seed_another(tmp_path: Path, made: tuple[Store, Manifest]) -> None:
    assert generate(Store(str(tmp_path)), N).snapshot_id == made[1].snapshot_id
    assert generate(Store(str(tmp_path)), N, seed=1).snapshot_id != made[1].snapshot_id


def test_rows_are_sorted_as_a_build_sorts_them(snapshot: Snapshot) -> None:
    entities = snapshot.table("entities")
    order = [("layer", "ascending"), ("entity_id", "ascending")]
    assert entities.select(["layer", "entity_id"]).sort_by(order).equals(entities.select(["layer", "entity_id"]))
    for name, keys in {
        "relations": ["relation_id"],
        "documents": ["document_id"],
        "chunks": ["document_id", "position"],
        "clusters": ["layer", "cluster_id", "entity_id"],
        "communities": ["level", "community_id"],
    }.items():
        table = snapshot.table(name).select(keys)
        assert table.sort_by([(key, "ascending") for key in keys]).equals(table), name
    for name, key in {"entities": "entity_id", "relations": "relation_id", "chunks": "chunk_id"}.items():
        ids = snapshot.table(name)[key]
        assert pc.count_distinct(ids).as_py() == len(ids), name


def test_ids_that_tables_name_are_there(snapshot: Snapshot) -> None:
    entities, relations, chunks = (snapshot.table(name) for name in ("entities", "relations", "chunks"))
    for ids, order in (
        (relations["source_id"], entities["entity_id"]),
        (relations["target_id"], entities["entity_id"]),
        (pc.list_flatten(relations["chunk_ids"]), chunks["chunk_id"]),
        (pc.list_flatten(entities["chunk_ids"]), chunks["chunk_id"]),
        (chunks["document_id"], snapshot.table("documents")["document_id"]),
        (snapshot.table("clusters")["entity_id"], entities["entity_id"]),
        (snapshot.table("reports")["community_id"], snapshot.table("communities")["community_id"]),
    ):
        assert rows_of(ids, order).min() >= 0


def test_chunks_are_spans_of_their_documents(snapshot: Snapshot) -> None:
    texts = dict(zip(*(snapshot.table("documents")[name].to_pylist() for name in ("document_id", "text")), strict=True))
    for row in snapshot.table("chunks").to_pylist():
        assert texts[row["document_id"]][row["start"] : row["end"]] == row["text"]


def test_relations_lead_up_by_one_layer_at_most(snapshot: Snapshot) -> None:
    entities, relations = snapshot.table("entities"), snapshot.table("relations")
    layers = entities["layer"].to_numpy()
    low, high = (layers[rows_of(relations[name], entities["entity_id"])] for name in ("source_id", "target_id"))
    extracted = relations["kind"].to_numpy(zero_copy_only=False) == "extracted"
    assert not low[extracted].any()
    assert not high[extracted].any()
    assert (high[~extracted] == low[~extracted] + 1).all()
    np.testing.assert_array_equal(relations["layer"].to_numpy(), low)
    named = relations.filter(pc.equal(relations["kind"], "same_name"))
    assert named.num_rows
    names = entities["name"].to_numpy(zero_copy_only=False)
    ends = [names[rows_of(named[name], entities["entity_id"])] for name in ("source_id", "target_id")]
    assert (ends[0] == ends[1]).all()


def test_communities_are_connected_and_nested_in_their_parents(snapshot: Snapshot) -> None:
    communities = snapshot.table("communities")
    indptr, members = snapshot.members(communities, snapshot.table("entities"))
    ids = communities["community_id"].to_pylist()
    rows = {own: set(members[indptr[at] : indptr[at + 1]].tolist()) for at, own in enumerate(ids)}
    levels = communities["level"].to_numpy()
    for own, parent in zip(ids, communities["parent_id"].to_pylist(), strict=True):
        assert parent is None or rows[own] <= rows[parent]
    for level in range(int(levels.max()) + 1):
        labels = np.full(N, -1)
        for at in np.flatnonzero(levels == level):
            labels[members[indptr[at] : indptr[at + 1]]] = at
        assert (labels >= 0).all()
        assert components(within(snapshot.graph, labels)).max() + 1 == (levels == level).sum()


def test_degrees_have_a_heavy_tail(snapshot: Snapshot) -> None:
    degrees = np.diff(snapshot.graph.indptr)
    assert degrees.mean() == pytest.approx(10, abs=0.1)
    assert degrees.max() > 10 * np.median(degrees)


def test_vectors_are_unit_and_lie_by_community(snapshot: Snapshot) -> None:
    vectors = np.asarray(snapshot.entity_vectors)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    communities = snapshot.table("communities")
    indptr, members = snapshot.members(communities, snapshot.table("entities"))
    inside = vectors[members[indptr[-2] : indptr[-1]]]  # of one leaf
    assert (inside @ inside.T).mean() > (vectors @ inside.T).mean() + 0.1


def test_questions_are_unit_vectors_near_entities(snapshot: Snapshot) -> None:
    asked = questions(snapshot.entity_vectors, 50)
    np.testing.assert_allclose(np.linalg.norm(asked, axis=1), 1, rtol=1e-5)
    best = (asked @ np.asarray(snapshot.entity_vectors).T).max(axis=1)
    assert best.min() > 0.5
    np.testing.assert_array_equal(asked, questions(snapshot.entity_vectors, 50))
