"""One engine after another, without a failed request."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

from hirag_dist.errors import SnapshotCorrupt, SnapshotNotFound, StoreError
from hirag_dist.service.hot_swap import SnapshotSwapper, in_daemon_thread
from tests.service import fakes


class Store:
    """The current snapshot, and the engines opened from it."""

    def __init__(self) -> None:
        self.current: str | None = "s1"
        self.broken: dict[str, Exception] = {}
        self.unreadable: Exception | None = None
        self.opened: list[Any] = []
        self.attempts: list[str | None] = []

    async def open(self) -> Any:
        self.attempts.append(self.current)
        if self.current is None:
            raise SnapshotNotFound("nothing is published")
        if self.current in self.broken:
            raise self.broken[self.current]
        self.opened.append(fakes.FakeEngine(self.current))
        return self.opened[-1]

    def current_id(self) -> str | None:
        if self.unreadable:
            raise self.unreadable
        return self.current


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def swapper(store: Store) -> Any:
    swapper = SnapshotSwapper(store.open, store.current_id, poll_s=3600)
    await swapper.start()
    yield swapper
    await swapper.close()
    await asyncio.gather(*(engine.closed.wait() for engine in store.opened))  # none is left open


async def test_an_unchanged_snapshot_is_not_opened_again(store: Store, swapper: SnapshotSwapper) -> None:
    assert not await swapper.refresh()
    store.current = None
    assert not await swapper.refresh()
    assert len(store.opened) == 1


async def test_the_old_engine_closes_after_its_last_request(store: Store, swapper: SnapshotSwapper) -> None:
    with swapper.lease() as first:
        with swapper.lease() as second:
            store.current = "s2"
            assert await swapper.refresh()
            with swapper.lease() as third:
                assert third.info.snapshot_id == "s2"
            assert first is second
            assert first.info.snapshot_id == "s1"
        assert not store.opened[0].closed.is_set()
    await store.opened[0].closed.wait()
    assert not store.opened[1].closed.is_set()


async def test_a_snapshot_published_while_another_opens_is_opened_once(store: Store) -> None:
    async def late() -> Any:
        store.current = "s2"  # published after the id was read
        return await store.open()

    swapper = SnapshotSwapper(late, store.current_id, poll_s=3600)
    await swapper.start()
    assert not await swapper.refresh()
    assert [engine.info.snapshot_id for engine in store.opened] == ["s2"]
    await swapper.close()


async def test_a_failing_snapshot_is_logged_once_and_the_old_one_serves(
    store: Store, swapper: SnapshotSwapper, caplog: pytest.LogCaptureFixture
) -> None:
    store.current, store.broken = "s2", {"s2": SnapshotCorrupt("entities.parquet is short")}
    for _ in range(3):
        assert not await swapper.refresh()
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR] == [
        "snapshot s2 cannot be served, the old one goes on: entities.parquet is short; to stay with s1, write it into "
        "`current`"
    ]
    assert store.attempts == ["s1", "s2"]  # the next attempt comes after a pause
    with swapper.lease() as engine:
        assert engine.info.snapshot_id == "s1"
    store.current = "s3"
    assert await swapper.refresh()  # a better one is not kept waiting


async def test_a_damaged_current_is_named(
    store: Store, swapper: SnapshotSwapper, caplog: pytest.LogCaptureFixture
) -> None:
    store.current, store.broken = "", {"": SnapshotCorrupt("it is empty")}
    assert not await swapper.refresh()
    assert "what `current` names cannot be served, the old one goes on: it is empty; to stay with s1" in caplog.text


async def test_a_failing_snapshot_is_tried_again(store: Store) -> None:
    async def better_the_second_time() -> Any:
        try:
            return await store.open()
        except StoreError:
            store.broken = {}
            raise

    swapper = SnapshotSwapper(better_the_second_time, store.current_id, poll_s=0.01)
    await swapper.start()
    store.current, store.broken = "s2", {"s2": StoreError("no network")}
    await store.opened[0].closed.wait()
    assert store.attempts == ["s1", "s2", "s2"]
    await swapper.close()


async def test_a_current_that_stays_unreadable_counts_as_a_snapshot_not_taken_up(
    store: Store, swapper: SnapshotSwapper
) -> None:
    told: list[bool] = []
    swapper.on_swap(told.append)

    async def look(unreadable: Exception | None) -> None:
        store.unreadable = unreadable
        assert not await swapper.refresh()

    await look(StoreError("no network"))
    await look(None)
    assert told == []  # the next look made it good
    for _ in range(3):
        await look(StoreError("access denied"))
    assert told == [False, False]
    store.unreadable, store.current = None, "s2"
    assert await swapper.refresh()
    assert told == [False, False, True]


async def test_an_engine_is_not_closed_under_a_request_that_is_cut_off() -> None:
    engine = fakes.FakeEngine()
    swapper = fakes.swapper_of(engine)
    await swapper.start()
    unwinding = asyncio.Event()

    async def ask() -> None:
        with swapper.lease():
            try:
                await asyncio.Event().wait()
            finally:
                await unwinding.wait()
                assert not engine.closed.is_set()

    asking = asyncio.create_task(ask())
    await asyncio.sleep(0)
    asking.cancel()
    closing = asyncio.create_task(swapper.close())
    await asyncio.sleep(0)
    assert not engine.closed.is_set()
    unwinding.set()
    await closing
    assert engine.closed.is_set()
    assert asking.cancelled()


async def test_cancelled_it_does_not_wait_and_discards_what_comes_too_late() -> None:
    may_go_on, begun, discarded = threading.Event(), asyncio.Event(), asyncio.Event()
    loop, found = asyncio.get_running_loop(), []

    def slow() -> str:
        loop.call_soon_threadsafe(begun.set)
        may_go_on.wait()
        return "engine"

    def discard(made: str) -> None:
        found.append(made)
        loop.call_soon_threadsafe(discarded.set)

    task = asyncio.create_task(in_daemon_thread(slow, discard))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not found
    may_go_on.set()
    await discarded.wait()
    assert found == ["engine"]


@pytest.mark.integration
def test_a_process_ends_while_something_is_opened() -> None:
    code = """
import asyncio, threading
from hirag_dist.service.hot_swap import in_daemon_thread
async def main():
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    def never():
        loop.call_soon_threadsafe(begun.set)
        threading.Event().wait()
    task = asyncio.create_task(in_daemon_thread(never, print))
    await begun.wait()
    task.cancel()
    await asyncio.wait({task})
asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
