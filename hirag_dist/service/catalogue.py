"""Catalogue: many indexes of one service, opened on demand and closed again."""

from __future__ import annotations

import asyncio
import copy
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hirag_dist.core.text.normalize import count_noun, shorten
from hirag_dist.errors import HiragError, InvalidQuery, SnapshotNotFound
from hirag_dist.service.callers import Caller
from hirag_dist.service.engine import EngineRunner
from hirag_dist.service.hot_swap import SingleIndex, SnapshotSwapper, index_not_found
from hirag_dist.types import IndexEntry
from hirag_dist.wire.error_status import DeadlinePassed, IndexUnavailable, NotReady, Overloaded

if TYPE_CHECKING:
    from hirag_dist.retrieval.engine import QueryEngine

logger = logging.getLogger(__name__)
_MAX_TRIED = 8  # indexes, at the start
_MAX_OPENING = 4  # indexes at a time; each has a thread
_MAX_CHECKS_PER_S = 100.0  # of open indexes for a new snapshot: each reads a small file
_LISTING_SHARE = 0.1  # of the time that listings may take
_ROOM_S = 5.0  # wait for an index that can be closed, before a request is rejected
_MAX_NAMED = 300  # characters of names in an error, and names, of which fewer fit
_MAX_RETRY_S = 60.0  # between two attempts to open an index that fails


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """An index of a catalogue."""

    name: str
    uri: str
    title: str = ""


@dataclass(frozen=True, slots=True)
class CatalogueLimits:
    """Limits of the open indexes of one process.

    Attributes:
        max_open: indexes that are open at a time; the least recently used one without a request is closed for another.
        idle_s: seconds without a request after which an index is closed; 0: never.
        max_concurrent: requests at a time to one index.
        poll_s: seconds between two listings, and between two checks of an open index; more where there are many.
    """

    max_open: int = 200
    idle_s: float = 3600.0
    max_concurrent: int = 32
    poll_s: float = 2.0


