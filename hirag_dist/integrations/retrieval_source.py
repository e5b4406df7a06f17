"""Calls of a service or of an open index, by whichever of both forms a framework uses: synchronous or asynchronous."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncGenerator, Generator, Mapping
from typing import Any

from hirag_dist.client import AsyncHiragClient, HiragClient
from hirag_dist.client.common import client_options
from hirag_dist.types import Answer, Query, Retrieval

_SOURCES = "HOST:PORT of a service, a HiragClient, an AsyncHiragClient, or an open index"


class RetrievalSource:
    """A source of retrievals and answers.

    An address gets a client when it is first used, and an asynchronous one for each event loop. Asynchronous calls of a
    synchronous source run in a thread. `close` closes what this object opened; a client or an index that was given
    stays open.

    Args:
        source: HOST:PORT, a client, or an open index (`hirag_dist.open_index`, `open_index_async`).
        options: fields of `ClientOptions`, for an address.

    Raises:
        ConfigError: the options contradict each other, or a file cannot be read.
        TypeError: the source is something else, or has options although it is no address.
    """

    def __init__(self, source: Any, options: Mapping[str, Any]) -> None:
        if isinstance(source, str):
            client_options(source, options)  # checks them
        elif not callable(getattr(source, "retrieve", None)) or not callable(getattr(source, "answer", None)):
            raise TypeError(f"source must be {_SOURCES}, got {type(source).__name__}")
        elif options:
            raise TypeError(f"{next(iter(options))} is an option of an address; the source is an open connection")
        self._source = source
        self._options = dict(options)
        self._lock = threading.Lock()
        self._client: HiragClient | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, AsyncHiragClient] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles hold the address and its options; they open connections of their own."""
        return RetrievalSource, (self._source, self._options)

    @property
    def is_service(self) -> bool:
        """True if calls take the keyword arguments of a client."""
        return isinstance(self._source, str | HiragClient | AsyncHiragClient)

    def retrieve(self, query: Query, arguments: Mapping[str, Any]) -> Retrieval:
        """Return the retrieval of a query; `arguments` are those of the source's own method."""
        found: Retrieval = self._synchronous().retrieve(query, **arguments)
        return found

    async def aretrieve(self, query: Query, arguments: Mapping[str, Any]) -> Retrieval:
        """Return the retrieval of a query."""
        source = self._asynchronous()
        if source is None:
            return await asyncio.to_thread(self.retrieve, query, arguments)
        found: Retrieval = await source.retrieve(query, **arguments)
        return found

    def answer(self, query: Query, arguments: Mapping[str, Any]) -> Answer:
        """Return the answer to a query."""
        found: Answer = self._synchronous().answer(query, **arguments)
        return found

    async def aanswer(self, query: Query, arguments: Mapping[str, Any]) -> Answer:
        """Return the answer to a query."""
        source = self._asynchronous()
        if source is None:
            return await asyncio.to_thread(self.answer, query, arguments)
        found: Answer = await source.answer(query, **arguments)
        return found

    def answer_stream(
        self, query: Query, arguments: Mapping[str, Any]
    ) -> Generator[Retrieval | str | Answer, None, None]:
        """Yield retrievals, pieces of the text, and the answer."""
        parts: Generator[Retrieval | str | Answer, None, None]
        parts = self._synchronous().answer_stream(query, **arguments)
        return parts

    async def aanswer_stream(
        self, query: Query, arguments: Mapping[str, Any]
    ) -> AsyncGenerator[Retrieval | str | Answer, None]:
        """Yield retrievals, pieces of the text, and the answer."""
        source = self._asynchronous()
        if source is not None:
            async for part in source.answer_stream(query, **arguments):
                yield part
            return
        parts = self.answer_stream(query, arguments)
        try:
            while (part := await asyncio.to_thread(next, parts, None)) is not None:
                yield part
        finally:
            await asyncio.to_thread(parts.close)

    def close(self) -> None:
        """Close the synchronous client of an address, if there is one."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close both clients of an address: the synchronous one, and that of the running event loop."""
        self.close()
        client = self._by_loop.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _synchronous(self) -> Any:
        if isinstance(self._source, str):
            with self._lock:
                if self._client is None:
                    self._client = HiragClient(self._source, **self._options)
                return self._client
        if inspect.iscoroutinefunction(self._source.retrieve):
            kind = type(self._source).__name__
            raise TypeError(
                f"{kind} has no synchronous calls; await the asynchronous ones, or give HOST:PORT as source"
            )
        return self._source

    def _asynchronous(self) -> Any:
        """Return the source for the running event loop, None if it has synchronous calls only."""
        if not isinstance(self._source, str):
            return self._source if inspect.iscoroutinefunction(self._source.retrieve) else None
        loop = asyncio.get_running_loop()
        with self._lock:
            for ended in [each for each in self._by_loop if each.is_closed()]:
                del self._by_loop[ended]
            if loop not in self._by_loop:
                self._by_loop[loop] = AsyncHiragClient(self._source, **self._options)
            return self._by_loop[loop]
