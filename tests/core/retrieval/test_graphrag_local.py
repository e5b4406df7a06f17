"""Local search as GraphRAG does it, against the same said slowly, and on a graph of six entities.

0 – 1 – 2 – 0 is a triangle; 3 hangs on 0 and 1, 4 on 2; 5 is a summary entity of 0 and 1. 0 and 1 have two relations.
"""

from __future__ import annotations

import numpy as np
import pytest

from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.retrieval.bridge import Parallel
from hirag_dist.core.retrieval.graphrag_local import community_order, relation_order, relations_at, text_order
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.storage.serving.writer import parallel_relations
from tests.core.graphs import community_index, csr_of, flat, ways_of

ENDS = np.array([[0, 1], [1, 2], [0, 2], [0, 3], [1, 3], [2, 4], [0, 5], [1, 5], [0, 1]], np.int32)
WEIGHTS = np.array([2.0, 5.0, 1.0, 1.0, 1.0, 9.0, 1.0, 1.0, 1.0])
LAYERS = np.array([0, 0, 0, 0, 0, 1], np.int32)


def test_all_relations_of_the_entities_within_layer_0() -> None:
    graph = csr_of(6, [(*pair, weight) for pair, weight in zip(ENDS.tolist(), WEIGHTS.tolist(), strict=True)])
    parallel = Parallel(*parallel_relations(ENDS, WEIGHTS))
    for entities, expected in (([0], [0, 2, 3, 8]), ([4], [5]), ([], [])):  # both of a pair, none to a summary entity
        assert all_at_once(relations_at(graph, parallel, LAYERS, entities)).tolist() == expected


@pytest.mark.parametrize("seed", range(5))
def test_relation_order_is_that_of_the_slow_version(seed: int) -> None:
    choose = np.random.default_rng(seed)
    chosen = [3, 1, 4]
    ends = choose.integers(0, 30, (200, 2)).astype(np.int32)
    ends = ends[np.isin(ends, chosen).any(axis=1) & (ends[:, 0] != ends[:, 1])]
    rows, weights = np.arange(len(ends)) * 2, choose.integers(1, 4, len(ends)).astype(float)

    def outer(pair: list[int]) -> int:
        return next(end for end in pair if end not in chosen)

    pairs = ends.tolist()
    inside = [at for at, pair in enumerate(pairs) if set(pair) <= set(chosen)]
    outside = [at for at, pair in enumerate(pairs) if not set(pair) <= set(chosen)]
    links = {
        at: len({end for pair in pairs if outer(pairs[at]) in pair for end in pair if end in chosen}) for at in outside
    }
    inside.sort(key=lambda at: (-weights[at], rows[at]))
    outside.sort(key=lambda at: (-links[at], -weights[at], rows[at]))
    assert relation_order(rows, ends, weights, chosen).tolist() == inside + outside[:30]


def test_communities_by_hits_then_rating_then_id() -> None:
    index = community_index(0, [0] * 4, [[]] * 4, ratings=[1.0, 9.0, 9.0, 5.0], order=[0, 3, 2, 1])
    ranked = [RankedCommunity(at, hits, 0.5) for at, hits in ((0, 3), (1, 2), (2, 2), (3, 2))]
    assert [own.community for own in community_order(index, ranked)] == [0, 2, 1, 3]


def texts(entities: list[int], seen: list[bool] | None = None, limit: int = 10) -> list[int]:
    """Entity 0 is in chunks 0, 1, 2, entity 1 in 2, 3; chunk 1 states two relations of 0, chunk 2 one."""
    ways = ways_of(LAYERS.tolist(), [[]] * 6, [[0, 1, 2], [2, 3], [], [], [], []], 4)
    origins = RelationProvenance(*flat([[1], [], [1, 2], [], []]))
    rows = np.arange(5)
    mask = None if seen is None else np.array(seen)
    return all_at_once(text_order(ways, origins, entities, rows, ENDS[rows], mask, limit))


def test_chunks_of_the_first_entity_come_first_and_of_these_what_states_most() -> None:
    assert texts([0, 1]) == [1, 2, 0, 3]
    assert texts([1, 0]) == [2, 3, 1, 0]
    assert texts([1, 0], limit=3) == [2, 3, 1]
    assert texts([4]) == []
    assert texts([0, 1], [True, False, True, False]) == [2, 0], "what may not be seen is not there"
