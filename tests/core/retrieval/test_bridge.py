"""Relations of hubs (Eq. 16), and the order of bridge triples against cases worked by hand and an obvious version."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.graph.csr import build_graph
from hirag_dist.core.retrieval.bridge import (
    Parallel,
    bridge_relations,
    nearest_chunks,
    question_order,
    question_scores,
    weight_order,
)
from hirag_dist.core.retrieval.entity_linking import along_first
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.storage.serving.writer import parallel_relations
from tests.core.graphs import flat, relation_table


def test_a_chunk_that_may_not_be_seen_says_nothing() -> None:
    vectors, query = np.array([[0.2], [0.9], [-0.5]], np.float32), np.ones(1, np.float32)
    seen = np.array([True, False, False])
    origins = RelationProvenance(*flat([[0, 1], [1], [2, 0]]))
    assert nearest_chunks(origins, vectors, np.arange(3), query, seen) == pytest.approx([0.2, 0.0, 0.2])


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.data())
def test_as_an_obvious_version_says(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 30))
    random = np.random.default_rng(data.draw(st.integers(0, 999)))
    ends = random.integers(0, 6, (n, 2))
    weights = random.integers(1, 4, n).astype(np.float64)
    rows = random.permutation(100)[:n]
    vectors = random.integers(-2, 3, (8, 2)).astype(np.float32)
    chunks = [random.integers(0, 8, random.integers(0, 4)).tolist() for _ in range(n)]
    query = np.array([1.0, 0.5], np.float32)
    closeness = np.arange(6, dtype=np.float32) % 3 / 2
    paths = [random.integers(0, 6, random.integers(0, 5)).tolist() for _ in range(3)]

    def score(at: int) -> float:
        near = max((float(vectors[chunk] @ query) for chunk in chunks[at]), default=0.0)
        return (max(closeness[ends[at]].tolist()) + near) / 2

    walked = [{a, b} for path in paths for a, b in pairwise(path)]

    def step(at: int) -> int:
        return next((place for place, pair in enumerate(walked) if pair == set(ends[at].tolist())), len(walked))

    stated = nearest_chunks(RelationProvenance(*flat(chunks)), vectors, np.arange(n), query)
    scores = question_scores(ends, np.arange(6), closeness, stated)
    by_question = sorted(range(n), key=lambda at: (-score(at), -weights[at], rows[at]))
    assert [row for row, _ in question_order(rows, scores, weights)] == [rows[at] for at in by_question]
    all_ends = np.zeros((100, 2), np.int64)
    all_ends[rows] = ends
    found = along_first(weight_order(rows, np.zeros(n, np.float32), weights), all_ends, paths)  # as in the paper
    by_path = sorted(range(n), key=lambda at: (step(at), -weights[at], rows[at]))
    assert [row for row, _ in found] == [rows[at] for at in by_path]


def test_bridge_relations_of_hubs_are_found() -> None:
    """Two hubs, rows 0 and 500, joined to each other and to everything else; the path visits both and row 999."""
    ends = [(0, row) for row in range(1, 1000)] + [(row, 500) for row in range(1, 1000) if row != 500]
    ids, relations = relation_table(1000, [(a, b, 1.0) for a, b in ends])
    graph = build_graph(ids, relations)
    parallel = Parallel(*parallel_relations(np.array(ends, np.int32), np.ones(len(ends))))
    found = [ends[row] for row in bridge_relations(graph, parallel, np.array([0, 500, 999]))]
    assert found == [(0, 500), (0, 999), (999, 500)]
    for few in ([999], []):
        assert len(bridge_relations(graph, parallel, np.array(few, np.int64))) == 0
