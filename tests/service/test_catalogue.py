"""Many indexes in one service: opened on demand, closed again, each for its own callers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.client import IndexNotFound, Overloaded
from hirag_dist.errors import InvalidQuery, SnapshotCorrupt, StoreError
from hirag_dist.service.callers import Caller
from hirag_dist.service.catalogue import CatalogueLimits, IndexCatalogue, IndexDefinition
from hirag_dist.service.engine import EngineRunner
from hirag_dist.service.hot_swap import SnapshotSwapper, index_page
from hirag_dist.types import IndexEntry
from hirag_dist.wire._pb import query_pb2 as pb
from hirag_dist.wire.error_status import IndexUnavailable
from tests.service import fakes

ALL = Caller(reach=None)
Started = Callable[..., Awaitable[IndexCatalogue]]


class Folders:
    """Indexes of a catalogue: their engines, opened so far, and what opening them meets."""

    def __init__(self, *names: str) -> None:
        self.definitions = {name: IndexDefinition(name, f"/{name}") for name in names}
        self.current = dict.fromkeys(names, "s1")
        self.engines: dict[str, list[fakes.FakeEngine]] = {name: [] for name in names}
        self.errors: dict[str, Exception] = {}
        self.gates: dict[str, asyncio.Event] = {}
        self.listing_error: Exception | None = None
        self.now = 1000.0

    def listed(self) -> dict[str, IndexDefinition]:
        if self.listing_error is not None:
            raise self.listing_error
        return dict(self.definitions)

    def swapper(self, definition: IndexDefinition, runner: EngineRunner) -> SnapshotSwapper:
        name = definition.name

        async def opened() -> fakes.FakeEngine:
            if name in self.gates:
                await self.gates[name].wait()
            if name in self.errors:
                raise self.errors[name]
            snapshot = f"{name}-{self.current[name]}"
            engine = fakes.FakeEngine(snapshot, replace(fakes.WHOLE, context=f"of {name}"))
            self.engines[name].append(engine)
            return engine

        return SnapshotSwapper(opened, lambda: f"{name}-{self.current[name]}", 3600, runner)

    def catalogue(self, default: str | None = None, **limits: Any) -> IndexCatalogue:
        chosen = CatalogueLimits(**{"poll_s": 3600.0} | limits)
        return IndexCatalogue(self.listed, self.swapper, chosen, EngineRunner(), default, clock=lambda: self.now)


async def ask(catalogue: IndexCatalogue, name: str, caller: Caller = ALL, left_s: float | None = None) -> str:
    async with catalogue.find(name, caller).lease(lambda: left_s) as engine:
        return engine.info.snapshot_id


@pytest.fixture
def folders() -> Folders:
    return Folders("acme", "beta", "gamma")


@pytest.fixture
async def started(folders: Folders) -> AsyncIterator[Started]:
    """Starts catalogues of the folders, and closes them."""
    made: list[IndexCatalogue] = []

    async def started(default: str | None = None, **limits: Any) -> IndexCatalogue:
        made.append(folders.catalogue(default, **limits))
        await made[-1].start()
        return made[-1]

    yield started
    for catalogue in made:
        await catalogue.close()
    assert all(engine.closed.is_set() for engines in folders.engines.values() for engine in engines)


@pytest.fixture
async def catalogue(started: Started) -> IndexCatalogue:
    return await started()


async def test_an_index_is_opened_by_its_first_request_once(catalogue: IndexCatalogue, folders: Folders) -> None:
    assert catalogue.open_count == 0
    folders.gates["acme"] = asyncio.Event()
    requests = [asyncio.create_task(ask(catalogue, "acme")) for _ in range(5)]
    assert await ask(catalogue, "beta") == "beta-s1"  # not delayed by the other
    folders.gates["acme"].set()
    assert await asyncio.gather(*requests) == ["acme-s1"] * 5
    assert len(folders.engines["acme"]) == 1
    assert catalogue.open_count == 2


async def test_an_index_is_opened_once_before_the_catalogue_is_ready(folders: Folders) -> None:
    tried: list[str] = []
    may_open = asyncio.Event()

    async def open_once(definition: IndexDefinition) -> None:
        tried.append(definition.name)
        if definition.name == "beta":
            raise SnapshotCorrupt("damaged")
        await may_open.wait()

    limits = CatalogueLimits(poll_s=3600.0)
    runner = EngineRunner()
    catalogue = IndexCatalogue(folders.listed, folders.swapper, limits, runner, "beta", open_once=open_once)
    starting = asyncio.create_task(catalogue.start())
    while len(tried) < 2:
        await asyncio.sleep(0)
    assert not starting.done()
    may_open.set()
    await starting
    assert tried == ["beta", "acme"]  # the default first; one that opens is enough
    assert catalogue.open_count == 0
    await catalogue.close()


async def test_the_least_recently_used_index_is_closed_for_another(started: Started, folders: Folders) -> None:
    catalogue = await started(max_open=2)
    for name in ("acme", "beta", "acme", "gamma"):
        folders.now += 1
        await ask(catalogue, name)
    await folders.engines["beta"][0].closed.wait()
    assert not folders.engines["acme"][0].closed.is_set()
    assert catalogue.open_count == 2
    assert catalogue.events == {"opened": 3, "closed_limit": 1}
    await ask(catalogue, "beta")  # opened again
    assert len(folders.engines["beta"]) == 2


async def test_an_index_in_use_is_not_closed_for_another(started: Started, folders: Folders) -> None:
    catalogue = await started(max_open=1)
    async with catalogue.find("acme", ALL).lease(lambda: None) as engine:
        waiting = asyncio.create_task(ask(catalogue, "beta"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        assert not folders.engines["acme"][0].closed.is_set()
        assert engine.info.snapshot_id == "acme-s1"
    assert await waiting == "beta-s1"


async def test_an_idle_index_is_closed(started: Started, folders: Folders) -> None:
    catalogue = await started(idle_s=60)
    await ask(catalogue, "acme")
    folders.now += 30
    await ask(catalogue, "beta")
    folders.now += 31
    await catalogue.close_idle()
    await folders.engines["acme"][0].closed.wait()
    assert catalogue.open_count == 1


async def test_each_open_index_switches_to_its_new_snapshot(catalogue: IndexCatalogue, folders: Folders) -> None:
    await ask(catalogue, "acme")
    await ask(catalogue, "beta")
    folders.current["acme"] = "s2"
    async with catalogue.find("acme", ALL).lease(lambda: None) as before:
        await catalogue.refresh_snapshots()
        assert before.info.snapshot_id == "acme-s1"
        assert not folders.engines["acme"][0].closed.is_set()
        assert await ask(catalogue, "acme") == "acme-s2"
    await folders.engines["acme"][0].closed.wait()
    assert await ask(catalogue, "beta") == "beta-s1"
    assert len(folders.engines["beta"]) == 1
    assert folders.engines["gamma"] == []


async def test_indexes_come_and_go(started: Started, folders: Folders) -> None:
    catalogue = await started(poll_s=0.001)
    async with catalogue.find("acme", ALL).lease(lambda: None):
        del folders.definitions["acme"]
        folders.definitions["delta"] = IndexDefinition("delta", "/delta")
        folders.current["delta"], folders.engines["delta"] = "s1", []
        while [entry.name for entry in catalogue.entries(ALL)] != ["beta", "delta", "gamma"]:
            await asyncio.sleep(0.001)
        with pytest.raises(IndexNotFound):
            catalogue.find("acme", ALL)
        assert not folders.engines["acme"][0].closed.is_set()  # its request goes on
    await folders.engines["acme"][0].closed.wait()
    assert await ask(catalogue, "delta") == "delta-s1"


async def test_a_listing_that_fails_later_keeps_the_indexes(
    started: Started, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = await started(poll_s=0.001)
    folders.listing_error = StoreError("the bucket is gone")
    while not catalogue.listing_failed:
        await asyncio.sleep(0.001)
    await asyncio.sleep(0.02)
    assert await ask(catalogue, "acme") == "acme-s1"
    folders.listing_error = None
    while catalogue.listing_failed:
        await asyncio.sleep(0.001)
    assert caplog.text.count("the bucket is gone") == 1


async def test_a_broken_index_harms_no_other(
    catalogue: IndexCatalogue, folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    folders.errors["acme"] = SnapshotCorrupt("/data/acme/snapshots/x is damaged")
    for _ in range(3):
        with pytest.raises(IndexUnavailable, match="index acme cannot be opened") as caught:
            await ask(catalogue, "acme")
        assert "/data" not in str(caught.value)
        assert await ask(catalogue, "beta") == "beta-s1"
    assert catalogue.events["failed"] == 1  # it is not tried again at once
    assert caplog.text.count("is damaged") == 1
    del folders.errors["acme"]
    folders.now += 8000
    assert await ask(catalogue, "acme") == "acme-s1"


async def test_one_index_does_not_take_all_requests(started: Started, folders: Folders) -> None:
    catalogue = await started(max_concurrent=2)
    acme = catalogue.find("acme", ALL)
    async with acme.lease(lambda: None), acme.lease(lambda: None):
        with pytest.raises(Overloaded, match="as many as it may"):
            async with acme.lease(lambda: None):
                pass
        assert await ask(catalogue, "gamma") == "gamma-s1"
    assert await ask(catalogue, "acme") == "acme-s1"


@pytest.mark.parametrize(
    ("default", "patterns", "expected"),
    [
        (None, ("acme",), "acme"),
        (None, ("acme", "beta"), None),
        (None, (), None),
        ("beta", ("acme", "beta"), "beta"),
        ("beta", ("acme",), "acme"),  # a hidden default changes nothing
        ("beta", ("acme", "gamma"), None),
        ("beta", None, "beta"),
    ],
)
async def test_requests_without_a_name(
    started: Started, default: str | None, patterns: tuple[str, ...] | None, expected: str | None
) -> None:
    catalogue = await started(default)
    caller = Caller("web", indexes=patterns)
    entries = catalogue.entries(caller)
    assert [entry.name for entry in entries if entry.default] == ([] if expected is None else [expected])
    if expected is None:
        words = f"one of those that it lists: {', '.join(patterns or ())}$" if patterns else "has none that you"
        with pytest.raises(InvalidQuery, match=words):
            catalogue.find("", caller)
    else:
        assert catalogue.find("", caller).name == expected


ENTRIES = [IndexEntry(f"index-{number:04}", title=f"Index {number}") for number in range(250)]


def pages(size: int, entries: list[IndexEntry] = ENTRIES) -> list[list[tuple[str, str]]]:
    """Names and titles on each page."""
    found, token = [], ""
    while True:
        page = index_page(entries, pb.ListIndexesRequest(page_size=size, page_token=token))
        found.append([(entry.name, entry.title) for entry in page.indexes])
        token = page.next_page_token
        if not token:
            return found


@pytest.mark.parametrize("size", [0, 1, 99, 250, 2**31 - 1])
def test_pages_hold_every_index_once(size: int) -> None:
    found = pages(size)
    assert [each for page in found for each in page] == [(entry.name, entry.title) for entry in ENTRIES]
    assert max(map(len, found)) == min(size or 100, 1000, 250)
    assert len(found) == -(-250 // (size or 100)) or size > 250
    assert pages(size, []) == [[]]


def test_an_index_that_comes_or_goes_between_two_pages_moves_no_other() -> None:
    first = index_page(ENTRIES, pb.ListIndexesRequest(page_size=100))
    later = [IndexEntry("a-new-one"), *ENTRIES[1:99], *ENTRIES[100:]]
    second = index_page(later, pb.ListIndexesRequest(page_size=100, page_token=first.next_page_token))
    assert [entry.name for entry in second.indexes] == [entry.name for entry in ENTRIES[100:200]]
