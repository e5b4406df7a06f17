"""Indexes of a service, as its requests find them: the only one, or one of a catalogue by its name."""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from hirag_dist.errors import InvalidQuery
from hirag_dist.service.callers import Caller
from hirag_dist.service.engine import Engine, EngineRunner
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.types import IndexEntry
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import IndexNotFound

_MAX_SHOWN = 64  # characters of a name in a message
_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 1000
_MAX_TOKEN_CHARACTERS = 256


def index_not_found(name: str) -> IndexNotFound:
    """Return the error for a name of no index, and for one that the caller may not ask: the two are the same."""
    shown = name if len(name) <= _MAX_SHOWN else f"{name[:_MAX_SHOWN]}…"
    return IndexNotFound(
        f"index: there is no {shown!r} among those that you may ask; ListIndexes and GET /v1/models list them"
    )


class ServedIndex(ABC):
    """An index that a caller may ask.

    Attributes:
        name: as requests give it; empty for the only index of a service.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name

    @abstractmethod
    def lease(self, remaining_s: Callable[[], float | None]) -> AbstractAsyncContextManager[Engine]:
        """Keep an engine of the index open for one request; open it first where there is none.

        Args:
            remaining_s: returns the seconds until the request's deadline; None without one.

        Raises:
            NotReady: no snapshot is loaded.
            DeadlinePassed: the index was not open in time.
            HiragError: it cannot be opened.
        """


class IndexSource(ABC):
    """The indexes of a service.

    Attributes:
        runner: runs the engines; closed with the source.
    """

    runner: EngineRunner

    @abstractmethod
    async def start(self) -> None:
        """Make the source ready for requests.

        Raises:
            HiragError: there is nothing to serve.
        """

    @abstractmethod
    async def close(self) -> None:
        """Close every engine. Requests should have ended or have been cancelled."""

    @abstractmethod
    def check_ready(self) -> None:
        """Check that requests can be served.

        Raises:
            NotReady: the source has not started.
        """

    @abstractmethod
    def find(self, name: str, caller: Caller) -> ServedIndex:
        """Return the index of a name; an empty name is the default index, or the only one that the caller may ask.

        Raises:
            IndexNotFound: there is none of that name, or the caller may not ask it.
            InvalidQuery: the name is empty, and there are several.
        """

    @abstractmethod
    def entries(self, caller: Caller) -> Sequence[IndexEntry]:
        """Return the indexes that a caller may ask, ordered by name."""

    @property
    @abstractmethod
    def engine(self) -> Engine | None:
        """The engine of the only index, for inspection; None before the first, and in a catalogue."""

    @abstractmethod
    def on_swap(self, observer: Callable[[bool], None]) -> None:
        """Call `observer` with True when a new snapshot is served, with False when it cannot be."""


class SingleIndex(IndexSource):
    """The only index of a service, without a name. Every caller may ask it.

    Args:
        swapper: owner of its engine, started and closed with this source, and its runner too.
    """

    def __init__(self, swapper: SnapshotSwapper) -> None:
        self._swapper = swapper
        self._index = _OnlyIndex(swapper)
        self.runner = swapper.runner

    async def start(self) -> None:
        """Open the first engine."""
        await self._swapper.start()

    async def close(self) -> None:
        """Close the engine."""
        await self._swapper.close()
        await self.runner.close()

    def check_ready(self) -> None:
        """Check that a snapshot is loaded."""
        with self._swapper.lease():
            pass

    def find(self, name: str, caller: Caller) -> ServedIndex:
        """Return the index if the name is empty.

        Raises:
            IndexNotFound: there is a name.
        """
        if name:
            raise index_not_found(name)
        return self._index

    def entries(self, caller: Caller) -> Sequence[IndexEntry]:
        """Return one entry without a name."""
        return [IndexEntry("", default=True)]

    @property
    def engine(self) -> Engine | None:
        """The engine of the current snapshot, None before the first."""
        return self._swapper.engine

    def on_swap(self, observer: Callable[[bool], None]) -> None:
        """Call `observer` with True when a new snapshot is served, with False when it cannot be."""
        self._swapper.on_swap(observer)


class _OnlyIndex(ServedIndex):
    def __init__(self, swapper: SnapshotSwapper) -> None:
        super().__init__()
        self._swapper = swapper

    @asynccontextmanager
    async def lease(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[Engine]:
        """Keep the current engine open; it is never opened by a request."""
        with self._swapper.lease() as engine:
            yield engine


def index_page(entries: Sequence[IndexEntry], request: pb.ListIndexesRequest) -> pb.ListIndexesResponse:
    """Return a page. A token is the last name of the page before it, so that indexes may come and go meanwhile.

    Args:
        entries: those that the caller may ask, ordered by name.
        request: size and token of the page.

    Raises:
        InvalidQuery: the size is negative, or the token is none of this service.
    """
    if request.page_size < 0:
        raise InvalidQuery(f"page_size must not be negative, got {request.page_size}")
    first = 0
    if request.page_token:
        first = bisect_right(entries, _name_of(request.page_token), key=lambda entry: entry.name)
    size = min(request.page_size or _PAGE_SIZE, _MAX_PAGE_SIZE)
    page = entries[first : first + size]
    more = first + size < len(entries)
    return pb.ListIndexesResponse(
        indexes=[pb.IndexEntry(name=entry.name, title=entry.title, default=entry.default) for entry in page],
        next_page_token=_token_of(page[-1].name) if more else "",
    )


def _token_of(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _name_of(token: str) -> str:
    try:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidQuery("page_token is none that ListIndexes returned; begin without one") from None
