"""Retrieval of one question: the levels of its mode in order, as far as the deadline allows, then sources and context.

`RetrievalRun` has the levels of HiRAG and its ablations; `graphrag_local.GraphragLocalRun` replaces those that
GraphRAG's local search does otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import bridge_relations, key_entity_steps
from hirag_dist.core.retrieval.context import MakeText, render_context
from hirag_dist.core.retrieval.levels import RankedCommunity, ranked_communities
from hirag_dist.core.retrieval.named_entities import along_first, asks_for_paths, joined_in_order
from hirag_dist.core.retrieval.source_ranking import NEAREST, WORDS, SeedSet
from hirag_dist.core.retrieval.triple_ranking import nearest_chunks, question_order, question_scores, weight_order
from hirag_dist.core.retrieval.vector_scoring import AT_ONCE
from hirag_dist.errors import ModelError
from hirag_dist.protocols import Embedder, Reranker, VectorIndex
from hirag_dist.retrieval.deadline import CooperativeDeadline, DeadlineExceeded
from hirag_dist.retrieval.question_entities import QuestionEntities
from hirag_dist.retrieval.record_text_cache import RecordTextCache
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import BY_NAME, BY_VECTOR, CommunityItem, IntVector, Query, Retrieval
from hirag_dist.types.mapped_bridge import MappedBridge

logger = logging.getLogger(__name__)
GRAPHRAG_LOCAL = "graphrag-local"
_LEVELS = {
    "hirag": ("local", "global", "bridge"),
    "local": ("local",),
    "global": ("global",),
    "bridge": ("bridge",),
    "nobridge": ("local", "global"),
    "naive": (),
    "flat": ("local",),
    GRAPHRAG_LOCAL: ("local", "global", "bridge"),
}
MODES = tuple(_LEVELS)
_LAYER_0_MODES = ("flat", GRAPHRAG_LOCAL)  # modes that search extracted entities only

NO_DIRECTION = "the question holds nothing that the embedder knows (its vector is zero), so nothing is near it"

Scored = list[tuple[int, float]]
_Communities = list[tuple[int, CommunityItem | None]]


class RetrievalRun:
    """One question on its way through the levels.

    Attributes:
        levels: of the question's mode, in order.
        result: what is retrieved so far.
        maps_bridge: whether key entities and paths may be left as rows; set before the first level.
        bridge: these rows; None where the result has them as items.
    """

    fuses_sources: ClassVar[bool] = True  # whether chunks near the question, or with its words, are among the seeds
    takes_names: ClassVar[bool] = True  # whether entities that the question names come first in the local level

    def __init__(
        self,
        index: MappedIndex,
        query: Query,
        limits: RetrievalConfig,
        paths: PathFinder,
        count: Callable[[str], int],
        texts: RecordTextCache,
        deadline: CooperativeDeadline,
        reranker: Reranker | None = None,
        misses_reports: bool = False,
    ) -> None:
        """Prepare to answer one question.

        Args:
            index: as the caller may see it.
            count: tokens of a text.
            texts: of records, as the caller may see them.
            reranker: orders the sources; None leaves them in the order of their ranking.
            misses_reports: whether communities without a report are found by their members.
        """
        self._index = index
        self._query = query
        self._limits = limits
        self._paths = paths
        self._count = count
        self._texts = texts
        self._deadline = deadline
        self._reranker = reranker
        self._misses_reports = misses_reports
        self._started = time.perf_counter()
        self._times: dict[str, float] = {}
        self._vector: NDArray[np.float32] = np.zeros(0, np.float32)
        self._rows: dict[str, list[int]] = {}  # rows of the records in the result, by the context's levels
        self._rebuilt: dict[str, list[bool]] = {}  # of the same records: whether the caller sees a part of each
        self._local_entities: Scored = []  # the nearest
        self._local: Scored = []  # those of the local level
        self._matches: list[str] = []  # how each of these was found
        self._near_chunks: Scored = []
        self._word_chunks: Scored = []
        self._communities: list[RankedCommunity] = []
        self._uncached: set[int] = set()  # communities without a published report
        buffers = index.files.walk_buffers
        self._seeds = SeedSet(
            index.walk_graph, index.provenance, index.visible_chunks, index.access, buffers, index.visible_edges
        )
        self._mode = query.mode or limits.mode
        self.levels = _LEVELS[self._mode]
        self.result = Retrieval(query.question, self._mode, index.snapshot_id)
        self.maps_bridge = False
        self.bridge: MappedBridge | None = None
        self._names = QuestionEntities(index, query.question)

    async def begin(self, embedder: Embedder, vectors: VectorIndex) -> bool:
        """Embed the question and find the entities that every level starts from (Eq. 12).

        Returns:
            Whether levels can follow. Without the time for it they are all named in the result's `partial`. A question
            whose vector is zero is near nothing: every record would have the same similarity, and the result's
            `note` says so.
        """
        try:
            async with asyncio.timeout(self._deadline.left_s):
                await self._embed(embedder)
                if not self._vector.any():
                    self.result = replace(self.result, note=NO_DIRECTION)
                    self._end()
                    return False
                await self._search(vectors)
        except TimeoutError:
            self.result = replace(self.result, partial=self.levels or ("sources",))
            self._end()
            return False
        return True

    async def run(self, level: str) -> bool:
        """Add a level to the result; return False where there was no time for it, and name it in `partial`."""
        try:
            await self._deadline.check()
            if level == "local":
                self._local_level()
            elif level == "global":
                self._global_level()
            else:
                await self._bridge_level()
        except DeadlineExceeded:
            self.result = replace(self.result, partial=(*self.result.partial, level))
            return False
        return True

    async def finish(self) -> None:
        """Add the sources and render the context, past the deadline if need be."""
        with self._timed("sources"):
            ranked = await self._ranked_sources(self._n_candidates)
        ranked = await self._reranked(ranked)
        with self._timed("sources"):
            self._rows["sources"] = [row for row, _ in ranked]
            self.result = replace(self.result, sources=self._index.sources(ranked))
        with self._timed("render"):
            self.result = render_context(self.result, self._limits.context_tokens, self._count, self._record_text)
        self._end()

    async def _embed(self, embedder: Embedder) -> None:
        with self._timed("embed"):
            if self._query.vector is not None:
                given = np.asarray(self._query.vector, np.float64)  # its length may be beyond float32
                norm = float(np.linalg.norm(given))
                self._vector = np.asarray(given / norm if norm else given, np.float32)
            else:
                self._vector = (await embedder.embed([self._query.question]))[0]

    async def _search(self, vectors: VectorIndex) -> None:
        """Find the local entities (Eq. 12), the chunks near the question, and the communities (Eq. 13)."""
        with self._timed("search"):
            if not self.levels:
                await self._find_chunks(self._n_candidates)
                return
            if self.fuses_sources and not self._limits.follows_paper:
                await self._find_chunks(NEAREST)
                await self._find_words()
            max_layer = 0 if self._mode in _LAYER_0_MODES else None
            index = self._index
            rows, scores = await vectors.search(
                self._vector, self._limits.top_n, max_layer, index.access, index.is_by_row
            )
            self._local_entities = list(zip(rows.tolist(), scores.tolist(), strict=True))
        if "global" in self.levels or "bridge" in self.levels:
            with self._timed("communities"):
                self._communities = self._ranked_communities(rows, scores)

    async def _find_chunks(self, limit: int) -> None:
        self._near_chunks = await self._searched(partial(self._index.nearest_chunks, self._vector, limit))

    async def _find_words(self) -> None:
        search = partial(self._index.chunks_with_words, self._query.question, WORDS)
        self._word_chunks = await self._searched(search)

    async def _searched(self, search: Callable[[], tuple[IntVector, NDArray[Any]]]) -> Scored:
        """Return the (row, score) pairs of a search of all chunks; a long one runs in a thread."""
        rows, scores = await asyncio.to_thread(search) if len(self._index.chunk_vectors) > AT_ONCE else search()
        return list(zip(rows.tolist(), scores.tolist(), strict=True))

    def _ranked_communities(self, rows: IntVector, scores: NDArray[np.float32]) -> list[RankedCommunity]:
        limits = self._limits
        return ranked_communities(self._index.communities, rows, scores, limits.community_level, limits.top_c)

    def _local_level(self) -> None:
        self._seeds.of_entities(self._local_entities)
        self._local, named = self._local_entities, frozenset[int]()
        if self.takes_names and not self._limits.follows_paper:
            self._local, named = self._names.local(self._local, self._vector, self._limits.top_n)
        self._matches = [BY_NAME if row in named else BY_VECTOR for row, _ in self._local]
        self._rows["local"] = [row for row, _ in self._local]
        self.result = replace(self.result, local=self._index.entities(self._local, matches=self._matches))

    def _global_level(self) -> None:
        with self._timed("communities"):
            items = [(ranked.community, self._index.community(ranked)) for ranked in self._communities]
            if self._misses_reports:
                items = self._with_members(items)
            visible = {community: item for community, item in items if item is not None}
            if "local" not in self.levels:  # the local level has added these seeds otherwise
                self._seeds.of_entities(self._local_entities)
            self.result = replace(self.result, communities=tuple(visible.values()))
            self._rows["global"] = list(visible)

    def _with_members(self, items: _Communities) -> _Communities:
        """Return the communities with their main members in the place of a missing report."""
        found: _Communities = []
        for ranked, (row, item) in zip(self._communities, items, strict=True):
            if item is None:
                item = self._index.community_members(ranked, self._vector)
                self._uncached.add(row)
            found.append((row, item))
        return found

    async def _bridge_level(self) -> None:
        """Key entities of each community in order, the paths that join them, and the triples on those paths."""
        with self._timed("bridge"):
            index, access = self._index, self._index.access
            chosen = [ranked.community for ranked in self._communities]
            members = key_entity_steps(
                index.communities, chosen, index.vectors, self._vector, self._limits.top_m, access
            )
            named_keys = [] if self._limits.follows_paper else self._names.endpoints(self._vector)
            keys = joined_in_order(named_keys, await self._deadline.run(members))
            rows = [row for row, _ in keys]
            paths = await self._paths_between(rows)
            nodes = np.array(sorted({*rows, *chain.from_iterable(paths)}), np.int64)
            joined = np.array(bridge_relations(index.graph, index.parallel, nodes), np.int64)
            relations = index.visible_relations(joined)
            ranked = self._ranked_triples(relations, nodes, paths)
            if len(named_keys) > 1 and asks_for_paths(self._query.question):
                ranked = along_first(ranked, index.ends, paths[: len(named_keys) - 1])
            ranked = ranked[: self._limits.max_triples]
            self._rows["bridge"] = [row for row, _ in ranked]
            self._seeds.of_relations(ranked)
            if "local" not in self.levels:  # the local level's seeds are the nearest entities of all otherwise
                self._seeds.of_entities(keys)
            self.bridge = index.mapped_bridge(keys, paths) if self.maps_bridge else None
            if self.bridge is not None:
                self.result = replace(self.result, triples=index.triples(ranked))
                return
            named = index.named(nodes.tolist())
            self.result = replace(
                self.result,
                key_entities=index.entities(keys, named),
                paths=index.paths(pairwise(rows), paths, named),
                triples=index.triples(ranked, named),
            )

    async def _paths_between(self, rows: Sequence[int]) -> list[list[int]]:
        """Return a path for each consecutive pair of key entities (Eq. 15)."""
        index = self._index
        components = index.components
        if components is None:
            components = await self._deadline.run_in_thread(index.connect)
        return await self._deadline.run(self._paths.chain_steps(rows, index.access, components))

    def _ranked_triples(self, rows: IntVector, nodes: IntVector, paths: Sequence[Sequence[int]]) -> Scored:
        index = self._index
        ends, weights = index.ends[rows], index.relation_weights(rows)
        closeness = index.similarities(nodes, self._vector)
        stated = nearest_chunks(index.provenance, index.chunk_vectors, rows, self._vector, index.visible_chunks)
        scores = question_scores(ends, nodes, closeness, stated)
        if self._limits.follows_paper:
            return along_first(weight_order(rows, scores, weights), index.ends, paths)
        return question_order(rows, scores, weights)

    async def _ranked_sources(self, limit: int) -> Scored:
        if self._mode == "naive":
            return self._near_chunks
        if set(self.levels) <= set(self.result.partial):
            return []  # sources follow from the levels, and there was time for none
        self._seeds.of_names(self._names.rows)
        self._seeds.of_chunks(self._near_chunks)
        self._seeds.of_words(self._word_chunks)
        return await self._deadline.run_to_end(self._seeds.ranked_steps(limit))

    @property
    def _n_sources(self) -> int:
        """Sources of the result."""
        return self._limits.top_sources if self.levels else max(self._limits.top_sources, self._limits.top_n)

    @property
    def _n_candidates(self) -> int:
        """Number of chunks to rank."""
        return self._n_sources if self._reranker is None else max(self._n_sources, self._limits.rerank_candidates)

    async def _reranked(self, ranked: Scored) -> Scored:
        """Return the sources by the relevance that the reranker gives them; as they are where it does not answer."""
        if self._reranker is None or not ranked:
            return ranked
        limit = self._n_sources
        texts = [self._index.files.chunks.value("text", row) for row, _ in ranked]
        with self._timed("rerank"):
            try:
                async with asyncio.timeout(self._deadline.left_s):
                    scores = await self._reranker.scores(self._query.question, texts)
            except (ModelError, TimeoutError) as error:
                reason = str(error) or "the deadline passed"
                logger.warning("sources are not reranked: %s", reason)
                self.result = replace(self.result, note=f"the sources are not reranked: {reason}")
                return ranked[:limit]
        order = np.argsort(-scores, kind="stable")[:limit].tolist()
        return [(ranked[at][0], float(scores[at])) for at in order]

    def _record_text(self, level: str, position: int, make: MakeText) -> tuple[str, int]:
        if level == "claims":
            return self._texts.uncached(make)
        row = self._rows[level][position]
        if level == "global" and row in self._uncached:
            return self._texts.uncached(make)
        if level not in self._rebuilt:
            self._rebuilt[level] = self._index.rebuilt(level, np.array(self._rows[level], np.int64)).tolist()
        if self._rebuilt[level][position]:
            return self._texts.rebuilt(level, row, make)
        return self._texts.get(level, row, self._index.rendering, make)

    def _end(self) -> None:
        self._times["total"] = (time.perf_counter() - self._started) * 1e3
        self.result = replace(self.result, timings_ms=self._times)

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + (time.perf_counter() - started) * 1e3
