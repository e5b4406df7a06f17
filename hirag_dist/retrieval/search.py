"""Retrieval of one question: the levels of its mode in order, as far as time allows, then sources and context."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hirag_dist.config.model import RetrievalConfig as RetrievalConfig
from hirag_dist.core.retrieval.context import MakeText, render_context
from hirag_dist.core.retrieval.graphrag_local import community_order, text_order
from hirag_dist.core.retrieval.levels import AT_ONCE, RankedCommunity, depth_note, ranked_communities
from hirag_dist.core.retrieval.source_ranking import CANDIDATES, WORDS, SeedSet
from hirag_dist.errors import ModelError
from hirag_dist.protocols import Embedder, Reranker, VectorIndex
from hirag_dist.retrieval.deadline import CooperativeDeadline, DeadlineExceeded
from hirag_dist.retrieval.engine_resources import EngineResources, RecordTextCache
from hirag_dist.retrieval.levels import Level, bridge_level, global_level, local_level, neighbour_level, relation_level
from hirag_dist.retrieval.question import Found, Question, QuestionEntities, Scored, Stopwatch
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import IntVector, Query, Retrieval

logger = logging.getLogger(__name__)
NO_DIRECTION = "the question holds nothing that the embedder knows (its vector is zero), so nothing is near it"

RankSources = Callable[[MappedIndex, Question, Found, int], Awaitable[Scored]]


async def retrieve_levels(
    resources: EngineResources,
    view: MappedIndex,
    query: Query,
    limits: RetrievalConfig,
    deadline: CooperativeDeadline,
) -> AsyncGenerator[tuple[str, Found]]:
    """Yield (level, what was found so far) as each level is ready, and ("done", everything) at the end.

    Levels without the time for them are named in the result's `partial`. A question whose vector is zero is near
    nothing: every record would have the same similarity, and the result's `note` says so.
    """
    name = query.mode or limits.mode
    mode, watch = MODE_TABLE[name], Stopwatch()
    found = Found(Retrieval(query.question, name, view.snapshot_id))
    levels = tuple(mode.levels)
    question: Question | None = None
    try:
        async with asyncio.timeout(deadline.left_s):
            with watch.timed("embed"):
                vector = await _vector(query, resources.embedder)
            if vector.any():
                names = QuestionEntities(view, query.question, vector)
                question = Question(
                    query.question,
                    vector,
                    limits,
                    levels,
                    names,
                    resources.paths,
                    deadline,
                    watch,
                    resources.misses_reports,
                )
                n_chunks = n_candidates(question, resources.reranker)
                found = await _searched(view, question, found, mode, resources.vectors, n_chunks)
            else:
                found = replace(found, result=replace(found.result, note=NO_DIRECTION))
    except TimeoutError:
        question = None
        found = replace(found, result=replace(found.result, partial=levels or ("sources",)))
    if question is not None:
        for level, add in mode.levels.items():
            try:
                await deadline.check()
                found = await add(view, question, found)
            except DeadlineExceeded:
                found = replace(found, result=replace(found.result, partial=(*found.result.partial, level)))
            else:
                yield level, found
        found = await _with_sources(view, question, found, mode, resources.reranker)
        with watch.timed("render"):
            record_texts = partial(_record_texts, view, found, resources.texts_of(view))
            result = render_context(found.result, limits.context_tokens, resources.count_marks, record_texts)
            found = replace(found, result=result)
    yield "done", replace(found, result=replace(found.result, timings_ms=watch.total()))


async def _vector(query: Query, embedder: Embedder) -> NDArray[np.float32]:
    """Return the vector of a question, of unit length or zero."""
    if query.vector is None:
        vector: NDArray[np.float32] = (await embedder.embed([query.question]))[0]
        return vector
    given = np.asarray(query.vector, np.float64)  # its length may be beyond float32
    norm = float(np.linalg.norm(given))
    return np.asarray(given / norm if norm else given, np.float32)


async def _searched(
    view: MappedIndex, question: Question, found: Found, mode: Mode, vectors: VectorIndex, n_chunks: int
) -> Found:
    """Add what every level starts from: the nearest entities (Eq. 12), chunks, and the communities (Eq. 13)."""
    limits, vector = question.limits, question.vector
    with question.watch.timed("search"):
        if not mode.levels:
            return replace(found, near_chunks=await _chunks(view, partial(view.nearest_chunks, vector, n_chunks)))
        near_chunks, word_chunks = found.near_chunks, found.word_chunks
        if mode.fuses_sources and not limits.follows_paper:
            near_chunks = await _chunks(view, partial(view.nearest_chunks, vector, CANDIDATES))
            word_chunks = await _chunks(view, partial(view.chunks_with_words, question.text, WORDS))
        rows, scores = await vectors.search(vector, limits.top_n, mode.max_layer, view.access, view.is_by_row)
        nearest = list(zip(rows.tolist(), scores.tolist(), strict=True))
    found = replace(found, nearest=nearest, near_chunks=near_chunks, word_chunks=word_chunks)
    if mode.levels.keys() & {"global", "bridge"}:
        with question.watch.timed("communities"):
            communities = tuple(mode.rank(view, limits, rows, scores))
            levels = view.communities.levels[[each.community for each in communities]]
            note = depth_note(limits.community_level, levels)
            found = replace(found, communities=communities, result=replace(found.result, note=note))
    return found


async def _chunks(view: MappedIndex, search: Callable[[], tuple[IntVector, NDArray[Any]]]) -> Scored:
    """Return the (row, score) pairs of a search of all chunks; a long one runs in a thread."""
    rows, scores = await asyncio.to_thread(search) if len(view.chunk_vectors) > AT_ONCE else search()
    return list(zip(rows.tolist(), scores.tolist(), strict=True))


async def _with_sources(
    view: MappedIndex, question: Question, found: Found, mode: Mode, reranker: Reranker | None
) -> Found:
    """Add the sources, past the deadline if need be."""
    with question.watch.timed("sources"):
        ranked = await mode.sources(view, question, found, n_candidates(question, reranker))
    note = found.result.note
    if reranker is not None and ranked:
        with question.watch.timed("rerank"):
            ranked, said = await _reranked(view, question, ranked, reranker)
            note = "; ".join(filter(None, (note, said)))
    with question.watch.timed("sources"):
        return replace(
            found,
            rows={**found.rows, "sources": [row for row, _ in ranked]},
            result=replace(found.result, sources=view.sources(ranked, question.vector), note=note),
        )


async def _reranked(view: MappedIndex, question: Question, ranked: Scored, reranker: Reranker) -> tuple[Scored, str]:
    """Return the sources by the relevance that the reranker gives them, and a note where it does not answer."""
    limit = n_sources(question)
    texts = [view.files.chunks.value("text", row) for row, _ in ranked]
    try:
        async with asyncio.timeout(question.deadline.left_s):
            scores = await reranker.scores(question.text, texts)
    except (ModelError, TimeoutError) as error:
        reason = str(error) or "the deadline passed"
        logger.warning("sources are not reranked: %s", reason)
        return ranked[:limit], f"the sources are not reranked: {reason}"
    order = np.argsort(-scores, kind="stable")[:limit].tolist()
    return [(ranked[at][0], float(scores[at])) for at in order], ""


def n_sources(question: Question) -> int:
    """Return the number of sources of a result."""
    limits = question.limits
    return limits.top_sources if question.levels else max(limits.top_sources, limits.top_n)


def n_candidates(question: Question, reranker: Reranker | None) -> int:
    """Return the number of chunks to rank."""
    wanted = n_sources(question)
    return wanted if reranker is None else max(wanted, reranker.max_texts)


async def _walked_sources(view: MappedIndex, question: Question, found: Found, limit: int) -> Scored:
    """Return the chunks that a random walk from what was found reaches most."""
    if set(question.levels) <= set(found.result.partial):
        return []  # sources follow from the levels, and there was time for none
    buffers = view.files.walk_buffers
    seeds = SeedSet(view.walk_graph, view.provenance, view.visible_chunks, view.access, buffers, view.visible_edges)
    by_kind = [(seeds.of_entities, found.entity_seeds), (seeds.of_relations, found.relation_seeds)]
    for add, scored in by_kind if "local" in question.levels else reversed(by_kind):
        if scored:
            add(scored)
    seeds.of_names(question.names.rows)
    seeds.of_chunks(found.near_chunks)
    seeds.of_words(found.word_chunks)
    similarities = None if question.limits.follows_paper else partial(view.chunk_similarities, query=question.vector)
    return await question.deadline.run(seeds.ranked_steps(limit, similarities, view.chunk_documents), to_end=True)


async def _nearest_sources(view: MappedIndex, question: Question, found: Found, limit: int) -> Scored:
    """Return the nearest chunks."""
    return found.near_chunks


async def _text_sources(view: MappedIndex, question: Question, found: Found, limit: int) -> Scored:
    """Return the chunks of the nearest entities, in GraphRAG's order."""
    entities = [row for row, _ in found.nearest]
    order = text_order(view.walk_graph, view.provenance, entities, *found.related, view.visible_chunks, limit)
    texts = await question.deadline.run(order, to_end=True)
    return [(row, 1.0 / rank) for rank, row in enumerate(texts, 1)]


