"""The local and global levels of HiRetrieval (paper §4.2, Eq. 12, 13); `bridge` has Eq. 14–16. Nodes are row numbers.

In a matrix product the last bits of a row's score depend on its position, so scores would change with ties, backends
and access filters. Here every row that may be among the nearest is multiplied alone, with one fixed order of sums, in
float64; a rougher product with all rows finds these.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, PARTIAL, visible_rows, visible_scores
from hirag_dist.core.arrays import compiled, compiled_inside, lower_bound
from hirag_dist.core.vectors import VectorCodes, VectorParts, Vectors, parts_of, product_bounds, products, vector_of
from hirag_dist.types import AccessFilter, IntVector

AT_ONCE = 20_000  # rows, some two milliseconds' product: a longer one runs in a thread
_ROUNDING = 2.0**-23  # of a sum in float32, for each number, twice over
SLACK = 16  # candidates beyond the limit that are scored exactly, so that near-ties at the end are decided there


def exact_scores(vectors: Vectors, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the similarity of some rows to the question, each by itself: (len(rows),)."""
    scores = np.empty(len(rows), np.float32)
    _fill_scores(parts_of(vectors), rows, query.astype(np.float64), scores)
    return scores


def nearest(
    vectors: Vectors,
    candidates: IntVector,
    query: NDArray[np.float32],
    limit: int,
    access: AccessFilter | None = None,
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best candidates, best first, ties by row.

    Args:
        candidates: rows, which the caller may see.
        access: what the caller may see of them; None: everything.
    """
    if access is None:
        scores = exact_scores(vectors, candidates, query)
    else:
        scores = visible_scores(access, vectors, candidates, query, exact_scores)
    order = np.lexsort((candidates, -scores))[:limit]
    return candidates[order], scores[order]


def nearest_of_all(
    vectors: Vectors,
    query: NDArray[np.float32],
    limit: int,
    end: int,
    access: AccessFilter | None = None,
    codes: VectorCodes | None = None,
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best among the first `end` rows, best first, ties by row (paper Eq. 12).

    Args:
        vectors: (n, dim), rows of unit length or zero; may be mapped.
        query: (dim,) the question.
        end: rows looked at.
        access: filter of visible rows and parts; None: all are visible.
        codes: of the vectors; None: the product is one of float32, which takes twice as long.
    """
    rows = np.arange(end)
    if access is not None:
        rows = rows[visible_rows(access, rows)]
    if len(rows) > limit:
        least, most = _bounds(vectors, query, end, codes)
        if access is not None:
            least, most = least[rows], most[rows]
            # the product of a partially visible row says nothing of its parts
            partial = access.entity_states[access.entity_patterns[rows]] == PARTIAL
            least[partial], most[partial] = -np.inf, np.inf
        rows = rows[most >= np.partition(least, -limit)[-limit]]
    return nearest(vectors, rows, query, limit, access)


def _bounds(
    vectors: Vectors, query: NDArray[np.float32], end: int, codes: VectorCodes | None
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """Return (least, most) that the similarity of each of the first rows can be; −∞ of one that is not a number."""
    if codes is not None and np.isfinite(query).all():
        return product_bounds(codes, query, end)
    scores = products(vectors, query, end)
    if not np.isfinite(scores.sum()):
        scores[np.isnan(scores)] = -np.inf
    error = _ROUNDING / 2 * vectors.shape[1] * float(np.linalg.norm(query))
    return scores - error, scores + error


@compiled_inside
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


@compiled_inside
def filtered_product(access: AccessFilter | None, vectors: VectorParts, row: int, query: NDArray[np.float64]) -> Any:
    """Return (visible, product with the question) of a row; the product of a partial row is that of its best part."""
    if access is None:
        return True, product(vector_of(vectors, row), query)
    state = access.entity_states[access.entity_patterns[row]]
    if state != PARTIAL:
        return state != HIDDEN, product(vector_of(vectors, row), query)
    best = np.float32(-np.inf)
    at = lower_bound(access.part_entities, 0, len(access.part_entities), row)
    while at < len(access.part_entities) and access.part_entities[at] == row:
        if access.sets[access.part_sets[at]]:
            best = max(best, product(access.part_vectors[at], query))
        at += 1
    return True, best


@compiled_inside
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
    vectors: VectorParts, rows: NDArray[np.int64], query: NDArray[np.float64], scores: NDArray[np.float32]
) -> None:
    for at in range(len(rows)):
        scores[at] = product(vector_of(vectors, rows[at]), query)


@dataclass(frozen=True, slots=True)
class CommunityIndex:
    """Membership of entities in communities, in both directions.

    Attributes:
        levels: (n_communities,) level, 0 the coarsest.
        ratings: (n_communities,) report rating.
        order: (n_communities,) rank of each community's id, for ties.
        indptr, members: CSR, community → member rows, ascending.
        of_indptr, of: CSR, entity row → communities, coarsest first.
    """

    levels: NDArray[np.int32]
    ratings: NDArray[np.float64]
    order: IntVector
    indptr: IntVector
    members: NDArray[np.int32]
    of_indptr: IntVector
    of: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class RankedCommunity:
    """A community of the global level: how many local entities it holds and the best similarity among them."""

    community: int
    hits: int
    score: float


def invert(
    indptr: IntVector, members: NDArray[np.int32], levels: NDArray[np.int32], n_rows: int
) -> tuple[IntVector, NDArray[np.int32]]:
    """Return (of_indptr, of): the communities of each row, coarsest first."""
    owner = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    order = np.lexsort((owner, levels[owner], members))
    counts = np.bincount(members, minlength=n_rows)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), owner[order]


def depth_note(level: str, levels: NDArray[np.int32]) -> str:
    """Return a note where a level's number was asked for that no community reaches; else an empty text.

    Args:
        level: leaf, all, or a level's number.
        levels: (n,) levels of the communities that were taken for it.

    >>> depth_note("9", np.array([0, 1]))
    'community_level 9 is deeper than every community found, so the deepest ones took its place'
    """
    if not level.isdigit() or not len(levels) or int(level) <= levels.max():
        return ""
    return f"community_level {level} is deeper than every community found, so the deepest ones took its place"


def ranked_communities(
    index: CommunityIndex, local_rows: IntVector, local_scores: NDArray[np.float32], level: str, limit: int
) -> list[RankedCommunity]:
    """Return the communities that hold the local entities (Eq. 13), best first.

    Ranked by hits, best similarity, rating, and id.

    Args:
        level: leaf (the deepest community of each entity), all (Eq. 13 to the letter), or a level's number; an
            entity whose communities end above that level counts for its deepest one.
    """
    hits: dict[int, int] = {}
    best: dict[int, float] = {}
    for row, score in zip(local_rows.tolist(), local_scores.tolist(), strict=True):
        own = index.of[index.of_indptr[row] : index.of_indptr[row + 1]]
        if level == "leaf":
            own = own[-1:]
        elif level != "all":
            own = own[index.levels[own] <= int(level)][-1:]
        for community in own.tolist():
            hits[community] = hits.get(community, 0) + 1
            best[community] = max(best.get(community, -np.inf), score)
    ranked = sorted(hits, key=lambda c: (-hits[c], -best[c], -float(index.ratings[c]), int(index.order[c])))
    return [RankedCommunity(c, hits[c], best[c]) for c in ranked[:limit]]
