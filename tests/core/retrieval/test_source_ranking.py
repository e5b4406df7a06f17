"""Seeds of the walk of a question, and the order of the chunks that it reaches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.graph.pagerank import RESTART, WalkGraph
from hirag_dist.core.retrieval.source_ranking import (
    CANDIDATES,
    CLOSENESS,
    LINK,
    NAMED,
    NEAREST,
    SHARES,
    RelationProvenance,
    SeedSet,
    excess,
    tolerance_of,
)
from hirag_dist.types import AccessFilter
from tests.core.graphs import flat, walk_shares, ways_of
from tests.core.labelled_graphs import DIM, Labelled

MENTIONED_IN = [[0], [0, 1, 2, 3], [4], []]  # of entities; chunks 5 and 6 mention nothing
WAYS = ways_of([0, 0, 0, 1], [[1], [0], [], []], MENTIONED_IN, 7)
ORIGINS = RelationProvenance(*flat([[0, 1], [4], [], [5]]))


def ranked(starts: SeedSet, limit: int = 10) -> dict[int, float]:
    return dict(all_at_once(starts.ranked_steps(limit)))


def starts(seen: NDArray[np.bool_] | None = None) -> SeedSet:
    return SeedSet(WAYS, ORIGINS, seen)


def walked(seeds: dict[int, float], ways: WalkGraph = WAYS) -> dict[int, float]:
    """Return chunk → mass of a walk from nodes with these shares."""
    nodes, shares = np.array(list(seeds), np.int64), np.array(list(seeds.values()))
    rows, mass = walk_shares(ways, nodes, shares, tolerance=tolerance_of(10))
    return dict(zip(rows.tolist(), mass.tolist(), strict=True))


TOTAL = sum(SHARES.values())
RETRIEVED = SHARES["retrieved"] / (SHARES["retrieved"] + SHARES["near"])


@pytest.mark.parametrize(
    ("given", "seeds"),
    [
        (
            {"names": [0], "entities": [(2, 0.4)], "chunks": [(5, 0.1)], "words": [(6, 7.5)]},
            {
                0: SHARES["named"] / TOTAL,
                2: SHARES["retrieved"] / TOTAL,
                4 + 5: SHARES["near"] / TOTAL,
                4 + 6: SHARES["words"] / TOTAL,
            },
        ),
        ({"names": [], "entities": [(2, 0.4)], "relations": [(2, 0.9)], "chunks": []}, {2: 1.0}),  # stated nowhere
        (
            {"entities": [(2, 0.4)], "relations": [(0, 0.9)], "chunks": [(6, 0.5)]},  # stated in chunks 0 and 1
            {2: RETRIEVED / 2, 4 + 0: RETRIEVED / 4, 4 + 1: RETRIEVED / 4, 4 + 6: 1 - RETRIEVED},
        ),
        ({}, {}),
    ],
)
def test_kinds_of_starts_share_and_those_without_one_leave_theirs_to_the_others(
    given: dict[str, Any], seeds: dict[int, float]
) -> None:
    own = starts()
    for kind, found in given.items():
        getattr(own, f"of_{kind}")(found)
    assert ranked(own) == pytest.approx(walked(seeds))


def test_an_entity_of_many_chunks_counts_less() -> None:
    own = starts()
    own.of_names([0, 1])  # in one chunk, and in four
    assert ranked(own) == pytest.approx(walked({0: 0.8, 1: 0.2}))
    own = starts(np.array([True, True, False, False, True, True, True]))
    own.of_names([0, 1])  # in one, and in two that may be seen
    left = ways_of([0, 0, 0, 1], [[1], [0], [], []], [[0], [0, 1], [4], []], 7)
    assert ranked(own) == pytest.approx(walked({0: 2 / 3, 1: 1 / 3}, left))


def test_equal_scores_count_alike_and_ties_go_by_row() -> None:
    assert excess([0.5, 0.5]).tolist() == [1.0, 1.0]
    assert excess([-0.5]).tolist() == [1.0]
    assert excess([]).tolist() == []
    own = starts()
    own.of_chunks([(5, 0.5), (6, 0.5)])
    assert list(ranked(own).items()) == [(5, RESTART / 2), (6, RESTART / 2)]
    assert list(ranked(own, 1)) == [5]
    assert ranked(own, 0) == {}


@pytest.mark.parametrize(("limit", "agreed"), [(10, 0.95), (100, 0.98)])
def test_the_sources_returned_are_those_of_the_exact_walk(limit: int, agreed: float) -> None:
    """On this graph, without clusters, the tolerance of ten sources gives 0.90, 0.86 and 0.82 of 20, 40 and 100."""
    rng = np.random.default_rng(4)
    n_chunks, n_entities = 400, 1500
    sizes = [1 + int(rng.pareto(1.2) * 2) for _ in range(n_entities)]
    mentioned_in = [sorted(set(rng.integers(0, n_chunks, size).tolist()))[:60] for size in sizes]
    joined = [set[int]() for _ in range(n_entities)]
    for one, other in rng.integers(0, n_entities, (3000, 2)).tolist():
        joined[one].add(other)
        joined[other].add(one)
    ways = ways_of([0] * n_entities, [sorted(each) for each in joined], mentioned_in, n_chunks)
    shares = []
    for _ in range(6):
        own = SeedSet(ways, RelationProvenance(*flat([[]])))
        entities, chunks = (rng.choice(n, NEAREST, replace=False).tolist() for n in (n_entities, n_chunks))
        own.of_entities([(row, 1.0 - 0.1 * rank) for rank, row in enumerate(entities)])
        own.of_chunks([(row, 0.9 - 0.05 * rank) for rank, row in enumerate(chunks)])
        rows, mass = walk_shares(ways, *own._seeds(), tolerance=1e-9)
        exact = set(rows[np.lexsort((rows, -mass))[:limit]].tolist())
        shares.append(len(exact & set(ranked(own, limit))) / limit)
    assert np.mean(shares) >= agreed


def slowly_ranked(
    graph: WalkGraph,
    mentioned_in: list[list[int]],
    names: dict[int, float],
    chunks: dict[int, float],
    near: dict[int, float],
    similarity: list[float],
) -> list[tuple[int, float]]:
    """Return all candidates in order, computed with sets and from walks whose every step is followed.

    Args:
        mentioned_in: the chunks of each entity.
        names: entity → restart share; chunks: chunk → restart share.
        near: nearest chunk → similarity; similarity: that of every chunk.
    """
    of_names = walked(names, graph)
    others = walked({len(mentioned_in) + chunk: share for chunk, share in chunks.items()}, graph)
    mass = {chunk: of_names.get(chunk, 0) + others.get(chunk, 0) for chunk in {*of_names, *others}}
    candidates = sorted(mass, key=lambda chunk: (-mass[chunk], chunk))[:CANDIDATES]
    low, high = min(near.values()), max(near.values())
    named = sum(names.values())
    score = {
        chunk: mass[chunk]
        * ((of_names.get(chunk, 0) / named if named else 0) + 1e-5) ** NAMED
        * math.exp(CLOSENESS * (similarity[chunk] - low) / (high - low))
        for chunk in candidates
    }
    first = min(candidates, key=lambda chunk: (-score[chunk], chunk))
    link = dict.fromkeys(candidates, 0.0)
    for entity, own in enumerate(mentioned_in):
        if first in own and entity not in names:
            rarity = math.log(len(similarity) / len(own)) / math.log(10_000)
            for chunk in link.keys() & set(own) - {first}:
                link[chunk] = max(link[chunk], rarity**2 / math.log(1 + len(own)))
    link[first] = max(link.values())
    score = {chunk: value * math.exp(LINK * link[chunk]) for chunk, value in score.items()}
    return sorted(score.items(), key=lambda pair: (-pair[1], pair[0]))


def test_names_closeness_and_links_order_what_the_walk_reaches() -> None:
    rng = np.random.default_rng(7)
    n_chunks, n_entities = 60, 40
    mentioned_in = [sorted(rng.choice(n_chunks, rng.integers(1, 7), replace=False).tolist()) for _ in range(n_entities)]
    graph = ways_of([0] * n_entities, [[]] * n_entities, mentioned_in, n_chunks)
    moved = 0
    for trial in range(8):
        similarity = rng.random(n_chunks).astype(np.float32)
        near = {chunk: float(similarity[chunk]) for chunk in np.argsort(-similarity)[:CANDIDATES].tolist()}
        names = rng.choice(n_entities, 2, replace=False).tolist() if trial % 4 else []
        own = SeedSet(graph, RelationProvenance(*flat([[]])))
        own.of_names(names)
        own.of_chunks(list(near.items()))
        total = SHARES["near"] + (SHARES["named"] if names else 0)
        worth = {entity: 1 / len(mentioned_in[entity]) for entity in names}
        seeds = sorted(near, key=lambda chunk: -near[chunk])[:NEAREST]
        above = {chunk: (near[chunk] - near[seeds[-1]]) ** 2 for chunk in seeds[:-1]}
        expected = slowly_ranked(
            graph,
            mentioned_in,
            {entity: value / sum(worth.values()) * SHARES["named"] / total for entity, value in worth.items()},
            {chunk: value / sum(above.values()) * SHARES["near"] / total for chunk, value in above.items()},
            near,
            similarity.tolist(),
        )
        found = all_at_once(own.ranked_steps(10, similarity.__getitem__))
        assert [row for row, _ in found] == [row for row, _ in expected[:10]]
        np.testing.assert_allclose([score for _, score in found], [score for _, score in expected[:10]], rtol=1e-5)
        moved += [row for row, _ in found] != list(ranked(own))
    assert moved > 4, "the walk alone gives another order"


def test_an_entity_that_the_question_names_or_that_is_hidden_links_nothing() -> None:
    """Chunk 0 is the best. 1 and 2 share an entity with it, 3 none."""
    mentioned_in = [[0, 1], [0, 2], [3]]
    graph = ways_of([0, 0, 0], [[], [], []], mentioned_in, 4)

    def factors(
        names: list[int], access: AccessFilter | None = None, documents: Sequence[int] = (0, 1, 2, 3)
    ) -> list[float]:
        own = SeedSet(graph, RelationProvenance(*flat([[]])), access=access)
        own.of_names(names)
        return own._links(np.arange(4), 0, np.array(documents)).round(3).tolist()

    rare = round((math.log(4 / 2) / math.log(10_000)) ** 2 / math.log(3), 3)
    assert factors([]) == [rare, rare, rare, 0]
    assert factors([1]) == [rare, rare, 0, 0]
    assert factors([0, 1]) == [0, 0, 0, 0]
    hidden = Labelled(3, [{1}, {0}, {0}], [], [], np.zeros((3, DIM), np.float32), {}).access({0})
    assert factors([], hidden) == [rare, 0, rare, 0]
    assert factors([], documents=(5, 5, 6, 6)) == [rare, 0, rare, 0], "chunks of one document do not link"
