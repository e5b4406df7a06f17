"""The bridge level of HiRetrieval as arithmetic on arrays (paper §4.2, Eq. 14–16). Nodes are row numbers.

Key entities of each community (Eq. 14) and the relations among the nodes of the paths that join them (Eq. 16); the
paths (Eq. 15) are found by `core.graph.shortest_paths`. Eq. 16 leaves the order of the triples open: by similarity
to the question, or by weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import Steps, compiled, compiled_inside, lower_bound
from hirag_dist.core.graph.shortest_paths import entry_of
from hirag_dist.core.groupby import spans
from hirag_dist.core.retrieval.levels import CommunityIndex, filtered_product, keep_best, product
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.vectors import VectorParts, Vectors, parts_of, vector_of
from hirag_dist.types import AccessFilter, CsrGraph, IntVector

_BLOCK = 4096  # members scored in a step
_JOINED = 8  # relations a node that there is room for at first


@dataclass(frozen=True, slots=True)
class Parallel:
    """The further relations of entity pairs with more than one; the graph has the heaviest of each pair.

    Attributes:
        of: (n,) the relation rows that the graph has for those pairs, ascending.
        indptr, rows: CSR, position in `of` → the pair's other relations.
    """

    of: NDArray[np.int32]
    indptr: IntVector
    rows: NDArray[np.int32]


def key_entity_steps(
    index: CommunityIndex,
    communities: Sequence[int],
    vectors: Vectors,
    query: NDArray[np.float32],
    limit: int,
    access: AccessFilter | None = None,
) -> Steps[list[tuple[int, float]]]:
    """Return (row, similarity) of the top-m members of each community, in community order (Eq. 14), step by step.

    All visible members are scored, a block of them at a time. Ties go by row, which is by id within a layer. A row that
    several communities give keeps its first position.
    """
    found: dict[int, float] = {}
    exact = query.astype(np.float64)
    chosen = np.asarray(communities, np.int64)
    counts = np.zeros(len(chosen), np.int64)
    best, scores = np.empty((len(chosen), limit), np.int64), np.empty((len(chosen), limit), np.float32)
    position, parts = np.array([0, -1], np.int64), parts_of(vectors)
    while _keep_best_members(index.indptr, index.members, chosen, parts, exact, access, best, scores, counts, position):
        yield
    for count, rows, own in zip(counts.tolist(), best.tolist(), scores.tolist(), strict=True):
        for row, score in zip(rows[:count], own, strict=False):
            found.setdefault(row, score)
    return list(found.items())


@compiled
def _keep_best_members(
    indptr: IntVector,
    members: NDArray[np.int32],
    communities: IntVector,
    vectors: VectorParts,
    query: NDArray[np.float64],
    access: AccessFilter | None,
    best: NDArray[np.int64],
    scores: NDArray[np.float32],
    counts: IntVector,
    position: IntVector,
) -> Any:
    """Score a block of members of communities, and keep those that are among the best of theirs.

    Args:
        best, scores: (n_communities, limit) of each, in order.
        counts: (n_communities,) of these.
        position: (2,) community and member that come next, −1 for its first.

    Returns:
        Whether members are left.
    """
    left = _BLOCK
    while position[0] < len(communities):
        at = position[0]
        first, last = indptr[communities[at]], indptr[communities[at] + 1]
        if position[1] >= 0:
            first = position[1]
        for member in range(first, last):
            if left == 0:
                position[1] = member
                return True
            left -= 1
            visible, score = filtered_product(access, vectors, members[member], query)
            if visible:
                counts[at] = keep_best(members[member], score, best[at], scores[at], counts[at])
        position[0], position[1] = at + 1, -1
    return False


def bridge_relations(graph: CsrGraph, parallel: Parallel, nodes: IntVector) -> IntVector:
    """Return the rows of all relations with both endpoints among the path nodes, which ascend (Eq. 16), ascending."""
    joined = np.empty(_JOINED * len(nodes), np.int32)
    count = _fill_joined(graph.indptr, graph.indices, graph.relation_rows, nodes, joined)
    if count > len(joined):
        joined = np.empty(count, np.int32)
        _fill_joined(graph.indptr, graph.indices, graph.relation_rows, nodes, joined)
    joined = joined[:count]
    return np.sort(np.concatenate([joined, further_relations(parallel, joined)])).astype(np.int64)


def further_relations(parallel: Parallel, heads: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Return the other relations of the pairs whose relations in the graph are `heads`.

    Takes time that grows with `heads`, and not with how many pairs have several relations.
    """
    if not len(parallel.of):
        return np.zeros(0, np.int32)
    at = np.minimum(np.searchsorted(parallel.of, heads), len(parallel.of) - 1)
    at = at[parallel.of[at] == heads]
    _, positions = spans(parallel.indptr[at], parallel.indptr[at + 1])
    found: NDArray[np.int32] = parallel.rows[positions]
    return found


