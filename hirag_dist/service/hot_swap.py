"""Indexes of a service, as its requests find them, and hot swap (reload): a new snapshot without a failed request."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import threading
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

from hirag_dist.errors import InvalidQuery
from hirag_dist.service.callers import Caller
from hirag_dist.service.engine import EngineRunner
from hirag_dist.types import IndexEntry
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import IndexNotFound, NotReady

if TYPE_CHECKING:
    from hirag_dist.retrieval.engine import QueryEngine

T = TypeVar("T")
logger = logging.getLogger(__name__)
_CLOSE_S = 1.5  # for engines to close their connections
_RELEASE_S = 3.0  # for cancelled requests to release the engine
_MAX_RETRY_POLLS = 32  # between two attempts to open a snapshot that fails


async def in_daemon_thread(make: Callable[[], T], discard: Callable[[T], None]) -> T:
    """Return the result of `make`. A cancellation does not wait for it.

    Python waits for the threads of an executor when the process ends, so a service that is stopped while it copies a
    snapshot would have to be killed.

    Args:
        make: may block.
        discard: called with a result that is no longer needed, in a thread of its own.
    """
    here = asyncio.get_running_loop()
    made: asyncio.Future[T] = here.create_future()

    def work() -> None:
        try:
            result = make()
        except BaseException as error:  # of any kind: the waiting task must end
            _settle(here, made.set_exception, error)
        else:
            if not _settle(here, made.set_result, result):
                discard(result)

    def unwanted(made: asyncio.Future[T]) -> None:
        if made.exception() is None:
            threading.Thread(target=discard, args=(made.result(),), name="discard", daemon=True).start()

    threading.Thread(target=work, name="opening", daemon=True).start()
    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        made.add_done_callback(unwanted)
        raise


def _settle(loop: asyncio.AbstractEventLoop, settle: Callable[[T], None], outcome: T) -> bool:
    """Settle a future from another thread. Return whether its loop still runs."""
    try:
        loop.call_soon_threadsafe(settle, outcome)
    except RuntimeError:
        return False
    return True


class _LeasedEngine:
    """An engine and the number of requests that use it."""

    def __init__(self, engine: QueryEngine) -> None:
        self.engine = engine
        self.requests = 0
        self.retired = False
        self.released = asyncio.Event()


class SnapshotSwapper:
    """Owner of the engine of the current snapshot, which it replaces when another snapshot becomes current.

    Args:
        open_engine: opens the current snapshot.
        current_id: returns its id, "" if `current` is damaged, None to stay with the one that is served; runs in a
            thread, so it may read a file.
        poll_s: seconds between two checks of `current_id`.
    """

    def __init__(
        self,
        open_engine: Callable[[], Awaitable[QueryEngine]],
        current_id: Callable[[], str | None],
        poll_s: float = 5.0,
        runner: EngineRunner | None = None,
        name: str = "",
    ) -> None:
        self.runner = runner or EngineRunner()
        self._prefix = f"index {name}: " if name else ""
        self._open_engine = open_engine
        self._current_id = current_id
        self._poll_s = poll_s
        self._shared: _LeasedEngine | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._swap_observer: Callable[[bool], None] = lambda ok: None
        self._last_failure: str | None = None  # the message logged last: each is logged once
        self._check_failed = False  # the last check could not determine the current snapshot
        self._failing_id: str | None = None  # of the snapshot that could not be opened
        self._failures = 0
        self._refreshing = asyncio.Lock()
        self._retired: Callable[[], None] | None = None
        self._retry_at = 0.0  # event loop's clock

    async def start(self, *, watch: bool = True) -> None:
        """Open the first engine and start to check for new snapshots.

        Args:
            watch: whether to check; otherwise the owner calls `refresh`.

        Raises:
            HiragError: from `open_engine`: there is nothing to serve.
        """
        self._shared = _LeasedEngine(await self._open_engine())
        logger.info("%sserving snapshot %s", self._prefix, self._shared.engine.info.snapshot_id)
        if watch:
            self._watcher = asyncio.create_task(self._watch())

    def on_swap(self, observer: Callable[[bool], None]) -> None:
        """Call `observer` with True when a new snapshot is served, with False when it cannot be.

        A check that cannot determine the current snapshot counts as False too, from the second in a row on.
        """
        self._swap_observer = observer

    @property
    def engine(self) -> QueryEngine | None:
        """The current engine, for inspection only; None before the first. `lease` it to use it."""
        return None if self._shared is None else self._shared.engine

    @contextmanager
    def lease(self) -> Iterator[QueryEngine]:
        """Keep the current engine open for one request. Raises NotReady where no snapshot is loaded."""
        shared = self._shared
        if shared is None:
            raise NotReady("the service is up but has no snapshot loaded; ask again in a moment")
        shared.requests += 1
        try:
            yield shared.engine
        finally:
            shared.requests -= 1
            if shared.retired and not shared.requests:
                self._release(shared)

    async def refresh(self) -> bool:
        """Switch to the current snapshot if it is another one. Return whether it was.

        A snapshot that cannot be opened is logged once and tried again after growing pauses; the old one stays served.
        """
        async with self._refreshing:
            return await self._refresh()

    async def _refresh(self) -> bool:
        if self._retired is not None:
            return False
        try:
            current = await asyncio.to_thread(self._current_id)
        except Exception as error:  # of any kind: the old snapshot must stay served
            self._log_failure(f"cannot see which snapshot is current, the old one goes on: {error}")
            if self._check_failed:  # the second failure in a row: a new snapshot may have been missed
                self._swap_observer(False)
            self._check_failed = True
            return False
        self._check_failed = False
        shared = self._shared
        if current is None or (shared is not None and current == shared.engine.info.snapshot_id):
            self._clear_failure()
            return False
        if current == self._failing_id and asyncio.get_running_loop().time() < self._retry_at:
            return False
        try:
            engine = await self._open_engine()
        except Exception as error:  # of any kind: the old snapshot must stay served
            self._failures = self._failures + 1 if current == self._failing_id else 1
            self._failing_id = current
            pause_s = self._poll_s * min(2**self._failures, _MAX_RETRY_POLLS)
            self._retry_at = asyncio.get_running_loop().time() + pause_s
            back = "" if shared is None else f"; to stay with {shared.engine.info.snapshot_id}, write it into `current`"
            named = f"snapshot {current}" if current else "what `current` names"
            self._log_failure(f"{named} cannot be served, the old one goes on: {error}{back}")
            self._swap_observer(False)
            return False
        if self._retired is not None:
            await self._close(engine)
            return False
        old, self._shared = self._shared, _LeasedEngine(engine)
        self._clear_failure()
        logger.info("%sserving snapshot %s", self._prefix, engine.info.snapshot_id)
        self._swap_observer(True)
        if old is not None:
            self._release_when_unused(old)
        return True

    def retire(self, closed: Callable[[], None]) -> None:
        """Close the engine when its last request has ended; nothing is opened or leased after this call.

        Args:
            closed: called when the engine is closed.
        """
        self._retired = closed
        shared, self._shared = self._shared, None
        if shared is None:
            closed()
            return
        self._release_when_unused(shared)

    async def close(self) -> None:
        """Stop the checks and close every engine. Requests should have ended or have been cancelled."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        if self._shared is not None:
            shared, self._shared = self._shared, None
            shared.retired = True
            if shared.requests:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_RELEASE_S):
                        await shared.released.wait()
            self._release(shared)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_S):
                while self._closing:
                    await asyncio.gather(*self._closing)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            await self.refresh()

    def _log_failure(self, message: str) -> None:
        if message != self._last_failure:
            logger.error("%s%s", self._prefix, message)
        self._last_failure = message

    def _clear_failure(self) -> None:
        self._last_failure, self._failing_id, self._failures = None, None, 0

    def _release_when_unused(self, shared: _LeasedEngine) -> None:
        shared.retired = True
        if not shared.requests:
            self._release(shared)

    def _release(self, shared: _LeasedEngine) -> None:
        if shared.released.is_set():
            return
        shared.released.set()
        task = asyncio.create_task(self._close(shared.engine))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, engine: QueryEngine) -> None:
        try:
            await self.runner.run(engine.close())
        except Exception:  # the engine is no longer used, and the service must go on
            logger.exception("snapshot %s did not close cleanly", engine.info.snapshot_id)
        if self._retired is not None:
            self._retired()


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


