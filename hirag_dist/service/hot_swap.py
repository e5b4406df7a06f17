"""Which engine answers now, and how a new snapshot takes over without a failed request."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

from hirag_dist.service.engine import Engine
from hirag_dist.service.engine_thread import EngineRunner, InlineEngineRunner
from hirag_dist.wire.error_status import NotReady

_LOG = logging.getLogger(__name__)
_UNWIND_S = 5.0  # for requests that were cut off to let go of the engine
_MAX_PAUSE = 32  # polls between two attempts to open a snapshot that fails


class _Shared:
    """An engine and how many requests are using it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.requests = 0
        self.retired = False
        self.let_go = asyncio.Event()


class SnapshotSwapper:
    """Holds the engine of the current snapshot and replaces it when another one goes live.

    Args:
        open_engine: opens the current snapshot.
        current_id: names it, or None when nothing is published; runs in a thread, so it may read a file.
        poll_s: seconds between two looks at `current_id`.
        runner: where engines work; closed with the holder.
    """

    def __init__(
        self,
        open_engine: Callable[[], Awaitable[Engine]],
        current_id: Callable[[], str | None],
        poll_s: float = 5.0,
        runner: EngineRunner | None = None,
    ) -> None:
        self.runner = runner or InlineEngineRunner()
        self._open_engine = open_engine
        self._current_id = current_id
        self._poll_s = poll_s
        self._shared: _Shared | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._swapped: Callable[[bool], None] = lambda ok: None
        self._trouble: str | None = None  # what was logged last, so that it is logged once
        self._blind = False  # the last look could not see which snapshot is current
        self._failing: str | None = None  # the snapshot that could not be opened
        self._failures = 0
        self._looking = asyncio.Lock()
        self._retry_at = 0.0  # event loop's clock

    @property
    def loaded(self) -> bool:
        """Whether there is an engine."""
        return self._shared is not None

    async def start(self) -> None:
        """Open the first engine and begin to watch for others.

        Raises:
            HiragError: what `open_engine` raised: there is nothing to serve.
        """
        self._shared = _Shared(await self._open_engine())
        _LOG.info("serving snapshot %s", self._shared.engine.info.snapshot_id)
        self._watcher = asyncio.create_task(self._watch())

    def tell(self, swapped: Callable[[bool], None]) -> None:
        """Call `swapped` whenever a snapshot was taken up, with True, or could not be, with False.

        It could not be, too, at each look but the first in a row that cannot see which one is current.
        """
        self._swapped = swapped

    @property
    def engine(self) -> Engine | None:
        """The engine that answers now, to look at; None where there is none. To use it, `lease` it."""
        return None if self._shared is None else self._shared.engine

    @contextmanager
    def lease(self) -> Iterator[Engine]:
        """Keep the present engine open for one request.

        Raises:
            NotReady: no snapshot is loaded.
        """
        shared = self._shared
        if shared is None:
            raise NotReady("the service is up but has no snapshot loaded; ask again in a moment")
        shared.requests += 1
        try:
            yield shared.engine
        finally:
            shared.requests -= 1
            if shared.retired and not shared.requests:
                self._let_go(shared)

    async def refresh(self) -> bool:
        """Look once whether another snapshot is current, and switch to it. Return whether that happened.

        A snapshot that cannot be opened is logged once and tried again after growing pauses; the old engine goes on.
        """
        async with self._looking:
            return await self._refresh()

    async def _refresh(self) -> bool:
        try:
            wanted = await asyncio.to_thread(self._current_id)
        except Exception as error:  # whatever it is, the old snapshot must go on serving
            self._report(f"cannot see which snapshot is current, the old one goes on: {error}")
            if self._blind:  # one look that fails is made good by the next one; by now a snapshot may have been missed
                self._swapped(False)
            self._blind = True
            return False
        self._blind = False
        shared = self._shared
        if wanted is None or (shared is not None and wanted == shared.engine.info.snapshot_id):
            self._well()
            return False
        if wanted == self._failing and asyncio.get_running_loop().time() < self._retry_at:
            return False
        try:
            engine = await self._open_engine()
        except Exception as error:  # as above
            self._failures = self._failures + 1 if wanted == self._failing else 1
            self._failing = wanted
            pause_s = self._poll_s * min(2**self._failures, _MAX_PAUSE)
            self._retry_at = asyncio.get_running_loop().time() + pause_s
            self._report(f"snapshot {wanted} cannot be served, the old one goes on: {error}")
            self._swapped(False)
            return False
        self._switch(engine)
        return True

    async def close(self) -> None:
        """Stop watching and close every engine. Requests should have ended, or have been cut off."""
        if self._watcher is not None:
            self._watcher.cancel()
            await asyncio.gather(self._watcher, return_exceptions=True)
            self._watcher = None
        if self._shared is not None:
            shared, self._shared = self._shared, None
            shared.retired = True
            if shared.requests:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_UNWIND_S):
                        await shared.let_go.wait()
            self._let_go(shared)
        while self._closing:
            await asyncio.gather(*self._closing)
        await self.runner.close()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._poll_s)
            await self.refresh()

    def _report(self, trouble: str) -> None:
        if trouble != self._trouble:
            _LOG.error("%s", trouble)
        self._trouble = trouble

    def _well(self) -> None:
        self._trouble, self._failing, self._failures = None, None, 0

    def _switch(self, engine: Engine) -> None:
        old, self._shared = self._shared, _Shared(engine)
        self._well()
        _LOG.info("serving snapshot %s", engine.info.snapshot_id)
        self._swapped(True)
        if old is not None:
            old.retired = True
            if not old.requests:
                self._let_go(old)

    def _let_go(self, shared: _Shared) -> None:
        if shared.let_go.is_set():
            return
        shared.let_go.set()
        task = asyncio.create_task(self._close(shared.engine))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close(self, engine: Engine) -> None:
        try:
            await self.runner.run(engine.close())
        except Exception:  # nobody waits for this engine any more, and the service must go on
            _LOG.exception("snapshot %s did not close cleanly", engine.info.snapshot_id)
