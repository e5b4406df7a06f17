"""Query engine: question → vector → three levels → context → answer. No model is called before the answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.errors import HiragError, InvalidQuery
from hirag_dist.retrieval.answer_stream import answer_pieces
from hirag_dist.retrieval.deadline import CooperativeDeadline, in_time, lookup_in_time, nothing_in_time
from hirag_dist.retrieval.engine_resources import EngineResources
from hirag_dist.retrieval.lookup.entities import (
    community_details,
    document_part,
    entity_details,
    find_community,
    find_document,
    path_details,
)
from hirag_dist.retrieval.lookup.names import find_entity
from hirag_dist.retrieval.map_reduce import MAP_REDUCE, MapReduceInput, gather, map_parts
from hirag_dist.retrieval.question_embedding import QuestionEmbedder
from hirag_dist.retrieval.search import MODES, retrieve_levels
from hirag_dist.retrieval.view.filtered_index import FilteredIndex, empty_index_info
from hirag_dist.types import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    AccessScope,
    Answer,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    IndexInfo,
    PathDetails,
    Query,
    Retrieval,
)

T = TypeVar("T")
EVERYTHING = AccessScope()
_MAX_ITEMS = 1000  # relations, sources or members of a look-up
_MAX_CHARS = 1_000_000  # of a document in one look-up
_NOTHING_VISIBLE = "no document has the labels and meets the filter and the date of this question"


class QueryEngine:
    """Answers questions over one snapshot, on one event loop."""

    def __init__(self, resources: EngineResources, config: RetrievalConfig) -> None:
        """Combine loaded resources, which several engines may share, with settings."""
        self._resources = resources
        self._config = config

    def with_settings(self, config: RetrievalConfig) -> QueryEngine:
        """Return an engine with other settings that shares everything with this one, which is the one to close."""
        return QueryEngine(self._resources, config)

    @property
    def info(self) -> IndexInfo:
        """Statistics of the snapshot."""
        return self._resources.info

    @property
    def question_cache(self) -> tuple[int, int]:
        """(hits, misses) of the cache of question vectors; zeros for an embedder without a cache."""
        embedder = self._resources.embedder
        return (embedder.hits, embedder.misses) if isinstance(embedder, QuestionEmbedder) else (0, 0)

    def describe(self, reach: frozenset[str] | None, expression: str = "", as_of: str = "") -> IndexInfo:
        """Return the statistics of the documents that a caller may see and that meet a filter and a date.

        Raises:
            InvalidQuery: the index has no such field, or the filter is no expression.
        """
        parsed = self._resources.filter_of(expression, as_of)
        view = self._resources.views.view_for(reach, (), parsed)
        if view is None:
            return empty_index_info(self.info)
        info = view.info(self.info) if isinstance(view, FilteredIndex) else self.info
        entities, titles = self._resources.examples_of(view)
        return replace(info, main_entities=entities, example_titles=titles)

    async def retrieve(self, query: Query, *, deadline_s: float | None = None, for_model: bool = False) -> Retrieval:
        """Return all levels of the query's mode.

        Args:
            deadline_s: seconds left; levels that do not fit are left out and named in `partial`.
            for_model: Whether the context is cut to the window of the model that answers.

        Raises:
            InvalidQuery: an empty question, an unknown mode, a number out of bounds, a vector of the wrong size.
        """
        return [found async for _, found in self._levels(query, deadline_s, for_model=for_model)][-1]

    async def retrieve_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[tuple[str, Retrieval]]:
        """Yield (level, the result so far) as each level is ready, and ("done", the whole result) at the end."""
        async with aclosing(self._levels(query, deadline_s)) as levels:
            async for level, found in levels:
                yield level, found

    async def _levels(
        self, query: Query, deadline_s: float | None, *, for_model: bool = False
    ) -> AsyncGenerator[tuple[str, Retrieval]]:
        """Yield (level, the result so far), as `retrieve_stream`; `for_model`: as `retrieve`."""
        resources, limits = self._resources, self._limits(query)
        if for_model:
            limits = resources.answer_window.cut(limits, query.question)
        deadline = self._deadline(deadline_s)
        if query.mode in MAP_REDUCE:
            raise InvalidQuery(
                f"mode: {query.mode} reads all there is and answers, it retrieves nothing; ask for an answer, or "
                f"choose another mode: {', '.join(MODES)}"
            )
        mode = query.mode or limits.mode
        view = await resources.view_of(query)
        if view is None:  # no document is visible
            found = Retrieval(query.question, mode, self.info.snapshot_id, timings_ms={"total": 0})
            yield "done", replace(found, note=_NOTHING_VISIBLE)
            return
        async with aclosing(retrieve_levels(resources, view, query, limits, deadline)) as steps:
            async for level, so_far in steps:
                yield level, so_far.result

    async def answer_stream(
        self, query: Query, *, deadline_s: float | None = None
    ) -> AsyncGenerator[Retrieval | str | Answer]:
        """Yield the retrieval, the answer's text in pieces, and at last the answer with checked citations.

        In a map-reduce mode, a retrieval with only `map_work` comes first: the calls that are going to be made.

        Raises:
            TimeoutError: the deadline passed before anything was found, or before the answer was complete.
        """
        resources = self._resources
        query = replace(query, question=resources.answer_window.shortened(query.question))
        deadline = self._deadline(deadline_s)
        if query.mode in MAP_REDUCE:
            async with in_time(deadline.left_s):
                material = await self.material(query)
            yield material.planned
            async with in_time(deadline.left_s):
                retrieval = await map_parts(material, resources.model, resources.prompts, resources.count_tokens)
        else:
            retrieval = await self.retrieve(query, deadline_s=deadline_s, for_model=True)
            if retrieval.partial and not retrieval.context_refs:
                raise TimeoutError(nothing_in_time(retrieval))
        yield retrieval
        answering = answer_pieces(
            retrieval,
            resources.model,
            resources.prompts,
            resources.count_tokens,
            deadline.left_s,
            resources.index.quoted,
        )
        async with aclosing(answering) as pieces:
            async for piece in pieces:
                yield piece

    async def material(self, query: Query) -> MapReduceInput:
        """Return the input of a question in a map-reduce mode (`map_reduce.map_parts`).

        A query's `context_tokens` makes parts smaller than the configured ones, never larger: all parts together are
        in memory, and the caller does not know how much the model can read.

        Raises:
            InvalidQuery: as `retrieve`; the mode is another, or takes more calls than the limit.
        """
        limits = self._limits(query)
        if query.mode not in MAP_REDUCE:
            raise InvalidQuery(f"mode: {query.mode} is no map-reduce; there are: {', '.join(MAP_REDUCE)}")
        part_tokens = min(limits.context_tokens, self._config.context_tokens)
        resources = self._resources
        limits = limits.model_copy(update={"context_tokens": part_tokens})
        limits = resources.answer_window.cut_parts(limits, query.question)
        reply_tokens = resources.answer_window.part_reply_tokens
        view = await resources.view_of(query)
        if view is None:
            snapshot_id = resources.index.snapshot_id
            return MapReduceInput(query.question, query.mode, snapshot_id, (), {}, limits.context_tokens, 0, 0.0)
        count = resources.count_tokens
        return await asyncio.to_thread(gather, view, query.question, query.mode, limits, reply_tokens, count)

    async def answer(self, query: Query, *, deadline_s: float | None = None) -> Answer:
        """Return the answer with its citations."""
        last: Retrieval | str | Answer = ""
        async for item in self.answer_stream(query, deadline_s=deadline_s):
            last = item
        if not isinstance(last, Answer):
            raise HiragError("the answer ended before it was complete; ask again")
        return last

    async def get_entity(
        self,
        entity: str,
        *,
        max_relations: int = DEFAULT_RELATIONS,
        max_sources: int = DEFAULT_SOURCES,
        scope: AccessScope = EVERYTHING,
        deadline_s: float | None = None,
    ) -> EntityDetails:
        """Return an entity with its relations, its place in the hierarchy and its sources.

        Args:
            entity: id or name; of several layers that have the name, the lowest. Words of one name alone are enough.
            max_relations, max_sources: limits, 1 to 1000.

        Raises:
            NotFound: there is no such entity in the scope.
            InvalidQuery: a limit is out of bounds.
            TimeoutError: the deadline passed.
        """
        _check_bounds("max_relations", max_relations, 1, _MAX_ITEMS)
        _check_bounds("max_sources", max_sources, 1, _MAX_ITEMS)
        view, tables = await self._resources.view_of(scope), self._resources.lookups

        def work() -> EntityDetails:
            seen, row, note = find_entity(view, tables, entity)
            return entity_details(seen, tables, row, max_relations, max_sources, note)

        return await lookup_in_time(self._deadline(deadline_s).run_in_thread(work))

    async def find_path(
        self, source: str, target: str, *, scope: AccessScope = EVERYTHING, deadline_s: float | None = None
    ) -> PathDetails:
        """Return a shortest path between two entities (Eq. 15-16); arguments and errors as `get_entity`."""
        steps = path_details(
            await self._resources.view_of(scope),
            self._resources.lookups,
            self._resources.paths,
            source,
            target,
            self._deadline(deadline_s),
        )
        return await lookup_in_time(steps)

    async def get_community(
        self,
        community_id: str,
        *,
        max_members: int = DEFAULT_MEMBERS,
        scope: AccessScope = EVERYTHING,
        deadline_s: float | None = None,
    ) -> CommunityDetails:
        """Return a community with its report and members; arguments and errors as `get_entity`."""
        _check_bounds("max_members", max_members, 1, _MAX_ITEMS)
        view, tables = await self._resources.view_of(scope), self._resources.lookups

        def work() -> CommunityDetails:
            seen, row = find_community(view, tables, community_id)
            return community_details(seen, row, max_members, self._resources.misses_reports)

        return await lookup_in_time(self._deadline(deadline_s).run_in_thread(work))

    async def get_document(
        self,
        document_id: str,
        *,
        start: int = 0,
        max_chars: int = DEFAULT_CHARS,
        scope: AccessScope = EVERYTHING,
        deadline_s: float | None = None,
    ) -> DocumentPart:
        """Return a part of a document's text.

        Args:
            document_id: of the document, or of a chunk of it.
            start: first character.
            max_chars: limit, at most a million.

        Raises:
            NotFound: there is no such document in the scope.
            InvalidQuery: a limit is out of bounds.
            StoreError: the text cannot be read.
            TimeoutError: the deadline passed.
        """
        _check_bounds("start", start, 0, None)
        _check_bounds("max_chars", max_chars, 1, _MAX_CHARS)
        view, tables = await self._resources.view_of(scope), self._resources.lookups

        def work() -> DocumentPart:
            seen, row = find_document(view, tables, document_id)
            return document_part(seen, tables, row, start, max_chars)

        return await lookup_in_time(self._deadline(deadline_s).run_in_thread(work))

    async def close(self) -> None:
        """Release files and connections."""
        await self._resources.close()

    def _deadline(self, deadline_s: float | None) -> CooperativeDeadline:
        return CooperativeDeadline(self._resources.clock, deadline_s)

    def _limits(self, query: Query) -> RetrievalConfig:
        if not query.question.strip():
            raise InvalidQuery("question: it is empty")
        if query.mode is not None and query.mode not in (*MODES, *MAP_REDUCE):
            raise InvalidQuery(f"mode: there is no {query.mode!r}; there are: {', '.join((*MODES, *MAP_REDUCE))}")
        dim = self._resources.index.vectors.shape[1]
        if query.vector is not None and np.shape(query.vector) != (dim,):
            raise InvalidQuery(f"vector: {np.size(query.vector)} numbers; this index has {dim} dimensions")
        requested = {
            name: getattr(query, name) for name in ("top_n", "top_m", "top_c", "community_level", "context_tokens")
        }
        given = {name: value for name, value in requested.items() if value is not None}
        if not given:
            return self._config
        try:
            return RetrievalConfig.model_validate(self._config.model_dump() | given)
        except ValidationError as error:
            names = [str(fault["loc"][-1]) for fault in error.errors(include_url=False)]
            faults = [f"{name} must be {_allowed(name)}, got {given[name]}" for name in names]
            raise InvalidQuery("; ".join(faults)) from None


def _allowed(name: str) -> str:
    """Return the values that a limit of a query may have: those of its key in the configuration.

    >>> _allowed("top_n"), _allowed("context_tokens")
    ('between 1 and 1000', 'at least 200')
    """
    if name == "community_level":
        return "leaf, all, or a level's number"
    limits = RetrievalConfig.model_json_schema()["properties"][name]
    return _between(limits["minimum"], limits.get("maximum"))


def _check_bounds(name: str, value: int, low: int, high: int | None) -> None:
    if value < low or (high is not None and value > high):
        raise InvalidQuery(f"{name} must be {_between(low, high)}, got {value}")


def _between(low: int, high: int | None) -> str:
    return f"at least {low}" if high is None else f"between {low} and {high}"