def _by_hits(
    view: MappedIndex, limits: RetrievalConfig, rows: IntVector, scores: NDArray[np.float32]
) -> list[RankedCommunity]:
    return ranked_communities(view.communities, rows, scores, limits.community_level, limits.top_c)


def _by_rating(
    view: MappedIndex, limits: RetrievalConfig, rows: IntVector, scores: NDArray[np.float32]
) -> list[RankedCommunity]:
    """Rank as GraphRAG does."""
    index = view.communities
    ranked = ranked_communities(index, rows, scores, limits.community_level, len(index.levels))
    return community_order(index, ranked)[: limits.top_c]


def _record_texts(
    view: MappedIndex, found: Found, texts: RecordTextCache, level: str, items: Sequence[Any], make: MakeText
) -> Iterator[tuple[str, int]]:
    """Yield the text and tokens of each record of a level of the result, without its reference."""
    if level == "claims":  # few questions retrieve them
        yield from (texts.uncached(item, make) for item in items)
        return
    rows = found.rows[level]
    rebuilt = [False] * len(rows) if view.access is None else view.rebuilt(level, np.array(rows, np.int64)).tolist()
    unreported = found.unreported if level == "global" else ()
    for row, item, is_rebuilt in zip(rows, items, rebuilt, strict=True):
        if row in unreported:
            yield texts.uncached(item, make)
        elif is_rebuilt:
            yield texts.get(level, row, item, make)
        else:
            yield texts.stored.get(level, row, item, make, view.rendering)


