"""Calls of one task made at the same time: all end before a failure rises."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from hirag_dist.errors import StageFailed
from hirag_dist.execution.stage import gather_calls


class Calls:
    """Calls that go on when they are let, and say how they ended."""

    def __init__(self) -> None:
        self.ended: list[str] = []
        self.go_on = asyncio.Event()

    async def sent(self, name: str) -> str:
        """A request that is out: it does not heed being cancelled until it has its reply."""
        waiting = asyncio.ensure_future(self.go_on.wait())
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            await asyncio.wait([waiting])
            self.ended.append(f"{name}, cancelled")
            raise
        self.ended.append(name)
        return name

    async def queued(self) -> str:
        """A request that waits for its turn, for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            self.ended.append("never sent")
        return ""

    async def failing(self) -> str:
        raise StageFailed("this one")


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_failure_waits_for_what_was_sent_and_drops_what_was_not() -> None:
    calls = Calls()
    running = asyncio.ensure_future(gather_calls([calls.sent("a"), calls.failing(), calls.queued(), calls.sent("b")]))
    await settle()
    assert not running.done()
    assert calls.ended == ["never sent"]
    calls.go_on.set()
    with pytest.raises(StageFailed, match="this one"):
        await running
    assert sorted(calls.ended) == ["a, cancelled", "b, cancelled", "never sent"]


async def test_cancelled_it_waits_too() -> None:
    calls = Calls()
    running = asyncio.ensure_future(gather_calls([calls.sent("a"), calls.sent("b"), calls.queued()]))
    await settle()
    running.cancel()
    await settle()
    assert not running.done()
    calls.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert sorted(calls.ended) == ["a, cancelled", "b, cancelled", "never sent"]


async def test_of_two_failures_the_first_rises_and_none_is_left_over() -> None:
    def failures() -> Iterator[str]:
        yield from ("one", "two")

    async def fail(name: str) -> None:
        raise StageFailed(name)

    with pytest.raises(StageFailed, match="one"):
        await gather_calls(fail(name) for name in failures())
