"""The mode lean: extracted entities, the ways up to the summary entities that join them, and a few chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.retrieval.bridge import bridge_relations
from hirag_dist.core.retrieval.hierarchy import joining_steps
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.retrieval.hierarchy_paths import ancestry_of
from hirag_dist.retrieval.search import RetrievalRun, Scored
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import IntVector, Query


class LeanRun(RetrievalRun):
    """A question in the mode lean (LeanRAG, arXiv 2508.10391). Its bridge are the ways up the hierarchy."""

    def __init__(self, index: MappedIndex, query: Query, limits: RetrievalConfig, *rest: Any) -> None:
        """Prepare as `RetrievalRun` does, with the limits of this mode; those that the question brings go before."""
        lean = limits.lean
        own = {
            "top_n": query.top_n or lean.top_n,
            "top_sources": min(limits.top_sources, lean.top_sources),
            "context_tokens": query.context_tokens or lean.context_tokens or limits.context_tokens // 2,
        }
        super().__init__(index, query, limits.model_copy(update=own), *rest)

    def _ranked_communities(self, rows: IntVector, scores: NDArray[np.float32]) -> list[RankedCommunity]:
        return []  # this mode has no reports

    async def _bridge_level(self) -> None:
        """The ways, the summary entities on them, and the relations among all entities of the context."""
        with self._timed("bridge"):
            index, starts = self._index, [row for row, _ in self._local]
            ancestry, closeness = await self._deadline.run(ancestry_of(index, starts, self._vector))
            ways = await self._deadline.run(joining_steps(starts, ancestry, index.layers, closeness))
            found = {row for way in ways for row in way} - set(starts)
            summaries: Scored = sorted(((row, closeness[row]) for row in found), key=lambda pair: (-pair[1], pair[0]))
            nodes = sorted({*starts, *found})
            relations = index.visible_relations(
                np.array(bridge_relations(index.graph, index.parallel, nodes), np.int64)
            )
            ranked = self._ranked_triples(relations, np.array(nodes, np.int64), ways)[: self._limits.max_triples]
            self._rows["bridge"] = [row for row, _ in ranked]
            self._seeds.of_relations(ranked)
            entities = [*self._local, *summaries]
            self._rows["local"] = [row for row, _ in entities]
            named = index.named(nodes)
            self.result = replace(
                self.result,
                local=index.entities(entities, named, [*self._matches, *("" for _ in summaries)]),
                paths=index.paths([(way[0], way[-1]) for way in ways], ways, named),
                triples=index.triples(ranked, named),
            )
