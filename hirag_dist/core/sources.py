"""Which chunks stand behind what was retrieved: entities and relations vote for theirs, and the votes are ranked.

A summary entity has no chunks of its own. It votes through its members nearest to the question, and so on down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.compiling import compiled
from hirag_dist.core.scoring import exact_scores, keep_best, seen_product
from hirag_dist.types import Admission, FloatMatrix, IntVector

_DESCENT = 5  # members that stand for a summary entity when its sources are looked for
_RANK = 60.0  # of reciprocal-rank fusion


class Origins(NamedTuple):
    """Where entities and relations come from.

    Attributes:
        layers: (n_entities,) layer of each entity.
        indptr, indices: the graph's; the entities that a summary entity is made of are neighbours of the layer below.
        vectors: (n_entities, dim).
        entity_indptr, entity_chunks: CSR, entity → chunk rows.
        relation_indptr, relation_chunks: CSR, relation → chunk rows.
    """

    layers: NDArray[np.int32]
    indptr: IntVector
    indices: NDArray[np.int32]
    vectors: FloatMatrix
    entity_indptr: IntVector
    entity_chunks: NDArray[np.int32]
    relation_indptr: IntVector
    relation_chunks: NDArray[np.int32]


class Votes:
    """What a question's entities and relations say of their chunks."""

    def __init__(
        self,
        origins: Origins,
        query: NDArray[np.float32],
        n_chunks: int,
        seen: NDArray[np.bool_] | None = None,
        admission: Admission | None = None,
    ) -> None:
        """Begin without a vote.

        Args:
            origins: of entities and relations.
            query: the question.
            n_chunks: how many there are.
            seen: (n_chunks,) whether the caller may see a chunk; None: every one.
            admission: which entities the caller may see; None: every one.
        """
        self._origins = origins
        self._admission = admission
        self._query = query.astype(np.float64)
        self._seen = np.zeros(0, np.bool_) if seen is None else seen
        self._votes = np.full(n_chunks, -1.0)  # −1: no vote; a vote may be worth 0

    def of_entities(self, scored: Sequence[tuple[int, float]]) -> None:
        """Let entities vote, each with its similarity, shared by its chunks."""
        rows, scores = _columns(scored)
        _entities_vote(self._origins, self._admission, self._query, self._seen, rows, scores, self._votes)

    def of_relations(self, scored: Sequence[tuple[int, float]]) -> None:
        """Let relations vote, each with its score."""
        rows, scores = _columns(scored)
        _relations_vote(self._origins, self._seen, rows, scores, self._votes)

    def ranked(self, chunk_vectors: FloatMatrix, query: NDArray[np.float32], limit: int) -> list[tuple[int, float]]:
        """Return (chunk row, score), best first."""
        rows = np.flatnonzero(self._votes >= 0)
        return rank_sources(rows, self._votes[rows], chunk_vectors, query, limit)


def rank_sources(
    rows: IntVector,
    votes: NDArray[np.float64],
    chunk_vectors: FloatMatrix,
    query: NDArray[np.float32],
    limit: int,
) -> list[tuple[int, float]]:
    """Return (chunk row, score) of the chunks behind what was retrieved, best first, ties by row.

    Reciprocal-rank fusion of two orders: the votes that retrieved entities and relations give their chunks, and the
    chunks' own similarity to the question.

    Args:
        rows: (n,) chunks that have a vote.
        votes: (n,) of each.
        chunk_vectors: of all chunks.
        query: the question.
        limit: chunks at most.
    """
    by_vote = np.lexsort((rows, -votes))
    by_vector = np.lexsort((rows, -exact_scores(chunk_vectors, rows, query)))
    scores = np.zeros(len(rows))
    for order in (by_vote, by_vector):
        scores[order] += 1.0 / (_RANK + np.arange(len(rows)))
    best = np.lexsort((rows, -scores))[:limit]
    return list(zip(rows[best].tolist(), scores[best].tolist(), strict=True))


def _columns(scored: Sequence[tuple[int, float]]) -> tuple[IntVector, NDArray[np.float64]]:
    rows = np.array([row for row, _ in scored], np.int64)
    return rows, np.array([score for _, score in scored], np.float64)


@compiled
def _entities_vote(
    origins: Origins,
    admission: Admission | None,
    query: NDArray[np.float64],
    seen: NDArray[np.bool_],
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    votes: NDArray[np.float64],
) -> None:
    waiting = np.empty(len(rows) + 64, np.int64)
    worth = np.empty(len(rows) + 64, np.float64)
    waiting[: len(rows)] = rows
    worth[: len(rows)] = scores
    count = len(rows)
    best = np.empty(_DESCENT, np.int64)
    near = np.empty(_DESCENT, np.float32)
    while count:
        count -= 1
        row, score = waiting[count], worth[count]
        if origins.layers[row] == 0:
            _vote(origins.entity_indptr, origins.entity_chunks, seen, row, score, votes)
            continue
        found = _nearest_members(origins, admission, query, row, best, near)
        if count + found > len(waiting):
            waiting = np.concatenate((waiting, np.empty(len(waiting), np.int64)))
            worth = np.concatenate((worth, np.empty(len(worth), np.float64)))
        for at in range(found):
            waiting[count] = best[at]
            worth[count] = min(score, np.float64(near[at]))
            count += 1


@compiled
def _relations_vote(
    origins: Origins,
    seen: NDArray[np.bool_],
    rows: NDArray[np.int64],
    scores: NDArray[np.float64],
    votes: NDArray[np.float64],
) -> None:
    for at in range(len(rows)):
        _vote(origins.relation_indptr, origins.relation_chunks, seen, rows[at], scores[at], votes)


@compiled
def _nearest_members(
    origins: Origins,
    admission: Admission | None,
    query: NDArray[np.float64],
    row: int,
    best: NDArray[np.int64],
    near: NDArray[np.float32],
) -> Any:
    """Write the nearest of the entities that a summary entity is made of, ties by row; return how many there are."""
    count = 0
    for entry in range(origins.indptr[row], origins.indptr[row + 1]):
        member = origins.indices[entry]
        if origins.layers[member] != origins.layers[row] - 1:
            continue
        seen, score = seen_product(admission, origins.vectors, member, query)
        if seen:
            count = keep_best(member, score, best, near, count)
    return count


@compiled
def _vote(
    indptr: NDArray[np.int64],
    chunks: NDArray[np.int32],
    seen: NDArray[np.bool_],
    row: int,
    score: float,
    votes: NDArray[np.float64],
) -> None:
    """Share a score among the chunks of a row that may be seen."""
    count = 0
    for at in range(indptr[row], indptr[row + 1]):
        count += len(seen) == 0 or seen[chunks[at]]
    for at in range(indptr[row], indptr[row + 1]):
        chunk = chunks[at]
        if len(seen) == 0 or seen[chunk]:
            votes[chunk] = max(votes[chunk], 0.0) + max(score, 0.0) / np.sqrt(count)
