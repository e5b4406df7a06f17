"""One question on its way through the levels: what is found in the index, a level at a time, while there is time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.cooperative import Steps
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.retrieval.bridge import bridge_relations, key_entity_steps
from hirag_dist.core.retrieval.context import render_context
from hirag_dist.core.retrieval.graphrag_local import community_order, relation_order, relations_at, text_order
from hirag_dist.core.retrieval.levels import RankedCommunity, ranked_communities
from hirag_dist.core.retrieval.source_ranking import NEAREST, SeedSet
from hirag_dist.core.retrieval.triple_ranking import nearest_chunks, path_order, question_order, question_scores
from hirag_dist.core.retrieval.vector_scoring import AT_ONCE
from hirag_dist.protocols import Embedder, VectorIndex
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.types import IntVector, Query, Retrieval

MODES = ("hirag", "local", "global", "bridge", "nobridge", "naive", "flat", "graphrag-local")
_LEVELS = {
    "hirag": ("local", "global", "bridge"),
    "local": ("local",),
    "global": ("global",),
    "bridge": ("bridge",),
    "nobridge": ("local", "global"),
    "naive": (),
    "flat": ("local",),
    "graphrag-local": ("local", "global", "bridge"),
}
_CLAIMS = 100  # about the local entities, at most
_LAYER_0 = ("flat", "graphrag-local")  # modes that know no other
_TURN_S = 0.002  # that a question works before others get in

T = TypeVar("T")


class RecordTextCache:
    """Records as contexts hold them, with their tokens, remembered between questions up to so many characters."""

    def __init__(self, count: Callable[[str], int], max_chars: int = 16 << 20) -> None:
        """Remember nothing yet.

        Args:
            count: tokens of a text.
            max_chars: of all texts together; the oldest go first.
        """
        self._count = count
        self._max_chars = max_chars
        self._chars = 0
        self._kept: dict[tuple[str, int], tuple[str, int]] = {}

    def once(self, make: Callable[[], str]) -> tuple[str, int]:
        """Return the text and tokens of a record that is not remembered: others are told otherwise, or few ask."""
        text = make()
        return text, self._count(text)

    def of(self, level: str, row: int, tokens: int, make: Callable[[], str]) -> tuple[str, int]:
        """Return a record's text and tokens.

        Args:
            level: and row: what record it is.
            tokens: of its text, 0 where they are not known.
            make: makes the text.
        """
        key = (level, row)
        found = self._kept.get(key)
        if found is None:
            text = make()
            found = self._kept[key] = text, tokens or self._count(text)
            self._chars += len(text)
            while self._chars > self._max_chars:
                oldest, _ = self._kept.pop(next(iter(self._kept)))
                self._chars -= len(oldest)
        return found


class _DeadlineExceeded(Exception):
    """There is no time left for the work at hand."""


class CooperativeDeadline:
    """Lets others in between the steps of a question's work, and knows when its time is up."""

    def __init__(self, clock: Callable[[], float], deadline_s: float | None) -> None:
        self._clock = clock
        self._since = clock()
        self._give_up_at = None if deadline_s is None else self._since + deadline_s

    @property
    def left_s(self) -> float | None:
        """Seconds left, None for any."""
        return None if self._give_up_at is None else max(self._give_up_at - self._clock(), 0.0)

    async def next(self) -> None:
        """Let others in where this question has been at it for long.

        Raises:
            _Late: the deadline has passed.
        """
        await self._let_in()
        if self._give_up_at is not None and self._clock() > self._give_up_at:
            raise _DeadlineExceeded

    async def apart(self, work: Callable[[], T]) -> T:
        """Do work in a thread, which goes on where nobody waits for it any more.

        Raises:
            _Late: the deadline passed before it was done.
        """
        try:
            async with asyncio.timeout(self.left_s):
                return await asyncio.to_thread(work)
        except TimeoutError:
            raise _DeadlineExceeded from None

    async def work(self, steps: Steps[T]) -> T:
        """Do long work in turns.

        Raises:
            _Late: the deadline passed before it was done.
        """
        return await self._work(steps, self.next)

    async def finish(self, steps: Steps[T]) -> T:
        """Do work of bounded length in turns, also where the deadline has passed."""
        return await self._work(steps, self._let_in)

    async def _work(self, steps: Steps[T], between: Callable[[], Awaitable[None]]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            await between()

    async def _let_in(self) -> None:
        if self._clock() - self._since > _TURN_S:
            await asyncio.sleep(0)
            self._since = self._clock()


class RetrievalRun:
    """One question on its way through the levels."""

    def __init__(
        self,
        index: MappedIndex,
        query: Query,
        limits: RetrievalConfig,
        paths: PathFinder,
        count: Callable[[str], int],
        told: RecordTextCache,
        turns: CooperativeDeadline,
    ) -> None:
        self._index = index
        self._query = query
        self._limits = limits
        self._paths = paths
        self._count = count
        self._told = told
        self._turns = turns
        self._started = time.perf_counter()
        self._times: dict[str, float] = {}
        self._vector: NDArray[np.float32] = np.zeros(0, np.float32)
        self._found: dict[str, list[int]] = {}  # rows of what is in the result, by the context's levels
        self._local_scored: list[tuple[int, float]] = []
        self._near_chunks: list[tuple[int, float]] = []
        self._ranked: list[RankedCommunity] = []
        self._related = np.zeros(0, np.int64), np.zeros((0, 2), np.int32)  # relations of local entities, their ends
        self._mode = query.mode or limits.mode
        self.levels = _LEVELS[self._mode]
        self.result = Retrieval(query.question, self._mode, index.snapshot_id)

    async def begin(self, embedder: Embedder, vectors: VectorIndex) -> bool:
        """Embed the question and find the entities that every level starts from (Eq. 12).

        Returns:
            Whether there was time for it; else all levels are named in the result's `partial`.
        """
        try:
            async with asyncio.timeout(self._turns.left_s):
                await self._find_local(embedder, vectors)
        except TimeoutError:
            self.result = replace(self.result, partial=self.levels or ("sources",))
            self._end()
            return False
        return True

    async def run(self, level: str) -> bool:
        """Add a level to the result; return False where there was no time for it, and say so in `partial`."""
        try:
            await self._turns.next()
            bridge = self._relations if self._mode == "graphrag-local" else self._bridge
            await {"local": self._local, "global": self._global, "bridge": bridge}[level]()
        except _DeadlineExceeded:
            self.result = replace(self.result, partial=(*self.result.partial, level))
            return False
        return True

    async def finish(self) -> None:
        """Add the sources and render the context, whether there is time for it or not."""
        with self._timed("sources"):
            await self._sources()
        with self._timed("render"):
            self.result = render_context(self.result, self._limits.context_tokens, self._count, self._tell)
        self._end()

    def _tell(self, level: str, place: int, make: Callable[[], str]) -> tuple[str, int]:
        if level == "claims":
            return self._told.once(make)
        row = self._found[level][place]
        if self._index.tells_anew(level, row):
            return self._told.once(make)
        return self._told.of(level, row, self._index.tokens(level, row), make)

    def _end(self) -> None:
        self._times["total"] = (time.perf_counter() - self._started) * 1e3
        self.result = replace(self.result, timings_ms=self._times)

    async def _find_local(self, embedder: Embedder, vectors: VectorIndex) -> None:
        index = self._index
        with self._timed("embed"):
            if self._query.vector is not None:
                given = self._query.vector.astype(np.float64)  # its length may be beyond float32
                norm = float(np.linalg.norm(given))
                self._vector = np.asarray(given / norm if norm else given, np.float32)
            else:
                self._vector = (await embedder.embed([self._query.question]))[0]
        self._starts = SeedSet(index.ways, index.origins, index.seen_chunks, index.admission)
        with self._timed("search"):
            if not self.levels:
                await self._find_chunks(max(self._limits.top_sources, self._limits.top_n))
                return
            if self._limits.source_fusion and self._mode != "graphrag-local":
                await self._find_chunks(NEAREST)
            top_layer = 0 if self._mode in _LAYER_0 else None
            rows, scores = await vectors.search(self._vector, self._limits.top_n, top_layer, index.admission)
            self._local_scored = list(zip(rows.tolist(), scores.tolist(), strict=True))
        if "global" in self.levels or "bridge" in self.levels:
            with self._timed("communities"):
                level, limit = self._limits.community_level, self._limits.top_c
                if self._mode == "graphrag-local":
                    every = ranked_communities(index.communities, rows, scores, level, len(index.communities.levels))
                    self._ranked = community_order(index.communities, every)[:limit]
                else:
                    self._ranked = ranked_communities(index.communities, rows, scores, level, limit)

    async def _find_chunks(self, limit: int) -> None:
        index = self._index
        search = partial(index.nearest_chunks, self._vector, limit)
        rows, scores = await asyncio.to_thread(search) if len(index.chunk_vectors) > AT_ONCE else search()
        self._near_chunks = list(zip(rows.tolist(), scores.tolist(), strict=True))

    async def _local(self) -> None:
        self._starts.of_entities(self._local_scored)
        self._found["local"] = [row for row, _ in self._local_scored]
        claims = self._index.claims_about(self._found["local"], _CLAIMS) if self._mode == "graphrag-local" else ()
        self.result = replace(self.result, local=self._index.entities(self._local_scored), claims=claims)

    async def _global(self) -> None:
        with self._timed("communities"):
            items = [(ranked.community, self._index.community(ranked)) for ranked in self._ranked]
            found = {community: item for community, item in items if item is not None}
            if "local" not in self.levels:  # else the sources start from them already
                self._starts.of_entities(self._local_scored)
            self.result = replace(self.result, communities=tuple(found.values()))
            self._found["global"] = list(found)

    async def _bridge(self) -> None:
        """Key entities of each community in order, the paths that join them, and the triples on those paths."""
        with self._timed("bridge"):
            index, work = self._index, self._turns.work
            chosen = [ranked.community for ranked in self._ranked]
            limit, admission = self._limits.top_m, index.admission
            members = key_entity_steps(index.communities, chosen, index.vectors, self._vector, limit, admission)
            keys = await work(members)
            rows = [row for row, _ in keys]
            components = index.components
            if components is None:
                components = await self._turns.apart(index.connect)
            paths = await work(self._paths.chain_steps(rows, admission, components))
            nodes = sorted({node for path in paths for node in path} | set(rows))
            joined = np.array(bridge_relations(index.graph, index.parallel, nodes), np.int64)
            relations = index.known_relations(joined)
            ranked = self._ranked_triples(relations, np.array(nodes, np.int64), paths)[: self._limits.max_triples]
            self._found["bridge"] = [row for row, _ in ranked]
            self._starts.of_relations(ranked)
            if "local" not in self.levels:  # else the nearest of them are known: they are the nearest of all
                self._starts.of_entities(keys)
            named = index.named(nodes)
            self.result = replace(
                self.result,
                key_entities=index.entities(keys, named),
                paths=index.paths(pairwise(rows), paths, named),
                triples=index.triples(ranked, named),
            )

    async def _relations(self) -> None:
        """The relations of the local entities, as GraphRAG's local search ranks them."""
        with self._timed("bridge"):
            index, entities = self._index, [row for row, _ in self._local_scored]
            at = await self._turns.work(relations_at(index.graph, index.parallel, index.layers, entities))

            def related() -> tuple[IntVector, NDArray[np.int32], list[tuple[int, float]]]:
                rows = index.known_relations(at)
                ends, weights = index.ends[rows], index.relation_weights(rows)
                told = relation_order(rows, ends, weights, entities)[: self._limits.max_triples]
                return rows, ends, list(zip(rows[told].tolist(), weights[told].tolist(), strict=True))

            rows, ends, ranked = await self._turns.apart(related)  # a hub has many
            self._related = rows, ends
            self._found["bridge"] = [row for row, _ in ranked]
            self.result = replace(self.result, triples=index.triples(ranked))

    def _ranked_triples(
        self, rows: IntVector, nodes: IntVector, paths: Sequence[Sequence[int]]
    ) -> list[tuple[int, float]]:
        index = self._index
        ends, weights = index.ends[rows], index.relation_weights(rows)
        closeness = index.similarities(nodes, self._vector)
        stated = nearest_chunks(index.origins, index.chunk_vectors, rows, self._vector, index.seen_chunks)
        scores = question_scores(ends, nodes, closeness, stated)
        if self._limits.bridge_ranking == "question":
            return question_order(rows, scores, weights)
        return path_order(rows, scores, weights, ends, paths)

    async def _sources(self) -> None:
        index, limit = self._index, self._limits.top_sources
        if self._mode == "graphrag-local":
            entities = [row for row, _ in self._local_scored]
            order = text_order(index.ways, index.origins, entities, *self._related, index.seen_chunks, limit)
            texts = await self._turns.finish(order)
            ranked = [(row, 1.0 / place) for place, row in enumerate(texts, 1)]
        elif self._mode == "naive":
            ranked = self._near_chunks
        elif set(self.levels) <= set(self.result.partial):
            ranked = []  # they are what is behind the levels, of which there was time for none
        else:
            self._starts.of_names(index.named_in(self._query.question))
            self._starts.of_chunks(self._near_chunks)
            ranked = await self._turns.finish(self._starts.ranked_steps(limit))
        self._found["sources"] = [row for row, _ in ranked]
        self.result = replace(self.result, sources=index.sources(ranked))

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + (time.perf_counter() - started) * 1e3
