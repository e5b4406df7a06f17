"""Similarity of rows to a question, and the nearest of some rows (paper Eq. 12), independent of a row's position.

In a matrix product the last bits of a row's score depend on its position, so scores would change with ties, backends
and access filters. Here every row that may be among the nearest is multiplied alone, with one fixed order of sums, in
float64; a product in float32 with all rows finds these.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import visible_rows, visible_scores
from hirag_dist.core.access.labels import HIDDEN, PARTIAL
from hirag_dist.core.numba_jit import compiled
from hirag_dist.types import AccessFilter, FloatMatrix, IntVector

AT_ONCE = 20_000  # rows, some two milliseconds' product: a longer one runs in a thread
_ROUNDING = 2.0**-23  # of a sum in float32, for each number, twice over
SLACK = 16  # candidates beyond the limit that are scored exactly, so that near-ties at the end are decided there


def exact_scores(vectors: FloatMatrix, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the similarity of some rows to the question, each by itself: (len(rows),)."""
    scores = np.empty(len(rows), np.float32)
    _fill_scores(vectors, rows, query.astype(np.float64), scores)
    return scores


def nearest(
    vectors: FloatMatrix,
    candidates: IntVector,
    query: NDArray[np.float32],
    limit: int,
    access: AccessFilter | None = None,
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best candidates, best first, ties by row.

    Args:
        vectors: of all rows.
        candidates: rows, which the caller may see.
        query: the question.
        limit: rows at most.
        access: what the caller may see of them; None: everything.
    """
    if access is None:
        scores = exact_scores(vectors, candidates, query)
    else:
        scores = visible_scores(access, vectors, candidates, query, exact_scores)
    order = np.lexsort((candidates, -scores))[:limit]
    return candidates[order], scores[order]


def nearest_of_all(
    vectors: FloatMatrix, query: NDArray[np.float32], limit: int, end: int, access: AccessFilter | None = None
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best among the first `end` rows, best first, ties by row (paper Eq. 12).

    The product with 200,000 rows of 384 numbers takes 22 ms of one core, with 10,000 rows 0.7 ms, and grows with the
    rows: a million takes about 110 ms. Above 200,000 rows an index in Milvus is faster.

    Args:
        vectors: (n, dim), rows of unit length or zero; may be mapped.
        query: (dim,) the question.
        limit: rows at most.
        end: rows looked at.
        access: filter of visible rows and parts; None: all are visible.
    """
    rows = np.arange(end)
    if access is not None:
        rows = rows[visible_rows(access, rows)]
    if len(rows) > limit:
        scores = np.nan_to_num(vectors[:end] @ query, copy=False, nan=-np.inf, posinf=np.inf, neginf=-np.inf)[rows]
        if access is not None:  # the product of a partially visible row says nothing of its parts
            partial = access.entity_states[access.entity_patterns[rows]] == PARTIAL
            scores[partial] = np.inf
            limit_of_product = limit + int(partial.sum())
        else:
            limit_of_product = limit
        if limit_of_product < len(rows):
            bar = np.partition(scores, -limit_of_product)[-limit_of_product]
            slack = _ROUNDING * vectors.shape[1] * float(np.linalg.norm(query))
            rows = rows[scores >= bar - slack]
    return nearest(vectors, rows, query, limit, access)


@compiled
def product(row: NDArray[np.float32], query: NDArray[np.float64]) -> Any:
    """Return the product of a row with the question, summed in eight lanes that one instruction can add to."""
    dim = len(query)
    whole = dim - dim % 8
    a = b = c = d = e = f = g = h = 0.0
    for k in range(0, whole, 8):
        a += np.float64(row[k]) * query[k]
        b += np.float64(row[k + 1]) * query[k + 1]
        c += np.float64(row[k + 2]) * query[k + 2]
        d += np.float64(row[k + 3]) * query[k + 3]
        e += np.float64(row[k + 4]) * query[k + 4]
        f += np.float64(row[k + 5]) * query[k + 5]
        g += np.float64(row[k + 6]) * query[k + 6]
        h += np.float64(row[k + 7]) * query[k + 7]
    total = ((a + e) + (b + f)) + ((c + g) + (d + h))
    for k in range(whole, dim):
        total += np.float64(row[k]) * query[k]
    return np.float32(total)


@compiled
def filtered_product(access: AccessFilter | None, vectors: FloatMatrix, row: int, query: NDArray[np.float64]) -> Any:
    """Return (visible, product with the question) of a row; the product of a partial row is that of its best part."""
    if access is None:
        return True, product(vectors[row], query)
    state = access.entity_states[access.entity_patterns[row]]
    if state != PARTIAL:
        return state != HIDDEN, product(vectors[row], query)
    best = np.float32(-np.inf)
    at = np.searchsorted(access.part_entities, row)
    while at < len(access.part_entities) and access.part_entities[at] == row:
        if access.sets[access.part_sets[at]]:
            best = max(best, product(access.part_vectors[at], query))
        at += 1
    return True, best


@compiled
def keep_best(row: int, score: Any, rows: NDArray[np.int64], scores: NDArray[np.float32], count: int) -> Any:
    """Put a row among the best so far if it is one of them; rows come in ascending order, so ties keep it.

    Args:
        rows, scores: the best, in order; as many as there is room for.
        count: how many there are.

    Returns:
        How many there are now.
    """
    at = count
    while at > 0 and not score <= scores[at - 1]:
        at -= 1
    if at == len(rows) or np.isnan(score):
        return count
    count = min(count + 1, len(rows))
    for position in range(count - 1, at, -1):
        rows[position], scores[position] = rows[position - 1], scores[position - 1]
    rows[at], scores[at] = row, score
    return count


@compiled
def _fill_scores(
    vectors: FloatMatrix, rows: NDArray[np.int64], query: NDArray[np.float64], scores: NDArray[np.float32]
) -> None:
    for at in range(len(rows)):
        scores[at] = product(vectors[rows[at]], query)
