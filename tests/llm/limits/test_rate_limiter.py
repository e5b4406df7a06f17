"""Rate limiters of workers with their coordinator: exact limits, fair shares, spending limits, deaths."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from typing import Any

import pytest

from hirag_dist.errors import BudgetReached, StageFailed
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallDemand, Grant, WorkerReport
from hirag_dist.llm.limits.rate_limiter import EndpointPaused, Permit, RateLimiter
from tests.llm.limits.virtual_time import virtual_time


def clock() -> float:
    return asyncio.get_running_loop().time()


def coordinator(max_concurrent: int = 1, **limits: Any) -> QuotaCoordinator:
    endpoints = {name: EndpointLimits(None, None, max_concurrent) for name in ("e", "f")}
    return QuotaCoordinator(endpoints, clock=clock, **limits)


def limiter(client: Any, worker: str = "") -> RateLimiter:
    return RateLimiter(client, worker, clock=clock)


@virtual_time
async def test_calls_are_served_in_the_order_they_came_and_never_too_many() -> None:
    one = limiter(coordinator(2))
    served: list[int] = []
    held: list[Permit] = []

    async def call(number: int) -> None:
        held.append(await one.acquire("e", 1000 - 100 * number, 0.0))
        served.append(number)

    waiting = [asyncio.ensure_future(call(number)) for number in range(8)]
    await asyncio.sleep(0.01)
    assert served == [0, 1]
    for n_served in range(3, 9):
        held.pop(0).answered(100, 0.0)
        await asyncio.sleep(0.01)
        assert served == list(range(n_served))
    await asyncio.gather(*waiting)


@virtual_time
async def test_what_is_more_urgent_goes_first() -> None:
    one = limiter(coordinator(1))
    first = await one.acquire("e", 1, 0.0)
    order: list[int] = []

    async def call(priority: int) -> None:
        permit = await one.acquire("e", 1, 0.0, priority)
        order.append(priority)
        permit.answered(1, 0.0)

    waiting = [asyncio.ensure_future(call(priority)) for priority in (0, 3, -2, 1, -1)]
    await asyncio.sleep(0.01)
    first.answered(1, 0.0)
    await asyncio.gather(*waiting)
    assert order == [-2, -1, 0, 1, 3]


@virtual_time
async def test_a_call_that_gives_up_while_waiting_holds_nothing() -> None:
    one = limiter(coordinator(1))
    held = await one.acquire("e", 1, 0.0)
    first, second = (asyncio.ensure_future(one.acquire("e", 1, 0.0)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert one.of("e").load() == 2
    held.answered(1, 0.0)
    await asyncio.wait_for(second, 1)
    assert first.cancelled()


@virtual_time
async def test_all_workers_together_keep_to_the_limit_and_share_it() -> None:
    """Three workers with endless calls: never more than the window in flight, and no worker left without a slot."""
    quota = coordinator(6)
    in_flight, most, done = 0, 0, [0, 0, 0]

    async def work(number: int) -> None:
        nonlocal in_flight, most
        mine = limiter(quota, str(number))

        async def call() -> None:
            nonlocal in_flight, most
            permit = await mine.acquire("e", 1, 0.0)
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0.02)
            in_flight -= 1
            done[number] += 1
            permit.answered(1, 0.0)

        await asyncio.gather(*(call() for _ in range(120)))
        mine.close()

    first = asyncio.ensure_future(work(0))
    while done[0] <= 6:  # it has all slots when the others come
        await asyncio.sleep(0.001)
    began = list(done)
    others = [asyncio.ensure_future(work(number)) for number in (1, 2)]
    while min(done) < 10:
        await asyncio.sleep(0.001)
    assert done[0] - began[0] <= 110  # the others had some before the first was through
    await asyncio.gather(first, *others)
    assert most == 6


@virtual_time
async def test_a_spending_limit_is_never_passed_and_nearly_used() -> None:
    """Calls reserve what they can cost at most and turn out cheaper; the last dollars go to calls one at a time."""
    quota = coordinator(8, max_usd=10.0)
    limiters = [limiter(quota, str(number)) for number in range(3)]
    paid: list[float] = []
    refused: list[str] = []

    async def call(number: int) -> None:
        try:
            permit = await limiters[number % 3].acquire("e", 10, 1.0)
        except BudgetReached as error:
            refused.append(str(error))
            return
        await asyncio.sleep(0.002)
        paid.append(0.3)
        permit.answered(10, 0.3)

    await asyncio.gather(*(call(number) for number in range(90)))
    assert 9.0 <= sum(paid) + 0.3 <= 10.3
    assert sum(paid) <= 10.0
    assert len(paid) + len(refused) == 90
    assert all("the limit of $10" in each for each in refused)
    for each in limiters:
        each.close()


@virtual_time
async def test_a_token_limit_counts_what_was_used_and_what_is_reserved() -> None:
    one = limiter(coordinator(9, max_tokens=100))
    (await one.acquire("e", 60, 0.0)).answered(70, 0.0)
    await asyncio.sleep(0.2)
    with pytest.raises(
        BudgetReached, match=r"the limit of 100 tokens was passed \(70 used or set aside by this run.* may use 31"
    ):
        await one.acquire("e", 31, 0.0)
    (await one.acquire("e", 30, 0.0)).answered(30, 0.0)


@virtual_time
async def test_an_urgent_call_that_costs_more_does_not_pass_what_was_reserved() -> None:
    """It comes while a grant for cheaper calls is under way, and waits for one of its own."""
    quota = coordinator(9, max_tokens=100)
    one = limiter(Delayed(quota))
    cheap = [asyncio.ensure_future(one.acquire("e", 10, 0.0)) for _ in range(2)]
    await asyncio.sleep(0.01)
    dear = asyncio.ensure_future(one.acquire("e", 90, 0.0, priority=-1))
    await asyncio.sleep(0.2)
    assert quota.spent()[0] <= 100
    for each in cheap:
        if each.done():
            each.result().answered(10, 0.0)
    (await asyncio.wait_for(dear, 5)).answered(40, 0.0)
    for each in cheap:
        if not each.done():
            (await asyncio.wait_for(each, 5)).answered(10, 0.0)
    await asyncio.sleep(0.2)
    assert quota.spent()[0] == 60


@virtual_time
async def test_a_paused_endpoint_is_left_alone_by_every_worker() -> None:
    quota = coordinator(8)
    one, other = limiter(quota, "1"), limiter(quota, "2")
    permit = await one.acquire("e", 1, 0.0)
    (await other.acquire("e", 1, 0.0)).answered(1, 0.0)
    permit.limited(0.15, "requests")
    limited_at = clock()
    await asyncio.sleep(0.001)
    await asyncio.gather(one.acquire("e", 1, 0.0), other.acquire("e", 500, 0.0))
    assert clock() - limited_at >= 0.15


@virtual_time
async def test_a_call_does_not_wait_for_a_pause_that_is_too_long() -> None:
    quota = coordinator(8)
    one, other = limiter(quota, "1"), limiter(quota, "2")
    (await one.acquire("e", 1, 0.0)).limited(3600.0, "requests")
    await asyncio.sleep(0.001)
    for each in (one, other):
        with pytest.raises(EndpointPaused, match=r"asks to be left alone for 3[56]"):
            await each.acquire("e", 1, 0.0, max_pause_s=5.0)


@virtual_time
async def test_what_a_dead_worker_held_returns_and_counts_as_spent() -> None:
    quota = coordinator(2, max_tokens=100)
    dead, alive = limiter(quota, "dead"), limiter(quota, "alive")
    for _ in range(2):
        await dead.acquire("e", 20, 0.0)
    waiting = asyncio.ensure_future(alive.acquire("e", 20, 0.0))
    await asyncio.sleep(1)
    assert not waiting.done()
    dead.close()
    await quota.leave("dead")
    await asyncio.wait_for(waiting, 5)
    assert quota.spent()[0] == 60


class Delayed:
    """A coordinator whose messages take a while; one that is gone loses them."""

    def __init__(self, quota: QuotaCoordinator | None) -> None:
        self._quota = quota

    async def acquire(self, *message: Any) -> Grant:
        await asyncio.sleep(0.05)
        if self._quota is None:
            raise StageFailed("gone")
        return await self._quota.acquire(*message)

    async def leave(self, worker: str) -> None:
        """Nothing is noted."""


@virtual_time
async def test_nobody_waits_for_a_coordinator_that_is_gone() -> None:
    with pytest.raises(StageFailed, match="gone"):
        await asyncio.wait_for(limiter(Delayed(None)).acquire("e", 1, 0.0), 5)


async def test_a_call_that_is_cancelled_before_it_is_demanded_does_not_lose_those_after_it() -> None:
    limiter = RateLimiter(QuotaCoordinator({"endpoint": EndpointLimits(None, None, 8)}))
    for _ in range(3):
        given_up = asyncio.create_task(limiter.acquire("endpoint", 1, 0.0))
        await asyncio.sleep(0)  # it waits for its permit, and the demand is about to be made
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        async with asyncio.timeout(5):
            permit = await limiter.acquire("endpoint", 1, 0.0)
        permit.answered(1, 0.0)
    assert limiter.of("endpoint").load() == 0
    limiter.close()


CALL = CallDemand(1, 1, 0.0)


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
