"""An open index: retrieval and answers in this process, without a service."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import aclosing
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from hirag_dist.api.config import ConfigLike, as_config
from hirag_dist.composition.models import make_coordinator
from hirag_dist.composition.prices import check_prices
from hirag_dist.composition.query import make_engine
from hirag_dist.errors import HiragError
from hirag_dist.llm.prompt_files import load_prompts
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.storage.snapshot.fallback import open_current
from hirag_dist.storage.store import Store
from hirag_dist.types import Answer, IndexInfo, Query, QueryOptions, Retrieval, as_query
from hirag_dist.types.notebook import index_html

T = TypeVar("T")
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
    loop = _LoopThread()
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
    loaded = as_config(config)
    store = Store(str(index))
    meter = UsageMeter()

    def load() -> QueryEngine:
        opened = open_current(store, snapshot)
        check_prices(loaded, ("answer", "embed"), max_usd)
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return _shown("AsyncIndex", self._uri, self.info, self._closed)

    def _repr_html_(self) -> str:
        return index_html(self._uri, self.info)

    @property
    def info(self) -> IndexInfo:
        """Counts, layers and communities of the open snapshot."""
        return self._engine.info

    @property
    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost of all questions so far."""
        return self._meter.sent_sums()

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

    async def close(self) -> None:
        """Release files and connections. Closing twice is harmless."""
        if not self._closed:
            self._closed = True
            await self._engine.close()

    def _open(self) -> QueryEngine:
        if self._closed:
            raise HiragError("this index is closed; open it again")
        return self._engine


class Index:
    """An open index for synchronous code and notebooks; usable from several threads, and as a context manager.

    `open_index` makes it. An event loop in a background thread does the work, so that it also runs where the calling
    thread has a running event loop of its own.
    """

    def __init__(self, index: AsyncIndex, loop: _LoopThread) -> None:
        """Take over an asynchronous index and the loop that it was opened in; `close` closes both."""
        self._index = index
        self._loop = loop

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._index).replace("<AsyncIndex", "<Index", 1)

    def _repr_html_(self) -> str:
        return self._index._repr_html_()

    @property
    def info(self) -> IndexInfo:
        """Counts, layers and communities of the open snapshot."""
        return self._index.info

    @property
    def usage(self) -> dict[str, Any]:
        """Calls, tokens and cost of all questions so far."""
        return self._index.usage

    def retrieve(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> Retrieval:
        """Return the retrieval levels of a question; as `AsyncIndex.retrieve`."""
        return self._loop.run(self._index.retrieve(query, timeout_s=timeout_s, **options))

    def retrieve_stream(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> Generator[tuple[str, Retrieval]]:
        """Yield (level, results so far); as `AsyncIndex.retrieve_stream`."""
        return self._loop.iterate(self._index.retrieve_stream(query, timeout_s=timeout_s, **options))

    def answer(self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]) -> Answer:
        """Return an answer with its citations; as `AsyncIndex.answer`."""
        return self._loop.run(self._index.answer(query, timeout_s=timeout_s, **options))

    def answer_stream(
        self, query: Query | str, *, timeout_s: float | None = None, **options: Unpack[QueryOptions]
    ) -> Generator[Retrieval | str | Answer]:
        """Yield the retrieval, the answer's text in pieces, and the complete `Answer` last."""
        return self._loop.iterate(self._index.answer_stream(query, timeout_s=timeout_s, **options))

    def close(self) -> None:
        """Release files, connections and the background thread. Closing twice is harmless."""
        if self._loop.running:
            self._loop.run(self._index.close())
            self._loop.close()


class _LoopThread:
    """An event loop in a daemon thread, for synchronous callers."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="hirag-dist-index", daemon=True)
        self._thread.start()

    @property
    def running(self) -> bool:
        """True while coroutines can be run."""
        return self._thread.is_alive()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; an interrupt of the caller cancels it."""
        if not self.running:
            work.close()
            raise HiragError("this index is closed; open it again")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncGenerator[T]) -> Generator[T]:
        """Yield the items of an asynchronous generator, which runs in one task; closing this cancels it."""
        done = object()
        queue: SimpleQueue[Any] = SimpleQueue()

        async def produce() -> None:
            try:
                async with aclosing(items):
                    async for item in items:
                        queue.put(item)
            finally:
                queue.put(done)

        if not self.running:
            raise HiragError("this index is closed; open it again")
        future = asyncio.run_coroutine_threadsafe(produce(), self._loop)
        try:
            while (item := queue.get()) is not done:
                yield item
            future.result()
        finally:
            if future.cancel():
                while queue.get() is not done:  # the generator has released its connections then
                    pass

    def close(self) -> None:
        """Stop the loop and wait for its thread."""
        if self.running:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
        finally:
            self._loop.close()


def _shown(kind: str, uri: str, info: IndexInfo, closed: bool) -> str:
    counts = ", ".join(f"{info.counts[name]:,} {name}" for name in ("documents", "entities", "relations", "reports"))
    state = "closed" if closed else f"{len(info.layers)} layers, {counts}"
    return f"<{kind} {uri!r} snapshot {info.snapshot_id}: {state}>"
