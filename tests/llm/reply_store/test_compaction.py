"""Compaction loses and confuses no record, wherever it is stopped and with any concurrent process."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store import CompactionSizes, Ledger, compact
from hirag_dist.llm.reply_store.block_format import Record, pack_block
from hirag_dist.llm.reply_store.reader import LedgerReader
from hirag_dist.llm.reply_store.segment import write_segment
from hirag_dist.storage.store import Store
from tests.ledger_sizes import ledger_size
from tests.storage.s3_server import s3_server

TINY = CompactionSizes(
    segment_bytes=2000, batch_bytes=1500, block_bytes=300, min_logs=2, segment_records=40, fan_in=3, min_tier_bytes=2000
)


def key(what: object) -> str:
    return hashlib.sha256(str(what).encode()).hexdigest()[:40]


@cache
def record(n: int, at: float = 1.0) -> Record:
    value = json.dumps({"n": n, "text": random.Random(n).randbytes(20).hex()}).encode()
    return Record(bytes.fromhex(key(n)), at, len(value).to_bytes(4, "little") + value)


def put_log(store: Store, number: int, records: list[Record]) -> None:
    """A log as a process of this machine leaves it that was killed: in groups, and cut off at its end."""
    name = f"ledger/{socket.gethostname()}-1-{number:08x}.log"
    for first in range(0, len(records), 10):
        store.append(name, pack_block(records[first : first + 10]))
    store.append(name, pack_block([record(-1)])[:-1])


def everything(store: Store, numbers: range) -> list[int]:
    """The numbers whose records a new reader finds, as they were stored."""
    view = LedgerReader(store)
    view.refresh()
    found = view.find([record(n).key for n in numbers])
    return [n for n in numbers if found.get(record(n).key) == record(n)]


def names(store: Store, ending: str) -> list[str]:
    return [name for name in store.names("ledger") if ending in name]


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

    @pytest.mark.integration
    def test_a_killed_writers_log_is_taken_at_once(self, store: Store) -> None:
        writer = """
import asyncio, os, signal, sys
from hirag_dist.storage.store import Store
from hirag_dist.llm.reply_store import Ledger
async def main():
    ledger = Ledger(Store(sys.argv[1]))
    await ledger.put("00" * 20, {"n": 1})
    print("stored", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""
        command = [sys.executable, "-c", writer, store.root]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "stored\n"
            compact(store, sizes=CompactionSizes(min_logs=1))
            assert len(names(store, ".log")) == 1
            process.kill()
        compact(store, sizes=CompactionSizes(min_logs=1))
        assert names(store, ".log") == []
        assert ledger_size(store).records == 1


class Killed(BaseException):
    """As sudden as a kill: nothing that handles errors handles it."""


class Dying(Store):
    """Dies at its n-th change: when a file is written and not there yet, or before one is deleted."""

    def __init__(self, uri: str, at: int) -> None:
        super().__init__(uri)
        self.left = at

    def _step(self) -> None:
        self.left -= 1
        if self.left == 0:
            raise Killed

    def delete(self, path: str) -> None:
        self._step()
        super().delete(path)

    @contextmanager
    def create(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        with super().create(path, durable=durable) as stream:
            yield stream
            stream.flush()
            self._step()


def planted(store: Store) -> None:
    for number in range(4):
        put_log(store, number, [record(n) for n in range(number * 20, number * 20 + 30)])
    for number in range(4):
        write_segment(store, f"{number:016x}-00000.seg", sorted(record(n) for n in range(100 + number, 200, 4)))


def test_killed_at_every_change(tmp_path: Path) -> None:
    planted(Store(str(tmp_path / "planted")))
    deaths = 0
    while True:
        store = Store(str(shutil.copytree(tmp_path / "planted", tmp_path / str(deaths))))
        dying = Dying(store.root, deaths + 1)
        try:
            compact(dying, sizes=TINY)
            break
        except Killed:
            deaths += 1
        whole = [n for n in range(200) if n < 90 or n >= 100]
        assert everything(store, range(200)) == whole
        compact(store, sizes=replace(TINY, min_logs=1))
        assert everything(store, range(200)) == whole
        assert names(store, ".log") == names(store, "jsonl") == []
        assert ledger_size(store).n_bytes < 40_000
    assert deaths > 25


def test_killed_again_and_again_on_one_folder(store: Store) -> None:
    """Remains of killed compactions are merged first, so that they do not pile up."""
    planted(store)
    before = ledger_size(store).n_bytes
    deaths = 0
    for turn in range(30):
        put_log(store, 100 + turn, [record(n) for n in range(turn % 9 * 10, turn % 9 * 10 + 10)])
        dying = Dying(store.root, turn * 11 % 40 + 2)
        try:
            compact(dying, sizes=TINY)
        except Killed:
            deaths += 1
        assert ledger_size(store).n_bytes < 6 * before
    assert deaths > 5
    assert len(everything(store, range(200))) == 190


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
        assert len(everything(store, range(200))) == 190
        if left >= 0:
            break
    assert turn > 10


def test_it_stops_where_the_lock_is_lost(store: Store) -> None:
    planted(store)
    before = store.names("ledger")

    def check() -> None:
        raise RuntimeError("taken over")

    with pytest.raises(RuntimeError, match="taken over"):
        compact(store, check, TINY)
    assert store.names("ledger") == before


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
