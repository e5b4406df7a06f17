"""Records chosen by what they add: entities by maximal marginal relevance, reports by coverage of what was retrieved.

Entities nearest to a question resemble each other, and so do reports of neighbouring communities. Both choices are
greedy: each record is worth what it adds to those chosen before it.

  entities   similarity to the question − `REPETITION` · similarity to the nearest chosen one (maximal marginal
             relevance: Carbonell and Goldstein, SIGIR 1998)
  reports    gain of coverage for each token (Lin and Bilmes, ACL 2011): a community covers a retrieved entity as far as
             one of the retrieved entities that it holds is similar to it; entities count by their similarity to the
             question
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import spans
from hirag_dist.core.access.labels import PARTIAL
from hirag_dist.core.retrieval.source_ranking import excess
from hirag_dist.core.retrieval.vector_scoring import exact_scores
from hirag_dist.types import AccessFilter, FloatMatrix, FloatVector, IntVector

REPETITION: Final = 0.5


def visible_vectors(
    vectors: FloatMatrix, rows: IntVector, query: NDArray[np.float32], access: AccessFilter | None
) -> FloatMatrix:
    """Return the vectors of entities: (n, dim); of a partially visible one that of its visible part nearest to a query.

    Args:
        vectors: of all entities.
        rows: (n,) visible.
        query: the question.
        access: what the caller may see; None: everything.
    """
    found: FloatMatrix = np.array(vectors[rows], np.float32)
    if access is None:
        return found
    partial = np.flatnonzero(access.entity_states[access.entity_patterns[rows]] == PARTIAL)
    bounds = (np.searchsorted(access.part_entities, rows[partial], side) for side in ("left", "right"))
    owner, parts = spans(*bounds)
    reached = access.sets[access.part_sets[parts]]
    owner, parts = owner[reached], parts[reached]
    scores = exact_scores(access.part_vectors, parts, query)
    order = np.lexsort((-parts, scores, owner))  # the best of an owner comes last, of equal ones the first
    found[partial[owner[order]]] = access.part_vectors[parts[order]]
    return found


def similarities_among(vectors: FloatMatrix) -> FloatMatrix:
    """Return the similarity of each row with each: (n, n)."""
    n = len(vectors)
    table: FloatMatrix = np.zeros((n, n), np.float32)
    rows = np.arange(n)
    for at in range(n):
        table[at, at:] = table[at:, at] = exact_scores(vectors, rows[at:], vectors[at])
    return table


def marginal_order(scores: NDArray[np.float32], among: FloatMatrix, limit: int) -> list[int]:
    """Return the positions of the entities chosen by maximal marginal relevance, in the order of choice.

    Args:
        scores: (n,) similarity to the question.
        among: (n, n) similarity of each to each; one below 0 counts as 0.
        limit: entities at most.
    """
    exact = np.asarray(scores, np.float64)
    after = exact - REPETITION * np.maximum(among, 0.0)  # row: chosen one, column: worth of another after it
    worth = exact.copy()
    chosen: list[int] = []
    for _ in range(min(limit, len(exact))):
        best = int(worth.argmax())
        chosen.append(best)
        np.minimum(worth, after[best], out=worth)
        worth[chosen] = -np.inf
    return chosen


def covering_order(
    scores: NDArray[np.float32], among: FloatMatrix, held: Sequence[Sequence[int]], costs: Sequence[int], limit: int
) -> list[int]:
    """Return the positions of the communities chosen by the coverage that their reports add for each token, in order.

    Communities that add nothing come last, in their order.

    Args:
        scores: (n,) similarity of the retrieved entities to the question.
        among: (n, n) similarity of each to each.
        held: the retrieved entities that each community holds, one at least, as positions.
        costs: tokens of each community's report.
        limit: communities at most.
    """
    weights: FloatVector = excess(np.asarray(scores, np.float64))
    if not len(held):
        return []
    starts = np.cumsum([0, *map(len, held[:-1])])
    covers = np.maximum.reduceat(among[[at for own in held for at in own]], starts, axis=0)
    left = np.maximum(covers, 0.0) * weights  # that each would add to those chosen
    cheapness = 1.0 / np.maximum(costs, 1)
    chosen: list[int] = []
    while len(chosen) < min(limit, len(held)):
        gains = left.sum(axis=1) * cheapness
        best = int(gains.argmax())
        if gains[best] <= 0:
            rest = [at for at in range(len(held)) if at not in chosen]
            return [*chosen, *rest][:limit]
        chosen.append(best)
        left = np.maximum(left - left[best], 0.0)
    return chosen
