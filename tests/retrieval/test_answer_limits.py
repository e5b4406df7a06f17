"""Answers keep to their endpoint's limits, from one snapshot's engine to the next and from process to process."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.composition.models import make_coordinator, make_pool
from hirag_dist.composition.query import _AnswerPool
from hirag_dist.config.model import Config
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy


def configured(max_concurrent: int) -> Config:
    endpoint = {"base_url": "http://127.0.0.1:9/v1", "model": "m", "max_concurrent": max_concurrent}
    return Config.model_validate({"llm": {"endpoints": {"e": endpoint}, "roles": {"answer": "e"}}})


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.parametrize(("sharers", "at_a_time"), [(1, 8), (4, 2), (16, 1)])
async def test_processes_divide_an_endpoints_calls(sharers: int, at_a_time: int) -> None:
    budget = RateLimiter(make_coordinator(configured(8), sharers=sharers), "a")
    permits = [await budget.acquire("e", 1, 0.0) for _ in range(at_a_time)]
    one_more = asyncio.create_task(budget.acquire("e", 1, 0.0))
    await settle()
    assert not one_more.done()
    permits[0].answered(1, 0.0)
    assert await one_more
    budget.close()


async def test_an_engine_that_closes_leaves_the_calls_to_the_next() -> None:
    config = configured(1)
    coordinator = make_coordinator(config)
    old, new = RateLimiter(coordinator, "old"), RateLimiter(coordinator, "new")
    await old.acquire("e", 1, 0.0)
    waiting = asyncio.create_task(new.acquire("e", 1, 0.0))
    await settle()
    assert not waiting.done()
    pool = make_pool(config, None, RetriedCalls(old, RetryPolicy()))
    await _AnswerPool(pool, coordinator, "old").close()
    assert await waiting
    new.close()
