"""Local search of GraphRAG: the neighbourhood of the entities nearest to a question (arXiv 2404.16130 and its code).

The paper describes global search alone; local search is that of GraphRAG's code (`docs/query/local_search.md` there):
from the nearest entities to their relations, the reports of their communities, and the text units that mention them.
Relations are ranked by weight where GraphRAG takes the sum of degrees, since weights are known for filtered views.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import Steps
from hirag_dist.core.graph.pagerank import WalkGraph
from hirag_dist.core.groupby import spans
from hirag_dist.core.retrieval.bridge import Parallel, further_relations
from hirag_dist.core.retrieval.levels import CommunityIndex, RankedCommunity
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.types import CsrGraph, IntVector

_PER_ENTITY = 10  # relations that leave the chosen entities, for each of these: GraphRAG's default
_STEP_RELATIONS = 1 << 16


def relations_at(
    graph: CsrGraph, parallel: Parallel, layers: NDArray[np.int32], entities: Sequence[int]
) -> Steps[IntVector]:
    """Return the rows of all relations of some entities to others of layer 0, ascending, an entity at a step.

    Args:
        parallel: the further relations of pairs that have several.
        layers: (n_entities,).
        entities: rows of layer 0.
    """
    found = [np.zeros(0, np.int64)]
    for row in entities:
        first, last = graph.indptr[row], graph.indptr[row + 1]
        beside = layers[graph.indices[first:last]] == 0
        found.append(graph.relation_rows[first:last][beside].astype(np.int64))
        yield
    heaviest = np.unique(np.concatenate(found))
    return np.unique(np.concatenate([heaviest, further_relations(parallel, heaviest)]).astype(np.int64))


def relation_order(rows: IntVector, ends: NDArray[Any], weights: NDArray[Any], entities: Sequence[int]) -> IntVector:
    """Return the selected relations in order, as positions in `rows`.

    First those between two of the entities, by weight; then those that leave them, first where the entity at the other
    end is joined to most of them, then by weight, ten for each entity at most. Ties by row.

    Args:
        rows: (n,) of relations that have one end at least among the entities.
        ends: (n, 2) entity rows of each.
        weights: (n,) of each.
    """
    among = np.isin(ends, np.asarray(entities, np.int64))
    inside = among.all(axis=1)
    outer = np.where(among[:, 0], ends[:, 1], ends[:, 0]).astype(np.int64)
    inner = np.where(among[:, 0], ends[:, 0], ends[:, 1]).astype(np.int64)
    links = np.zeros(len(rows), np.int64)
    pairs = np.unique(np.column_stack([outer, inner])[~inside], axis=0)
    others, joined = np.unique(pairs[:, 0], return_counts=True)
    links[~inside] = joined[np.searchsorted(others, outer[~inside])]
    order = np.lexsort((rows, -np.asarray(weights, np.float64), -links, ~inside))
    return order[: int(inside.sum()) + _PER_ENTITY * len(entities)]


def community_order(index: CommunityIndex, ranked: Sequence[RankedCommunity]) -> list[RankedCommunity]:
    """Return communities by how many of the entities they hold, then by their reports' ratings, then by id."""
    return sorted(
        ranked,
        key=lambda entry: (-entry.hits, -float(index.ratings[entry.community]), int(index.order[entry.community])),
    )


def text_order(
    walk_graph: WalkGraph,
    provenance: RelationProvenance,
    entities: Sequence[int],
    rows: IntVector,
    ends: NDArray[Any],
    visible_chunks: NDArray[np.bool_] | None,
    limit: int,
) -> Steps[list[int]]:
    """Return the chunks of some entities, by entity, then by how many of its relations a chunk states.

    A step reads some ten thousand relations: a hub has a million.

    Args:
        rows: (n,) of their visible relations.
        ends: (n, 2) entity rows of each.
        visible_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
    """
    found: dict[int, None] = {}
    for entity in entities:
        chunks = walk_graph.entity_chunks[walk_graph.entity_indptr[entity] : walk_graph.entity_indptr[entity + 1]]
        chunks = np.unique(chunks if visible_chunks is None else chunks[visible_chunks[chunks]])
        stated = np.zeros(len(chunks), np.int64)
        for first in range(0, len(rows) if len(chunks) else 0, _STEP_RELATIONS):
            yield
            block = slice(first, first + _STEP_RELATIONS)
            own = rows[block][(ends[block] == entity).any(axis=1)]
            _, positions = spans(provenance.relation_indptr[own], provenance.relation_indptr[own + 1])
            stating = provenance.relation_chunks[positions]
            at = np.minimum(np.searchsorted(chunks, stating), len(chunks) - 1)
            np.add.at(stated, at[chunks[at] == stating], 1)
        found.update(dict.fromkeys(chunks[np.lexsort((chunks, -stated))].tolist()))
        if len(found) >= limit:
            break
    return list(found)[:limit]
