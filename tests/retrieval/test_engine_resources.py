"""What engines share: texts of records that are made and counted once, and steps that others get in between."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.core.arrays import Steps
from hirag_dist.retrieval.deadline import CooperativeDeadline, DeadlineExceeded
from hirag_dist.retrieval.engine_resources import RecordTextCache


def test_records_are_made_and_counted_once_and_the_oldest_are_forgotten() -> None:
    made: list[str] = []
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def make(text: str) -> str:
        made.append(text)
        return text

    cache = RecordTextCache(count, max_chars=10)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("abcd")) == ("abcd", 4)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("else")) == ("abcd", 4)
    assert cache.get("bridge", 1, lambda *_: (7, 1), lambda form: make("wxyz")) == ("wxyz", 7)
    assert (made, counted) == (["abcd", "wxyz"], ["abcd"])
    cache.get("local", 2, lambda *_: (0, 0), lambda form: make("123"))  # no room: the oldest goes
    assert cache.get("bridge", 1, lambda *_: (7, 1), lambda form: make("never")) == ("wxyz", 7)
    assert cache.get("local", 1, lambda *_: (0, 0), lambda form: make("again")) == ("again", 5)


def test_views_share_what_is_stored_and_keep_what_is_rebuilt() -> None:
    stored = RecordTextCache(len)
    one, other = (RecordTextCache(len, stored=stored) for _ in range(2))
    assert one.get("local", 1, lambda *_: (0, 0), lambda form: "stored") == ("stored", 6)
    assert other.get("local", 1, lambda *_: (0, 0), lambda form: "never made") == ("stored", 6)
    assert one.rebuilt("local", 1, lambda form: "of one view") == ("of one view", 11)
    assert one.rebuilt("local", 1, lambda form: "never made") == ("of one view", 11)
    assert other.rebuilt("local", 1, lambda form: "of another") == ("of another", 10)
    assert other.get("local", 1, lambda *_: (0, 0), lambda form: "never made") == ("stored", 6)


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
