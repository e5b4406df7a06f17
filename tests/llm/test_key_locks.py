"""Equal requests of several workers: one is sent, and its reply is the one that all of them use."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from hirag_dist.errors import RequestRejected, StageFailed
from hirag_dist.llm.call import PricedModel
from hirag_dist.llm.chat import EndpointPool
from hirag_dist.llm.embedding import LedgerEmbedder, PricedEmbedder
from hirag_dist.llm.key_locks import KeyLocks, KeyLockTable, LockReply
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.retry import RetriedCalls
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Rejected
from tests.llm.calls import Hold, Lengths, Model, calls, question, text_of


class Table:
    """The table behind messages that take a turn of the loop. `gone` fails them."""

    def __init__(self, max_released: int = 100) -> None:
        self.table = KeyLockTable(max_released)
        self.messages: list[tuple[str, int]] = []  # (worker, keys)
        self.gone = False

    async def lock_keys(self, worker: str, n_refreshed: int, keys: Sequence[str], released: Sequence[str]) -> LockReply:
        await asyncio.sleep(0)
        if self.gone:
            raise StageFailed("the actor is gone")
        self.messages.append((worker, len(keys)))
        self.table.release(worker, released)
        return self.table.lock(worker, n_refreshed, keys)._replace(pause_s=0.0)


class Workers:
    """Workers with a view of the ledger each. Replies and vectors differ each time, and wait for `hold`."""

    def __init__(self, folder: Path, max_released: int = 100) -> None:
        self.store = Store(str(folder))
        self.table = Table(max_released)
        self.hold = Hold()
        self.hold.go_on.set()
        self.refuses = 0
        self.model = Model(self._reply, hold=self.hold)
        numbers = itertools.count()
        self.vectors = Lengths(self.hold, vectors=lambda texts: np.array([[next(numbers), 1] for _ in texts], "f4"))
        self.locks: dict[str, KeyLocks] = {}

    def _reply(self, request: ChatRequest, n: int) -> ChatReply:
        if n <= self.refuses:
            raise RequestRejected("not this one")
        return ChatReply(f"reply {n}", input_tokens=1, output_tokens=1)

    def pool(self, name: str) -> EndpointPool:
        ledger, calls = self._parts(name)
        return EndpointPool({"extract": [PricedModel("e", self.model)]}, ledger, calls, len, locks=self.locks[name])

    def embedder(self, name: str) -> LedgerEmbedder:
        ledger, calls = self._parts(name)
        return LedgerEmbedder(PricedEmbedder("e", self.vectors), ledger, calls, locks=self.locks[name])

    def _parts(self, name: str) -> tuple[Ledger, RetriedCalls]:
        ledger = Ledger(self.store)
        self.locks[name] = KeyLocks(self.table, name, ledger.refresh)
        return ledger, calls(attempts=2)


@pytest.fixture
def workers(tmp_path: Path) -> Workers:
    return Workers(tmp_path)


async def turns(n: int = 50) -> None:
    for _ in range(n):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_of_equal_requests_of_workers_one_is_sent_and_all_use_its_reply(workers: Workers) -> None:
    first, second = workers.pool("0"), workers.pool("1")
    asked = [each.ask(question(number), text_of) for number in range(6) for each in (first, second, first)]
    replies = await asyncio.gather(*asked)
    sent = [request.messages[-1].content for request in workers.model.requests]
    assert sorted(sent) == [f"question {number}" for number in range(6)]
    assert all(len(set(replies[at : at + 3])) == 1 for at in range(0, 18, 3))
    assert len(set(replies)) == 6
    assert [await workers.pool("2").ask(question(number), text_of) for number in range(6)] == replies[::3]
    assert len(workers.model.requests) == 6


async def test_a_reply_that_was_stored_after_the_last_refresh_is_found(workers: Workers) -> None:
    first, second = workers.pool("0"), workers.pool("1")
    await second.ask(question(0), text_of)  # its view is from before the next reply
    reply = await first.ask(question(1), text_of)
    assert await second.ask(question(1), text_of) == reply
    assert len(workers.model.requests) == 2


async def test_a_worker_with_an_old_view_looks_again(tmp_path: Path) -> None:
    """The table remembers two releases: a worker whose view is older is granted nothing before it refreshes."""
    workers = Workers(tmp_path, max_released=2)
    first, second = workers.pool("0"), workers.pool("1")
    await second.ask(question(0), text_of)
    replies = [await first.ask(question(number), text_of) for number in range(1, 6)]
    assert [await second.ask(question(number), text_of) for number in range(1, 6)] == replies
    assert await second.ask(question(6), text_of) == "reply 7"


async def test_after_a_failure_the_next_worker_sends_the_request(workers: Workers) -> None:
    workers.refuses = 1
    outcomes = await asyncio.gather(*(workers.pool(name).ask(question(0), text_of) for name in "01"))
    assert sorted(map(type, outcomes), key=str) == [Rejected, str]
    assert len(workers.model.requests) == 2


async def test_the_locks_of_a_dead_worker_are_released(workers: Workers) -> None:
    workers.hold.go_on.clear()
    dies = asyncio.ensure_future(workers.pool("0").ask(question(0), text_of))
    await until(lambda: len(workers.model.requests) == 1)
    waits = asyncio.ensure_future(workers.pool("1").ask(question(0), text_of))
    await until(lambda: any(worker == "1" for worker, _ in workers.table.messages))
    assert len(workers.model.requests) == 1
    workers.table.table.leave("0")
    await until(lambda: len(workers.model.requests) == 2)
    workers.hold.go_on.set()
    await waits
    await dies


async def test_a_caller_that_is_cancelled_leaves_no_lock(workers: Workers) -> None:
    locks = KeyLocks(workers.table, "0", turns)
    for n_turns in range(12):
        waits = asyncio.ensure_future(_hold(locks))
        await turns(n_turns)
        waits.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waits
        await turns()
        assert not workers.table.table._locks, n_turns


async def _hold(locks: KeyLocks) -> None:
    async with locks.hold(["key"]):
        await asyncio.Event().wait()


async def test_a_table_that_is_gone_ends_the_calls(workers: Workers) -> None:
    workers.table.gone = True
    with pytest.raises(StageFailed, match="gone"):
        await workers.pool("0").ask(question(0), text_of)


async def test_equal_texts_of_workers_are_embedded_once(workers: Workers) -> None:
    first, second = workers.embedder("0"), workers.embedder("1")
    workers.hold.go_on.clear()
    asked = [asyncio.ensure_future(each.embed(texts)) for each, texts in ((first, ["a", "b"]), (second, ["b", "c"]))]
    await turns()
    workers.hold.go_on.set()
    found = await asyncio.gather(*asked)
    assert sorted(itertools.chain(*workers.vectors.calls)) == ["a", "b", "c"]
    assert found[0][1].tolist() == found[1][0].tolist()
    again = await workers.embedder("2").embed(["a", "b", "c"])
    assert again.tolist() == [*found[0].tolist(), found[1][1].tolist()]
    assert sum(map(len, workers.vectors.calls)) == 3
