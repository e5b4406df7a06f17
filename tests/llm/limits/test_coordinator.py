"""The quota coordinator: shares of a window, blocks of a rate, reports, spending limits."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallDemand, Grant, WorkerReport

CALL = CallDemand(1, 1, 0.0)


def coordinator(max_concurrent: int = 1, **limits: Any) -> QuotaCoordinator:
    return QuotaCoordinator({name: EndpointLimits(None, None, max_concurrent) for name in ("e", "f")}, **limits)


async def turns(n_rounds: int = 5) -> None:
    """Let every task that can run do so."""
    for _ in range(n_rounds):
        await asyncio.sleep(0)


class Worker:
    """A worker that demands and releases calls by hand."""

    def __init__(self, quota: QuotaCoordinator, name: str) -> None:
        self.quota, self.name = quota, name
        self.granted = 0
        self.state = WorkerReport()

    @property
    def in_flight(self) -> int:
        return self.granted - self.state.released

    async def demand(self, n_calls: int, priority: int = 0, call: CallDemand = CALL) -> Grant:
        grant = await self.quota.acquire(self.name, "e", self.state, (call,) * n_calls, priority)
        self.granted += grant.calls
        return grant

    def demanding(self, n_calls: int, priority: int = 0, call: CallDemand = CALL) -> asyncio.Task[Grant]:
        return asyncio.ensure_future(self.demand(n_calls, priority, call))

    async def release(self, n_calls: int = 0, **events: Any) -> Grant:
        self.state = replace(self.state, number=self.state.number + 1, released=self.state.released + n_calls)
        return await self.quota.acquire(self.name, "e", replace(self.state, **events))


async def test_no_slot_is_free_while_somebody_waits_for_one() -> None:
    rng = random.Random(0)
    quota = coordinator(40)
    state = quota._endpoints["e"]
    workers = [Worker(quota, f"w{number}") for number in range(12)]
    waiting: dict[Worker, asyncio.Task[Grant]] = {}
    n_waited = 0
    for _ in range(1500):
        worker = rng.choice(workers)
        if worker not in waiting and rng.random() < 0.6:
            waiting[worker] = worker.demanding(rng.randrange(1, 20), rng.randrange(2))
        elif worker not in waiting:
            await worker.release(rng.randrange(worker.in_flight + 1))
        elif rng.random() < 0.1:
            waiting.pop(worker).cancel()
        await turns(3)
        waiting = {each: task for each, task in waiting.items() if not task.done()}
        assert state.free_slots() >= 0
        assert not waiting or not state.free_slots()
        assert state.in_flight == sum(each.in_flight for each in workers)
        n_waited += len(waiting)
    assert n_waited > 1500
    for task in waiting.values():
        task.cancel()


async def test_a_late_report_takes_nothing_back_and_frees_nothing() -> None:
    quota = coordinator(4)
    worker, other = Worker(quota, "w"), Worker(quota, "x")
    await worker.demand(4)
    before = worker.state
    await worker.release(2)
    assert (await other.demand(2)).calls == 2
    await quota.acquire("w", "e", before)  # it was overtaken
    assert quota._endpoints["e"].free_slots() == 0
    await quota.acquire("w", "e", worker.state)  # delivered twice
    assert quota._endpoints["e"].free_slots() == 0


async def test_who_waits_for_the_rate_behind_one_who_waits_for_money_is_served_in_time() -> None:
    """Of a hundred tokens one is left, too few for a block; the first in the queue waits for money."""
    now = 0.0
    quota = QuotaCoordinator({"e": EndpointLimits(None, 6000, 10, burst_s=1.0)}, max_tokens=1000, clock=lambda: now)
    dear, cheap = CallDemand(1, 900, 0.0), CallDemand(50, 50, 0.0)
    await Worker(quota, "first").demand(1, call=dear)
    second = Worker(quota, "second")
    await second.demand(1, call=CallDemand(98, 1, 0.0))
    waits_for_money = Worker(quota, "third").demanding(1, call=dear)
    waits_for_rate = Worker(quota, "fourth").demanding(2, call=cheap)
    await turns()
    now = 1.0
    await asyncio.wait_for(waits_for_rate, 5)
    assert not waits_for_money.done()
    waits_for_money.cancel()