@dataclass(frozen=True)
class Mode:
    """A mode of retrieval.

    Attributes:
        levels: by name, in order.
        max_layer: of the entities that are searched; None: all layers.
        fuses_sources: whether chunks near the question, or with its words, are among the starting points of sources.
        rank: communities of the nearest entities.
        sources: ranks the chunks.
    """

    levels: Mapping[str, Level]
    max_layer: int | None = None
    fuses_sources: bool = True
    rank: Callable[[MappedIndex, RetrievalConfig, IntVector, NDArray[np.float32]], list[RankedCommunity]] = _by_hits
    sources: RankSources = _walked_sources


_LOCAL: Final = {"local": local_level}
_GLOBAL: Final = {"global": global_level}
_BRIDGE: Final = {"bridge": bridge_level}
_GRAPHRAG: Final = {"local": neighbour_level, "global": global_level, "bridge": relation_level}
MODE_TABLE: Final[Mapping[str, Mode]] = {
    "hirag": Mode({**_LOCAL, **_GLOBAL, **_BRIDGE}),
    "local": Mode(_LOCAL),
    "global": Mode(_GLOBAL),
    "bridge": Mode(_BRIDGE),
    "nobridge": Mode({**_LOCAL, **_GLOBAL}),
    "naive": Mode({}, sources=_nearest_sources),
    "flat": Mode(_LOCAL, max_layer=0),
    "graphrag-local": Mode(_GRAPHRAG, 0, fuses_sources=False, rank=_by_rating, sources=_text_sources),
}
MODES: Final = tuple(MODE_TABLE)
