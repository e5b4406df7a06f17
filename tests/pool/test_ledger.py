"""What a ledger says is stored is on the disk, whatever happens next."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hirag_dist.errors import StoreError
from hirag_dist.index.store import Store
from hirag_dist.pool.ledger import Ledger


def stored(store: Store) -> list[str]:
    """The keys on the disk, read without the ledger."""
    data = b"".join(store.read_bytes(f"ledger/{name}") for name in store.names("ledger"))
    return [json.loads(line)["key"] for line in data.splitlines()]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


async def test_a_record_is_durable_before_put_returns(store: Store) -> None:
    ledger = Ledger(store)
    putting = asyncio.ensure_future(ledger.put("k", {"text": "é\u2028\x85\r\n\ud800"}))
    await asyncio.sleep(0)
    assert ledger.get("k") is None, "not there before it is durable"
    await putting
    assert stored(store) == ["k"]
    assert ledger.get("k") == Ledger(store).get("k") == {"text": "é\u2028\x85\r\n\ud800"}


async def test_records_are_written_in_groups_of_sixty_four(store: Store) -> None:
    writes: list[int] = []

    class Counting(Store):
        def append(self, path: str, data: bytes) -> tuple[str, int]:
            writes.append(data.count(b"\n"))
            return super().append(path, data)

    ledger = Ledger(Counting(store.root))
    await asyncio.gather(*(ledger.put(str(number), {}) for number in range(150)))
    assert sorted(writes) == [22, 64, 64]
    assert [ledger.get(str(number)) for number in range(150)] == [{}] * 150


async def test_of_two_records_of_a_key_the_first_counts_for_every_reader(store: Store) -> None:
    ledger = Ledger(store)
    await ledger.put("k", {"n": 1})
    await Ledger(store).put("k", {"n": 2})
    assert ledger.get("k") == {"n": 1}
    assert Ledger(store).get("k") == {"n": 1}


async def test_what_another_process_stores_is_seen_after_catching_up(store: Store) -> None:
    mine, other = Ledger(store), Ledger(store)
    await other.put("a", {"n": 1})
    assert mine.get("a") is None
    mine.catch_up()
    assert mine.get("a") == {"n": 1}
    await other.put("b", {"n": 2})
    mine.catch_up()
    assert mine.get("b") == {"n": 2}
    assert len(Ledger(store)) == 2


async def test_a_ledger_sees_what_others_wrote_before_it_was_opened(store: Store) -> None:
    first, second = Ledger(store), Ledger(store)
    await first.put("a", {"n": 1})
    assert second.get("a") is None
    assert Ledger(store).get("a") == {"n": 1}
    assert len(store.names("ledger")) == 1, "one that wrote nothing leaves no file"


@pytest.mark.parametrize(
    "damage", [b"", b"\n", b"{}\n", b"[1]\n", b'"x"\n', b"\xff\xfe\n", b'{"key": 7}\n', b'{"key": "k", "val']
)
async def test_damaged_lines_are_passed_over(store: Store, damage: bytes) -> None:
    await Ledger(store).put("before", {"n": 1})
    (segment,) = store.names("ledger")
    store.append(f"ledger/{segment}", damage)
    if damage.endswith(b"\n"):
        store.append(f"ledger/{segment}", b'{"key": "after", "value": {"n": 2}}\n')
    again = Ledger(store)
    assert again.get("before") == {"n": 1}
    assert again.get("after") == ({"n": 2} if damage.endswith(b"\n") else None)
    assert again.get("k") is None


async def test_every_record_of_a_group_that_cannot_be_written_is_refused(store: Store, tmp_path: Path) -> None:
    ledger = Ledger(store)
    (tmp_path / "ledger").write_text("in the way")
    outcomes = await asyncio.gather(*(ledger.put(str(number), {}) for number in range(3)), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [StoreError] * 3
    assert ledger.get("0") is None
    (tmp_path / "ledger").unlink()
    await ledger.put("later", {})
    assert stored(store) == ["later"]


async def test_a_put_that_is_given_up_is_stored_all_the_same(store: Store) -> None:
    ledger = Ledger(store)
    given_up = asyncio.ensure_future(ledger.put("a", {}))
    kept = asyncio.ensure_future(ledger.put("b", {}))
    await asyncio.sleep(0)
    given_up.cancel()
    await kept
    assert sorted(stored(store)) == ["a", "b"]
