"""Assignment of the slots of a window: none is idle while a worker could use it."""

from __future__ import annotations

import asyncio
import random

from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import Lease, LeaseDemand, UsageReport, WorkerUsage


def open_treasury(max_concurrent: int) -> QuotaCoordinator:
    return QuotaCoordinator({"e": EndpointLimits(None, None, max_concurrent)})


async def turns(n_rounds: int = 5) -> None:
    """Let every task that can run do so."""
    for _ in range(n_rounds):
        await asyncio.sleep(0)


def holding(slots: int, loan: int = 1) -> WorkerUsage:
    return WorkerUsage(loan, 0, slots, slots, 0, 0.0, 0, 0.0)


async def stragglers_and_two_more(treasury: QuotaCoordinator) -> None:
    """Ten workers that wait for the last of their calls each, and two with two calls each: window 100, 86 are free."""
    for number in range(12):
        slots = 1 if number < 10 else 2
        await treasury.ask(f"w{number}", "e", holding(0, 0), LeaseDemand(0, slots=slots), UsageReport())
        await treasury.tell(f"w{number}", "e", holding(slots), UsageReport())


async def test_slots_that_stragglers_do_not_need_are_lent_to_all_who_wait() -> None:
    treasury = open_treasury(100)
    await stragglers_and_two_more(treasury)
    await treasury.ask("large", "e", holding(0, 0), LeaseDemand(0, slots=86), UsageReport())
    waiting = [
        asyncio.ensure_future(treasury.ask(name, "e", holding(2), LeaseDemand(0, slots=62), UsageReport()))
        for name in ("w10", "w11")
    ]
    await turns()
    assert not any(each.done() for each in waiting)
    await treasury.tell("large", "e", holding(0), UsageReport())
    assert [(await asyncio.wait_for(each, 1)).slots for each in waiting] == [45, 45]  # (100 - 10) / 2


async def test_a_worker_comes_down_to_what_leaves_as_much_to_others_and_no_further() -> None:
    treasury = open_treasury(100)
    await stragglers_and_two_more(treasury)
    loan = await treasury.ask("w10", "e", holding(2), LeaseDemand(0, slots=88), UsageReport())
    assert loan.slots == 88
    other = asyncio.ensure_future(treasury.ask("w11", "e", holding(2), LeaseDemand(0, slots=62), UsageReport()))
    await turns()
    assert (await treasury.tell("w10", "e", holding(88, 2), UsageReport())).slots == 45
    await treasury.tell("w10", "e", holding(45, 2), UsageReport())
    assert (await asyncio.wait_for(other, 1)).slots == 45


async def test_no_slot_is_free_while_somebody_waits_for_one() -> None:
    rng = random.Random(0)
    treasury = open_treasury(40)
    books = treasury._books["e"]
    waiting: dict[str, asyncio.Task[Lease]] = {}
    held = {f"w{number}": holding(0, 0) for number in range(12)}
    n_waited = 0
    for _ in range(1500):
        name = rng.choice(list(held))
        if name not in waiting and rng.random() < 0.6:
            want = LeaseDemand(rng.randrange(2), slots=rng.randrange(1, 20))
            waiting[name] = asyncio.ensure_future(treasury.ask(name, "e", held[name], want, UsageReport()))
        elif name not in waiting:
            loan, slots = held[name].slot_loan, held[name].slots
            held[name] = holding(rng.randrange(slots + 1), loan)
            await treasury.tell(name, "e", held[name], UsageReport())
        elif rng.random() < 0.1:
            waiting.pop(name).cancel()
        await turns(3)
        for done in [name for name, each in waiting.items() if each.done()]:
            told = waiting.pop(done).result()
            held[done] = holding(told.slots, told.number)
        assert books.free_slots() >= 0
        assert not waiting or not books.free_slots()
        n_waited += len(waiting)
    assert n_waited > 1500
    for each in waiting.values():
        each.cancel()
