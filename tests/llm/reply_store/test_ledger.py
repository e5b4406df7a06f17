"""Stored records are durable, and are found without keeping keys in memory."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hirag_dist.errors import StoreError
from hirag_dist.llm.replay import RecordingLedger
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.reply_store.block_format import key_bytes
from hirag_dist.llm.reply_store.segment import FilterBank, make_filter
from hirag_dist.storage.store import Store
from tests.ledger_sizes import ledger_size
from tests.llm.reply_store.records import key, names


async def there(store: Store, *wanted: str) -> dict[str, dict[str, Any]]:
    """Return the records that a new process finds."""
    return await Ledger(store).get_many(wanted)


class Counting(Store):
    """Notes what is asked of the storage."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.appended: list[int] = []
        self.reads: list[tuple[str, int]] = []

    def append(self, path: str, data: bytes) -> tuple[str, int]:
        self.appended.append(len(data))
        return super().append(path, data)

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        self.reads.append((path, length))
        return super().read_range(path, offset, length)


class Held(Store):
    """Appends nothing until it is released."""

    def __init__(self, uri: str) -> None:
        super().__init__(uri)
        self.asked = threading.Event()
        self.released = threading.Event()

    def append(self, path: str, data: bytes) -> tuple[str, int]:
        self.asked.set()
        assert self.released.wait(60)
        return super().append(path, data)


