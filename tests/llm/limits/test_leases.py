"""Sums of leases: the kept sums equal recomputed ones, after any sequence of events."""

from __future__ import annotations

import asyncio
import random

import pytest

from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.leases import EndpointLeases, LeaseQueue, LeaseRequest
from hirag_dist.llm.limits.protocol import Lease, LeaseDemand, WorkerUsage


def state(slots: int = 0, busy: int = 0, slot_loan: int = 0) -> WorkerUsage:
    return WorkerUsage(slot_loan, 0, slots, busy, 0, 0.0, 0, 0.0)


def question(holder: str, order: int, slots: int = 0, priority: int = 0, requests: int = 0) -> LeaseRequest:
    answer: asyncio.Future[Lease] = asyncio.get_running_loop().create_future()
    return LeaseRequest(holder, LeaseDemand(priority, slots=slots, first_requests=requests), order, answer)


def check(books: EndpointLeases) -> None:
    accounts = books.accounts.values()
    assert books.slots == sum(each.slots for each in accounts)
    assert books.busy == sum(each.busy for each in accounts)
    assert books.active == sum(each.busy > 0 or each.waits > 0 for each in accounts)
    hungry = {each.holder for each in books.for_slots}
    assert books.hungry == len(hungry)
    assert books.hungry_slots == sum(books.accounts[holder].slots for holder in hungry)


@pytest.mark.parametrize("seed", range(5))
async def test_sums_hold_through_reports_loans_questions_and_deaths(seed: int) -> None:
    rng = random.Random(seed)
    books = EndpointLeases("e", EndpointLimits(None, None, 100))
    asked: list[LeaseRequest] = []
    for number in range(600):
        holder = f"w{rng.randrange(6)}"
        account = books.accounts.get(holder)
        deed = rng.randrange(5)
        if deed == 0 or account is None:
            known = 0 if account is None else account.slots_lent - rng.randrange(2)
            books.note(holder, state(rng.randrange(9), rng.randrange(9), known))
        elif deed == 1:
            books.lend_slots(account, rng.randrange(1, 5))
        elif deed == 2:
            asked.append(question(holder, number, rng.randrange(2), requests=rng.randrange(2)))
            books.join(asked[-1])
        elif deed == 3 and asked:
            books.leave(asked.pop(rng.randrange(len(asked))))
        elif rng.random() < 0.2:
            books.close(holder)
            for each in [each for each in asked if each.holder == holder]:
                assert each.answer.cancelled()
                asked.remove(each)
        check(books)
    assert sum(map(len, (books.for_slots, books.for_permits, books.for_money))) == len(asked)


async def test_shares_of_those_who_want_more_take_what_the_others_leave_by_hand() -> None:
    books = EndpointLeases("e", EndpointLimits(None, None, 100))
    for number in range(8):  # each has one call in flight, and no other
        books.note(f"idle {number}", state(slots=1, busy=1))
    for order, slots in enumerate((60, 2)):
        books.note(f"hungry {order}", state(slots=slots, busy=slots))
    idle, large, small = (books.accounts[name] for name in ("idle 0", "hungry 0", "hungry 1"))
    assert books.share(small) == 32  # no requests: (100 - 8 - 60) / 1
    for order in range(2):
        books.join(question(f"hungry {order}", order, slots=9))
    assert books.share(small) == books.share(large) == 46  # (100 - 8) / 2
    assert books.share(idle) == 31  # (100 - 7) / 3, should it want more
    books.note("idle 0", state(slots=93, busy=93))
    assert books.share(small) == 10  # no less than of the whole window: 100 / 10


async def test_a_state_from_before_a_loan_frees_nothing() -> None:
    books = EndpointLeases("e", EndpointLimits(None, None, 10))
    books.note("w", state())
    books.lend_slots(books.accounts["w"], 4)
    books.note("w", state(slots=0, busy=2, slot_loan=0))
    assert (books.slots, books.busy, books.free_slots()) == (4, 2, 6)
    books.note("w", state(slots=3, busy=3, slot_loan=1))
    assert (books.slots, books.busy) == (3, 3)


async def test_a_queue_goes_by_priority_then_by_age_and_drops_who_gave_up() -> None:
    queue = LeaseQueue()
    entries = [question("w", order, priority=priority) for order, priority in enumerate([1, 0, 1, -1])]
    for each in entries:
        queue.join(each)
    assert [each.order for each in queue.in_turn()] == [3, 1, 0, 2]
    queue.leave(entries[1])
    queue.leave(entries[1])  # it has left already
    entries[0].answer.cancel()
    assert [each.order for each in queue.in_turn()] == [3, 2]
    assert len(queue) == 2


async def test_money_alone_is_asked_for_beside_permits_in_one_order() -> None:
    books = EndpointLeases("e", EndpointLimits(None, None, 10))
    books.note("w", state())
    for order, requests in enumerate([1, 0, 1, 0]):
        books.join(question("w", order, requests=requests))
    assert [each.order for each in books.for_money] == [1, 3]
    assert [each.order for each in books.asked()] == [0, 1, 2, 3]
