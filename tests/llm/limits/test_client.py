"""The quota coordinator and its workers: exact limits, fair shares, money, dead workers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from hirag_dist.errors import BudgetReached, StageFailed
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.client import Permit, RateLimiter
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import Lease, LeaseAdjustment, LeaseDemand, UsageReport, WorkerUsage


def open_treasury(max_concurrent: int = 1, **limits: Any) -> QuotaCoordinator:
    return QuotaCoordinator({name: EndpointLimits(None, None, max_concurrent) for name in ("e", "f")}, **limits)


async def turns(n_rounds: int = 50) -> None:
    """Let every task that can run do so."""
    for _ in range(n_rounds):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_calls_are_served_in_the_order_they_came_and_never_too_many() -> None:
    budget = RateLimiter(open_treasury(2))
    served: list[int] = []
    held: list[Permit] = []

    async def call(number: int) -> None:
        held.append(await budget.acquire("e", 1000 - 100 * number, 0.0))
        served.append(number)

    waiting = [asyncio.ensure_future(call(number)) for number in range(8)]
    await turns()
    assert served == [0, 1]
    for n_served in range(3, 9):
        held.pop(0).answered(100, 0.0)
        await turns()
        assert served == list(range(n_served))
    await asyncio.gather(*waiting)


async def test_what_is_more_urgent_goes_first() -> None:
    budget = RateLimiter(open_treasury(1))
    first = await budget.acquire("e", 1, 0.0)
    order: list[int] = []

    async def call(priority: int) -> None:
        permit = await budget.acquire("e", 1, 0.0, priority)
        order.append(priority)
        permit.answered(1, 0.0)

    waiting = [asyncio.ensure_future(call(priority)) for priority in (0, 3, -2, 1, -1)]
    await turns()
    first.answered(1, 0.0)
    await asyncio.gather(*waiting)
    assert order == [-2, -1, 0, 1, 3]


async def test_one_endpoint_does_not_hold_up_another() -> None:
    budget = RateLimiter(open_treasury(1))
    first = await budget.acquire("e", 1, 0.0)
    held = asyncio.ensure_future(budget.acquire("e", 1, 0.0))
    await asyncio.wait_for(budget.acquire("f", 1, 0.0), 1)
    assert not held.done()
    first.answered(1, 0.0)
    await asyncio.wait_for(held, 1)


async def test_a_call_that_gives_up_while_waiting_holds_nothing() -> None:
    budget = RateLimiter(open_treasury(1))
    held = await budget.acquire("e", 1, 0.0)
    first, second = (asyncio.ensure_future(budget.acquire("e", 1, 0.0)) for _ in range(2))
    await turns()
    first.cancel()
    await turns()
    held.answered(1, 0.0)
    await asyncio.wait_for(second, 1)
    assert first.cancelled()


async def test_all_workers_together_keep_to_the_limit_and_share_it() -> None:
    """Three workers with endless calls: never more than the window in flight, and no worker left without a slot."""
    treasury = open_treasury(6)
    in_flight, most, done = 0, 0, [0, 0, 0]

    async def work(number: int) -> None:
        nonlocal in_flight, most
        budget = RateLimiter(treasury, str(number))

        async def call() -> None:
            nonlocal in_flight, most
            permit = await budget.acquire("e", 1, 0.0)
            in_flight += 1
            most = max(most, in_flight)
            await asyncio.sleep(0.005)
            in_flight -= 1
            done[number] += 1
            permit.answered(1, 0.0)

        await asyncio.gather(*(call() for _ in range(120)))
        budget.close()

    first = asyncio.ensure_future(work(0))
    await until(lambda: done[0] > 6)  # it has all slots when the others come
    began = list(done)
    others = [asyncio.ensure_future(work(number)) for number in (1, 2)]
    await until(lambda: min(done) >= 10)
    assert done[0] - began[0] <= 110  # the others had some before the first was through
    await asyncio.gather(first, *others)
    assert most == 6


async def test_workers_together_keep_a_rate_and_use_it() -> None:
    treasury = QuotaCoordinator({"e": EndpointLimits(6000, None, 100, burst_s=0.05)})  # 100 a second, five at once
    budgets = [RateLimiter(treasury, str(number)) for number in range(3)]
    started = time.monotonic()

    async def call(number: int) -> None:
        permit = await budgets[number % 3].acquire("e", 1, 0.0)
        permit.answered(1, 0.0)

    await asyncio.gather(*(call(number) for number in range(60)))
    took = time.monotonic() - started
    assert took + 0.001 >= (60 - 6) / 100
    for budget in budgets:
        budget.close()


async def test_requests_lent_and_not_used_go_back() -> None:
    """Of 20 calls 15 give up after requests were lent for them: the endpoint's room is short of five in the end."""
    now = [100.0]
    treasury = QuotaCoordinator({"e": EndpointLimits(60_000, None, 20, burst_s=10)}, clock=lambda: now[0])
    budget = RateLimiter(treasury, clock=lambda: now[0])
    first = await budget.acquire("e", 1, 0.0)
    waiting = [asyncio.ensure_future(budget.acquire("e", 1, 0.0)) for _ in range(19)]
    lent = 1000 - treasury._books["e"].allowance.room(100.0)[0]
    for each in waiting[4:]:
        each.cancel()
    permits = [first, *await asyncio.gather(*waiting[:4])]
    assert lent < 1000 - treasury._books["e"].allowance.room(100.0)[0] > 5
    now[0] = 100.5  # the loans have run out
    for permit in permits:
        permit.answered(1, 0.0)
    await until(lambda: treasury._books["e"].allowance.room(100.5)[0] == pytest.approx(1500 - 5))
    budget.close()


