"""The global level of HiRetrieval: communities of the local entities, ranked (paper §4.2, Eq. 13).

The local level (Eq. 12) is `vector_scoring`, the bridge (Eq. 14–16) is `bridge`. Nodes are row numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import IntVector


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
