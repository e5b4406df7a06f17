"""Steps of a question's work: between them others run, and after the deadline none does."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hirag_dist.core.arrays import Steps
from hirag_dist.retrieval.deadline import CooperativeDeadline, DeadlineExceeded


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def count_to(last: int, clock: Clock, seconds: float, seen: list[int]) -> Steps[str]:
    """Work of `last` steps that take some time each."""
    for step in range(1, last + 1):
        clock.now += seconds
        seen.append(step)
        yield
    return "done"


async def test_work_stops_at_the_step_after_its_deadline() -> None:
    clock, seen = Clock(), list[int]()
    with pytest.raises(DeadlineExceeded):
        await CooperativeDeadline(clock, 2.5).run(count_to(5, clock, 1.0, seen))
    assert seen == [1, 2, 3]


async def test_work_in_a_thread_is_waited_for_until_the_deadline() -> None:
    go_on = threading.Event()

    def work() -> str:
        go_on.wait()
        return threading.current_thread().name

    with pytest.raises(DeadlineExceeded):
        await CooperativeDeadline(Clock(), 0.0).run_in_thread(work)
    go_on.set()
    assert await CooperativeDeadline(Clock(), 60.0).run_in_thread(work) != threading.current_thread().name


async def test_others_get_in_between_long_steps_and_not_between_short_ones() -> None:
    order: list[str] = []

    async def ask(name: str, seconds: float) -> None:
        clock = Clock()
        steps = count_to(3, clock, seconds, [])

        def noted() -> Steps[str]:
            for _ in steps:
                order.append(name)
                yield
            return "done"

        await CooperativeDeadline(clock, None).run(noted())

    await asyncio.gather(ask("a", 1.0), ask("b", 1.0))
    assert order == ["a", "b"] * 3
    order.clear()
    await asyncio.gather(ask("a", 1e-6), ask("b", 1e-6))
    assert order == ["a"] * 3 + ["b"] * 3


async def test_cancelled_work_goes_no_further() -> None:
    clock, seen = Clock(), list[int]()
    task = asyncio.create_task(CooperativeDeadline(clock, None).run(count_to(5, clock, 1.0, seen)))
    while len(seen) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(seen) < 5
