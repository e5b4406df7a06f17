"""Rankings with parts left out: the whole is the product's, and each part does what its name says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.source_parts import DEFAULT
from benchmarks.source_variants import STARTS, WORTH, Found, Variant, exact_walk, fused, parsed, ranked
from hirag_dist.core.cooperative import all_at_once
from hirag_dist.core.graph.pagerank import RESTART, personalised_pagerank
from hirag_dist.core.retrieval.source_ranking import RelationProvenance, SeedSet
from tests.core.graph.test_pagerank import csr, ways_of

# Entities 0 to 3, of which 0 and 1 are related, and the summary 4 of 2 and 3; chunk 6 mentions nothing.
WAYS = ways_of([0, 0, 0, 0, 1], [[1], [0], [4], [4], [2, 3]], [[0], [0, 1, 2], [3], [4, 5], []], 7)
ORIGINS = RelationProvenance(*csr([[0, 1], [3], [5]]))
FOUND = Found(
    names=[0],
    entities=[(2, 0.6), (3, 0.5), (1, 0.1)],
    relations=[(2, 0.9), (1, 0.7), (0, 0.2)],
    chunks=[(6, 0.8), (4, 0.5), (3, 0.3), (2, 0.2), (1, 0.1), (0, 0.05)],
    words=[(2, 7.0), (0, 3.0), (1, 1.0)],
)


def order(spec: str, found: Found = FOUND) -> list[int]:
    return ranked(WAYS, ORIGINS, found, parsed(spec))


def product(found: Found) -> list[int]:
    starts = SeedSet(WAYS, ORIGINS)
    starts.of_names(found.names)
    starts.of_entities(found.entities)
    starts.of_relations(found.relations)
    starts.of_chunks(found.chunks)
    starts.of_words(found.words)
    return [row for row, _ in all_at_once(starts.ranked_steps(10))]


NOTHING = Found([], [], [], [], [])
SOME = (
    FOUND,
    replace(FOUND, names=[]),
    replace(FOUND, entities=[], chunks=[]),
    replace(FOUND, words=[]),
    replace(FOUND, relations=[(1, 0.3), (0, 0.3)]),
    replace(FOUND, names=[3, 1], relations=[]),
    NOTHING,
)


@pytest.mark.parametrize("found", SOME)
def test_what_changes_nothing_ranks_as_the_product_does(found: Found) -> None:
    assert order("as-is", found) == product(found)


@pytest.mark.parametrize(
    ("kind", "left_out"),
    [
        ("names", {"names": []}),
        ("entities", {"entities": []}),
        ("bridge", {"relations": []}),
        ("chunks", {"chunks": []}),
        ("words", {"words": []}),
    ],
)
def test_a_kind_that_is_left_out_is_as_if_nothing_of_it_were_found(kind: str, left_out: dict[str, list[int]]) -> None:
    rest = "+".join(start for start in STARTS if start != kind)
    without = order(f"starts={rest}")
    assert without == product(replace(FOUND, **left_out))
    assert without != order("as-is")


def test_only_so_many_of_a_kind_are_started_from() -> None:
    assert order("starts=chunks,nearest=1") == [6]
    assert 4 in order("starts=chunks,nearest=3")
    assert 1 not in order("starts=chunks,nearest=3")  # the walk gets there from chunk 2 or 0 alone
    assert 1 in order("starts=chunks,nearest=20")


@pytest.mark.parametrize(
    ("worth", "expected"),
    [
        ("squared", [0.25, 0.04, 0.0]),
        ("above", [0.5, 0.2, 0.0]),
        ("rank", [1.0, 1 / 2, 1 / 3]),
        ("score", [0.6, 0.3, 0.1]),
    ],
)
def test_what_a_starting_point_counts(worth: str, expected: list[float]) -> None:
    assert WORTH[worth](np.array([0.6, 0.3, 0.1])) == pytest.approx(expected)
    assert WORTH[worth](np.zeros(0)).tolist() == []


def test_up_to_a_summary_leads_to_what_else_it_stands_for() -> None:
    only = replace(NOTHING, entities=[(2, 0.6)])
    assert order("as-is", only) == [3]
    assert set(order("ways=both", only)) == {3, 4, 5}


def test_orders_are_fused_by_their_ranks() -> None:
    assert fused([[7, 8, 9], [9, 7]]) == [7, 9, 8]
    assert fused([[2], [1]]) == [1, 2]
    assert fused([]) == []
    assert order("starts=names,order=fused") == fused([order("starts=names"), [6, 4, 3, 2, 1, 0]])


@pytest.mark.parametrize("nodes", [[0], [2, 4], [5 + 1, 5 + 6, 0]])
def test_a_walk_without_tolerance_is_the_exact_one(nodes: list[int]) -> None:
    shares = np.full(len(nodes), 1 / len(nodes))
    rows, mass = personalised_pagerank(WAYS, np.array(nodes), shares, tolerance=1e-12)
    exact_rows, exact_mass = exact_walk(WAYS, np.array(nodes), shares, RESTART)
    assert exact_rows.tolist() == rows.tolist()
    assert exact_mass == pytest.approx(mass, abs=1e-8)


def test_a_walk_that_starts_again_more_often_stays_nearer() -> None:
    far, near = (dict(zip(*exact_walk(WAYS, np.array([5 + 1]), np.ones(1), each), strict=True)) for each in (0.1, 0.5))
    assert near[1] > far[1]


def test_variants_are_read() -> None:
    assert parsed("as-is") == Variant()
    assert parsed(
        "starts=names+chunks,nearest=3,words=4,shares=1/0.5/2/3,worth=rank,tolerance=1e-3,restart=0.5,ways=both,order=fused"
    ) == Variant(frozenset({"names", "chunks"}), 3, 4, (1.0, 0.5, 2.0, 3.0), "rank", 1e-3, 0.5, "both", "fused")
    assert len({parsed(spec) for spec in DEFAULT}) == len(DEFAULT)


@pytest.mark.parametrize(
    "spec",
    ["", "names", "starts=", "starts=names+all", "nearest=0", "nearest=21", "worth=cubed", "restart=1", "ways=up"],
)
def test_what_is_no_variant_is_refused(spec: str) -> None:
    with pytest.raises(ValueError, match="no part of the ranking"):
        parsed(spec)