@pytest.mark.parametrize("n_workers", [1, 3])
async def test_a_spending_limit_is_never_passed_and_nearly_used(n_workers: int) -> None:
    """Calls reserve what they can cost at most and turn out cheaper; the last dollars go to calls one at a time."""
    treasury = open_treasury(8, max_usd=10.0)
    budgets = [RateLimiter(treasury, str(number)) for number in range(n_workers)]
    paid: list[float] = []
    refused: list[str] = []

    async def call(number: int) -> None:
        try:
            permit = await budgets[number % n_workers].acquire("e", 10, 1.0)
        except BudgetReached as error:
            refused.append(str(error))
            return
        await asyncio.sleep(0.002)
        paid.append(0.3)
        permit.answered(10, 0.3)

    async with asyncio.timeout(20):
        await asyncio.gather(*(call(number) for number in range(90)))
    assert 9.0 <= sum(paid) + 0.3 <= 10.3
    assert sum(paid) <= 10.0
    assert len(paid) + len(refused) == 90
    assert all("--max-usd 10" in each for each in refused)
    for budget in budgets:
        budget.close()


async def test_a_token_limit_counts_what_was_used_and_what_is_reserved() -> None:
    budget = RateLimiter(open_treasury(9, max_tokens=100))
    (await budget.acquire("e", 60, 0.0)).answered(70, 0.0)
    await until(lambda: budget.load("e") == 0)
    with pytest.raises(
        BudgetReached, match=r"--max-tokens 100 was passed \(70 used or set aside by this run.* may use 31"
    ):
        await budget.acquire("e", 31, 0.0)
    (await budget.acquire("e", 30, 0.0)).answered(30, 0.0)


async def test_a_call_that_waits_for_money_in_flight_gets_what_is_left_over() -> None:
    budget = RateLimiter(open_treasury(9, max_tokens=100))
    first = await budget.acquire("e", 80, 0.0)
    waiting = asyncio.ensure_future(budget.acquire("f", 50, 0.0))
    await turns()
    assert not waiting.done()
    first.answered(20, 0.0)
    (await asyncio.wait_for(waiting, 5)).answered(50, 0.0)


async def test_who_waits_for_the_pace_behind_one_who_waits_for_money_is_served_in_time() -> None:
    """Of a hundred tokens one is left, too few for a block of two; the first in the queue would take it."""
    now = 0.0
    treasury = QuotaCoordinator({"e": EndpointLimits(None, 6000, 10, burst_s=1.0)}, max_tokens=1000, clock=lambda: now)
    nothing = WorkerUsage(0, 0, 1, 0, 0, 0.0, 0, 0.0)
    dear = LeaseDemand(0, tokens=1, spend_tokens=900, first_tokens=1, first_spend_tokens=900)
    cheap = LeaseDemand(0, tokens=98, spend_tokens=98, first_tokens=1, first_spend_tokens=1)
    await treasury.ask("first", "e", nothing, dear, UsageReport())
    await treasury.ask("second", "e", nothing, cheap, UsageReport())
    await treasury.tell("second", "e", WorkerUsage(0, 1, 1, 0, 0, 0.0, 0, 0.0), UsageReport())  # its money goes back
    waits_for_money = asyncio.ensure_future(treasury.ask("third", "e", nothing, dear, UsageReport()))
    waits_for_pace = asyncio.ensure_future(treasury.ask("fourth", "e", nothing, cheap, UsageReport()))
    await turns()
    assert not waits_for_pace.done()
    now = 1.0
    await asyncio.wait_for(waits_for_pace, 5)
    assert not waits_for_money.done()
    waits_for_money.cancel()


