"""What engines share: texts of records that are made and counted once, and steps that others get in between."""

from __future__ import annotations

import asyncio

import pytest

from hirag_dist.core.arrays import Steps
from hirag_dist.retrieval.deadline import CooperativeDeadline, DeadlineExceeded
from hirag_dist.retrieval.engine_resources import RecordTextCache


def test_records_are_made_and_counted_once_and_the_oldest_are_forgotten() -> None:
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    def get(level: str, row: int, text: str, n_tokens: int = 0) -> tuple[str, int]:
        return cache.get(level, row, text, lambda item, form: item, lambda *_: (n_tokens, 0))

    cache = RecordTextCache(count, max_chars=10)
    assert get("local", 1, "abcd") == get("local", 1, "never made") == ("abcd", 4)
    assert get("bridge", 1, "wxyz", 7) == ("wxyz", 7)
    assert counted == ["abcd"]
    get("local", 2, "123")  # no room: the oldest goes
    assert get("bridge", 1, "never made", 7) == ("wxyz", 7)
    assert get("local", 1, "again") == ("again", 5)


def test_views_share_what_is_stored_and_keep_what_is_rebuilt() -> None:
    def get(view: RecordTextCache, text: str) -> tuple[str, int]:
        return view.stored.get("local", 1, text, lambda item, form: item, lambda *_: (0, 0))

    def rebuilt(view: RecordTextCache, text: str) -> tuple[str, int]:
        return view.get("local", 1, text, lambda item, form: item)

    stored = RecordTextCache(len)
    one, other = (RecordTextCache(len, stored=stored) for _ in range(2))
    assert get(one, "stored") == get(other, "never made") == ("stored", 6)
    assert rebuilt(one, "of one view") == rebuilt(one, "never made") == ("of one view", 11)
    assert rebuilt(other, "of another") == ("of another", 10)
    assert get(other, "never made") == ("stored", 6)


class Clock:
    now = 100.0

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
    async def asked(seconds: float) -> list[int]:
        """Return the steps of two tasks in the order in which they were done, the second one's from 1 again."""
        seen: list[int] = []
        clocks = Clock(), Clock()
        await asyncio.gather(
            *(CooperativeDeadline(clock, None).run(count_to(3, clock, seconds, seen)) for clock in clocks)
        )
        return seen

    assert await asked(1.0) == [1, 1, 2, 2, 3, 3]
    assert await asked(1e-6) == [1, 2, 3, 1, 2, 3]


async def test_cancelled_work_goes_no_further() -> None:
    clock, seen = Clock(), list[int]()
    task = asyncio.create_task(CooperativeDeadline(clock, None).run(count_to(5, clock, 1.0, seen)))
    while len(seen) < 2:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(seen) < 5
