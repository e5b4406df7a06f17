"""The three levels of HiRetrieval as arithmetic on arrays (paper §4.2, Eq. 12–16). Nodes are row numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import CsrGraph, FloatMatrix, IntVector

SLACK = 16  # candidates beyond the limit that are scored exactly, so that near-ties at the end are decided there


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


def top_rows(scores: NDArray[np.float32], rows: IntVector, limit: int) -> IntVector:
    """Return positions of the best scores, best first, ties by row.

    Args:
        scores: (n,) any order.
        rows: (n,) the row each score belongs to.
    """
    if limit < len(scores):
        kept = np.argpartition(-scores, limit - 1)[:limit]
        bar = scores[kept].min()
        candidates = np.flatnonzero(scores >= bar)  # all ties at the bar, so that rows decide among them
    else:
        candidates = np.arange(len(scores))
    order = np.lexsort((rows[candidates], -scores[candidates]))
    chosen: IntVector = candidates[order][:limit]
    return chosen


def exact_scores(vectors: FloatMatrix, rows: IntVector, query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the similarity of some rows to the question, each by itself.

    A matrix product gives a row other last bits by where it lies among the others, so ties and backends would differ.
    """
    scores: NDArray[np.float32] = (
        (vectors[rows].astype(np.float64) * query.astype(np.float64)).sum(axis=1).astype(np.float32)
    )
    return scores


def nearest(
    vectors: FloatMatrix, candidates: IntVector, query: NDArray[np.float32], limit: int
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best candidates, best first, ties by row."""
    scores = exact_scores(vectors, candidates, query)
    order = np.lexsort((candidates, -scores))[:limit]
    return candidates[order], scores[order]


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
) -> list[tuple[int, float]]:
    """Return (row, similarity) of the top-m members of each community, in community order (Eq. 14).

    All members are scored. Ties go by row, which is by id within a layer. A row that several communities give is
    kept where it came first.
    """
    found: dict[int, float] = {}
    for community in communities:
        members = index.members[index.indptr[community] : index.indptr[community + 1]].astype(np.int64)
        for row, score in zip(*(part.tolist() for part in nearest(vectors, members, query, limit)), strict=True):
            found.setdefault(row, score)
    return list(found.items())


def bridge_relations(graph: CsrGraph, parallel: Parallel, nodes: Sequence[int]) -> list[int]:
    """Return the rows of all relations with both endpoints among the path nodes (Eq. 16), ascending."""
    inside = np.unique(np.asarray(nodes, np.int64))
    joined = _joined(graph.indptr, graph.indices, graph.relation_rows, inside)
    found: list[int] = joined.tolist()
    if len(parallel.of):
        at = np.searchsorted(parallel.of, joined)
        for place in at[parallel.of[np.minimum(at, len(parallel.of) - 1)] == joined].tolist():
            found.extend(parallel.rows[parallel.indptr[place] : parallel.indptr[place + 1]].tolist())
    return sorted(found)


@numba.njit(cache=True)
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


def rank_triples(
    ends: NDArray[np.int32], weights: NDArray[np.float64], similarity: Mapping[int, float], rows: Sequence[int]
) -> list[tuple[int, float]]:
    """Return (relation row, score) with the question in mind, best first, ties by row.

    The score is the mean similarity of the two endpoints to the question; the weight breaks near-ties as a small
    bonus, at most 0.05.

    Args:
        ends: (n, 2) entity rows of each relation in `rows`.
        weights: (n,).
        similarity: entity row → similarity to the question.
    """
    scored = []
    for place, row in enumerate(rows):
        first, second = int(ends[place, 0]), int(ends[place, 1])
        closeness = (similarity[first] + similarity[second]) / 2
        weight = float(weights[place])
        scored.append((row, closeness + 0.05 * weight / (weight + 10.0)))
    return sorted(scored, key=lambda item: (-item[1], item[0]))


def rank_sources(
    votes: Mapping[int, float], chunk_vectors: FloatMatrix, query: NDArray[np.float32], limit: int
) -> list[tuple[int, float]]:
    """Return (chunk row, score) of the chunks behind what was retrieved, best first, ties by row.

    Reciprocal-rank fusion of two orders: the votes that retrieved entities and relations give their chunks, and the
    chunks' own similarity to the question.
    """
    rows = np.fromiter(votes, np.int64, len(votes))
    if not len(rows):
        return []
    by_vote = np.lexsort((rows, -np.fromiter(votes.values(), np.float64, len(votes))))
    by_vector = np.lexsort((rows, -(chunk_vectors[rows] @ query)))
    scores = np.zeros(len(rows))
    for order in (by_vote, by_vector):
        scores[order] += 1.0 / (60.0 + np.arange(len(rows)))
    best = np.lexsort((rows, -scores))[:limit]
    return [(int(rows[at]), float(scores[at])) for at in best]