async def test_a_paused_endpoint_is_left_alone_by_every_worker() -> None:
    treasury = open_treasury(8)
    one, other = RateLimiter(treasury, "1"), RateLimiter(treasury, "2")
    permit = await one.acquire("e", 1, 0.0)
    (await other.acquire("e", 1, 0.0)).answered(1, 0.0)
    permit.limited(0.15, "requests")
    limited_at = time.monotonic()
    await turns()
    await asyncio.gather(one.acquire("e", 1, 0.0), other.acquire("e", 500, 0.0))
    assert time.monotonic() - limited_at >= 0.05  # what the other was lent before may have run
    await one.acquire("e", 1, 0.0)
    assert time.monotonic() - limited_at >= 0.15


async def test_what_a_dead_worker_held_returns_and_counts_as_spent() -> None:
    treasury = open_treasury(2, max_tokens=100)
    dead, alive = RateLimiter(treasury, "dead"), RateLimiter(treasury, "alive")
    for _ in range(2):
        await dead.acquire("e", 20, 0.0)
    await turns()
    waiting = asyncio.ensure_future(alive.acquire("e", 20, 0.0))
    await turns()
    assert not waiting.done()
    dead.close()
    await treasury.leave("dead")
    await asyncio.wait_for(waiting, 5)
    assert treasury.spent()[0] == 60


async def test_a_report_from_before_a_loan_frees_nothing() -> None:
    treasury = open_treasury(4)
    nothing = WorkerUsage(0, 0, 0, 0, 0, 0.0, 0, 0.0)
    loan = await treasury.ask("w", "e", nothing, LeaseDemand(0, slots=4), UsageReport())
    assert (loan.number, loan.slots) == (1, 4)
    await treasury.tell("w", "e", nothing, UsageReport())  # sent before it knew
    waiting = asyncio.ensure_future(treasury.ask("x", "e", nothing, LeaseDemand(0, slots=1), UsageReport()))
    await turns()
    assert not waiting.done()
    order = await treasury.tell("w", "e", WorkerUsage(1, 3, 2, 0, 0, 0.0, 0, 0.0), UsageReport())
    assert (await waiting).slots == 1
    assert order.slots <= 4


async def test_nobody_waits_for_a_lender_that_is_gone() -> None:
    class Gone:
        async def ask(
            self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
        ) -> Lease:
            raise StageFailed("gone")

        async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
            raise StageFailed("gone")

        async def leave(self, holder: str) -> None:
            pass

    budget = RateLimiter(Gone())
    with pytest.raises(StageFailed, match="gone"):
        await asyncio.wait_for(budget.acquire("e", 1, 0.0), 5)


def test_a_budget_serves_one_event_loop_after_another() -> None:
    budget = RateLimiter(open_treasury(1))

    async def use() -> None:
        (await asyncio.wait_for(budget.acquire("e", 1, 0.0), 5)).answered(1, 0.0)

    for _ in range(3):
        asyncio.run(use())


class Wire:
    """A remote quota coordinator: reports arrive late, the first is lost."""

    def __init__(self, treasury: QuotaCoordinator) -> None:
        self._treasury = treasury
        self._n_told = 0

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease:
        return await self._treasury.ask(holder, endpoint, state, want, events)

    async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
        self._n_told += 1
        await asyncio.sleep(0.08)
        if self._n_told == 1:
            raise StageFailed("lost on the way")
        return await self._treasury.tell(holder, endpoint, state, events)

    async def leave(self, holder: str) -> None:
        await self._treasury.leave(holder)


async def test_the_last_report_arrives_also_while_another_is_on_its_way() -> None:
    treasury = open_treasury(1)
    wire = Wire(treasury)
    one, other = RateLimiter(wire, "1"), RateLimiter(wire, "2")
    permit = await one.acquire("e", 1, 0.0)
    waiting = asyncio.ensure_future(other.acquire("e", 1, 0.0))
    for _ in range(3):
        await asyncio.sleep(0.05)
    permit.answered(1, 0.0)  # a report is under way, with the slot still in use
    (await asyncio.wait_for(waiting, 5)).answered(1, 0.0)
    one.close()
    other.close()


