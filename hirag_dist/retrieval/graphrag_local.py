"""The mode graphrag-local: GraphRAG's local search over the same index, for comparisons."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.retrieval.graphrag_local import community_order, relation_order, relations_at, text_order
from hirag_dist.core.retrieval.levels import RankedCommunity, ranked_communities
from hirag_dist.retrieval.search import RetrievalRun, Scored
from hirag_dist.types import IntVector

_MAX_CLAIMS = 100  # about the local entities

_Related = tuple[IntVector, NDArray[np.int32]]  # relation rows, and their ends


class GraphragLocalRun(RetrievalRun):
    """A question in the mode graphrag-local: claims, relations and text units of the local entities, in its orders."""

    fuses_sources: ClassVar[bool] = False
    takes_names: ClassVar[bool] = False
    _related: _Related = np.zeros(0, np.int64), np.zeros((0, 2), np.int32)

    def _ranked_communities(self, rows: IntVector, scores: NDArray[np.float32]) -> list[RankedCommunity]:
        communities, limits = self._index.communities, self._limits
        ranked = ranked_communities(communities, rows, scores, limits.community_level, len(communities.levels))
        return community_order(communities, ranked)[: limits.top_c]

    def _local_level(self) -> None:
        super()._local_level()
        claims = self._index.claims_about(self._rows["local"], _MAX_CLAIMS)
        self.result = replace(self.result, claims=claims)

    async def _bridge_level(self) -> None:
        """The relations of the local entities, in the place of the bridge."""
        with self._timed("bridge"):
            index, entities = self._index, [row for row, _ in self._local_entities]
            at = await self._deadline.run(relations_at(index.graph, index.parallel, index.layers, entities))

            def related() -> tuple[_Related, Scored]:
                rows = index.visible_relations(at)
                ends, weights = index.ends[rows], index.relation_weights(rows)
                order = relation_order(rows, ends, weights, entities)[: self._limits.max_triples]
                return (rows, ends), list(zip(rows[order].tolist(), weights[order].tolist(), strict=True))

            self._related, ranked = await self._deadline.run_in_thread(related)  # a hub has many
            self._rows["bridge"] = [row for row, _ in ranked]
            self.result = replace(self.result, triples=index.triples(ranked))

    async def _ranked_sources(self, limit: int) -> Scored:
        index, entities = self._index, [row for row, _ in self._local_entities]
        order = text_order(index.walk_graph, index.provenance, entities, *self._related, index.visible_chunks, limit)
        texts = await self._deadline.run_to_end(order)
        return [(row, 1.0 / rank) for rank, row in enumerate(texts, 1)]