class TestStoring:
    async def test_a_put_after_a_cancelled_write_does_not_wait_for_ever(self, store: Store) -> None:
        held = Held(store.root)
        ledger = Ledger(held)
        first = asyncio.ensure_future(ledger.put(key("a"), {}))
        while not held.asked.is_set():
            await asyncio.sleep(0.001)
        (writing,) = ledger._tasks
        writing.cancel()
        second = asyncio.ensure_future(ledger.put(key("b"), {}))  # gathers while the first is written
        await asyncio.sleep(0)
        held.released.set()
        with pytest.raises(StoreError, match="cancelled"):
            await asyncio.wait_for(first, 60)
        await asyncio.wait_for(second, 60)
        await asyncio.wait_for(ledger.put(key("c"), {}), 60)
        await ledger.close()
        assert len(await there(store, key("b"), key("c"))) == 2

    async def test_a_record_is_durable_before_put_returns(self, store: Store) -> None:
        held = Held(store.root)
        ledger = Ledger(held)
        putting = asyncio.ensure_future(ledger.put(key("k"), {"text": "é\u2028\x85\r\n\ud800"}))
        while not held.asked.is_set():
            await asyncio.sleep(0.001)
        assert await ledger.get(key("k")) is None, "not there before it is durable"
        assert not putting.done()
        held.released.set()
        await putting
        assert await there(store, key("k")) == {key("k"): {"text": "é\u2028\x85\r\n\ud800"}}
        assert await ledger.get(key("k")) == {"text": "é\u2028\x85\r\n\ud800"}

    async def test_records_are_written_in_groups_of_sixty_four(self, store: Store) -> None:
        counting = Counting(store.root)
        ledger = Ledger(counting)
        await asyncio.gather(*(ledger.put(key(n), {"n": n}) for n in range(150)))
        assert len(counting.appended) == 3
        assert await ledger.get_many([key(n) for n in range(150)]) == {key(n): {"n": n} for n in range(150)}

    async def test_every_record_of_a_group_that_cannot_be_written_is_refused(self, store: Store) -> None:
        ledger = Ledger(store)
        store.write_bytes("ledger", b"in the way")
        outcomes = await asyncio.gather(*(ledger.put(key(n), {}) for n in range(3)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
        store.delete("ledger")
        assert await ledger.get(key(0)) is None
        await ledger.put(key("later"), {})
        assert list(await there(store, key("later"), key(0))) == [key("later")]

    async def test_a_put_that_is_given_up_is_stored_all_the_same(self, store: Store) -> None:
        ledger = Ledger(store)
        given_up = asyncio.ensure_future(ledger.put(key("a"), {}))
        kept = asyncio.ensure_future(ledger.put(key("b"), {}))
        await asyncio.sleep(0)
        given_up.cancel()
        await kept
        assert len(await there(store, key("a"), key("b"))) == 2

    async def test_what_a_failed_write_left_is_not_run_into_by_the_next(self, store: Store) -> None:
        class Torn(Store):
            fail = False

            def append(self, path: str, data: bytes) -> tuple[str, int]:
                if self.fail:
                    super().append(path, data[: len(data) // 2])
                    raise StoreError("the power failed")
                return super().append(path, data)

        torn = Torn(store.root)
        ledger = Ledger(torn)
        await ledger.put(key("before"), {})
        torn.fail = True
        with pytest.raises(StoreError, match="the power failed"):
            await ledger.put(key("lost"), {})
        torn.fail = False
        await ledger.put(key("after"), {})
        assert set(await there(store, key("before"), key("lost"), key("after"))) == {key("before"), key("after")}


class TestSealing:
    async def test_a_log_that_is_large_enough_is_sealed_and_goes(self, store: Store) -> None:
        ledger = Ledger(store, log_records=100)
        for first in range(0, 250, 50):
            await ledger.put_many({key(n): {"n": n} for n in range(first, first + 50)})
        wanted = {key(n): {"n": n} for n in range(250)}
        assert await ledger.get_many(list(wanted)) == wanted, "while it is being sealed"
        await ledger.close()
        assert (len(names(store, ".seg")), names(store, ".log")) == (3, [])
        assert await ledger.get_many(list(wanted)) == wanted
        assert await there(store, *wanted) == wanted

    async def test_a_log_that_cannot_be_sealed_stays_and_is_read(self, store: Store) -> None:
        class Full(Store):
            def create(self, path: str, *, durable: bool = True) -> Any:
                raise StoreError("the disk is full")

        ledger = Ledger(Full(store.root))
        await ledger.put(key("a"), {"n": 1})
        await ledger.close()
        assert len(names(store, ".log")) == 1
        assert await ledger.get(key("a")) == {"n": 1}
        assert await there(store, key("a")) == {key("a"): {"n": 1}}

    async def test_closing_waits_for_what_is_not_written_yet(self, store: Store) -> None:
        ledger = Ledger(store)
        putting = asyncio.ensure_future(ledger.put(key("a"), {}))
        await asyncio.sleep(0)
        await ledger.close()
        assert putting.done()
        assert len(names(store, ".seg")) == 1


class TestLookingUp:
    async def test_a_record_costs_one_block_the_first_time_and_nothing_after(self, store: Store) -> None:
        writer = Ledger(store)
        await writer.put_many({key(n): {"text": random.Random(n).randbytes(1000).hex()} for n in range(2000)})
        await writer.close()
        counting = Counting(store.root)
        ledger = Ledger(counting)
        await ledger.get(key("nothing"))
        counting.reads.clear()
        assert await ledger.get(key(7)) == {"text": random.Random(7).randbytes(1000).hex()}
        ((_, length),) = counting.reads
        assert length < 100_000, "of 4 MB"
        await ledger.get(key(7))
        assert len(counting.reads) == 1

    async def test_of_two_records_of_a_key_the_first_counts_for_every_reader(self, store: Store) -> None:
        times = iter([20.0, 10.0, 30.0])
        writers = [Ledger(store, clock=lambda: next(times)) for _ in range(3)]
        for n, writer in enumerate(writers):
            await writer.put(key("k"), {"n": n})
        for writer in writers:
            await writer.refresh()
            assert await writer.get(key("k")) == {"n": 1}
        assert await there(store, key("k")) == {key("k"): {"n": 1}}
        await writers[0].close()
        await writers[2].close()
        assert await there(store, key("k")) == {key("k"): {"n": 1}}, "sealed and not"
        assert await writers[0].get(key("k")) == {"n": 1}

    async def test_the_first_counts_where_the_clock_is_set_back(self, store: Store) -> None:
        times = iter([1000.0, 10.0, 20.0])
        ledger = Ledger(store, clock=lambda: next(times))
        for n in range(3):
            await ledger.put(key("k"), {"n": n})
        await ledger.close()
        assert await there(store, key("k")) == {key("k"): {"n": 0}}

    async def test_a_damaged_segment_is_an_error_that_says_which(self, store: Store, tmp_path: Path) -> None:
        ledger = Ledger(store)
        await ledger.put(key("k"), {"text": "x" * 100})
        await ledger.close()
        (name,) = names(store, ".seg")
        whole = (tmp_path / "index/ledger" / name).read_bytes()
        for at in (40, len(whole) // 2, *range(len(whole) - 100, len(whole), 9)):
            broken = bytearray(whole)
            broken[at] ^= 1
            (tmp_path / "index/ledger" / name).write_bytes(broken)
            with pytest.raises(StoreError, match=f"{name} is damaged: put back a copy"):
                await there(store, key("k"))
        (tmp_path / "index/ledger" / name).write_bytes(whole[:-9])
        with pytest.raises(StoreError, match="is damaged"):
            await there(store, key("k"))


class TestSeveralProcesses:
    async def test_a_file_that_was_sealed_since_is_looked_for_again(self, store: Store) -> None:
        mine, other = Ledger(store), Ledger(store)
        await other.put_many({key(n): {"n": n} for n in range(100)})
        await mine.refresh()
        await other.close()
        assert await mine.get(key(3)) == {"n": 3}

    async def test_two_writers_and_a_reader_at_once(self, store: Store) -> None:
        writers = [Ledger(store, log_records=200) for _ in range(2)]
        reader = Ledger(store)
        stored: set[str] = set()
        checks = 0

        async def write(writer: Ledger, name: str) -> None:
            for n in range(10):
                await writer.put_many({key(f"{name}{n}-{m}"): {"n": n} for m in range(64)})
                stored.update(key(f"{name}{n}-{m}") for m in range(64))
                while checks < n // 2:  # however slow the reader is, it has looked in between
                    await asyncio.sleep(0.001)

        writing = [asyncio.ensure_future(write(writer, str(n))) for n, writer in enumerate(writers)]
        while not all(task.done() for task in writing):
            known = set(stored)
            await reader.refresh()
            assert set(await reader.get_many(list(known))) == known
            checks += 1
        await asyncio.gather(*writing, *(writer.close() for writer in writers))
        await reader.refresh()
        assert len(await reader.get_many(list(stored))) == len(stored) == 1280


class TestDamagedLogs:
    @pytest.fixture
    async def log(self, store: Store) -> tuple[Path, int, bytes]:
        """A log of two groups, of the records a and b: its path, the size of the first, and what is in it."""
        ledger = Ledger(store)
        await ledger.put(key("a"), {"n": 1})
        (name,) = names(store, ".log")
        size = len(store.read_bytes(f"ledger/{name}"))
        await ledger.put(key("b"), {"text": "b" * 1000})
        return Path(store.root, "ledger", name), size, store.read_bytes(f"ledger/{name}")

    @pytest.mark.parametrize("keep", [1, 3, 30, -1, -40])
    async def test_a_group_cut_off_by_a_crash_is_passed_over_until_it_is_whole(
        self, store: Store, log: tuple[Path, int, bytes], keep: int
    ) -> None:
        path, size, data = log
        path.write_bytes(data[: size + keep] if keep > 0 else data[:keep])
        reader = Ledger(store)
        assert await reader.get_many([key("a"), key("b")]) == {key("a"): {"n": 1}}
        assert ledger_size(store).records == 1
        path.write_bytes(data)  # it was being written
        await reader.refresh()
        assert await reader.get(key("b")) == {"text": "b" * 1000}

    @pytest.mark.parametrize("at", [0, 5, 30, 60, -1])
    async def test_what_comes_after_damage_is_found(self, store: Store, log: tuple[Path, int, bytes], at: int) -> None:
        path, size, whole = log
        data = bytearray(whole)
        data[at % size] ^= 0xFF
        path.write_bytes(data)
        assert await there(store, key("a"), key("b")) == {key("b"): {"text": "b" * 1000}}


WRITER = """
import asyncio, hashlib, sys
from hirag_dist.storage.store import Store
from hirag_dist.llm.reply_store import Ledger
async def main():
    ledger = Ledger(Store(sys.argv[1]), log_records=300)
    async def put(n):
        await ledger.put(hashlib.sha256(f"{sys.argv[2]}-{n}".encode()).hexdigest()[:40], {"n": n, "text": "x" * n})
    for first in range(0, 100_000, 64):
        await asyncio.gather(*(put(n) for n in range(first, first + 64)))
        print(first, flush=True)
asyncio.run(main())
"""


@pytest.mark.integration
async def test_what_was_acknowledged_survives_kills_at_any_moment(store: Store) -> None:
    """Among the moments are those in which a log is being sealed: every fifth group ends one."""
    chance = random.Random(11)
    acknowledged: list[tuple[int, int]] = []
    for turn in range(6):
        command = [sys.executable, "-c", WRITER, store.root, str(turn)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = [int(next(process.stdout)) for _ in range(chance.randint(1, 40))]
            process.kill()
            told += [int(line) for line in process.stdout]
        acknowledged += [(turn, n) for first in told for n in range(first, first + 64)]
    wanted = {key(f"{turn}-{n}"): {"n": n, "text": "x" * n} for turn, n in acknowledged}
    assert len(wanted) > 1000
    assert await there(store, *wanted) == wanted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(folder)], capture_output=True)
    if mounted.returncode:
        pytest.skip("cannot mount a small file system here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.integration
async def test_on_a_full_disk_what_was_acknowledged_stays(small_disk: Path) -> None:
    store = Store(str(small_disk))
    ledger = Ledger(store, log_records=300)
    kept: dict[str, Any] = {}
    refusals: list[str] = []
    for n in range(100):
        group = {key(f"{n}-{m}"): {"vector": random.Random(m).randbytes(80)} for m in range(64)}
        try:
            await ledger.put_many(group)
            kept |= group
        except StoreError as error:
            refusals.append(str(error))
            if len(refusals) == 3:
                break
    assert ["the disk is full" in refusal for refusal in refusals] == [True] * 3
    await ledger.close()
    assert len(kept) > 300
    assert await ledger.get_many(list(kept)) == kept
    assert await there(store, *kept) == kept


async def test_a_replay_reads_and_stores_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path))
    await Ledger(store).put("ab" * 20, {"text": "paid"})
    replay = RecordingLedger(store)
    await replay.put("cd" * 20, {"text": "a grouping"})
    await replay.put_many({"ef" * 20: {"text": "a part"}})
    assert set(await replay.get_many([digits * 20 for digits in ("ab", "cd", "ef")])) == {"ab" * 20}
    await replay.close()
    assert (replay.found, ledger_size(store).records) == ({key_bytes("ab" * 20)}, 1)


@pytest.mark.parametrize("sizes", [[1], [3, 1000], [1, 50, 4096, 7, 0x7FFF]])
def test_every_key_is_found_in_its_filter(sizes: list[int]) -> None:
    chance = random.Random(1)
    keys = [[chance.randbytes(20) for _ in range(size)] for size in sizes]
    bank = FilterBank([make_filter(b"".join(each)) for each in keys])
    for number, each in enumerate(keys):
        assert all(number in bank.may_hold(key) for key in each[:300])
        assert np.array_equal(bank[number], make_filter(b"".join(each)))


def test_few_keys_are_looked_for_in_vain_and_a_key_takes_under_two_bytes() -> None:
    chance = random.Random(2)
    filters = [make_filter(chance.randbytes(20 * 4000)) for _ in range(10)]
    assert sum(each.nbytes for each in filters) < 2 * 40_000
    bank = FilterBank(filters)
    errors = sum(len(bank.may_hold(chance.randbytes(20))) for _ in range(2000))
    assert errors < 2000 * 10 / 300
