"""Embeddings are paid once, in batches, and none that was sent is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hirag_dist.core.limits import Allowance
from hirag_dist.errors import BudgetReached, ModelUnavailable, RateLimited, RequestRejected
from hirag_dist.index.store import Store
from hirag_dist.pool.budget import Budget
from hirag_dist.pool.calling import Caller, Patience
from hirag_dist.pool.embedding import LedgerEmbedder, PricedEmbedder
from hirag_dist.pool.ledger import Ledger
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.pool.treasury import Treasury
from hirag_dist.types import FloatMatrix


class Lengths:
    """Embeds a text by its length, after doing what a test wants done before each call."""

    dim = 2

    def __init__(self, before: Callable[[int], object] = lambda call: None, name: str = "lengths") -> None:
        self.name = name
        self.calls: list[list[str]] = []
        self._before = before

    async def embed(self, texts: Sequence[str]) -> FloatMatrix:
        self.calls.append(list(texts))
        waited = self._before(len(self.calls))
        if isinstance(waited, asyncio.Event):
            await waited.wait()
        return np.array([[len(text), 1] for text in texts], np.float32)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(str(tmp_path))


def embedder(store: Store, inner: Lengths, outage_s: float = 0.3, max_usd: float | None = None) -> LedgerEmbedder:
    caller = Caller(Budget(Treasury({"e": Allowance(None, None, 8)}, max_usd=max_usd)), Patience(3, outage_s))
    return LedgerEmbedder(PricedEmbedder("e", inner, 1e6, batch_size=3), Ledger(store), caller, len)


async def test_texts_are_asked_for_in_batches_and_equal_ones_once(store: Store) -> None:
    inner = Lengths()
    vectors = await embedder(store, inner).embed(["a", "bb", "a", "", "ccc", "dddd", "a"])
    assert vectors.dtype == np.float32
    assert vectors[:, 0].tolist() == [1, 2, 1, 0, 3, 4, 1]
    assert vectors[3].tolist() == [0, 0], "an empty text is a row of zeros, and not asked for"
    assert sorted(map(len, inner.calls)) == [1, 3]
    assert (await embedder(store, inner).embed([])).shape == (0, 2)


async def test_vectors_of_another_model_are_not_taken(store: Store) -> None:
    await embedder(store, Lengths()).embed(["a"])
    other = Lengths(name="other")
    await embedder(store, other).embed(["a"])
    assert other.calls == [["a"]]


async def test_the_meter_tells_what_was_sent_from_what_was_there(store: Store) -> None:
    await embedder(store, Lengths()).embed(["a", "bb"])
    meter = Meter()
    token = current_meter.set(meter)
    await embedder(store, Lengths()).embed(["a", "bb", "ccc"])
    current_meter.reset(token)
    use = next(iter(meter.uses.values()))
    assert (use.calls, use.ledger_hits, use.sent_tokens, use.sent_cost_usd) == (2, 1, 3, 3.0)


async def test_a_retryable_fault_is_waited_out(store: Store) -> None:
    def fail_twice(call: int) -> None:
        if call < 3:
            raise RateLimited("slow down", retry_after_s=0.005)

    inner = Lengths(fail_twice)
    assert (await embedder(store, inner).embed(["abc"]))[0, 0] == 3
    assert inner.calls == [["abc"]] * 3


@pytest.mark.parametrize("error", [ModelUnavailable("gone"), RequestRejected("wrong key", fatal=True)])
async def test_what_cannot_be_waited_out_rises(store: Store, error: Exception) -> None:
    def fail(call: int) -> None:
        raise error

    inner = Lengths(fail)
    with pytest.raises(type(error)):
        await embedder(store, inner, outage_s=0.0).embed(["a"])
    assert len(inner.calls) == 1


async def test_batches_beside_a_failed_one_are_stored(store: Store) -> None:
    def fail_first(call: int) -> None:
        if call == 1:
            raise RequestRejected("no")

    with pytest.raises(RequestRejected):
        await embedder(store, Lengths(fail_first)).embed(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    again = Lengths()
    await embedder(store, again).embed(["a", "bb", "ccc", "dddd", "eeeee", "ffffff"])
    assert again.calls == [["a", "bb", "ccc"]]


async def test_a_call_that_was_sent_is_stored_although_its_task_gave_up(store: Store) -> None:
    sent, go_on = asyncio.Event(), asyncio.Event()

    def hold(call: int) -> asyncio.Event:
        sent.set()
        return go_on

    embedding = asyncio.ensure_future(embedder(store, Lengths(hold)).embed(["abc"]))
    await sent.wait()
    embedding.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await embedding
    again = Lengths()
    assert (await embedder(store, again).embed(["abc"]))[0, 0] == 3
    assert again.calls == []


async def test_no_call_passes_the_spending_limit(store: Store) -> None:
    inner = Lengths()
    limited = embedder(store, inner, max_usd=4.0)  # a dollar a character here
    await limited.embed(["abc"])
    with pytest.raises(BudgetReached):
        await limited.embed(["de"])
    assert (await limited.embed(["abc", "f"]))[:, 0].tolist() == [3, 1], "what is in the ledger costs nothing"
    assert inner.calls == [["abc"], ["f"]]
