"""Retrieval of a caller with labels, against the graph without the hidden documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.core.access.filter import visible_relations, visible_rows, visible_scores, visible_weights
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import key_entities
from hirag_dist.core.retrieval.levels import CommunityIndex
from hirag_dist.core.retrieval.vector_scoring import exact_scores, nearest, nearest_of_all
from tests.core.labelled_graphs import N_SETS, labelled_graph, unit

_SEEDS = st.integers(0, 10_000)
_REACHED = st.sets(st.integers(0, N_SETS - 1))
_ONE = st.integers(0, N_SETS - 1)


@settings(deadline=None)  # the first example compiles
@given(_SEEDS, _REACHED)
def test_paths_are_those_of_the_graph_without_what_is_hidden(seed: int, reached: set[int]) -> None:
    labelled = labelled_graph(seed)
    access = labelled.access(reached)
    seen = labelled.seen(reached)
    left, plain = PathFinder(labelled.left(reached)), PathFinder(labelled.graph)
    for source in seen:
        for target in seen:
            assert plain.path(source, target, access) == left.path(source, target), (source, target)
    assert plain.chain(seen, access) == left.chain(seen)


@settings(deadline=None)  # the first example compiles
@given(_SEEDS, _REACHED)
def test_relations_seen_in_part_weigh_what_is_in_reach(seed: int, reached: set[int]) -> None:
    labelled = labelled_graph(seed)
    access = labelled.access(reached)
    ends = np.array(labelled.ends, np.int64).reshape(-1, 2)
    seen = visible_relations(access, ends, np.arange(len(ends)))
    expected = [bool({own for own, _ in told} & reached) for told in labelled.stated]
    assert seen.tolist() == expected
    whole = np.array([sum(strength for _, strength in told) for told in labelled.stated], np.float64)
    rows = np.flatnonzero(seen)
    assert visible_weights(access, whole, rows).tolist() == [
        sum(strength for own, strength in labelled.stated[row] if own in reached) for row in rows
    ]


@settings(deadline=None)  # the first example compiles
@given(_SEEDS, _ONE)
def test_scores_are_those_of_the_graph_without_what_is_hidden(seed: int, reached: int) -> None:
    labelled = labelled_graph(seed)
    access = labelled.access({reached})
    seen, vectors = labelled.seen({reached}), labelled.left_vectors(reached)
    rows = np.array(seen, np.int64)
    query = unit(np.random.default_rng(seed))
    assert visible_rows(access, np.arange(labelled.n)).nonzero()[0].tolist() == seen
    scores = visible_scores(access, labelled.vectors, rows, query, exact_scores)
    np.testing.assert_array_equal(scores, exact_scores(vectors, rows, query))
    for found, wanted in zip(
        nearest(labelled.vectors, rows, query, 5, access), nearest(vectors, rows, query, 5), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)
    for end in (labelled.n, labelled.n // 2):
        found = nearest_of_all(labelled.vectors, query, 3, end, access)
        best = nearest(vectors, rows[rows < end], query, 3)
        assert [part.tolist() for part in found] == [part.tolist() for part in best]


@settings(deadline=None)  # the first example compiles
@given(_SEEDS, _REACHED)
def test_several_parts_in_reach_are_as_near_as_the_nearest(seed: int, reached: set[int]) -> None:
    labelled = labelled_graph(seed)
    access = labelled.access(reached)
    query = unit(np.random.default_rng(seed))
    rows = np.array(labelled.seen(reached), np.int64)
    scores = visible_scores(access, labelled.vectors, rows, query, exact_scores)
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        own = labelled.spoken[row]
        if own <= reached:
            assert score == pytest.approx(float(labelled.vectors[row] @ query), abs=1e-6)
        else:
            best = max(float(labelled.parts[row, label_set] @ query) for label_set in own & reached)
            assert score == pytest.approx(best, abs=1e-6)


@settings(deadline=None)  # the first example compiles
@given(_SEEDS, _ONE)
def test_key_entities_are_members_that_may_be_seen(seed: int, reached: int) -> None:
    labelled = labelled_graph(seed)
    half = labelled.n // 2
    members = np.arange(labelled.n, dtype=np.int32)
    nothing = np.zeros(2, np.int64)
    index = CommunityIndex(
        levels=np.zeros(2, np.int32),
        ratings=np.zeros(2),
        order=nothing,
        indptr=np.array([0, half, labelled.n]),
        members=members,
        of_indptr=nothing,
        of=members,
    )
    query = unit(np.random.default_rng(seed))
    found = key_entities(index, [1, 0], labelled.vectors, query, 3, labelled.access({reached}))
    seen, vectors = labelled.seen({reached}), labelled.left_vectors(reached)
    wanted = []
    for first, last in ((half, labelled.n), (0, half)):
        rows = np.array([row for row in seen if first <= row < last], np.int64)
        wanted += list(zip(*(part.tolist() for part in nearest(vectors, rows, query, 3)), strict=True))
    assert found == wanted
