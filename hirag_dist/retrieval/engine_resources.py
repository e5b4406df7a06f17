"""Resources of a query engine: a mapped snapshot, its views by caller, models and caches, loaded once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from threadpoolctl import threadpool_limits

from hirag_dist.core.access import AccessRule
from hirag_dist.core.arrays import all_at_once
from hirag_dist.core.graph.pagerank import pagerank_steps
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.metadata.columns import facets
from hirag_dist.core.metadata.fields import And, Expression
from hirag_dist.core.metadata.parsing import FilterError, as_of_filter, parse_filter
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.core.retrieval.bridge import bridge_relations, key_entity_steps, nearest_chunks, question_scores
from hirag_dist.core.retrieval.context import UNKNOWN_FORM, MakeText
from hirag_dist.errors import InvalidQuery
from hirag_dist.protocols import AnswerModel, Closable, Embedder, Reranker, VectorIndex
from hirag_dist.retrieval.answer_stream import AnswerWindow
from hirag_dist.retrieval.lookup.entities import examples
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.filtered_index import AccessControlledIndex
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.serving.mmap_files import ReadAhead
from hirag_dist.storage.snapshot.reader import HashCheck, Snapshot
from hirag_dist.types import AccessScope, Query

Rendering = Callable[[str, int], tuple[int, int]]  # (level, row) → tokens of a stored text, 0: unknown; its form


class RecordTextCache:
    """Texts of records and their tokens, up to a number of characters; the oldest are removed first.

    Attributes:
        stored: the cache of the records that are the same in all views; by default this one.
    """

    def __init__(
        self, count: Callable[[str], int], max_chars: int = 16 << 20, stored: RecordTextCache | None = None
    ) -> None:
        """Begin empty."""
        self.stored = stored or self
        self._count = count
        self._max_chars = max_chars
        self._chars = 0
        self._records: dict[tuple[str, int], tuple[str, int]] = {}

    def uncached(self, item: Any, make: MakeText) -> tuple[str, int]:
        """Return the text and tokens of a record that few questions retrieve."""
        text = make(item, UNKNOWN_FORM)
        return text, self._count(text)

    def get(
        self, level: str, row: int, item: Any, make: MakeText, rendering: Rendering | None = None
    ) -> tuple[str, int]:
        """Return the text and tokens of a record; `rendering` is there for those that are the same in all views."""
        key = (level, row)
        record = self._records.get(key)
        if record is None:
            tokens, form = (0, UNKNOWN_FORM) if rendering is None else rendering(level, row)
            text = make(item, form)
            record = self._records[key] = text, tokens or self._count(text)
            self._chars += len(text)
            while self._chars > self._max_chars:
                oldest, _ = self._records.pop(next(iter(self._records)))
                self._chars -= len(oldest)
        return record


_TEXT_CHARS = 16 << 20  # of stored record texts cached
_ALL_TEXT_CHARS = 256 << 20  # the same, of all engines of a process together
_VIEW_CHARS = 1 << 20  # of rebuilt record texts cached for callers with the same view
_MAX_COUNTED = 1024  # references and headings whose token counts are cached


class EngineResources:
    """All that engines over one snapshot share, whatever their settings.

    Attributes:
        index: the mapped snapshot, unfiltered.
        views: the index as callers with labels may see it.
        misses_reports: whether `communities.report_share` left reports out.
        count_marks: tokens of short texts that recur, cached.
        answer_window: cuts contexts to the window of the model that answers.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        vectors: VectorIndex,
        embedder: Embedder,
        model: AnswerModel,
        prompts: Prompts,
        count_tokens: Callable[[str], int],
        access_rule: AccessRule = "all",
        tokenizer: str = "",
        *,
        source_url: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        reranker: Reranker | None = None,
        n_engines: int = 1,
        answer_window: int | None = None,
        keep_models: bool = False,
    ) -> None:
        """Load a snapshot.

        Args:
            access_rule: whether a caller needs all labels of a document to reach it, or any.
            tokenizer: name of that of `count_tokens`: texts that the snapshot counted by it are not counted again.
            source_url: of the retrieval section.
            clock: seconds, for deadlines.
            reranker: judges the relevance of chunks; None for none.
            n_engines: that may be open in this process; they share the memory of the cache of texts.
            answer_window: Tokens of the context window of the model that answers; None where it is not known.
            keep_models: whether others use the model and the reranker too, so that they are not closed.

        Raises:
            InvalidQuery: the embedder is not the one that the index was built with.
        """
        built = snapshot.manifest
        if (embedder.name, embedder.dim) != (built.embedder, built.dim):
            raise InvalidQuery(
                f"the index was built with embedder {built.embedder} of {built.dim} dimensions, and {embedder.name} of "
                f"{embedder.dim} is configured; set llm.roles.embed to the one it was built with"
            )
        threadpool_limits(1)  # matrix products of one question are too small for several threads
        self.index = MappedIndex.open(snapshot, tokenizer)
        self.index.files.places.source_url = source_url or ""
        self.misses_reports = snapshot.manifest.missing_reports > 0
        self.views = AccessControlledIndex(self.index, snapshot, access_rule)
        self.lookups = LookupTables(self.index.files, snapshot)
        metadata = self.index.files.metadata
        self.info = snapshot.info()
        if metadata is not None:
            found = facets(metadata.columns.values())
            self.info = replace(self.info, facets=found, as_of_field=metadata.as_of_field)
        self.vectors = vectors
        self.embedder = embedder
        self.reranker = reranker
        self.model = model
        self.prompts = prompts
        self.answer_window = AnswerWindow(answer_window, prompts, count_tokens)
        self._keep_models = keep_models
        self.count_tokens = count_tokens
        self.count_marks = lru_cache(_MAX_COUNTED)(count_tokens)
        self.clock = clock
        self._texts = RecordTextCache(count_tokens, min(_TEXT_CHARS, max(_ALL_TEXT_CHARS // n_engines, _VIEW_CHARS)))
        self._view_texts: WeakKeyDictionary[MappedIndex, RecordTextCache] = WeakKeyDictionary()
        self._examples: WeakKeyDictionary[MappedIndex, tuple[tuple[str, ...], tuple[str, ...]]] = WeakKeyDictionary()
        self.paths = PathFinder(self.index.graph, self.index.connect())
        self._compile(all_forms=n_engines > 1)
        self._read_ahead = ReadAhead(self.index.pages())
        self._hash_check = HashCheck(snapshot)

    def texts_of(self, view: MappedIndex) -> RecordTextCache:
        """Return the cache of record texts of the index or of one view of it."""
        if view is self.index:
            return self._texts
        return self._view_texts.setdefault(view, RecordTextCache(self.count_tokens, _VIEW_CHARS, self._texts))

    def examples_of(self, view: MappedIndex) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return what an index holds by a few names: `lookup.entities.examples`, found once for each view."""
        if view not in self._examples:
            self._examples[view] = examples(view)
        return self._examples[view]

    def filter_of(self, text: str, as_of: str) -> Expression | None:
        """Return the expression of a filter and of a date, None for neither.

        Raises:
            InvalidQuery: the index has no such field, or the text is no expression.
        """
        if not text.strip() and not as_of.strip():
            return None
        metadata = self.index.files.metadata
        if metadata is None:
            raise InvalidQuery(f"{'filter' if text.strip() else 'as_of'}: this index has no metadata fields")
        terms = []
        try:
            if text.strip():
                terms.append(parse_filter(text, metadata.fields))
        except FilterError as error:
            raise InvalidQuery(f"filter: {error}") from None
        if as_of.strip():
            if not metadata.as_of_field:
                raise InvalidQuery("as_of: this index has no metadata.as_of_field; write a filter")
            try:
                terms.append(as_of_filter(as_of, metadata.as_of_field))
            except FilterError as error:
                raise InvalidQuery(f"as_of: {error}") from None
        return terms[0] if len(terms) == 1 else And(tuple(terms))

    async def view_of(self, scope: Query | AccessScope) -> MappedIndex | None:
        """Return the index as a request may read it and asks to, None where no document is visible.

        Raises:
            InvalidQuery: the filter is no expression over the fields of the index.
        """
        expression = self.filter_of(scope.filter, scope.as_of)
        make = partial(self.views.view_for, scope.reach, scope.labels, expression)
        if expression is None or self.views.is_cached(scope.reach, scope.labels, expression):
            return make()
        return await asyncio.to_thread(make)

    async def close(self) -> None:
        """Release files and connections."""
        self._read_ahead.stop()
        self._hash_check.stop()
        self.vectors.close()
        if isinstance(self.embedder, Closable):
            await self.embedder.close()
        for each in () if self._keep_models else (self.model, self.reranker):
            if isinstance(each, Closable):
                await each.close()

    def _compile(self, *, all_forms: bool) -> None:
        """Compile the kernels of questions, or load them from the cache, so that the first question does not wait.

        Compiling takes most of a minute. Nearly all kernels have a second form, for callers with labels.

        Args:
            all_forms: compile both also for an index without labels: other indexes of the process may have some.
        """
        index, query = self.index, np.zeros(self.index.vectors.shape[1], np.float32)
        none = np.zeros(0, np.int64)
        bridge_relations(index.graph, index.parallel, none)
        index.named(range(min(len(index.layers), 8)))
        index.named_entities("")
        for view in (index, self.views.any_view(always=all_forms)):
            if view is None:
                continue
            self.vectors.prepare(view.access)
            all_at_once(self.paths.chain_steps([], view.access, view.connect()))
            first = range(min(len(view.communities.levels), 1))
            all_at_once(key_entity_steps(view.communities, first, view.vectors, query, 1, view.access))
            stated = nearest_chunks(view.provenance, view.chunk_vectors, none, query, view.visible_chunks)
            question_scores(view.ends[none], none, view.similarities(none, query), stated)
            view.nearest_chunks(query, 1)
            view.chunks_with_words("", 1)
            # The result is discarded, so the seed may be a hidden row. Without a seed only half would be compiled.
            seed, walk_graph = np.zeros(min(len(view.walk_graph.layers), 1), np.int64), view.walk_graph
            all_at_once(pagerank_steps(walk_graph, seed, np.ones(len(seed)), view.access, view.visible_chunks))
