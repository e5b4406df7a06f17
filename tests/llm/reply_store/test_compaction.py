"""Compaction loses and confuses no record, wherever it is stopped and with any concurrent process."""

from __future__ import annotations

import itertools
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store import CompactionSizes, Ledger, compact, purge
from hirag_dist.llm.reply_store.block_format import Record, pack_block
from hirag_dist.llm.reply_store.reader import LedgerReader
from hirag_dist.llm.reply_store.segment import write_segment
from hirag_dist.storage.store import Store
from tests.ledger_sizes import ledger_size
from tests.llm.reply_store.records import TINY, everything, key, names, put_log, record
from tests.mortal_store import Killed, MortalStore
from tests.storage.s3_server import s3_server


class TestWhatItDoes:
    def test_logs_of_killed_writers_become_segments_and_many_runs_few(self, store: Store) -> None:
        for number in range(9):
            put_log(store, number, [record(n) for n in range(number * 20, number * 20 + 30)])
        compact(store, sizes=TINY)
        assert names(store, ".log") == []
        assert everything(store, range(200)) == list(range(190))
        assert len({name[:16] for name in names(store, ".seg")}) < 5
        assert ledger_size(store).records < 9 * 30, "most of what was there twice is there once"

    def test_segments_are_bounded_and_share_no_range_of_keys(self, store: Store) -> None:
        for number in range(3):
            write_segment(store, f"{number:016x}-00000.seg", sorted(record(n) for n in range(number, 300, 3)))
        compact(store, sizes=TINY)
        sizes = [store.size(f"ledger/{name}") or 0 for name in names(store, ".seg")]
        assert len(sizes) > 7
        assert max(sizes) < TINY.segment_bytes + 2 * TINY.block_bytes + 200
        view = LedgerReader(store)
        view.refresh()
        assert all(len(view._places(record(n).key)) == 1 for n in range(300))

    def test_it_does_nothing_where_there_is_little_to_do(self, store: Store) -> None:
        put_log(store, 1, [record(1)])
        for number in range(7):
            write_segment(store, f"{number:016x}-00000.seg", [record(number)])
        before = store.entries("ledger")
        compact(store)
        assert store.entries("ledger") == before


class TestLivingWriters:
    async def test_their_logs_are_left_alone_and_their_segments_merged(self, store: Store) -> None:
        writer = Ledger(store, log_records=64)
        for first in range(0, 640, 64):
            await writer.put_many({key(n): {"n": n} for n in range(first, first + 64)})
        await writer.close()
        await writer.put_many({key(n): {"n": n} for n in range(640, 660)})
        reader = Ledger(store)
        await reader.refresh()
        (log,) = names(store, ".log")
        runs = {name[:16] for name in names(store, ".seg")}
        compact(store, sizes=TINY)
        assert not runs & {name[:16] for name in names(store, ".seg")}, "they were merged"
        assert names(store, ".log") == [log]
        await writer.put_many({key(n): {"n": n} for n in range(660, 680)})
        wanted = {key(n): {"n": n} for n in range(680)}
        assert await Ledger(store).get_many(list(wanted)) == wanted
        assert await writer.get_many(list(wanted)) == wanted
        assert len(await reader.get_many(list(wanted))) >= 660, "its files are gone, and it looks again"

    def test_a_log_of_another_machine_is_finished_when_nobody_added_to_it_for_a_while(self, store: Store) -> None:
        for number in range(2):
            store.append(f"ledger/elsewhere-1-{number:08x}.log", pack_block([record(number)]))
        compact(store, sizes=TINY)
        assert len(names(store, ".log")) == 2
        compact(store, sizes=TINY, clock=lambda: time.time() + 61)
        assert names(store, ".log") == []
        assert everything(store, range(2)) == [0, 1]


PLANTED = [*range(70), *range(100, 160)]


def planted(store: Store) -> None:
    for number in range(3):
        put_log(store, number, [record(n) for n in range(number * 20, number * 20 + 30)])
        write_segment(store, f"{number:016x}-00000.seg", sorted(record(n) for n in range(100 + number, 160, 3)))


def test_killed_at_every_change(tmp_path: Path) -> None:
    planted(Store(str(tmp_path / "planted")))
    for deaths in itertools.count():
        store = Store(str(shutil.copytree(tmp_path / "planted", tmp_path / str(deaths))))
        try:
            compact(MortalStore(store.root, deaths + 1), sizes=TINY)
            break
        except Killed:
            assert everything(store, range(200)) == PLANTED
        compact(store, sizes=replace(TINY, min_logs=1))
        assert everything(store, range(200)) == PLANTED
        assert names(store, ".log") == names(store, "jsonl") == []
        assert ledger_size(store).n_bytes < 40_000
    assert deaths > 20


