"""The modes hirag and global with records chosen by what they add (`retrieval.selection: coverage`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval.levels import RankedCommunity, ranked_communities
from hirag_dist.core.retrieval.selection import (
    covering_order,
    marginal_order,
    similarities_among,
    visible_vectors,
)
from hirag_dist.protocols import VectorIndex
from hirag_dist.retrieval.search import RetrievalRun, Scored
from hirag_dist.types import FloatMatrix, IntVector

_ENTITIES = 1.5  # candidates for each entity of the result
_MEMBERS_TOKENS = 500  # of the members in the place of a missing report, about
_REPORTS = 3  # candidates for each report of the result


class SelectingRun(RetrievalRun):
    """A question whose entities and reports are chosen from more candidates.

    The bridge and the ranking of sources start from the same entities and communities as without the choice, so the
    passages found are the same.
    """

    _candidates: Scored
    _pool: list[RankedCommunity]
    _among: FloatMatrix

    @property
    def _n_entities(self) -> int:
        return int(_ENTITIES * self._limits.top_n)

    def _ranked_communities(self, rows: IntVector, scores: NDArray[np.float32]) -> list[RankedCommunity]:
        limits, first = self._limits, self._limits.top_n
        index = self._index.communities
        limit = _REPORTS * limits.top_c
        self._pool = ranked_communities(index, rows[:first], scores[:first], limits.community_level, limit)
        return self._pool[: limits.top_c]

    async def _search(self, vectors: VectorIndex) -> None:
        await super()._search(vectors)
        with self._timed("selection"):
            self._candidates = self._local_entities
            self._local_entities = self._candidates[: self._limits.top_n]
            rows = np.array([row for row, _ in self._candidates], np.int64)
            own = visible_vectors(self._index.vectors, rows, self._vector, self._index.access)
            self._among = similarities_among(own)

    def _nearest_shown(self) -> Scored:
        with self._timed("selection"):
            scores = np.array([score for _, score in self._candidates], np.float32)
            return [self._candidates[at] for at in marginal_order(scores, self._among, self._limits.top_n)]

    async def _global_level(self) -> None:
        communities = self._communities
        with self._timed("selection"):
            self._communities = self._chosen_communities()
        await super()._global_level()
        self._communities = communities

    def _chosen_communities(self) -> list[RankedCommunity]:
        """Return the communities by what their reports add, of those with a visible report, or with a missing one."""
        index, membership = self._index, self._index.communities
        reported = index.reported() if self._late is None else index.fully_visible()
        pool = [ranked for ranked in self._pool if reported[ranked.community]]
        rows = [row for row, _ in self._local_entities]
        own = [membership.of[membership.of_indptr[row] : membership.of_indptr[row + 1]].tolist() for row in rows]
        held = [[at for at, of in enumerate(own) if ranked.community in of] for ranked in pool]
        is_missing = index.files.report_rows < 0
        costs = [
            _MEMBERS_TOKENS if is_missing[ranked.community] else index.tokens("global", ranked.community)
            for ranked in pool
        ]
        scores = np.array([score for _, score in self._local_entities], np.float32)
        among = self._among[: len(rows), : len(rows)]
        return [pool[at] for at in covering_order(scores, among, held, costs, self._limits.top_c)]
