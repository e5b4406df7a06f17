"""Calls that come together leave together, and none of them is harmed by another."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from hirag_dist.retrieval.question_embedding import MicroBatcher


class Door:
    """Doubles numbers when it is let."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.open = asyncio.Event()
        self.fault: Exception | None = None

    async def run(self, items: Sequence[int]) -> list[int]:
        self.calls.append(list(items))
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return [2 * item for item in items]


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_alone_goes_at_once() -> None:
    door = Door()
    door.open.set()
    assert await MicroBatcher(door.run, 8).submit(3) == 6
    assert door.calls == [[3]]


async def test_what_comes_meanwhile_goes_together() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 3)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(6)]
    await settle()
    assert door.calls == [[0]]
    door.open.set()
    assert await asyncio.gather(*asked) == [0, 2, 4, 6, 8, 10]
    assert door.calls == [[0], [1, 2, 3], [4, 5]]


async def test_several_calls_at_a_time() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8, max_calls=2)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(4)]
    await settle()
    assert door.calls == [[0], [1]]
    door.open.set()
    await asyncio.gather(*asked)
    assert door.calls == [[0], [1], [2, 3]]


async def test_a_failure_is_told_to_those_of_its_call_alone() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    first = asyncio.create_task(joined.submit(1))
    await settle()
    door.fault = ValueError("no")
    door.open.set()
    with pytest.raises(ValueError, match="no"):
        await first
    door.fault = None
    assert await joined.submit(2) == 4


async def test_who_is_cancelled_while_waiting_is_not_sent() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(4)]
    await settle()
    asked[2].cancel()
    await settle()
    door.open.set()
    assert await asyncio.gather(*asked, return_exceptions=True) != []
    assert door.calls == [[0], [1, 3]]
    assert [asked[number].result() for number in (0, 1, 3)] == [0, 2, 6]


async def test_who_is_cancelled_under_way_leaves_the_others_alone() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(3)]
    await settle()
    asked[0].cancel()
    await settle()
    door.open.set()
    assert await asyncio.gather(*asked[1:]) == [2, 4]
    assert asked[0].cancelled()


async def test_closing_waits_for_what_is_under_way() -> None:
    door = Door()
    joined = MicroBatcher(door.run, 8)
    asked = [asyncio.create_task(joined.submit(number)) for number in range(2)]
    await settle()
    closing = asyncio.create_task(joined.close())
    await settle()
    assert not closing.done()
    door.open.set()
    await closing
    assert asked[0].result() == 0
    await settle()
    assert asked[1].cancelled()
    assert door.calls == [[0]]