async def test_workers_come_down_to_a_window_that_became_smaller() -> None:
    allowance = EndpointLimits(None, None, 12)
    treasury = QuotaCoordinator({"e": allowance})
    budgets = [RateLimiter(treasury, str(number)) for number in range(2)]
    held = [[await each.acquire("e", 1, 0.0) for _ in range(6)] for each in budgets]
    allowance.limited(0.0, None, "concurrency", 6)
    window = int(allowance.window)
    assert window < 6
    waiting = [asyncio.ensure_future(each.acquire("e", 1, 0.0)) for each in budgets for _ in range(6)]
    await asyncio.sleep(0.25)  # the reports that tell them of it
    for permits in held:
        for permit in permits:
            permit.answered(1, 0.0)
    await asyncio.sleep(0.25)
    assert sum(each.load("e") for each in budgets) == 12
    assert sum(budget._desks["e"].busy for budget in budgets) <= window + 1  # shares are rounded up
    for each in waiting:
        each.cancel()
    for budget in budgets:
        budget.close()


async def test_a_call_that_ends_after_its_budget_was_closed_reports_to_nobody() -> None:
    budget = RateLimiter(open_treasury())
    permit = await budget.acquire("e", 1, 0.0)
    budget.close()
    before = asyncio.all_tasks()
    permit.answered(1, 0.0)
    assert not [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]  # type: ignore[attr-defined]
    await turns()
    assert asyncio.all_tasks() == before


async def test_workers_report_the_less_often_the_more_of_them_there_are() -> None:
    treasury = open_treasury(1000)
    nothing = UsageReport()

    busy = WorkerUsage(0, 0, 1, 1, 0, 0.0, 0, 0.0)
    alone = await treasury.tell("w0", "e", busy, nothing)
    for number in range(1, 1000):
        last = await treasury.tell(f"w{number}", "e", busy, nothing)
    assert alone.report_s < 0.1  # what a worker does of itself
    assert 1.0 <= 1000 / last.report_s <= 400.0  # reports a second, of all


async def test_a_message_costs_the_same_with_a_thousand_workers_as_with_a_hundred() -> None:
    """Counted in steps of the books, not in seconds: how often one account is looked at."""

    class Watched(dict[str, Any]):
        looks = 0

        def values(self) -> Any:
            Watched.looks += len(self)
            return super().values()

    treasury = open_treasury(10)
    books = treasury._books["e"]
    books.accounts = Watched()
    waiting = []
    for number in range(1000):
        want = LeaseDemand(0, slots=1)
        waiting.append(
            asyncio.ensure_future(
                treasury.ask(f"w{number}", "e", WorkerUsage(0, 0, 0, 0, 0, 0.0, 0, 0.0), want, UsageReport())
            )
        )
    await turns(5)
    assert sum(each.done() for each in waiting) == 10
    await treasury.tell("w0", "e", WorkerUsage(1, 0, 1, 1, 0, 0.0, 0, 0.0), UsageReport())
    assert Watched.looks == 0
    for each in waiting:
        each.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert not len(books.for_slots)


async def test_an_endpoint_that_only_refuses_is_complained_of_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    treasury = open_treasury(9, clock=lambda: now[0])
    idle = WorkerUsage(0, 0, 0, 0, 0, 0.0, 0, 0.0)

    async def refused(seconds: int) -> list[str]:
        caplog.clear()
        for _ in range(seconds):
            now[0] += 1.0
            await treasury.tell("a", "e", idle, UsageReport(limited=((None, "", 1),)))
        return [record.getMessage() for record in caplog.records]

    assert await refused(15) == []
    (said,) = await refused(1)
    assert said.startswith("endpoint e has answered nothing but 429 for 15 s (16 times); going on until")
    assert "llm.outage_timeout_s" in said
    assert "rpm" in said
    assert len(await refused(120)) == 2
    await treasury.tell("b", "e", idle, UsageReport(answered=1))
    assert caplog.records[-1].getMessage() == "endpoint e answers again"
    assert await refused(14) == []
    await treasury.tell("b", "e", idle, UsageReport(answered=1))
    assert caplog.records == []  # nothing was said, so nothing is taken back


NOTHING = WorkerUsage(0, 0, 0, 0, 0, 0.0, 0, 0.0)


async def test_where_many_wait_a_block_is_lent_whole() -> None:
    """A thousand requests a second, twenty to a block: lent one by one there would be a question for each."""
    now = [100.0]
    treasury = QuotaCoordinator({"e": EndpointLimits(60_000, None, 1000, burst_s=1.0)}, clock=lambda: now[0])
    allowance = treasury._books["e"].allowance
    allowance.take(100.0, allowance.room(100.0)[0], 0.0)
    want = LeaseDemand(0, requests=4, first_requests=1)
    loans = [asyncio.ensure_future(treasury.ask(str(number), "e", NOTHING, want, UsageReport())) for number in range(3)]
    for after_ms, n_served in ((1, 0), (3, 0), (4, 1), (7, 1), (8, 2), (12, 3)):
        now[0] = 100.0 + after_ms / 1000 + 1e-6
        await treasury.tell("x", "e", NOTHING, UsageReport())
        await turns()
        assert sum(each.done() for each in loans) == n_served
    assert [(await each).requests for each in loans] == [4, 4, 4]
    assert allowance.room(now[0])[0] < 0.1


