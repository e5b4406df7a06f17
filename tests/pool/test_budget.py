"""Turns, rates and money of one process. Rates are so high that waiting takes milliseconds; no clock is slept on."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.core.limits import Allowance
from hirag_dist.errors import BudgetReached
from hirag_dist.pool.budget import LocalBudget


async def turns(n_rounds: int = 20) -> None:
    """Let every task that can run do so."""
    for _ in range(n_rounds):
        await asyncio.sleep(0)


def budget(max_concurrent: int = 1, max_usd: float | None = None, max_tokens: int | None = None) -> LocalBudget:
    allowances = {name: Allowance(None, None, max_concurrent) for name in ("e", "f")}
    return LocalBudget(allowances, max_usd, max_tokens, clock=lambda: 0.0)


async def test_calls_are_served_in_the_order_they_came() -> None:
    limited = budget(max_concurrent=2)
    served: list[int] = []

    async def call(number: int, tokens: int) -> None:
        await limited.acquire("e", tokens, 0.0)
        served.append(number)

    waiting = [asyncio.ensure_future(call(number, 1000 - 100 * number)) for number in range(8)]
    await turns()
    assert served == [0, 1]
    for n_served in range(3, 9):
        await limited.settle("e", 100, 100, 0.0, 0.0)
        await turns()
        assert served == list(range(n_served))
    await asyncio.gather(*waiting)


async def test_one_endpoint_does_not_hold_up_another() -> None:
    limited = budget()
    await limited.acquire("e", 1, 0.0)
    held = asyncio.ensure_future(limited.acquire("e", 1, 0.0))
    await asyncio.wait_for(limited.acquire("f", 1, 0.0), 1)
    assert not held.done()
    await limited.settle("e", 1, 1, 0.0, 0.0)
    await asyncio.wait_for(held, 1)


async def test_a_call_that_gives_up_while_waiting_holds_nothing() -> None:
    limited = budget()
    await limited.acquire("e", 1, 0.0)
    first, second = (asyncio.ensure_future(limited.acquire("e", 1, 0.0)) for _ in range(2))
    await turns()
    first.cancel()
    await limited.settle("e", 1, 1, 0.0, 0.0)
    await asyncio.wait_for(second, 1)
    assert first.cancelled()


async def test_a_spending_limit_is_reached_before_it_is_passed() -> None:
    limited = budget(9, max_usd=1.0)
    await limited.acquire("e", 10, 0.6)
    with pytest.raises(BudgetReached, match=r"--max-usd 1 was passed \(\$0\.6000 spent or reserved"):
        await limited.acquire("f", 10, 0.5)
    await limited.settle("e", 10, 10, 0.6, 0.1)  # it was cheaper than reserved
    await limited.acquire("f", 10, 0.9)  # exactly the limit is allowed
    with pytest.raises(BudgetReached):
        await limited.acquire("f", 10, 0.01)


async def test_a_token_limit_counts_what_was_used_and_what_is_reserved() -> None:
    limited = budget(9, max_tokens=100)
    await limited.acquire("e", 60, 0.0)
    await limited.settle("e", 60, 70, 0.0, 0.0)
    with pytest.raises(BudgetReached, match=r"--max-tokens 100 was passed \(70 used or reserved"):
        await limited.acquire("e", 31, 0.0)
    await limited.acquire("e", 30, 0.0)


async def test_a_call_waiting_for_its_turn_meets_a_limit_reached_meanwhile() -> None:
    limited = budget(1, max_tokens=100)
    await limited.acquire("e", 60, 0.0)
    waiting = asyncio.ensure_future(limited.acquire("e", 40, 0.0))
    await turns()
    await limited.settle("e", 60, 90, 0.0, 0.0)
    with pytest.raises(BudgetReached):
        await waiting


async def test_a_paused_endpoint_is_called_when_the_pause_is_over() -> None:
    now = [0.0]

    def clock() -> float:
        now[0] += 0.004  # every look at the clock takes a while
        return now[0]

    limited = LocalBudget({"e": Allowance(None, None, 4)}, clock=clock)
    await limited.pause("e", 0.02)
    until = now[0] + 0.02
    await limited.acquire("e", 1, 0.0)
    assert now[0] >= until


async def test_many_calls_share_a_rate() -> None:
    """60,000 requests a minute with a burst of 10 ms: eleven at once, then one a millisecond of this clock."""
    now = [0.0]

    def clock() -> float:
        now[0] += 0.0001
        return now[0]

    limited = LocalBudget({"e": Allowance(60_000, None, 100, burst_s=0.01)}, clock=clock)
    await asyncio.gather(*(limited.acquire("e", 1, 0.0) for _ in range(30)))
    assert now[0] >= (30 - 11) * 0.001