class IndexCatalogue:
    """The indexes of a catalogue.

    An index is opened by the first request for it, in a thread; other indexes are not delayed. A new snapshot replaces
    the open one between requests. An index that cannot be opened fails for its own callers only.

    Args:
        definitions: lists the indexes by name; runs in a thread; raises HiragError where they cannot be listed.
        make_swapper: returns the owner of the engines of an index, which it runs with the given runner.
        default: name of the index for requests without one; None: that which the caller may ask, if it is only one.
        close_models: closes what the engines share, after the last of them.
        open_once: opens an index and closes it again, so that the kernels of questions are compiled before the first.

    Attributes:
        events: how many were opened, failed (openings), and closed by limit, idle, removed or changed; for metrics.
        listing_failed: whether the last listing failed.
    """

    def __init__(
        self,
        definitions: Callable[[], Mapping[str, IndexDefinition]],
        make_swapper: Callable[[IndexDefinition, EngineRunner], SnapshotSwapper],
        limits: CatalogueLimits,
        runner: EngineRunner,
        default: str | None = None,
        clock: Callable[[], float] = time.monotonic,
        close_models: Callable[[], Coroutine[Any, Any, None]] | None = None,
        open_once: Callable[[IndexDefinition], Coroutine[Any, Any, None]] | None = None,
    ) -> None:
        self.runner = runner
        self.events: Counter[str] = Counter()
        self.listing_failed = False
        self.limits = limits
        self.clock = clock
        self._list = definitions
        self._make_swapper = make_swapper
        self._default = default
        self._close_models = close_models
        self._open_once = open_once
        self._indexes: dict[str, CatalogueIndex] = {}  # by name, in order; replaced by each listing
        self._listed = False
        self._visible: dict[tuple[str, tuple[str, ...] | None], list[IndexEntry]] = {}  # of the current listing
        self._opening = asyncio.Semaphore(_MAX_OPENING)
        self._reserved = 0  # openings that have room
        self._room = asyncio.Condition()
        self._retired: set[SnapshotSwapper] = set()
        self._watchers: list[asyncio.Task[None]] = []
        self._swap_observer: Callable[[bool], None] = lambda ok: None
        self._listing_s = 0.0
        self._last_failure: str | None = None  # of a listing; each message is logged once

    async def start(self) -> None:
        """List the indexes, compile the kernels of questions by opening one, and start to check for changes.

        The one opened is the first that can be, the default one first; what is wrong with others is told later.
        """
        await self.refresh_listing()
        logger.info("the catalogue has %s", count_noun(len(self._indexes), "index", "indexes"))
        if self._open_once is not None:
            indexes = sorted(self._indexes.values(), key=lambda index: index.name != self._default)
            for index in indexes[:_MAX_TRIED]:
                try:
                    await self._open_once(index.definition)
                    break
                except Exception as error:  # of any kind: the index fails for its own callers only
                    logger.debug("index %s cannot be opened: %s", index.name, error)
        self._watchers = [asyncio.create_task(self._watch_listing()), asyncio.create_task(self._watch_snapshots())]

    async def close(self) -> None:
        """Close every index. Requests should have ended or have been cancelled."""
        for watcher in self._watchers:
            watcher.cancel()
        indexes = self._indexes.values()
        openings = [index.opening for index in indexes if index.opening is not None]
        for opening in openings:
            opening.cancel()
        await asyncio.gather(*self._watchers, *openings, return_exceptions=True)
        swappers = {index.swapper for index in indexes if index.swapper is not None} | self._retired
        await asyncio.gather(*(swapper.close() for swapper in swappers))
        if self._close_models is not None:
            await self.runner.run(self._close_models())
        await self.runner.close()

    def check_ready(self) -> None:
        """Check that the indexes have been listed. Raises NotReady where they are not."""
        if not self._listed:
            raise NotReady("the service is up but has not listed its indexes; ask again in a moment")

    def find(self, name: str, caller: Caller) -> CatalogueIndex:
        """Return the index of a name; an empty name is the default index, or the only one that the caller may ask.

        A name that the caller may not ask is treated as one that does not exist.

        Raises:
            IndexNotFound: there is none of that name, or the caller may not ask it.
            InvalidQuery: the name is empty, and there are several or none.
        """
        if not name:
            entries = self.entries(caller)
            default = next((entry for entry in entries if entry.default), None)
            if default is None and entries:
                names = shorten(", ".join(entry.name for entry in entries[:_MAX_NAMED]), _MAX_NAMED)
                raise InvalidQuery(
                    f"index: the service has several indexes and no default; name one of those that it lists: {names}"
                )
            if default is None:
                raise InvalidQuery("index: the service has none that you may ask; ask its operator for access")
            name = default.name
        index = self._indexes.get(name)
        if not caller.may_ask(name) or index is None:
            raise index_not_found(name)
        return index

    def entries(self, caller: Caller) -> Sequence[IndexEntry]:
        """Return the indexes that a caller may ask, ordered by name."""
        self.check_ready()
        key = (caller.name, caller.indexes)
        found = self._visible.get(key)
        if found is None:
            definitions = [index.definition for name, index in self._indexes.items() if caller.may_ask(name)]
            only = len(definitions) == 1
            default = self._default if self._default in {definition.name for definition in definitions} else None
            found = [
                IndexEntry(each.name, each.title, each.name == default or (default is None and only))
                for each in definitions
            ]
            if len(self._visible) >= _MAX_VISIBLE:
                self._visible.clear()
            self._visible[key] = found
        return found

    @property
    def engine(self) -> QueryEngine | None:
        """None: there is no single engine."""
        return None

    @property
    def open_count(self) -> int:
        """Number of open indexes."""
        return sum(index.swapper is not None for index in self._indexes.values())

    @property
    def listed_count(self) -> int:
        """Number of indexes in the catalogue."""
        return len(self._indexes)

    def on_swap(self, observer: Callable[[bool], None]) -> None:
        """Call `observer` with True when a new snapshot of an open index is served, with False when it cannot be."""
        self._swap_observer = observer

    async def open_index(self, index: CatalogueIndex) -> SnapshotSwapper:
        """Open an index, and close another one if too many are open."""
        async with self._opening:
            await self._make_room()
            self._reserved += 1
            swapper = self._make_swapper(index.definition, self.runner)
            swapper.on_swap(self._swap_observer)
            try:
                await swapper.start(watch=False)
            except BaseException:
                self.events["failed"] += 1
                raise
            finally:
                self._reserved -= 1
            if self._indexes.get(index.name) is not index:  # removed meanwhile
                self._retire(swapper)
                raise index_not_found(index.name)
            self.events["opened"] += 1
            index.swapper = swapper
            return swapper

    async def release(self, index: CatalogueIndex) -> None:
        """Note the end of a request to an index."""
        if not index.requests:
            async with self._room:
                self._room.notify_all()

    async def close_idle(self) -> None:
        """Close the indexes that have had no request for too long."""
        if not self.limits.idle_s:
            return
        before = self.clock() - self.limits.idle_s
        for index in self._indexes.values():
            if index.swapper is not None and not index.requests and index.used < before:
                self._close_index(index, "idle")

    async def refresh_snapshots(self) -> None:
        """Check every open index for a new snapshot, at most a number of them per second."""
        for index in self._indexes.values():
            if index.swapper is not None:
                await index.swapper.refresh()
                await asyncio.sleep(1 / _MAX_CHECKS_PER_S)

    async def _make_room(self) -> None:
        async with self._room:
            try:
                async with asyncio.timeout(_ROOM_S):
                    while self.open_count + self._reserved >= self.limits.max_open:
                        idle = [each for each in self._indexes.values() if each.swapper and not each.requests]
                        if idle:
                            self._close_index(min(idle, key=lambda each: each.used), "limit")
                        else:
                            await self._room.wait()
            except TimeoutError:
                raise Overloaded(
                    f"all {self.limits.max_open} indexes that may be open are in use; ask again later", "indexes"
                ) from None

    def _close_index(self, index: CatalogueIndex, reason: str) -> None:
        swapper, index.swapper = index.swapper, None
        if swapper is not None:
            self.events[f"closed_{reason}"] += 1
            self._retire(swapper)

    def _retire(self, swapper: SnapshotSwapper) -> None:
        self._retired.add(swapper)
        swapper.retire(lambda: self._retired.discard(swapper))

    async def _watch_listing(self) -> None:
        while True:
            await asyncio.sleep(max(self.limits.poll_s, self._listing_s / _LISTING_SHARE))
            try:
                await self.refresh_listing()
            except Exception as error:  # of any kind: the indexes listed before stay served
                self.listing_failed = True
                if str(error) != self._last_failure:
                    logger.error("the indexes cannot be listed, those listed before stay served: %s", error)  # noqa: TRY400
                self._last_failure = str(error)

    async def _watch_snapshots(self) -> None:
        while True:
            await asyncio.sleep(self.limits.poll_s)
            await self.refresh_snapshots()
            await self.close_idle()

    async def refresh_listing(self) -> None:
        """List the indexes again; those that are gone or changed are closed after their last request."""
        started = self.clock()
        definitions = await asyncio.to_thread(self._list)
        self._listing_s = self.clock() - started
        self.listing_failed, self._last_failure = False, None
        before, after = self._indexes, dict[str, CatalogueIndex]()
        for name in sorted(definitions):
            index = before.get(name)
            if index is None or index.definition != definitions[name]:
                index = CatalogueIndex(self, definitions[name])
            after[name] = index
        self._indexes, self._listed = after, True
        if after != before:
            self._visible.clear()
        for name, index in before.items():
            if after.get(name) is not index:
                self._close_index(index, "removed" if name not in after else "changed")