async def test_what_was_saved_up_is_shared_by_those_who_wait() -> None:
    """Thirty requests a second, a block is one: who asks twice a second gets fifteen."""
    now = [100.0]
    treasury = QuotaCoordinator({"e": EndpointLimits(1800, None, 1000, burst_s=1.0)}, clock=lambda: now[0])
    want = LeaseDemand(0, requests=64, first_requests=1)
    assert (await treasury.ask("a", "e", NOTHING, want, UsageReport())).requests == 30
    now[0] = 100.5
    assert (await treasury.ask("a", "e", NOTHING, want, UsageReport())).requests == 15
    waiting = [asyncio.ensure_future(treasury.ask(name, "e", NOTHING, want, UsageReport())) for name in ("b", "c")]
    await turns()
    now[0] = 101.0
    await treasury.tell("x", "e", NOTHING, UsageReport())
    lent = [(await asyncio.wait_for(each, 5)).requests for each in waiting]
    assert 14 <= sum(lent) <= 15
    assert min(lent) >= 7


async def test_a_loan_of_no_rate_holds_until_the_next_report_of_many_workers() -> None:
    treasury = open_treasury(4000)
    want = LeaseDemand(0, requests=1, first_requests=1)
    alone = await treasury.ask("w0", "e", WorkerUsage(0, 0, 1, 1, 0, 0.0, 0, 0.0), want, UsageReport())
    for number in range(1000):
        await treasury.tell(f"w{number}", "e", WorkerUsage(0, 1, 1, 1, 0, 0.0, 0, 0.0), UsageReport())
    last = await treasury.ask("w0", "e", WorkerUsage(0, 1, 1, 1, 0, 0.0, 0, 0.0), want, UsageReport())
    order = await treasury.tell("w0", "e", WorkerUsage(0, 2, 1, 1, 0, 0.0, 0, 0.0), UsageReport())
    assert alone.valid_s < 1.0 < last.valid_s <= order.report_s


class PlentifulCoordinator:
    """A coordinator with ample quota, reports once a minute, and an optional pause."""

    def __init__(self, pause_s: float = 0.0) -> None:
        self.pause_s = pause_s
        self.n_loans = self.n_asked = self.n_told = 0

    async def ask(
        self, holder: str, endpoint: str, state: WorkerUsage, want: LeaseDemand, events: UsageReport
    ) -> Lease:
        self.n_loans += 1
        self.n_asked += want.first_requests  # for permits of the rate; money is returned when no call waits
        return Lease(self.n_loans, 2, 0 if want.slots else 1000, 10**6, 10**6, 0.0, 60.0)

    async def tell(self, holder: str, endpoint: str, state: WorkerUsage, events: UsageReport) -> LeaseAdjustment:
        self.n_told += 1
        return LeaseAdjustment(2, self.pause_s, 60.0)

    async def leave(self, holder: str) -> None:
        """Nothing was noted."""


async def test_calls_that_others_follow_are_not_reported_each() -> None:
    lender = PlentifulCoordinator()
    budget = RateLimiter(lender)
    first = await budget.acquire("e", 1, 0.0)
    await until(lambda: lender.n_told == 1)  # it learns how often it is to report
    waiting = [asyncio.ensure_future(budget.acquire("e", 1, 0.0)) for _ in range(100)]
    await turns(5)
    first.answered(1, 0.0)
    for each in waiting[:-4]:
        await asyncio.sleep(0.005)  # half a second in all, in which it once reported five times
        (await each).answered(1, 0.0)
    assert lender.n_told == 1
    budget.close()


async def test_what_was_lent_before_a_pause_is_not_used_after_it_was_told() -> None:
    lender = PlentifulCoordinator(pause_s=0.02)
    budget = RateLimiter(lender)
    permit = await budget.acquire("e", 1, 0.0)
    await until(lambda: lender.n_told > 0)
    assert lender.n_asked == 1
    permit.answered(1, 0.0)
    await budget.acquire("e", 1, 0.0)
    assert lender.n_asked == 2
    budget.close()