def test_killed_again_and_again_on_one_folder(store: Store) -> None:
    """Remains of killed compactions are merged first, so that they do not pile up."""
    planted(store)
    before = ledger_size(store).n_bytes
    deaths = 0
    for turn in range(30):
        put_log(store, 100 + turn, [record(n) for n in range(turn % 7 * 10, turn % 7 * 10 + 10)])
        try:
            compact(MortalStore(store.root, turn * 11 % 40 + 1), sizes=TINY)
        except Killed:
            deaths += 1
        assert ledger_size(store).n_bytes < 6 * before
    assert deaths > 5
    assert everything(store, range(200)) == PLANTED


def test_another_compaction_in_the_middle_of_this_one(tmp_path: Path) -> None:
    """As when a build is stopped, taken over, and wakes: at every point where this one looks whether it goes on."""
    planted(Store(str(tmp_path / "planted")))
    for turn in range(1000):
        store = Store(str(shutil.copytree(tmp_path / "planted", tmp_path / str(turn))))
        left = turn

        def check(store: Store = store) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                compact(store, sizes=TINY)

        with suppress(StoreError):  # what it was about to read is gone, merged by the other
            compact(store, check, TINY)
        assert everything(store, range(200)) == PLANTED
        if left >= 0:
            break
    assert turn > 10


@pytest.mark.parametrize("work", [partial(compact, sizes=TINY), partial(purge, keep=lambda record: False)])
def test_it_stops_where_the_lock_is_lost(store: Store, work: Callable[..., object]) -> None:
    planted(store)
    before = sorted(Path(store.root).rglob("*"))

    def check() -> None:
        raise RuntimeError("taken over")

    with pytest.raises(RuntimeError, match="taken over"):
        work(store, check=check)
    assert sorted(Path(store.root).rglob("*")) == before


KEYS = st.sampled_from(
    [bytes([first]) * 8 + bytes([last]) * 12 for first in (0, 1, 255) for last in (0, 1, 2, 3, 254, 255)]
)
RECORDS = st.builds(Record, KEYS, st.integers(0, 5).map(float), st.binary(max_size=120))
FILES = st.lists(st.tuples(st.sampled_from(["log", "segment", "compact"]), st.lists(RECORDS, min_size=1, max_size=40)))


@settings(max_examples=25, deadline=None)
@given(FILES)
def test_a_ledger_is_a_dictionary_that_keeps_the_first(steps: list[tuple[str, list[Record]]]) -> None:
    """Keys that share their beginnings, so that blocks and ranges meet in the middle of them."""
    sizes = CompactionSizes(
        segment_bytes=400, batch_bytes=500, block_bytes=100, min_logs=1, segment_records=9, fan_in=2, min_tier_bytes=300
    )
    expected: dict[bytes, Record] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        view = LedgerReader(store, cache_bytes=200)
        for number, (kind, records) in enumerate(steps):
            if kind == "compact":
                compact(store, sizes=sizes)
            else:
                first: dict[bytes, Record] = {}
                for each in records:
                    first[each.key] = min(each, first.get(each.key, each))
                    expected[each.key] = min(each, expected.get(each.key, each))
                if kind == "log":
                    store.append(f"ledger/{socket.gethostname()}-1-{number:x}.log", pack_block(records))
                else:
                    write_segment(store, f"{number:016x}-00000.seg", [first[each] for each in sorted(first)], 100)
                view.refresh()
            every = {each.key for _, batch in steps for each in batch}
            assert view.find(every) == expected
            fresh = LedgerReader(store)
            fresh.refresh()
            assert fresh.find(every) == expected


@pytest.mark.integration
async def test_an_object_store_keeps_the_same_promises() -> None:
    with s3_server() as (_, uri):
        store = Store(uri)
        writer, other, reader = Ledger(store), Ledger(store), Ledger(store)
        expected = {key(n): {"n": n, "vector": random.Random(n).randbytes(300)} for n in range(300)}
        for first in range(0, 300, 75):
            group = dict(list(expected.items())[first : first + 75])
            await (writer, other)[first // 75 % 2].put_many(group)
            await reader.refresh()
            assert await reader.get_many(list(group)) == group
        assert len(names(store, ".log-")) == 4, "a group is an object"
        await writer.close()
        assert (len(names(store, ".log-")), len(names(store, ".seg"))) == (2, 1)
        assert await reader.get_many(list(expected)) == expected, "objects that are gone are looked for again"
        compact(store, sizes=TINY)
        assert names(store, ".log-") == []
        assert len({name[:16] for name in names(store, ".seg")}) < 5, "they were merged"
        assert await reader.get_many(list(expected)) == expected
        assert await other.get_many(list(expected)) == expected
        assert await Ledger(store).get_many(list(expected)) == expected
        await other.close()
        assert await Ledger(store).get_many([*expected, key("none")]) == expected
