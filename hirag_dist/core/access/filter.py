"""Access filter of retrieval: visible rows, the similarities and weights of partial ones, components of what is seen.

The similarity of a partially visible entity is that of its nearest visible part; the weight of a partially visible
relation is the sum of its visible statements. With one label set visible, both equal those of an index without the
other documents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.labels import HIDDEN, PARTIAL, Flags
from hirag_dist.core.numba_jit import compiled, compiled_apart
from hirag_dist.types import AccessFilter, CsrGraph, FloatMatrix, IntVector

Score = Callable[[FloatMatrix, IntVector, NDArray[np.float32]], NDArray[np.float32]]


def read_only(access: AccessFilter) -> AccessFilter:
    """Return the filter with read-only arrays.

    Writable arrays are another type to compiled code, which would be compiled again for each combination.
    """
    parts: list[Any] = [part.view() for part in access]
    for part in parts:
        part.flags.writeable = False
    return AccessFilter(*parts)


def visible_rows(access: AccessFilter, rows: NDArray[np.integer[Any]]) -> Flags:
    """Return flags of the entities that are visible, fully or partially: (n,)."""
    visible: Flags = access.entity_states[access.entity_patterns[rows]] != HIDDEN
    return visible


def visible_relations(access: AccessFilter, ends: NDArray[np.int32], rows: IntVector) -> Flags:
    """Return flags of the relations that are visible: those with a visible statement and both ends visible.

    Args:
        ends: (n, 2) entity rows of each.
        rows: (n,) of relations.
    """
    stated = access.relation_states[access.relation_patterns[rows]] != HIDDEN
    visible: Flags = stated & visible_rows(access, ends[:, 0]) & visible_rows(access, ends[:, 1])
    return visible


def visible_scores(
    access: AccessFilter, vectors: FloatMatrix, rows: IntVector, query: NDArray[np.float32], score: Score
) -> NDArray[np.float32]:
    """Return the similarity to the question of visible entities: (n,).

    Args:
        vectors: of all entities.
        score: (matrix, rows, question) → similarities.
    """
    scores = score(vectors, rows, query)
    partial = np.flatnonzero(access.entity_states[access.entity_patterns[rows]] == PARTIAL)
    if len(partial):
        entities = rows[partial]
        owner, parts = spans(*(np.searchsorted(access.part_entities, entities, side) for side in ("left", "right")))
        reached = access.sets[access.part_sets[parts]]
        best = np.full(len(entities), -np.inf, np.float32)
        np.maximum.at(best, owner[reached], score(access.part_vectors, parts[reached], query))
        scores[partial] = best
    return scores


def visible_weights(access: AccessFilter, weights: NDArray[np.float64], rows: IntVector) -> NDArray[np.float64]:
    """Return the weights of visible relations: (n,).

    Args:
        weights: of all relations.
    """
    visible = np.array(weights[rows], np.float64)
    partial = np.flatnonzero(access.relation_states[access.relation_patterns[rows]] == PARTIAL)
    if len(partial):
        position = np.searchsorted(access.stated_rows, rows[partial])
        owner, statements = spans(access.stated_indptr[position], access.stated_indptr[position + 1])
        reached = access.sets[access.statement_sets[statements]]
        strengths = access.statement_strengths[statements[reached]]
        visible[partial] = np.bincount(
            owner[reached], strengths, minlength=len(partial)
        )  # in order, as merging adds them
    return visible


def spans(first: IntVector, last: IntVector) -> tuple[IntVector, IntVector]:
    """Return (owners, positions): every position of each owner's span [first, last).

    >>> spans(np.array([5, 0]), np.array([7, 1]))
    (array([0, 0, 1]), array([5, 6, 0]))
    """
    counts = last - first
    owner = np.repeat(np.arange(len(counts)), counts)
    return owner, np.arange(len(owner)) - np.repeat(np.cumsum(counts) - counts - first, counts)


def visible_components(graph: CsrGraph, access: AccessFilter) -> NDArray[np.int32]:
    """Return the connected component of each node, named by its lowest row; a hidden node is one by itself.

    Returns:
        (n_nodes,), read-only, as the mapped one of the whole graph is: kernels are compiled for one type.
    """
    components: NDArray[np.int32] = _components(graph.indptr, graph.indices, graph.relation_rows, access)
    components.flags.writeable = False
    return components


@compiled_apart
def _components(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], relation_rows: NDArray[np.int32], access: AccessFilter
) -> Any:
    parents = np.arange(len(indptr) - 1).astype(np.int32)  # never above the node itself
    for node in range(len(parents)):
        if access.entity_states[access.entity_patterns[node]] == HIDDEN:
            continue
        for entry in range(indptr[node], indptr[node + 1]):
            neighbour = indices[entry]
            if (
                neighbour < node  # each edge has two entries
                and access.entity_states[access.entity_patterns[neighbour]] != HIDDEN
                and access.relation_states[access.relation_patterns[relation_rows[entry]]] != HIDDEN
            ):
                one, other = _root(parents, node), _root(parents, neighbour)
                parents[max(one, other)] = min(one, other)
    for node in range(len(parents)):
        parents[node] = parents[parents[node]]  # lower rows have their root already
    return parents


@compiled
def _root(parents: NDArray[np.int32], node: int) -> Any:
    while parents[node] != node:
        parents[node] = parents[parents[node]]  # path halving
        node = parents[node]
    return node
