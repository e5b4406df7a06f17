"""Rate limiters of workers with their coordinator: exact limits, fair shares, spending limits, deaths."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
async def test_one_endpoint_does_not_hold_up_another() -> None:
    one = limiter(coordinator(1))
    first = await one.acquire("e", 1, 0.0)
    held = asyncio.ensure_future(one.acquire("e", 1, 0.0))
    await asyncio.wait_for(one.acquire("f", 1, 0.0), 1)
    assert not held.done()
    first.answered(1, 0.0)
    await asyncio.wait_for(held, 1)


@virtual_time
async def test_a_call_that_gives_up_while_waiting_holds_nothing() -> None:
    one = limiter(coordinator(1))
    held = await one.acquire("e", 1, 0.0)
    first, second = (asyncio.ensure_future(one.acquire("e", 1, 0.0)) for _ in range(2))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    assert one.load("e") == 2
    held.answered(1, 0.0)
    await asyncio.wait_for(second, 1)
    assert first.cancelled()


@virtual_time
async def test_a_grant_that_nobody_waits_for_goes_back() -> None:
    quota = coordinator(2)
    one, other = limiter(quota, "1"), limiter(quota, "2")
    held = [await one.acquire("e", 1, 0.0) for _ in range(2)]
    gone = asyncio.ensure_future(other.acquire("e", 1, 0.0))
    await asyncio.sleep(0.01)
    gone.cancel()
    for each in held:
        each.answered(1, 0.0)
    await asyncio.sleep(0.2)
    assert quota._endpoints["e"].in_flight == 0


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
async def test_workers_together_keep_a_rate_and_use_it() -> None:
    quota = QuotaCoordinator({"e": EndpointLimits(6000, None, 100, burst_s=0.05)}, clock=clock)  # five at once
    limiters = [limiter(quota, str(number)) for number in range(3)]
    started = clock()

    async def call(number: int) -> None:
        permit = await limiters[number % 3].acquire("e", 1, 0.0)
        permit.answered(1, 0.0)

    await asyncio.gather(*(call(number) for number in range(60)))
    assert (60 - 6) / 100 - 0.001 <= clock() - started <= 60 / 100
    for each in limiters:
        each.close()


@virtual_time
async def test_requests_granted_and_not_used_go_back() -> None:
    """Of 20 calls 15 give up after requests were granted for them: the rate is short of five in the end."""
    quota = QuotaCoordinator({"e": EndpointLimits(60_000, None, 20, burst_s=10)}, clock=clock)
    one = limiter(quota)
    limits = quota._endpoints["e"].limits
    first = await one.acquire("e", 1, 0.0)
    waiting = [asyncio.ensure_future(one.acquire("e", 1, 0.0)) for _ in range(19)]
    await asyncio.sleep(0)
    for each in waiting[4:]:
        each.cancel()
    permits = [first, *await asyncio.gather(*waiting[:4])]
    for permit in permits:
        permit.answered(1, 0.0)
    await asyncio.sleep(0.5)
    assert limits.room(clock())[0] == pytest.approx(1000 + 500 - 5, abs=2)
    one.close()


@pytest.mark.parametrize("n_workers", [1, 3])
@virtual_time
async def test_a_spending_limit_is_never_passed_and_nearly_used(n_workers: int) -> None:
    """Calls reserve what they can cost at most and turn out cheaper; the last dollars go to calls one at a time."""
    quota = coordinator(8, max_usd=10.0)
    limiters = [limiter(quota, str(number)) for number in range(n_workers)]
    paid: list[float] = []
    refused: list[str] = []

    async def call(number: int) -> None:
        try:
            permit = await limiters[number % n_workers].acquire("e", 10, 1.0)
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
async def test_a_call_that_waits_for_money_in_flight_gets_what_is_left_over() -> None:
    one = limiter(coordinator(9, max_tokens=100))
    first = await one.acquire("e", 80, 0.0)
    waiting = asyncio.ensure_future(one.acquire("f", 50, 0.0))
    await asyncio.sleep(1)
    assert not waiting.done()
    first.answered(20, 0.0)
    (await asyncio.wait_for(waiting, 5)).answered(50, 0.0)


@virtual_time
async def test_an_urgent_call_that_costs_more_does_not_pass_what_was_reserved() -> None:
    """It comes while a grant for cheaper calls is under way, and waits for one of its own."""
    quota = coordinator(9, max_tokens=100)
    slow = Delayed(quota, 0.05)
    one = limiter(slow)
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


class Client:
    """A coordinator that is reached through `_reach`."""

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        return await self._reach(lambda quota: quota.acquire(worker, endpoint, report, demand, priority), bool(demand))

    async def leave(self, worker: str) -> None:
        """Nothing is noted."""

    async def _reach(self, message: Callable[[Any], Awaitable[Grant]], is_demand: bool) -> Grant:
        raise StageFailed("gone")


@virtual_time
async def test_nobody_waits_for_a_coordinator_that_is_gone() -> None:
    with pytest.raises(StageFailed, match="gone"):
        await asyncio.wait_for(limiter(Client()).acquire("e", 1, 0.0), 5)


class Delayed(Client):
    """Messages take a while each way, and the first `n_lost` reports are lost."""

    def __init__(self, quota: QuotaCoordinator, delay_s: float, n_lost: int = 0) -> None:
        self._quota, self._delay_s, self._n_lost = quota, delay_s, n_lost

    async def _reach(self, message: Callable[[Any], Awaitable[Grant]], is_demand: bool) -> Grant:
        await asyncio.sleep(self._delay_s)
        if not is_demand and self._n_lost:
            self._n_lost -= 1
            raise StageFailed("lost on the way")
        return await message(self._quota)


@virtual_time
async def test_the_last_report_arrives_also_while_another_is_on_its_way() -> None:
    quota = coordinator(1)
    client = Delayed(quota, 0.08, n_lost=1)
    one, other = limiter(client, "1"), limiter(client, "2")
    permit = await one.acquire("e", 1, 0.0)
    waiting = asyncio.ensure_future(other.acquire("e", 1, 0.0))
    await asyncio.sleep(0.15)
    permit.answered(1, 0.0)
    (await asyncio.wait_for(waiting, 5)).answered(1, 0.0)
    assert client._n_lost == 0, "a report was lost, and sent again"
    one.close()
    other.close()


@virtual_time
async def test_workers_come_down_to_a_window_that_became_smaller() -> None:
    limits = EndpointLimits(None, None, 12)
    quota = QuotaCoordinator({"e": limits}, clock=clock)
    limiters = [limiter(quota, str(number)) for number in range(2)]
    held = [[await each.acquire("e", 1, 0.0) for _ in range(6)] for each in limiters]
    limits.limited(0.0, None, "concurrency", 6)
    window = int(limits.window)
    assert window < 6
    waiting = [asyncio.ensure_future(each.acquire("e", 1, 0.0)) for each in limiters for _ in range(6)]
    await asyncio.sleep(0.25)  # the reports that tell them of it
    for permits in held:
        for permit in permits:
            permit.answered(1, 0.0)
    await asyncio.sleep(0.25)
    assert sum(each.load("e") for each in limiters) == 12
    assert sum(each._endpoints["e"].in_flight for each in limiters) <= window + 1  # shares are rounded up
    for each in waiting:
        each.cancel()
    for one in limiters:
        one.close()


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
    assert limiter.load("endpoint") == 0
    limiter.close()
