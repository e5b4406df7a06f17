"""In which order the bridge's triples come (Eq. 16 leaves it open): with the question in mind, or without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.scoring import exact_scores
from hirag_dist.types import FloatMatrix

Ranked = list[tuple[int, float]]


def nearest_chunks(
    chunk_vectors: FloatMatrix, chunks: Sequence[Sequence[int]], query: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return, for each relation, the best similarity to the question among the chunks that state it; 0 without any.

    Args:
        chunk_vectors: (n_chunks, dim), read at the rows that are needed.
        chunks: chunk rows of each relation.
    """
    counts = np.fromiter(map(len, chunks), np.int64, len(chunks))
    rows = np.fromiter((row for own in chunks for row in own), np.int64, int(counts.sum()))
    best = np.zeros(len(chunks), np.float32)
    if len(rows):
        wanted, place = np.unique(rows, return_inverse=True)
        scores = exact_scores(chunk_vectors, wanted, query)[place]
        stated = np.flatnonzero(counts)
        first = np.cumsum(counts)[stated] - counts[stated]
        best[stated] = np.maximum.reduceat(scores, first)
    return best


def question_scores(
    ends: NDArray[Any], similarity: Mapping[int, float], chunk_scores: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return how near each triple is to the question: the mean of its nearer end and of its nearest chunk.

    The nearer end, not both: of the triple that holds the answer the question names one end alone. The chunk says
    what is said of the pair, which the ends' names don't.

    Args:
        ends: (n, 2) entity rows of each relation.
        similarity: entity row → similarity to the question.
        chunk_scores: (n,) of `nearest_chunks`.
    """
    nearer = np.fromiter(
        (max(similarity[first], similarity[second]) for first, second in ends.tolist()), np.float32, len(ends)
    )
    return (nearer + chunk_scores) / np.float32(2)


def question_order(rows: Sequence[int], scores: NDArray[np.float32], weights: NDArray[Any]) -> Ranked:
    """Return (relation row, score), the nearest to the question first; ties by weight, the larger first, then row."""
    kept = np.asarray(rows, np.int64)
    return [(int(kept[at]), float(scores[at])) for at in np.lexsort((kept, -weights, -scores))]


def path_order(
    rows: Sequence[int],
    scores: NDArray[np.float32],
    weights: NDArray[Any],
    ends: NDArray[Any],
    paths: Sequence[Sequence[int]],
) -> Ranked:
    """Return (relation row, score) in the order in which the paths walk the pairs; then the rest by weight, then row.

    Args:
        paths: node rows of each path, in order.
    """
    steps: dict[tuple[int, int], int] = {}
    for path in paths:
        for first, second in pairwise(path):
            steps.setdefault((min(first, second), max(first, second)), len(steps))
    kept = np.asarray(rows, np.int64)
    step = np.fromiter((steps.get((min(pair), max(pair)), len(steps)) for pair in ends.tolist()), np.int64, len(kept))
    return [(int(kept[at]), float(scores[at])) for at in np.lexsort((kept, -weights, step))]