class SingleIndex:
    """The only index of a service, and all of its indexes. Every caller may ask it.

    Args:
        swapper: owner of its engine, started and closed with this source, and its runner too.

    Attributes:
        name: empty, as requests give it.
    """

    def __init__(self, swapper: SnapshotSwapper) -> None:
        self.name = ""
        self.runner = swapper.runner
        self._swapper = swapper

    async def start(self) -> None:
        """Open the first engine. Raises HiragError where there is nothing to serve."""
        await self._swapper.start()

    async def close(self) -> None:
        """Close the engine. Requests should have ended or have been cancelled."""
        await self._swapper.close()
        await self.runner.close()

    def check_ready(self) -> None:
        """Check that a snapshot is loaded. Raises NotReady where none is."""
        with self._swapper.lease():
            pass

    def find(self, name: str, caller: Caller) -> SingleIndex:
        """Return the index. Raises IndexNotFound where there is a name."""
        if name:
            raise index_not_found(name)
        return self

    @asynccontextmanager
    async def lease(self, remaining_s: Callable[[], float | None]) -> AsyncIterator[QueryEngine]:
        """Keep the current engine open for one request, which never opens it. Raises NotReady where there is none."""
        with self._swapper.lease() as engine:
            yield engine

    def entries(self, caller: Caller) -> Sequence[IndexEntry]:
        """Return one entry without a name."""
        return [IndexEntry("", default=True)]

    @property
    def engine(self) -> QueryEngine | None:
        """The engine of the current snapshot, None before the first."""
        return self._swapper.engine

    def on_swap(self, observer: Callable[[bool], None]) -> None:
        """Call `observer` with True when a new snapshot is served, with False when it cannot be."""
        self._swapper.on_swap(observer)


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
        next_page_token=base64.urlsafe_b64encode(page[-1].name.encode()).decode() if more else "",
    )


def _name_of(token: str) -> str:
    try:
        if len(token) > _MAX_TOKEN_CHARACTERS:
            raise ValueError
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError):
        raise InvalidQuery("page_token is none that ListIndexes returned; begin without one") from None
