"""A service swaps to an update, whose rows go into the collection that it is searching, and back."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from benchmarks.generated import generate, questions
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


def opened(snapshot: Snapshot, backend: str) -> QueryEngine:
    return make_engine(load_config(None, {}, {"vectors.backend": backend}).config, snapshot, Prompts())


async def test_no_request_fails_and_each_snapshot_finds_its_own_rows(tmp_path: Path, start: fakes.Start) -> None:
    store = Store(str(tmp_path))
    generate(store, 1000)
    base = open_snapshot(store)
    update = with_new_vectors(base, range(40, 60))
    asked = [Query(f"What is known of it, {at}?", vector=row) for at, row in enumerate(base.entity_vectors[40:52])]
    asked += [Query(f"And of it, {at}?", vector=row) for at, row in enumerate(questions(base.entity_vectors, 12))]
    expected: dict[str, list[Retrieval]] = {}
    for snapshot in (base, update):
        engine = opened(snapshot, "memory")
        expected[snapshot.manifest.snapshot_id] = [await engine.retrieve(query) for query in asked]
        await engine.close()

    async def open_engine() -> QueryEngine:
        return await in_daemon_thread(
            lambda: opened(open_snapshot(store), "milvus-lite"), lambda engine: asyncio.run(engine.close())
        )

    swapper = SnapshotSwapper(open_engine, lambda: current_id(store), poll_s=3600)
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
    tmp_path: Path, start: fakes.Start
) -> None:
    store = Store(str(tmp_path))
    generate(store, 1000)
    base = open_snapshot(store)
    asked = [Query(f"What is known of it, {at}?", vector=row) for at, row in enumerate(base.entity_vectors[40:60])]
    engine = opened(base, "memory")
    expected = [await engine.retrieve(query) for query in asked]
    await engine.close()

    async def open_engine() -> QueryEngine:
        return await in_daemon_thread(
            lambda: opened(open_snapshot(store), "memory"), lambda engine: asyncio.run(engine.close())
        )

    swapper = SnapshotSwapper(open_engine, lambda: current_id(store), poll_s=3600)
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