@compiled
def _fill_joined(
    indptr: NDArray[np.int64],
    indices: NDArray[np.int32],
    relation_rows: NDArray[np.int32],
    inside: NDArray[np.int64],
    found: NDArray[np.int32],
) -> Any:
    """Write the relation row of every edge among `inside`, which ascends, as far as there is room; count them all."""
    count = 0
    for position in range(len(inside)):
        first, last = indptr[inside[position]], indptr[inside[position] + 1]
        if last - first <= 4 * (len(inside) - position - 1):  # both lists ascend: walk along them
            at = position + 1
            for entry in range(first, last):
                while at < len(inside) and inside[at] < indices[entry]:
                    at += 1
                if at == len(inside):
                    break
                if inside[at] == indices[entry]:
                    count = _put(found, count, relation_rows[entry])
        else:  # a hub: look each of the few up among its many
            for at in range(position + 1, len(inside)):
                entry = entry_of(indices, first, last, inside[at])
                if entry >= 0:
                    count = _put(found, count, relation_rows[entry])
    return count


@compiled_inside
def _put(found: NDArray[np.int32], count: int, row: int) -> Any:
    if count < len(found):
        found[count] = row
    return count + 1


Ranked = list[tuple[int, float]]


def nearest_chunks(
    provenance: RelationProvenance,
    chunk_vectors: Vectors,
    rows: IntVector,
    query: NDArray[np.float32],
    visible_chunks: NDArray[np.bool_] | None = None,
) -> NDArray[np.float32]:
    """Return, for each relation, the best similarity to the question among the chunks that state it; 0 without any.

    Args:
        chunk_vectors: (n_chunks, dim), read at the rows that are needed.
        rows: (n,) of relations.
        visible_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
    """
    mask = np.zeros(0, np.bool_) if visible_chunks is None else visible_chunks
    best = np.zeros(len(rows), np.float32)
    _fill_nearest(provenance, parts_of(chunk_vectors), rows, query.astype(np.float64), mask, best)
    return best


@compiled
def _fill_nearest(
    provenance: RelationProvenance,
    vectors: VectorParts,
    rows: IntVector,
    query: NDArray[np.float64],
    visible_chunks: NDArray[np.bool_],
    best: NDArray[np.float32],
) -> None:
    indptr, chunks = provenance.relation_indptr, provenance.relation_chunks
    for at in range(len(rows)):
        stated = False
        for entry in range(indptr[rows[at]], indptr[rows[at] + 1]):
            if len(visible_chunks) == 0 or visible_chunks[chunks[entry]]:
                score = np.float32(product(vector_of(vectors, chunks[entry]), query))
                best[at] = max(best[at], score) if stated else score
                stated = True


def question_scores(
    ends: NDArray[Any], nodes: IntVector, closeness: NDArray[np.float32], chunk_scores: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the similarity of each triple to the question: the mean of its nearer end and of its nearest chunk.

    The nearer end, not both: a question names only one end of the triple that answers it. The chunk has the statement
    about the pair, which the names of the ends do not.

    Args:
        ends: (n, 2) entity rows of each relation.
        nodes: (n_nodes,) all of these rows, ascending.
        closeness: (n_nodes,) similarity of each to the question.
        chunk_scores: (n,) of `nearest_chunks`.
    """
    scores = np.empty(len(ends), np.float32)
    _fill_question_scores(ends, nodes, closeness, chunk_scores, scores)
    return scores


@compiled
def _fill_question_scores(
    ends: NDArray[Any],
    nodes: IntVector,
    closeness: NDArray[np.float32],
    chunk_scores: NDArray[np.float32],
    scores: NDArray[np.float32],
) -> None:
    for at in range(len(ends)):
        nearer = np.float32(-np.inf)
        for end in range(2):
            nearer = max(nearer, closeness[lower_bound(nodes, 0, len(nodes), ends[at, end])])
        scores[at] = (nearer + chunk_scores[at]) / np.float32(2)


def question_order(rows: IntVector, scores: NDArray[np.float32], weights: NDArray[Any]) -> Ranked:
    """Return (relation row, score), the nearest to the question first; ties by weight, the larger first, then row."""
    return _listed(rows, scores, np.lexsort((rows, -weights, -scores)))


def weight_order(rows: IntVector, scores: NDArray[np.float32], weights: NDArray[Any]) -> Ranked:
    """Return (relation row, score) by weight, the larger first, then by row."""
    return _listed(rows, scores, np.lexsort((rows, -weights)))


def _listed(rows: IntVector, scores: NDArray[np.float32], order: IntVector) -> Ranked:
    return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
