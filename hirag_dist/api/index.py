"""An open index: retrieval and answers in this process, without a service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self, Unpack

from hirag_dist._loop_thread import LoopThread, Synchronous, call, stream
from hirag_dist.api import ConfigLike, as_config
from hirag_dist.composition.models import check_prices, make_coordinator, with_windows
from hirag_dist.composition.query import make_engine
from hirag_dist.core.text.normalize import count_plural
from hirag_dist.errors import HiragError
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store
from hirag_dist.types import (
    DEFAULT_CHARS,
    DEFAULT_MEMBERS,
    DEFAULT_RELATIONS,
    DEFAULT_SOURCES,
    Answer,
    CommunityDetails,
    DocumentPart,
    EntityDetails,
    IndexInfo,
    PathDetails,
    Query,
    QueryOptions,
    Retrieval,
    ScopeOptions,
    as_query,
    as_scope,
)

_LIMIT_ADVICE = "raise it and ask again; replies to a question are not kept"


def open_index(
    index: str | Path,
    *,
    config: ConfigLike = None,
    snapshot: str | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
) -> Index:
    """Open an index for retrieval and answers.

    The first call on a machine compiles the numerical kernels, which takes up to a minute; later calls take about a
    second.

    Args:
        index: folder or object-store URI of the index.
        config: as `as_config`; its embedder must be the one that the index was built with.
        snapshot: id of the snapshot to open; the current one by default.
        max_usd, max_tokens: limits of what answers may spend in total; retrieval alone calls no language model.
            `max_usd` needs endpoints with prices.

    Returns:
        An open index. Close it, or use it as a context manager.

    Raises:
        SnapshotNotFound: nothing is published in the folder, or there is no such snapshot.
        SnapshotCorrupt: a file of the snapshot is missing, short or altered.
        InvalidQuery: the configured embedder is not the one of the index.
        ConfigError: the configuration is invalid.
    """
    loop = LoopThread("hirag-dist-index", lambda: HiragError("this index is closed; open it again"))
    try:
        opened = loop.run(
            open_index_async(index, config=config, snapshot=snapshot, max_usd=max_usd, max_tokens=max_tokens)
        )
    except BaseException:
        loop.close()
        raise
    return Index(opened, loop)


async def open_index_async(
    index: str | Path,
    *,
    config: ConfigLike = None,
    snapshot: str | None = None,
    max_usd: float | None = None,
    max_tokens: int | None = None,
) -> AsyncIndex:
    """Open an index in the running event loop; arguments and errors as `open_index`."""
    loaded = await with_windows(as_config(config), ("answer",))
    store = Store(str(index))
    meter = UsageMeter()

    def load() -> QueryEngine:
        opened = open_current(store, snapshot)
        check_prices(loaded, ("answer", "embed", "rerank"), max_usd)
        limits = make_coordinator(loaded, max_usd, max_tokens, advice=_LIMIT_ADVICE)
        spending = max_usd is not None or max_tokens is not None
        return make_engine(loaded, opened, load_prompts(loaded.prompts), limits, spending=spending, meter=meter)

    return AsyncIndex(await asyncio.to_thread(load), store.uri, meter)


class AsyncIndex:
    """An open index in an event loop. `open_index_async` makes it; use it as an asynchronous context manager."""

    def __init__(self, engine: QueryEngine, uri: str, meter: UsageMeter) -> None:
        """Take over an engine, which `close` closes.

        Args:
            uri: shown by `repr`.
            meter: counts the calls of the engine.
        """
        self._engine = engine
        self._meter = meter
        self._uri = uri
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        info = self.info
        counts = {"layers": len(info.layers)}
        counts |= {name: info.counts[name] for name in ("documents", "entities", "relations", "reports")}
        state = "closed" if self._closed else ", ".join(count_plural(count, name) for name, count in counts.items())
        return f"<AsyncIndex {self._uri!r} snapshot {info.snapshot_id}: {state}>"

    @property
    def info(self) -> IndexInfo:
        """Counts, layers and communities of the open snapshot."""
        return self._engine.info

    @property
    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost of all questions so far."""
        return self._meter.sent_sums()

    def describe(self, reach: frozenset[str] | None = None, filter: str = "", as_of: str = "") -> IndexInfo:  # noqa: A002
        """Return the description of the documents that meet a filter, for a caller with labels; None: all."""
        return self._open().describe(reach, filter, as_of)

    async def retrieve(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> Retrieval:
        """Return the retrieval levels of a question. No language model is called.

        Args:
            query: a question, or a `Query`.
            timeout_s: seconds; levels that do not fit are left out and named in `Retrieval.partial`.
            options: fields of `Query`, which override those of `query`.

        Raises:
            InvalidQuery: the question is empty, or an option is out of bounds.
            TypeError: an option has no such name.
        """
        return await self._open().retrieve(as_query(query, options), deadline_s=timeout_s)

    async def retrieve_stream(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> AsyncGenerator[tuple[str, Retrieval]]:
        """Yield (level, results so far) as each level is ready, and ("done", everything) at the end."""
        async with aclosing(self._open().retrieve_stream(as_query(query, options), deadline_s=timeout_s)) as levels:
            async for level in levels:
                yield level

    async def answer(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> Answer:
        """Return an answer with its citations and the retrieval behind it.

        Raises:
            InvalidQuery: as `retrieve`.
            ModelError: the endpoint of the role `answer` cannot be used.
            BudgetReached: the call could pass the spending limit.
            TimeoutError: `timeout_s` seconds passed before the answer was complete.
        """
        async with asyncio.timeout(timeout_s):
            return await self._open().answer(as_query(query, options), deadline_s=timeout_s)

    async def answer_stream(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> AsyncGenerator[Retrieval | str | Answer]:
        """Yield the retrieval, the answer's text in pieces, and the complete `Answer` last."""
        async with aclosing(self._open().answer_stream(as_query(query, options), deadline_s=timeout_s)) as parts:
            async for part in parts:
                yield part

    async def get_entity(
        self,
        entity: str,
        *,
        max_relations: int = DEFAULT_RELATIONS,
        max_sources: int = DEFAULT_SOURCES,
        timeout_s: float | None = None,
        **scope: Unpack[ScopeOptions],
    ) -> EntityDetails:
        """Return an entity with its relations, its place in the hierarchy and its sources.

        Args:
            entity: id or name; of several layers that have the name, the lowest.
            max_relations, max_sources: limits, 1 to 1000.
            timeout_s: seconds.
            scope: the fields `labels` and `reach` of `Query`, which restrict what is read.

        Raises:
            NotFound: there is no such entity, or it is out of reach.
            InvalidQuery: a limit is out of bounds.
            TimeoutError: `timeout_s` seconds passed.
        """
        limits = {"max_relations": max_relations, "max_sources": max_sources}
        return await self._open().get_entity(entity, **limits, scope=as_scope(scope), deadline_s=timeout_s)

    async def find_path(
        self, source: str, target: str, *, timeout_s: float | None = None, **scope: Unpack[ScopeOptions]
    ) -> PathDetails:
        """Return a shortest path between two entities (Eq. 15-16); arguments and errors as `get_entity`."""
        return await self._open().find_path(source, target, scope=as_scope(scope), deadline_s=timeout_s)

    async def get_community(
        self,
        community_id: str,
        *,
        max_members: int = DEFAULT_MEMBERS,
        timeout_s: float | None = None,
        **scope: Unpack[ScopeOptions],
    ) -> CommunityDetails:
        """Return a community with its report and members; arguments and errors as `get_entity`."""
        return await self._open().get_community(
            community_id, max_members=max_members, scope=as_scope(scope), deadline_s=timeout_s
        )

    async def get_document(
        self,
        document_id: str,
        *,
        start: int = 0,
        max_chars: int = DEFAULT_CHARS,
        timeout_s: float | None = None,
        **scope: Unpack[ScopeOptions],
    ) -> DocumentPart:
        """Return at most `max_chars` characters of a document's text, by its id or that of a chunk, from `start`."""
        return await self._open().get_document(
            document_id, start=start, max_chars=max_chars, scope=as_scope(scope), deadline_s=timeout_s
        )

    async def close(self) -> None:
        """Release files and connections. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            await self._engine.close()

    def _open(self) -> QueryEngine:
        if self._closed:
            raise HiragError("this index is closed; open it again")
        return self._engine


class Index(Synchronous):
    """An open index for synchronous code and notebooks; usable from several threads, and as a context manager.

    `open_index` makes it. An event loop in a background thread does the work, so that it also runs where the calling
    thread has a running event loop of its own.
    """

    _inner: AsyncIndex

    def __init__(self, index: AsyncIndex, loop: LoopThread) -> None:
        """Take over an asynchronous index and the loop that it was opened in; `close` closes both."""
        self._inner = index
        self._loop = loop

    def __repr__(self) -> str:
        return repr(self._inner).replace("<AsyncIndex", "<Index", 1)

    @property
    def info(self) -> IndexInfo:
        """Counts, layers and communities of the open snapshot."""
        return self._inner.info

    @property
    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost of all questions so far."""
        return self._inner.usage

    retrieve = call(AsyncIndex.retrieve)
    retrieve_stream = stream(AsyncIndex.retrieve_stream)
    answer = call(AsyncIndex.answer)
    answer_stream = stream(AsyncIndex.answer_stream)
    get_entity = call(AsyncIndex.get_entity)
    find_path = call(AsyncIndex.find_path)
    get_community = call(AsyncIndex.get_community)
    get_document = call(AsyncIndex.get_document)
