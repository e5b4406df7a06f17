"""Order of the bridge's triples, which Eq. 16 leaves open: by their similarity to the question, or by weight."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled_bare
from hirag_dist.core.retrieval.source_ranking import RelationProvenance
from hirag_dist.core.retrieval.vector_scoring import product
from hirag_dist.types import FloatMatrix, IntVector

Ranked = list[tuple[int, float]]


def nearest_chunks(
    provenance: RelationProvenance,
    chunk_vectors: FloatMatrix,
    rows: IntVector,
    query: NDArray[np.float32],
    visible_chunks: NDArray[np.bool_] | None = None,
) -> NDArray[np.float32]:
    """Return, for each relation, the best similarity to the question among the chunks that state it; 0 without any.

    Args:
        provenance: of relations.
        chunk_vectors: (n_chunks, dim), read at the rows that are needed.
        rows: (n,) of relations.
        query: the question.
        visible_chunks: (n_chunks,) whether the caller may see a chunk; None: every one.
    """
    mask = np.zeros(0, np.bool_) if visible_chunks is None else visible_chunks
    best = np.zeros(len(rows), np.float32)
    _fill_nearest(provenance, chunk_vectors, rows, query.astype(np.float64), mask, best)
    return best


@compiled_bare
def _fill_nearest(
    provenance: RelationProvenance,
    vectors: FloatMatrix,
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
                score = np.float32(product(vectors[chunks[entry]], query))
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


@compiled_bare
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
            first, last = 0, len(nodes)
            while first < last:
                middle = (first + last) >> 1
                if nodes[middle] < ends[at, end]:
                    first = middle + 1
                else:
                    last = middle
            nearer = max(nearer, closeness[first])
        scores[at] = (nearer + chunk_scores[at]) / np.float32(2)


def question_order(rows: IntVector, scores: NDArray[np.float32], weights: NDArray[Any]) -> Ranked:
    """Return (relation row, score), the nearest to the question first; ties by weight, the larger first, then row."""
    return _listed(rows, scores, np.lexsort((rows, -weights, -scores)))


def weight_order(rows: IntVector, scores: NDArray[np.float32], weights: NDArray[Any]) -> Ranked:
    """Return (relation row, score) by weight, the larger first, then by row."""
    return _listed(rows, scores, np.lexsort((rows, -weights)))


def _listed(rows: IntVector, scores: NDArray[np.float32], order: IntVector) -> Ranked:
    return list(zip(rows[order].tolist(), scores[order].tolist(), strict=True))
