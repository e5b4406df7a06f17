"""An index as a caller sees it, method by method, against the documents in reach."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from hirag_dist.core.access import HIDDEN
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex, FilteredIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Query
from tests.leaky_builds import NOBODY, Indexes, corpus
from tests.toy_builds import rows


@pytest.fixture(scope="module")
def snapshot(made: Indexes) -> Snapshot:
    return made.snapshot(corpus(1))


@pytest.fixture(scope="module")
def whole(snapshot: Snapshot) -> MappedIndex:
    return MappedIndex.open(snapshot)


@pytest.fixture(scope="module")
def seen(snapshot: Snapshot, whole: MappedIndex) -> FilteredIndex:
    return AccessControlledIndex(whole, snapshot).view_for(NOBODY)


async def test_relations_of_a_bridge_are_scored_by_the_chunks_in_reach(
    made: Indexes, snapshot: Snapshot, whole: MappedIndex, seen: FilteredIndex
) -> None:
    public = {row["document_id"] for row in rows(snapshot, "documents") if not row["labels"]}
    reached = np.array([row["document_id"] in public for row in rows(snapshot, "chunks")])
    query = np.random.default_rng(2).normal(size=whole.vectors.shape[1]).astype(np.float32)
    query /= np.linalg.norm(query)
    found = await made(corpus(1)).retrieve(Query("What is near?", "bridge", top_n=40, vector=query, reach=NOBODY))
    entities = [row["entity_id"] for row in rows(snapshot, "entities")]
    relations = [row["relation_id"] for row in rows(snapshot, "relations")]
    bounds, n_nearer = whole.provenance.relation_indptr, 0
    for triple in found.triples:
        row = relations.index(triple.relation_id)
        chunks = whole.provenance.relation_chunks[bounds[row] : bounds[row + 1]]
        ends = np.array([entities.index(triple.source_id), entities.index(triple.target_id)])
        near = max(whole.chunk_vectors[chunks[reached[chunks]]] @ query, default=0.0)
        assert triple.score == pytest.approx((max(seen.similarities(ends, query)) + near) / 2, abs=1e-5)
        n_nearer += max(whole.chunk_vectors[chunks] @ query, default=0.0) > near
    assert n_nearer, "else hidden chunks would change nothing"


def test_records_that_are_told_anew(whole: MappedIndex, seen: FilteredIndex) -> None:
    access = seen.access
    entities = np.flatnonzero(access.entity_states[access.entity_patterns] != HIDDEN).tolist()
    anew = set(np.array(entities)[seen.rebuilt("local", np.array(entities))].tolist())
    assert anew == {row for row in entities if seen.entities([(row, None)]) != whole.entities([(row, None)])}
    relations = seen.visible_relations(np.arange(len(whole.ends)))
    for row, rebuilt in zip(relations.tolist(), seen.rebuilt("bridge", relations).tolist(), strict=True):
        ends = set(whole.ends[row].tolist())
        told, written = (index.triples([(row, 0.5)], index.named(ends)) for index in (seen, whole))
        assert told == written or rebuilt
    assert not any(seen.rebuilt(level, np.zeros(1, np.int64)).any() for level in ("global", "sources"))
    assert not whole.rebuilt("local", np.array(sorted(anew))).any()


def test_callers_who_may_see_the_same_share_a_view(snapshot: Snapshot, whole: MappedIndex) -> None:
    labelled = AccessControlledIndex(whole, snapshot)
    assert labelled.view_for(frozenset({"a"})) is labelled.view_for(frozenset({"b", "c"}))
    assert labelled.view_for(frozenset({"secret"})) is whole
    assert labelled.view_for(None) is whole
    assert isinstance(labelled.view_for(None, ["secret"]), FilteredIndex)
    assert labelled.view_for(NOBODY, ["secret"]) is None
    assert labelled.view_for(None, ["nobody carries it"]) is None


def test_a_view_that_nobody_keeps_is_gone_at_once(snapshot: Snapshot, whole: MappedIndex) -> None:
    labelled = AccessControlledIndex(whole, snapshot)
    found = labelled.view_for(NOBODY)
    view = weakref.ref(found)
    gc.disable()  # what is in a cycle waits for the collector, and keeps the files of an index mapped
    try:
        del labelled, found
        assert view() is None
    finally:
        gc.enable()
