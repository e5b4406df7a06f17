"""The three levels of HiRetrieval as arithmetic on arrays (paper §4.2, Eq. 12–16). Nodes are row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.core.cooperative import Steps, all_at_once
from hirag_dist.core.numba_jit import compiled
from hirag_dist.core.retrieval.vector_scoring import filtered_product, keep_best
from hirag_dist.types import AccessFilter, CsrGraph, FloatMatrix, IntVector

_BLOCK = 4096  # members scored in a step


@dataclass(frozen=True, slots=True)
class CommunityIndex:
    """Who belongs to which community, both ways.

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
class Parallel:
    """The further relations of pairs of entities that have more than one; the graph holds the heaviest.

    Attributes:
        of: (n,) the relation rows that the graph holds for those pairs, ascending.
        indptr, rows: CSR, place in `of` → the pair's other relations.
    """

    of: NDArray[np.int32]
    indptr: IntVector
    rows: NDArray[np.int32]


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


def key_entities(
    index: CommunityIndex,
    communities: Sequence[int],
    vectors: FloatMatrix,
    query: NDArray[np.float32],
    limit: int,
    admission: AccessFilter | None = None,
) -> list[tuple[int, float]]:
    """Return what `key_entity_steps` comes to."""
    return all_at_once(key_entity_steps(index, communities, vectors, query, limit, admission))


def key_entity_steps(
    index: CommunityIndex,
    communities: Sequence[int],
    vectors: FloatMatrix,
    query: NDArray[np.float32],
    limit: int,
    admission: AccessFilter | None = None,
) -> Steps[list[tuple[int, float]]]:
    """Return (row, similarity) of the top-m members of each community, in community order (Eq. 14), step by step.

    All members are scored that may be seen, a block of them at a time. Ties go by row, which is by id within a layer. A
    row that several communities give is kept where it came first.
    """
    found: dict[int, float] = {}
    exact = query.astype(np.float64)
    best, scores = np.empty(limit, np.int64), np.empty(limit, np.float32)
    left = _BLOCK  # members until the next step
    for community in communities:
        at, last = int(index.indptr[community]), int(index.indptr[community + 1])
        count = 0
        while at < last:
            end = min(at + left, last)
            count = _keep_best_members(index.members, at, end, vectors, exact, admission, best, scores, count)
            left -= end - at
            at = end
            if not left:
                yield
                left = _BLOCK
        for row, score in zip(best[:count].tolist(), scores[:count].tolist(), strict=True):
            found.setdefault(row, score)
    return list(found.items())


@compiled
def _keep_best_members(
    members: NDArray[np.int32],
    first: int,
    last: int,
    vectors: FloatMatrix,
    query: NDArray[np.float64],
    admission: AccessFilter | None,
    best: NDArray[np.int64],
    scores: NDArray[np.float32],
    count: int,
) -> Any:
    """Score some members of a community, and keep those that are among its best; return how many these are."""
    for at in range(first, last):
        seen, score = filtered_product(admission, vectors, members[at], query)
        if seen:
            count = keep_best(members[at], score, best, scores, count)
    return count


def bridge_relations(graph: CsrGraph, parallel: Parallel, nodes: Sequence[int]) -> list[int]:
    """Return the rows of all relations with both endpoints among the path nodes (Eq. 16), ascending."""
    inside = np.unique(np.asarray(nodes, np.int64))
    joined = _joined(graph.indptr, graph.indices, graph.relation_rows, inside)
    return sorted([*joined.tolist(), *further_relations(parallel, joined).tolist()])


def further_relations(parallel: Parallel, heads: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Return the other relations of the pairs whose relations in the graph are `heads`.

    Takes time that grows with `heads`, and not with how many pairs have several relations.
    """
    if not len(parallel.of):
        return np.zeros(0, np.int32)
    at = np.minimum(np.searchsorted(parallel.of, heads), len(parallel.of) - 1)
    at = at[parallel.of[at] == heads]
    _, places = spans(parallel.indptr[at], parallel.indptr[at + 1])
    found: NDArray[np.int32] = parallel.rows[places]
    return found


@compiled
def _joined(
    indptr: NDArray[np.int64], indices: NDArray[np.int32], relation_rows: NDArray[np.int32], inside: NDArray[np.int64]
) -> Any:
    """Return the relation row of every edge among `inside`, which ascends."""
    found = []
    for place in range(len(inside)):
        node = inside[place]
        first, last = indptr[node], indptr[node + 1]
        others = inside[place + 1 :]
        if last - first <= 4 * len(others):  # both lists ascend: walk along them
            at = 0
            for entry in range(first, last):
                while at < len(others) and others[at] < indices[entry]:
                    at += 1
                if at == len(others):
                    break
                if others[at] == indices[entry]:
                    found.append(relation_rows[entry])
        else:  # a hub: look each of the few up among its many
            neighbours = indices[first:last]
            for other in others:
                entry = np.searchsorted(neighbours, other)
                if entry < len(neighbours) and neighbours[entry] == other:
                    found.append(relation_rows[first + entry])
    joined = np.empty(len(found), np.int32)
    for at in range(len(found)):
        joined[at] = found[at]
    return joined
