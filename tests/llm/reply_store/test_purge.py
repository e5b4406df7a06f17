"""A purge removes what it has to and nothing else, wherever it is stopped and with readers and writers at work."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pytest

from hirag_dist.errors import StoreError
from hirag_dist.llm.reply_store import Ledger, compact, purge, scan_records
from hirag_dist.llm.reply_store.block_format import Record
from hirag_dist.llm.reply_store.reader import LedgerReader
from hirag_dist.llm.reply_store.segment import write_segment
from hirag_dist.storage.store import Store
from tests.ledger_sizes import ledger_size
from tests.llm.reply_store.records import TINY, everything, key, names, put_log, record
from tests.mortal_store import Killed, MortalStore

GONE = {record(n).key for n in range(0, 300, 7)}
LEFT = [n for n in range(300) if n % 7]


def keep(one: Record) -> bool:
    return one.key not in GONE


def found(store: Store) -> list[int]:
    return everything(store, range(300))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Segments, and logs of killed writers; many records are in two of them."""
    store = Store(str(tmp_path))
    for number in range(3):
        write_segment(store, f"{number:016x}-00000.seg", sorted(record(n) for n in range(number, 200, 3)))
    for number in range(5):
        put_log(store, number, [record(n) for n in range(150 + number * 30, 150 + number * 30 + 30)])
    return store


def test_the_records_go_from_every_file(store: Store) -> None:
    checks: list[int] = []
    done = purge(store, keep, lambda: checks.append(len(store.names("ledger"))))
    assert found(store) == LEFT
    assert not any(one.key in GONE for one in scan_records(store))
    assert names(store, ".log") == []
    assert (done.files, done.held) == (8, [])
    assert checks == [8, *[8, 9] * 8], "it looks whether it goes on before a file is written and before one is deleted"
    assert done.dropped == len(range(0, 200, 7)) + len(range(154, 300, 7))
    assert done.kept == ledger_size(store).records


def test_killed_at_every_change_it_loses_no_record_and_continues(store: Store) -> None:
    """A copy that was written before the kill, of a file that was not deleted, goes with the next purge."""
    for deaths in itertools.count():
        try:
            purge(MortalStore(store.root, deaths + 1), keep)
            break
        except Killed:
            assert set(found(store)) >= set(LEFT)
    assert deaths > 4
    assert found(store) == LEFT
    assert not any(one.key in GONE for one in scan_records(store))
    compact(store, sizes=TINY)
    assert found(store) == LEFT


def test_a_reader_that_is_open_finds_what_stays(store: Store) -> None:
    view = LedgerReader(store, cache_bytes=1)
    view.refresh()
    purge(store, keep)
    records = view.find([record(n).key for n in range(300)])
    assert sorted(records) == sorted(record(n).key for n in LEFT)


def test_the_log_of_a_running_writer_is_left_and_reported(store: Store) -> None:
    async def scenario() -> None:
        ledger = Ledger(store)
        await ledger.put(key(7), {"text": "new"})
        (log,) = [name for name in names(store, ".log") if "-1-" not in name]
        done = purge(store, keep)
        assert done.held == [log]
        assert await ledger.get(key(8)) is not None
        await ledger.close()

    asyncio.run(scenario())
    assert [one for one in scan_records(store) if one.key in GONE], "it was sealed after the purge"
    done = purge(store, keep)
    assert (done.held, done.dropped) == ([], 1)
    assert found(store) == LEFT


async def test_a_reply_that_was_in_flight_during_a_purge_is_not_stored(store: Store) -> None:
    ledger = Ledger(store)
    assert await ledger.get(key(7)) is not None  # looked up before the call is sent
    purge(store, keep)
    with pytest.raises(StoreError, match="documents were forgotten after this process began"):
        await ledger.put(key(7), {"text": "a reply about it"})
    await ledger.close()
    assert found(store) == LEFT
    after = Ledger(store)
    await after.get(key(7))
    await after.put(key(7), {"text": "a reply that was asked for again"})
    await after.close()
    assert (await Ledger(store).get(key(7)) or {})["text"] == "a reply that was asked for again"
