"""A service swaps to an update, whose rows go into the collection that it is searching, and back."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.generated import generate, questions, variant
from hirag_dist.client import AsyncHiragClient
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.hot_swap import SnapshotSwapper, in_daemon_thread
from hirag_dist.storage.lock import BuildLock
from hirag_dist.storage.snapshot.gc import RetentionPolicy, plan_gc, prune
from hirag_dist.storage.snapshot.reader import Snapshot, current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import Query, Retrieval
from tests.lineages import with_new_vectors
from tests.service import fakes


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generated")
    generate(Store(str(folder)), 500)
    return folder


@pytest.fixture
def store(generated: Path, tmp_path: Path) -> Store:
    """A store with a snapshot of 500 entities."""
    return Store(str(shutil.copytree(generated, tmp_path / "index")))


def opened(snapshot: Snapshot, backend: str) -> QueryEngine:
    return make_engine(load_config(None, {}, {"vectors.backend": backend}).config, snapshot, Prompts())


def swapper_of(store: Store, backend: str) -> SnapshotSwapper:
    async def open_engine() -> QueryEngine:
        return await in_daemon_thread(
            lambda: opened(open_snapshot(store), backend), lambda engine: asyncio.run(engine.close())
        )

    return SnapshotSwapper(open_engine, lambda: current_id(store), poll_s=3600)


async def retrieved(snapshot: Snapshot, asked: list[Query]) -> list[Retrieval]:
    engine = opened(snapshot, "memory")
    try:
        return [await engine.retrieve(query) for query in asked]
    finally:
        await engine.close()


async def test_no_request_fails_and_each_snapshot_finds_its_own_rows(store: Store, start: fakes.Start) -> None:
    base = open_snapshot(store)
    update = with_new_vectors(base, range(40, 60))
    asked = [Query(f"What is known of it, {at}?", vector=row) for at, row in enumerate(base.entity_vectors[40:46])]
    asked += [Query(f"And of it, {at}?", vector=row) for at, row in enumerate(questions(base.entity_vectors, 6))]
    expected = {each.manifest.snapshot_id: await retrieved(each, asked) for each in (base, update)}
    swapper = swapper_of(store, "milvus-lite")
    service = await start(swapper, max_queue_wait_s=120)
    answered: list[str] = []
    swapped = asyncio.Event()

    async def ask(client: AsyncHiragClient, worker: int) -> None:
        at = worker
        while not swapped.is_set():
            found = await client.retrieve(asked[at % len(asked)])
            assert found.local == expected[found.snapshot_id][at % len(asked)].local
            answered.append(found.snapshot_id)
            at += 3

    async with AsyncHiragClient(service.address) as client:
        callers = [asyncio.create_task(ask(client, worker)) for worker in range(3)]
        for snapshot in (update, base, update):
            make_current(store, snapshot.manifest.snapshot_id)
            assert await swapper.refresh()
            before = len(answered)
            while len(answered) < before + len(asked) and not any(caller.done() for caller in callers):
                await asyncio.sleep(0.05)
        swapped.set()
        await asyncio.gather(*callers)
    assert set(answered) == {base.manifest.snapshot_id, update.manifest.snapshot_id}
    assert answered[-1] == update.manifest.snapshot_id
    differing = zip(*(each for each in expected.values()), strict=True)
    assert any(one.local != other.local for one, other in differing), "the snapshots differ in what is asked"


async def test_a_snapshot_pruned_under_a_service_is_answered_from_until_the_swap(
    store: Store, start: fakes.Start
) -> None:
    base = open_snapshot(store)
    asked = [Query(f"What is known of it, {at}?", vector=row) for at, row in enumerate(base.entity_vectors[40:46])]
    expected = await retrieved(base, asked)
    swapper = swapper_of(store, "memory")
    service = await start(swapper)
    async with AsyncHiragClient(service.address) as client:
        assert (await client.retrieve(asked[0])).snapshot_id == base.manifest.snapshot_id
        update = with_new_vectors(base, range(40, 60))
        make_current(store, update.manifest.snapshot_id)
        with BuildLock(store) as lock:
            plan = plan_gc(store, RetentionPolicy(keep=0, older_than_s=0.0), time.time() + 1)
            prune(store, lock, plan, [])
        assert store.names("snapshots") == [update.manifest.snapshot_id]
        for query, known in zip(asked, expected, strict=True):
            found = await client.retrieve(query)
            assert found.snapshot_id == base.manifest.snapshot_id
            assert (found.local, len(found.sources)) == (known.local, len(known.sources))
        assert await swapper.refresh()
        assert (await client.retrieve(asked[0])).snapshot_id == update.manifest.snapshot_id


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave only what is referred to: an index in a cycle would keep its files mapped until the collector comes."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_swapped_engines_are_let_go_with_their_files(store: Store, start: fakes.Start) -> None:
    first = open_snapshot(store).manifest.snapshot_id
    second = variant(store, first).snapshot_id
    engines: list[weakref.ref[QueryEngine]] = []

    async def open_engine() -> QueryEngine:
        engine = opened(open_snapshot(store), "memory")
        engines.append(weakref.ref(engine))
        return engine

    swapper = SnapshotSwapper(open_engine, lambda: current_id(store), poll_s=3600)
    service = await start(swapper, max_queue_wait_s=60)  # no caller is rejected, even on a slow machine
    asked = [Query("What is known of it?", vector=row) for row in questions(open_snapshot(store).entity_vectors, 8)]
    answered: set[str] = set()
    held: list[tuple[int, int]] = []  # open files and mapped ones
    threads: list[int] = []
    async with AsyncHiragClient(service.address) as client:
        for query in asked[:3]:  # what is compiled now leaves cycles behind
            await client.retrieve(query)
        with no_collector():
            for turn in range(4):
                make_current(store, first if turn % 2 else second)
                questions_at_work = [asyncio.create_task(client.retrieve(query)) for query in asked[:4]]
                assert await swapper.refresh()
                found = await asyncio.gather(*questions_at_work, *(client.retrieve(query) for query in asked[4:]))
                answered |= {each.snapshot_id for each in found}
                del found, questions_at_work
                await _let_go(engines)
                maps = Path("/proc/self/maps").read_text().count(store.root)
                held.append((len(os.listdir("/proc/self/fd")), maps))
                threads.append(threading.active_count())
    assert answered == {first, second}
    assert len(engines) == 5
    assert held[-1] == held[1], held
    assert maps > 0  # the engine that serves has files mapped, so that the count above says something
    assert threads[-1] <= threads[1] + 2, threads  # a pool may still be growing


async def _let_go(engines: list[weakref.ref[QueryEngine]]) -> None:
    """Wait until only the engine that serves is left."""
    for _ in range(200):
        if sum(each() is not None for each in engines) == 1:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("an engine that was swapped out is still referred to")
