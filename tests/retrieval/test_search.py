"""Turns of a question's work, and what is remembered of records."""

from __future__ import annotations

import asyncio
import threading

import pytest

from hirag_dist.core.cooperative import Steps, all_at_once
from hirag_dist.retrieval.search import CooperativeDeadline, RecordTextCache, _DeadlineExceeded


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


async def test_steps_end_with_their_result() -> None:
    clock, seen = Clock(), list[int]()
    assert await CooperativeDeadline(clock, None).work(count_to(5, clock, 10.0, seen)) == "done"
    assert seen == [1, 2, 3, 4, 5]
    assert all_at_once(count_to(2, clock, 1.0, seen)) == "done"


async def test_work_stops_at_the_step_after_its_deadline() -> None:
    clock, seen = Clock(), list[int]()
    with pytest.raises(_DeadlineExceeded):
        await CooperativeDeadline(clock, 2.5).work(count_to(5, clock, 1.0, seen))
    assert seen == [1, 2, 3]


async def test_work_in_a_thread_is_waited_for_until_the_deadline() -> None:
    go_on = threading.Event()

    def work() -> str:
        go_on.wait()
        return threading.current_thread().name

    with pytest.raises(_DeadlineExceeded):
        await CooperativeDeadline(Clock(), 0.0).apart(work)
    go_on.set()
    assert await CooperativeDeadline(Clock(), 60.0).apart(work) != threading.current_thread().name


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

        await CooperativeDeadline(clock, None).work(noted())

    await asyncio.gather(ask("a", 1.0), ask("b", 1.0))
    assert order == ["a", "b"] * 3
    order.clear()
    await asyncio.gather(ask("a", 1e-6), ask("b", 1e-6))
    assert order == ["a"] * 3 + ["b"] * 3


async def test_cancelled_work_goes_no_further() -> None:
    clock, seen = Clock(), list[int]()
    task = asyncio.create_task(CooperativeDeadline(clock, None).work(count_to(5, clock, 1.0, seen)))
    while len(seen) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(seen) < 5


def test_the_time_left_is_never_below_nothing() -> None:
    clock = Clock()
    turns = CooperativeDeadline(clock, 3.0)
    assert turns.left_s == 3.0
    clock.now += 5
    assert turns.left_s == 0.0
    assert CooperativeDeadline(clock, None).left_s is None


def test_records_are_made_and_counted_once_and_the_oldest_are_forgotten() -> None:
    made: list[str] = []
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def make(text: str) -> str:
        made.append(text)
        return text

    told = RecordTextCache(count, max_chars=10)
    assert told.of("local", 1, 0, lambda: make("abcd")) == ("abcd", 4)
    assert told.of("local", 1, 0, lambda: make("else")) == ("abcd", 4)
    assert told.of("bridge", 1, 7, lambda: make("wxyz")) == ("wxyz", 7)
    assert (made, counted) == (["abcd", "wxyz"], ["abcd"])
    told.of("local", 2, 0, lambda: make("123"))  # no room: the oldest goes
    assert told.of("bridge", 1, 7, lambda: make("never")) == ("wxyz", 7)
    assert told.of("local", 1, 0, lambda: make("again")) == ("again", 5)


def test_a_record_larger_than_all_room_is_given_and_not_kept() -> None:
    told = RecordTextCache(len, max_chars=3)
    assert told.of("local", 1, 0, lambda: "too long") == ("too long", 8)
    assert told.of("local", 1, 0, lambda: "other") == ("other", 5)
