"""Label sets, patterns and reach against an obvious version: sets of texts, a row at a time."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from hirag_dist.core.access import (
    HIDDEN,
    PARTIAL,
    VISIBLE,
    description_of,
    label_sets,
    pattern_of_sets,
    patterns,
    sets_in_reach,
    visible_components,
    visible_relations,
    visible_rows,
    visible_scores,
    visible_weights,
)
from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import key_entity_steps
from hirag_dist.core.retrieval.levels import exact_scores, nearest, nearest_of_all
from tests.core.graphs import community_index
from tests.core.labelled_graphs import N_SETS, Labelled, labelled_graph, unit

_SEEDS = st.integers(0, 10_000)
_REACHED = st.sets(st.integers(0, N_SETS - 1))
_ONE = st.integers(0, N_SETS - 1)


@given(_SEEDS, _REACHED)
def test_paths_are_those_of_the_graph_without_what_is_hidden(seed: int, reached: set[int]) -> None:
    labelled = labelled_graph(seed)
    access = labelled.access(reached)
    seen = labelled.seen(reached)
    left, plain = PathFinder(labelled.left(reached)), PathFinder(labelled.graph)
    for rows in (*product(seen, repeat=2), seen):
        assert all_at_once(plain.chain_steps(rows, access)) == all_at_once(left.chain_steps(rows)), rows


@given(_SEEDS, _REACHED)
def test_what_is_seen_in_part_weighs_and_scores_as_what_is_in_reach(seed: int, reached: set[int]) -> None:
    """Relations weigh what is stated in reach; several parts of an entity are as near as the nearest of them."""
    labelled = labelled_graph(seed)
    access = labelled.access(reached)
    ends = np.array(labelled.ends, np.int64).reshape(-1, 2)
    seen = visible_relations(access, ends, np.arange(len(ends)))
    assert seen.tolist() == [bool({own for own, _ in told} & reached) for told in labelled.stated]
    whole = np.array([sum(strength for _, strength in told) for told in labelled.stated], np.float64)
    weights = [sum(strength for own, strength in told if own in reached) for told in labelled.stated]
    assert visible_weights(access, whole, np.flatnonzero(seen)).tolist() == [weight for weight in weights if weight]
    query = unit(np.random.default_rng(seed))
    rows = np.array(labelled.seen(reached), np.int64)
    scores = visible_scores(access, labelled.vectors, rows, query, exact_scores)
    for row, score in zip(rows.tolist(), scores.tolist(), strict=True):
        own = labelled.spoken[row]
        parts = [labelled.parts[row, each] for each in own & reached] if own - reached else [labelled.vectors[row]]
        assert score == pytest.approx(max(float(part @ query) for part in parts), abs=1e-6)


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


@given(_SEEDS, _ONE)
def test_key_entities_are_members_that_may_be_seen(seed: int, reached: int) -> None:
    labelled = labelled_graph(seed)
    half = labelled.n // 2
    index = community_index(labelled.n, [0, 0], [range(half), range(half, labelled.n)])
    query = unit(np.random.default_rng(seed))
    found = all_at_once(key_entity_steps(index, [1, 0], labelled.vectors, query, 3, labelled.access({reached})))
    seen, vectors = labelled.seen({reached}), labelled.left_vectors(reached)
    wanted = []
    for first, last in ((half, labelled.n), (0, half)):
        rows = np.array([row for row in seen if first <= row < last], np.int64)
        wanted += list(zip(*(part.tolist() for part in nearest(vectors, rows, query, 3)), strict=True))
    assert found == wanted


@given(_SEEDS, _REACHED, st.sampled_from([0.05, 0.1, 0.2]))
def test_components_are_those_of_the_graph_without_what_is_hidden(seed: int, reached: set[int], density: float) -> None:
    labelled = labelled_graph(seed, density=density)
    left = labelled.left(reached)
    found = visible_components(labelled.graph, labelled.access(reached))
    matrix = csr_array((left.weights, left.indices, left.indptr), shape=(labelled.n, labelled.n))
    _, wanted = connected_components(matrix, directed=False)
    assert (found[:, None] == found).tolist() == (wanted[:, None] == wanted).tolist()
    assert found.dtype == np.int32
    assert not found.flags.writeable


def joined_by_a_hidden_one() -> Labelled:
    """Two rings of ten, whose only link is an entity that label set 1 alone speaks of."""
    ends = [(first + at, first + (at + 1) % 10) for first in (0, 10) for at in range(10)] + [(0, 20), (10, 20)]
    ends = [(min(pair), max(pair)) for pair in ends]
    spoken = [{0} for _ in range(20)] + [{1}]
    stated = [[(1, 1.0)] if 20 in pair else [(0, 1.0)] for pair in ends]
    return Labelled(21, spoken, ends, stated, np.zeros((21, 5), np.float32), {})


def test_pairs_that_only_something_hidden_connects_are_not_looked_for() -> None:
    labelled = joined_by_a_hidden_one()
    access = labelled.access({0})
    finder = PathFinder(labelled.graph, np.zeros(21, np.int32))  # all is one component
    rows = [at + first for at in range(10) for first in (0, 10)]
    for components, n_steps in ((None, 19), (visible_components(labelled.graph, access), 1)):
        assert sum(1 for _ in finder.chain_steps(rows, access, components, most_read=0)) == n_steps
        assert all_at_once(finder.chain_steps(rows, access, components, most_read=0)) == [[]] * 19


_LABELS = st.lists(st.sampled_from("abcd"), max_size=3)


@given(st.lists(_LABELS, max_size=12))
def test_label_sets_are_numbered_in_their_order(labels: list[list[str]]) -> None:
    numbers, sets = label_sets(labels)
    assert [set(sets[number]) for number in numbers] == [set(row) for row in labels]
    assert sets == sorted(set(sets))


@pytest.mark.parametrize(
    ("reach", "wish", "rule", "seen"),
    [
        (None, (), "all", {(), ("a",), ("a", "b"), ("b",)}),
        (None, ("a",), "all", {("a",), ("a", "b")}),
        ((), (), "all", {()}),
        (("a",), (), "all", {(), ("a",)}),
        (("a",), (), "any", {(), ("a",), ("a", "b")}),
        (("a", "b"), (), "all", {(), ("a",), ("a", "b"), ("b",)}),
        (("a", "b"), ("b",), "all", {("a", "b"), ("b",)}),
        (("a",), ("b",), "all", set()),
        (("a",), ("b",), "any", {("a", "b")}),
        (("other",), (), "any", {()}),
    ],
)
def test_the_rule_of_reach(reach: tuple[str, ...] | None, wish: tuple[str, ...], rule: str, seen: set[object]) -> None:
    sets = [(), ("a",), ("a", "b"), ("b",)]
    found = sets_in_reach(sets, reach, wish, "any" if rule == "any" else "all")
    assert {labels for labels, within in zip(sets, found, strict=True) if within} == seen


_ROWS = st.lists(st.tuples(st.sets(st.integers(0, 6)), st.booleans()), max_size=20)


@given(_ROWS, st.sets(st.integers(0, 6)), st.randoms())
def test_states_are_those_of_each_row_by_itself(
    made_of: list[tuple[set[int], bool]], reached: set[int], shuffler: object
) -> None:
    pairs = [(row, label_set) for row, (sets, _) in enumerate(made_of) for label_set in sets] * 2
    shuffler.shuffle(pairs)  # type: ignore[attr-defined]
    rows, sets = np.array(pairs, np.int64).reshape(-1, 2).T
    found = patterns(rows, sets, len(made_of), np.array([divisible for _, divisible in made_of], bool))
    states = found.states(np.isin(np.arange(7), list(reached)))
    expected = [
        VISIBLE if own <= reached else PARTIAL if own & reached and divisible else HIDDEN for own, divisible in made_of
    ]
    assert states[found.of].tolist() == expected
    for row, (own, _) in enumerate(made_of):
        pattern = found.of[row]
        assert found.sets[found.indptr[pattern] : found.indptr[pattern + 1]].tolist() == sorted(own)
    assert len(found.divisible) == len({(frozenset(own), divisible) for own, divisible in made_of})


@given(_ROWS, st.lists(st.tuples(st.integers(0, 4), st.integers(0, 19)), max_size=15))
def test_what_owners_are_made_of_stands_behind_them(
    made_of: list[tuple[set[int], bool]], members: list[tuple[int, int]]
) -> None:
    members = [(owner, member) for owner, member in members if member < len(made_of)]
    pairs = [(row, label_set) for row, (sets, _) in enumerate(made_of) for label_set in sets]
    rows, sets = np.array(pairs, np.int64).reshape(-1, 2).T
    known = patterns(rows, sets, len(made_of))
    owners, of = np.array(members, np.int64).reshape(-1, 2).T
    found = zip(*(column.tolist() for column in pattern_of_sets(owners, known.of[of], known)), strict=True)
    assert set(found) == {(owner, label_set) for owner, member in members for label_set in made_of[member][0]}


def test_one_description_of_several() -> None:
    assert description_of("Long " * 100, 20) == "Long " * 100, "a single one is never cut"
    assert description_of("A dog.\nIt barks.", 20) == "A dog. It barks."
    cut = description_of("A dog.\n" + "\n".join(f"It has {n} fleas." for n in range(50)), 20)
    assert cut.startswith("A dog. It has 0 fleas. It has 1 fleas.")
    assert len(cut) <= 160