_MAX_VISIBLE = 1024  # callers whose lists are cached


class CatalogueIndex:
    """An index of a catalogue, open or not."""

    def __init__(self, catalogue: IndexCatalogue, definition: IndexDefinition) -> None:
        self.name = definition.name
        self.definition = definition
        self.swapper: SnapshotSwapper | None = None
        self.opening: asyncio.Task[SnapshotSwapper] | None = None
        self.requests = 0
        self.used = 0.0
        self._catalogue = catalogue
        self._limits = catalogue.limits
        self._clock = catalogue.clock
        self._error: HiragError | None = None  # of the last attempt to open it
        self._failures = 0
        self._retry_at = 0.0  # by the clock
        self._logged = ""

    @asynccontextmanager
    async def lease(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[QueryEngine]:
        """Keep the index open for one request; open it first if need be.

        Args:
            remaining_s: returns the seconds until the request's deadline; None without one.

        Raises:
            DeadlinePassed: the index was not open in time.
            HiragError: it cannot be opened.
        """
        if self.requests >= self._limits.max_concurrent:
            raise Overloaded(
                f"index {self.name} has {count_noun(self.requests, 'request')} in progress, as many as it may; ask "
                "again in a moment",
                "index",
            )
        self.requests += 1  # an index with a request is not closed
        try:
            swapper = self.swapper or await self._opened(remaining_s())
            self.used = self._clock()
            with swapper.lease() as engine:
                yield engine
        finally:
            self.requests -= 1
            self.used = self._clock()
            await self._catalogue.release(self)

    async def _opened(self, left_s: float | None) -> SnapshotSwapper:
        if self._error is not None and self._clock() < self._retry_at:
            raise copy.copy(self._error)
        if self.opening is None:
            self.opening = asyncio.create_task(self._open())
            self.opening.add_done_callback(self._on_opened)
        try:
            async with asyncio.timeout(left_s):
                return await asyncio.shield(self.opening)
        except TimeoutError:
            raise DeadlinePassed(
                f"the deadline passed while index {self.name} was being opened; ask again, or allow more time"
            ) from None

    async def _open(self) -> SnapshotSwapper:
        try:
            swapper = await self._catalogue.open_index(self)
        except Overloaded:
            raise
        except Exception as error:
            self._failures += 1
            self._retry_at = self._clock() + min(self._limits.poll_s * 2**self._failures, _MAX_RETRY_S)
            if isinstance(error, SnapshotNotFound):
                self._error = index_not_found(self.name)  # an empty folder is no index yet
            elif isinstance(error, HiragError):
                self._error = IndexUnavailable(
                    f"index {self.name} cannot be opened; the service's log says why"  # paths are the operator's
                )
            else:
                self._error = HiragError(f"index {self.name} cannot be opened; the service's log has details")
            if str(error) != self._logged:
                self._logged = str(error)
                unexpected = None if isinstance(error, HiragError) else error
                logger.error(  # noqa: TRY400 - expected, as a rule
                    "index %s cannot be opened: %s", self.name, error, exc_info=unexpected
                )
            raise copy.copy(self._error) from error
        self._error, self._failures, self._logged = None, 0, ""
        return swapper

    def _on_opened(self, task: asyncio.Task[SnapshotSwapper]) -> None:
        self.opening = None
        if not task.cancelled():
            task.exception()  # marks it as retrieved: every caller may be gone


IndexSource = SingleIndex | IndexCatalogue  # the indexes of a service
