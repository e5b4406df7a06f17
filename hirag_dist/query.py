"""The online chain: question → vector → three levels → context → answer. No model is called before the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from hirag_dist.config import Retrieval as RetrievalConfig
from hirag_dist.core.context import UNKNOWN_ANSWER, check_citations, render_context
from hirag_dist.core.paths import PathFinder
from hirag_dist.core.prompts import Prompts, answer_request
from hirag_dist.core.retrieval import (
    RankedCommunity,
    bridge_relations,
    key_entities,
    rank_sources,
    rank_triples,
    ranked_communities,
    top_rows,
)
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.index.loaded import LoadedIndex
from hirag_dist.index.reader import Snapshot
from hirag_dist.ports import AnswerModel, Embedder, VectorIndex
from hirag_dist.types import Answer, IndexInfo, Query, Retrieval

MODES = ("hirag", "local", "global", "bridge", "nobridge", "naive", "flat")
_LEVELS = {
    "hirag": ("local", "global", "bridge"),
    "local": ("local",),
    "global": ("global",),
    "bridge": ("bridge",),
    "nobridge": ("local", "global"),
    "naive": (),
    "flat": ("local",),
}
_COUNTED_TEXTS = 16_384  # records whose token counts are remembered between questions
_DESCENT = 5  # members that stand for a summary entity when its sources are looked for


class QueryEngine:
    """Answers questions over one snapshot. Serves one event loop."""

    def __init__(
        self,
        snapshot: Snapshot,
        vectors: VectorIndex,
        embedder: Embedder,
        model: AnswerModel,
        config: RetrievalConfig,
        prompts: Prompts,
        count_tokens: Callable[[str], int],
    ) -> None:
        """Load a snapshot.

        Raises:
            InvalidQuery: the embedder is not the one that the index was built with.
        """
        built = snapshot.manifest
        if (embedder.name, embedder.dim) != (built.embedder, built.dim):
            raise InvalidQuery(
                f"the index was built with embedder {built.embedder} of {built.dim} dimensions, and {embedder.name} of "
                f"{embedder.dim} is configured; set llm.roles.embed to the one it was built with"
            )
        threadpool_limits(1)  # a question's products are too small to be worth waking other threads for
        self._index = LoadedIndex(snapshot)
        self._info = snapshot.info()
        self._search = vectors
        self._embedder = embedder
        self._model = model
        self._config = config
        self._prompts = prompts
        self._count = lru_cache(_COUNTED_TEXTS)(count_tokens)
        self._paths = PathFinder(self._index.graph)
        bridge_relations(self._index.graph, self._index.parallel, [])  # compiled now, not during the first question

    @property
    def info(self) -> IndexInfo:
        """What the snapshot holds."""
        return self._info

    async def retrieve(self, query: Query, *, deadline_s: float | None = None) -> Retrieval:
        """Return all levels of the query's mode.

        Args:
            deadline_s: seconds left; levels that do not fit are left out and named in `partial`.

        Raises:
            InvalidQuery: an empty question, an unknown mode, a number out of bounds, a vector of the wrong size.
        """
        result = Retrieval(query.question, query.mode or self._config.mode, self._index.snapshot_id)
        async for _, found in self.retrieve_stream(query, deadline_s=deadline_s):
            result = found
        return result

    async def retrieve_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncIterator[tuple[str, Retrieval]]:
        """Yield (level, what is known so far) as each level is ready, and ("done", everything) at the end."""
        search = _Search(self._index, query, self._limits(query), self._paths, self._count)
        give_up_at = None if deadline_s is None else time.monotonic() + deadline_s
        await search.begin(self._embedder, self._search)
        for level in search.levels:
            if give_up_at is not None and time.monotonic() > give_up_at:
                search.cut(level)
                continue
            search.run(level)
            yield level, search.result
            await asyncio.sleep(0)  # let other callers in
        search.finish()
        yield "done", search.result

    async def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncIterator[Retrieval | str | Answer]:
        """Yield the retrieval, the answer's text in pieces, and at last the answer with checked citations."""
        retrieval = await self.retrieve(query, deadline_s=deadline_s)
        yield retrieval
        if not retrieval.context_refs:  # nothing fits: no call is worth making
            yield UNKNOWN_ANSWER
            yield Answer(UNKNOWN_ANSWER, (), 0, retrieval)
            return
        request = answer_request(query.question, retrieval.context, self._prompts)
        pieces = []
        async for piece in self._model.stream(request):
            pieces.append(piece)
            yield piece
        text, citations, dropped = check_citations("".join(pieces), retrieval)
        asked = sum(self._count(message.content) for message in request.messages)
        yield Answer(text, citations, dropped, retrieval, self._model.model_name(request), asked, self._count(text))

    async def answer(self, query: Query, *, deadline_s: float | None = None) -> Answer:
        """Return the answer with its citations."""
        last: Retrieval | str | Answer = ""
        async for item in self.answer_stream(query, deadline_s=deadline_s):
            last = item
        if not isinstance(last, Answer):
            raise HiragError("the answer ended before it was complete; ask again")
        return last

    async def close(self) -> None:
        """Let go of files and connections."""
        self._search.close()
        await self._model.close()
        close = getattr(self._embedder, "close", None)
        if close is not None:
            await close()

    def _limits(self, query: Query) -> RetrievalConfig:
        if not query.question.strip():
            raise InvalidQuery("question: it is empty")
        if query.mode is not None and query.mode not in MODES:
            raise InvalidQuery(f"mode: there is no {query.mode!r}; there are: {', '.join(MODES)}")
        dim = self._index.vectors.shape[1]
        if query.vector is not None and query.vector.shape != (dim,):
            raise InvalidQuery(f"vector: {query.vector.size} numbers; this index has {dim} dimensions")
        own = {name: getattr(query, name) for name in ("top_n", "top_m", "top_c", "community_level", "context_tokens")}
        given = {name: value for name, value in own.items() if value is not None}
        try:
            return RetrievalConfig.model_validate(self._config.model_dump() | given)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            raise InvalidQuery("; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in faults)) from None


class _Search:
    """One question on its way through the levels."""

    def __init__(
        self, index: LoadedIndex, query: Query, limits: RetrievalConfig, paths: PathFinder, count: Callable[[str], int]
    ) -> None:
        self._index = index
        self._query = query
        self._limits = limits
        self._paths = paths
        self._count = count
        self._started = time.perf_counter()
        self._times: dict[str, float] = {}
        self._vector: NDArray[np.float32] = np.zeros(0, np.float32)
        self._rows: NDArray[np.int64] = np.zeros(0, np.int64)
        self._scores: NDArray[np.float32] = np.zeros(0, np.float32)
        self._ranked: list[RankedCommunity] = []
        self._votes: dict[int, float] = {}
        self._mode = query.mode or limits.mode
        self.levels = _LEVELS[self._mode]
        self.result = Retrieval(query.question, self._mode, index.snapshot_id)

    async def begin(self, embedder: Embedder, vectors: VectorIndex) -> None:
        """Embed the question and find the entities that every level starts from (Eq. 12)."""
        with self._timed("embed"):
            if self._query.vector is not None:
                given = self._query.vector.astype(np.float64)  # its length may be beyond float32
                norm = float(np.linalg.norm(given))
                self._vector = np.asarray(given / norm if norm else given, np.float32)
            else:
                self._vector = (await embedder.embed([self._query.question]))[0]
        if self.levels:
            with self._timed("search"):
                top_layer = 0 if self._mode == "flat" else None
                search = partial(vectors.search, self._vector, self._limits.top_n, top_layer)
                self._rows, self._scores = await asyncio.to_thread(search) if vectors.waits else search()
        if "global" in self.levels or "bridge" in self.levels:
            with self._timed("communities"):
                self._ranked = ranked_communities(
                    self._index.communities,
                    self._rows,
                    self._scores,
                    self._limits.community_level,
                    self._limits.top_c,
                )

    def run(self, level: str) -> None:
        """Add a level to the result."""
        {"local": self._local, "global": self._global, "bridge": self._bridge}[level]()

    def cut(self, level: str) -> None:
        """Leave a level out: there is no time for it."""
        self.result = replace(self.result, partial=(*self.result.partial, level))

    def finish(self) -> None:
        """Add the sources and render the context."""
        with self._timed("sources"):
            self._sources()
        with self._timed("render"):
            self.result = render_context(self.result, self._limits.context_tokens, self._count)
        self._times["total"] = (time.perf_counter() - self._started) * 1e3
        self.result = replace(self.result, timings_ms=self._times)

    def _local(self) -> None:
        pairs = list(zip(self._rows.tolist(), self._scores.tolist(), strict=True))
        self._vote(pairs)
        self.result = replace(self.result, local=self._index.entities(pairs))

    def _global(self) -> None:
        with self._timed("communities"):
            items = [self._index.community(ranked) for ranked in self._ranked]
            if "local" not in self.levels:  # else they have voted
                self._vote(list(zip(self._rows.tolist(), self._scores.tolist(), strict=True)))
            self.result = replace(self.result, communities=tuple(item for item in items if item is not None))

    def _bridge(self) -> None:
        """Key entities of each community in order, the paths that join them, and the triples on those paths."""
        with self._timed("bridge"):
            index = self._index
            chosen = [ranked.community for ranked in self._ranked]
            keys = key_entities(index.communities, chosen, index.vectors, self._vector, self._limits.top_m)
            rows = [row for row, _ in keys]
            paths = self._paths.chain(rows)
            nodes = sorted({node for path in paths for node in path} | set(rows))
            relations = bridge_relations(index.graph, index.parallel, nodes)
            closeness = index.vectors[nodes] @ self._vector if nodes else np.zeros(0, np.float32)
            similarity = dict(zip(nodes, closeness.tolist(), strict=True))
            ranked = rank_triples(index.ends[relations], index.weights[relations], similarity, relations)
            ranked = ranked[: self._limits.max_triples]
            for row, score in ranked:
                self._vote_for(index.relation_chunks(row), score)
            self._vote(keys)
            self.result = replace(
                self.result,
                key_entities=index.entities(keys),
                paths=index.paths(pairwise(rows), paths),
                triples=index.triples(ranked),
            )

    def _sources(self) -> None:
        limit = self._limits.top_sources
        vectors = self._index.chunk_vectors
        if self._mode == "naive":
            scores = np.asarray(vectors @ self._vector, np.float32)
            best = top_rows(scores, np.arange(len(scores)), max(limit, self._limits.top_n))
            ranked = [(int(row), float(scores[row])) for row in best.tolist()]
        else:
            ranked = rank_sources(self._votes, vectors, self._vector, limit)
        self.result = replace(self.result, sources=self._index.sources(ranked))

    def _vote(self, entities: Sequence[tuple[int, float]]) -> None:
        """Let entities vote for their chunks; a summary entity votes through its members nearest to the question."""
        index = self._index
        waiting = list(entities)
        while waiting:
            row, score = waiting.pop()
            if index.layers[row] == 0:
                self._vote_for(index.entity_chunks(row), score)
                continue
            below = index.members_below(row)
            scores = np.asarray(index.vectors[below] @ self._vector, np.float32)
            for at in top_rows(scores, below, _DESCENT).tolist():
                waiting.append((int(below[at]), min(score, float(scores[at]))))

    def _vote_for(self, chunks: Sequence[int], score: float) -> None:
        for chunk in chunks:
            self._votes[chunk] = self._votes.get(chunk, 0.0) + max(score, 0.0) / len(chunks) ** 0.5

    @contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        started = time.perf_counter()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + (time.perf_counter() - started) * 1e3
