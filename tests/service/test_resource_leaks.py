"""Questions and changes of snapshots release their resources."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.generated import generate, questions, variant
from hirag_dist.client import AsyncHiragClient
from hirag_dist.composition.query import make_engine
from hirag_dist.config.loader import load_config
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.retrieval.engine import QueryEngine
from hirag_dist.service.hot_swap import SnapshotSwapper
from hirag_dist.storage.snapshot.reader import current_id, open_snapshot
from hirag_dist.storage.snapshot.writer import make_current
from hirag_dist.storage.store import Store
from hirag_dist.types import Query
from tests.service import fakes


@contextmanager
def no_collector() -> Iterator[None]:
    """Leave only what is referred to: an index in a cycle would keep its files mapped until the collector comes."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def test_swapped_engines_are_let_go_with_their_files(tmp_path: Path, start: fakes.Start) -> None:
    store = Store(str(tmp_path))
    first = generate(store, 1000).snapshot_id
    second = variant(store, first).snapshot_id
    config = load_config(None, {}, {"vectors.backend": "memory"}).config
    engines: list[weakref.ref[QueryEngine]] = []

    async def opened() -> QueryEngine:
        engine = make_engine(config, open_snapshot(store), Prompts())
        engines.append(weakref.ref(engine))
        return engine

    swapper = SnapshotSwapper(opened, lambda: current_id(store), poll_s=3600)
    service = await start(swapper, max_queue_wait_s=60)  # no caller is rejected, even on a slow machine
    asked = [Query("What is known of it?", vector=row) for row in questions(open_snapshot(store).entity_vectors, 20)]
    answered: set[str] = set()
    files: list[int] = []
    maps: list[int] = []
    threads: list[int] = []
    async with AsyncHiragClient(service.address) as client:
        for query in asked[:3]:  # what is compiled now leaves cycles behind
            await client.retrieve(query)
        with no_collector():
            for turn in range(4):
                make_current(store, first if turn % 2 else second)
                questions_at_work = [asyncio.create_task(client.retrieve(query)) for query in asked[:10]]
                assert await swapper.refresh()
                found = await asyncio.gather(*questions_at_work, *(client.retrieve(query) for query in asked[10:]))
                answered |= {each.snapshot_id for each in found}
                del found, questions_at_work
                await _let_go(engines)
                files.append(len(os.listdir("/proc/self/fd")))
                maps.append(Path("/proc/self/maps").read_text().count(str(tmp_path)))
                threads.append(threading.active_count())
    assert answered == {first, second}
    assert len(engines) == 5
    assert files[-1] == files[1], files
    assert maps[-1] == maps[1], maps
    assert maps[-1] > 0  # the engine that serves has files mapped, so that the count above says something
    assert threads[-1] <= threads[1] + 2, threads  # a pool may still be growing


async def _let_go(engines: list[weakref.ref[QueryEngine]]) -> None:
    """Wait until only the engine that serves is left."""
    for _ in range(200):
        if sum(each() is not None for each in engines) == 1:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("an engine that was swapped out is still referred to")
