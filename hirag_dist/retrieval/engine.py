"""The online chain: question → vector → three levels → context → answer. No model is called before the answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from copy import copy
from functools import lru_cache
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import ValidationError
from threadpoolctl import threadpool_limits

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.access.labels import AccessRule
from hirag_dist.core.graph.pagerank import personalised_pagerank
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.bridge import bridge_relations, key_entities
from hirag_dist.core.retrieval.triple_ranking import nearest_chunks
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.protocols import AnswerModel, Embedder, VectorIndex
from hirag_dist.retrieval.answer_stream import answer_pieces
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, MapReduceInput, gather, map_parts, nothing
from hirag_dist.retrieval.search import MODES, CooperativeDeadline, RecordTextCache, RetrievalRun
from hirag_dist.storage.access.filtered_index import AccessControlledIndex, FilteredIndex, empty_index_info
from hirag_dist.storage.serving.mapped_index import MappedIndex
from hirag_dist.storage.serving.mmap_files import ReadAhead
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import Answer, IndexInfo, Query, Retrieval

_VIEW_CHARS = 1 << 20  # of records that are remembered for callers who see the same part
_MARKS = 1024  # references and headings, whose tokens are remembered


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
        access_rule: AccessRule = "all",
        tokenizer: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Load a snapshot.

        Args:
            access_rule: a document is in reach of whoever holds all of its labels, or any.
            tokenizer: name of what `count_tokens` counts by: where the snapshot's texts were counted by the same, they
                are not counted again.
            clock: seconds, for deadlines.

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
        self._index = MappedIndex(snapshot, tokenizer)
        self._labelled = AccessControlledIndex(self._index, snapshot, access_rule)
        self._info = snapshot.info()
        self._search = vectors
        self._embedder = embedder
        self._model = model
        self._config = config
        self._prompts = prompts
        self._count = count_tokens
        self._count_marks = lru_cache(_MARKS)(count_tokens)
        self._told = RecordTextCache(count_tokens)
        self._told_views: WeakKeyDictionary[MappedIndex, RecordTextCache] = (
            WeakKeyDictionary()
        )  # who sees a part has own texts
        self._clock = clock
        self._paths = PathFinder(self._index.graph, self._index.connect())
        self._compile()
        self._read_ahead = ReadAhead(self._index.pages())

    def with_settings(self, config: RetrievalConfig) -> QueryEngine:
        """Return an engine with other settings that shares everything with this one, which is the one to close."""
        other = copy(self)
        other._config = config
        return other

    @property
    def info(self) -> IndexInfo:
        """What the snapshot holds."""
        return self._info

    @property
    def question_cache(self) -> tuple[int, int]:
        """How many questions' vectors were remembered, and how many had to be made."""
        return getattr(self._embedder, "hits", 0), getattr(self._embedder, "misses", 0)

    def describe(self, reach: frozenset[str] | None) -> IndexInfo:
        """Return what a caller who holds these labels may know of the snapshot."""
        seen = self._labelled.seen_by(reach)
        if seen is None:
            return empty_index_info(self._info)
        return seen.info(self._info) if isinstance(seen, FilteredIndex) else self._info

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
    ) -> AsyncGenerator[tuple[str, Retrieval]]:
        """Yield (level, what is known so far) as each level is ready, and ("done", everything) at the end."""
        limits, turns = self._limits(query), CooperativeDeadline(self._clock, deadline_s)
        if query.mode in MAP_REDUCE:
            raise InvalidQuery(
                f"mode: {query.mode} reads all there is and answers, it retrieves nothing; ask for an answer, or "
                f"choose another mode: {', '.join(MODES)}"
            )
        seen = self._labelled.seen_by(query.reach, query.labels)
        if seen is None:  # nothing is worth searching
            mode = query.mode or limits.mode
            yield "done", Retrieval(query.question, mode, self._index.snapshot_id, timings_ms={"total": 0.0})
            return
        told = self._told
        if seen is not self._index:
            told = self._told_views.setdefault(seen, RecordTextCache(self._count, _VIEW_CHARS))
        search = RetrievalRun(seen, query, limits, self._paths, self._count_marks, told, turns)
        if not await search.begin(self._embedder, self._search):
            yield "done", search.result
            return
        for level in search.levels:
            if await search.run(level):
                yield level, search.result
        await search.finish()
        yield "done", search.result

    async def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[Retrieval | str | Answer]:
        """Yield the retrieval, the answer's text in pieces, and at last the answer with checked citations.

        In a map-reduce mode what is going to be read comes before the retrieval, as one that holds `map_work` alone.

        Raises:
            TimeoutError: the deadline passed before the answer was complete.
        """
        turns = CooperativeDeadline(self._clock, deadline_s)
        if query.mode in MAP_REDUCE:
            async with _in_time(turns.left_s):
                material = await self.material(query)
            yield material.planned
            async with _in_time(turns.left_s):
                retrieval = await map_parts(material, self._model, self._prompts, self._count)
        else:
            retrieval = await self.retrieve(query, deadline_s=deadline_s)
        yield retrieval
        async with aclosing(answer_pieces(retrieval, self._model, self._prompts, self._count, turns.left_s)) as pieces:
            async for piece in pieces:
                yield piece

    async def material(self, query: Query) -> MapReduceInput:
        """Return what a question in a map-reduce mode is answered from (`map_reduce.map_parts`).

        A query's `context_tokens` makes parts smaller than the configured ones, never larger: all parts together are
        in memory, and who asks does not know what the model can read.

        Raises:
            InvalidQuery: as `retrieve`; the mode is another, or takes more calls than the limit.
        """
        limits = self._limits(query)
        if query.mode not in MAP_REDUCE:
            raise InvalidQuery(f"mode: {query.mode} is no map-reduce; there are: {', '.join(MAP_REDUCE)}")
        part_tokens = min(limits.context_tokens, self._config.context_tokens)
        limits = limits.model_copy(update={"context_tokens": part_tokens})
        seen = self._labelled.seen_by(query.reach, query.labels)
        if seen is None:
            return nothing(query.question, query.mode, self._index.snapshot_id, limits)
        return await asyncio.to_thread(gather, seen, query.question, query.mode, limits, self._count)

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
        self._read_ahead.stop()
        self._search.close()
        await self._model.close()
        close = getattr(self._embedder, "close", None)
        if close is not None:
            await close()

    def _compile(self) -> None:
        """Compile what questions need, or load it, so that the first question does not wait for it.

        It takes most of a minute where nothing was compiled before. What callers with labels need is another form of
        nearly all of it.
        """
        index, query = self._index, np.zeros(self._index.vectors.shape[1], np.float32)
        none = np.zeros(0, np.int64)
        bridge_relations(index.graph, index.parallel, [])
        for seen in (index, self._labelled.any_view()):
            if seen is None:
                continue
            self._search.prepare(seen.admission)
            self._paths.chain([], seen.admission, seen.connect())
            key_entities(
                seen.communities,
                range(min(len(seen.communities.levels), 1)),
                seen.vectors,
                query,
                1,
                seen.admission,
            )
            seen.similarities(none, query)
            nearest_chunks(seen.origins, seen.chunk_vectors, none, query, seen.seen_chunks)
            seen.nearest_chunks(query, 1)
            # Nobody is told, so it may start at what the view hides. Without a start half of it would not be compiled.
            first = np.zeros(min(len(seen.ways.layers), 1), np.int64)
            personalised_pagerank(seen.ways, first, np.ones(len(first)), seen.admission, seen.seen_chunks)

    def _limits(self, query: Query) -> RetrievalConfig:
        if not query.question.strip():
            raise InvalidQuery("question: it is empty")
        if query.mode is not None and query.mode not in (*MODES, *MAP_REDUCE):
            raise InvalidQuery(f"mode: there is no {query.mode!r}; there are: {', '.join((*MODES, *MAP_REDUCE))}")
        dim = self._index.vectors.shape[1]
        if query.vector is not None and query.vector.shape != (dim,):
            raise InvalidQuery(f"vector: {query.vector.size} numbers; this index has {dim} dimensions")
        own = {name: getattr(query, name) for name in ("top_n", "top_m", "top_c", "community_level", "context_tokens")}
        given = {name: value for name, value in own.items() if value is not None}
        if not given:
            return self._config
        try:
            return RetrievalConfig.model_validate(self._config.model_dump() | given)
        except ValidationError as error:
            faults = error.errors(include_url=False, include_input=False)
            raise InvalidQuery("; ".join(f"{fault['loc'][-1]}: {fault['msg']}" for fault in faults)) from None


@asynccontextmanager
async def _in_time(left_s: float | None) -> AsyncIterator[None]:
    """End what the block does when the time is up.

    Raises:
        TimeoutError: it is.
    """
    try:
        async with asyncio.timeout(left_s) as limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeoutError("the deadline passed before every part was read; allow more time") from error
        raise
