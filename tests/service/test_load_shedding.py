"""The line before the places."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hirag_dist.service.request_gate import LoadShedder
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded


class Clock:
    """A clock that is advanced by the test."""

    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def admission(clock: Clock) -> LoadShedder:
    return LoadShedder(
        max_retrievals=2, max_queue_wait_s=1.0, max_requests=10, max_answers=2, short_queue=4, clock=clock
    )


def no_deadline() -> None:
    return None


class Guest:
    """A caller that holds a slot until it is released."""

    def __init__(self, admission: LoadShedder, name: str, order: list[str], left_s: float | None = None) -> None:
        self._go = asyncio.Event()
        self._left_s = left_s
        self.waited_s: float | None = None
        self._stay = asyncio.create_task(self._sit(admission, name, order))

    async def _sit(self, admission: LoadShedder, name: str, order: list[str]) -> None:
        async with admission.slot(lambda: self._left_s) as self.waited_s:
            order.append(name)
            await self._go.wait()

    async def leave(self) -> None:
        self._go.set()
        await self._stay

    async def give_up(self) -> None:
        self._stay.cancel()
        await asyncio.gather(self._stay, return_exceptions=True)


async def settled() -> None:
    """Let every task get as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_are_given_in_the_order_of_coming(admission: LoadShedder, clock: Clock) -> None:
    order: list[str] = []
    guests = {name: Guest(admission, name, order) for name in "abcde"}
    await settled()
    assert (order, admission.retrieving, admission.waiting) == (["a", "b"], 2, 3)
    clock.s = 3.0
    await guests["c"].give_up()  # a cancelled caller delays no other
    await guests["b"].leave()
    await settled()
    assert order == ["a", "b", "d"]
    assert (guests["a"].waited_s, guests["d"].waited_s) == (0.0, 3.0)
    for name in "ade":
        await guests[name].leave()
    assert order == ["a", "b", "d", "e"]
    assert (admission.retrieving, admission.waiting) == (0, 0)


@asynccontextmanager
async def full(admission: LoadShedder, clock: Clock, stay_s: float, waiting: int) -> AsyncIterator[None]:
    """Places that are held for `stay_s` each, all taken, with some waiting."""
    for _ in range(2):
        async with admission.slot(no_deadline):
            clock.s += stay_s
    guests = [Guest(admission, str(number), []) for number in range(2 + waiting)]
    await settled()
    yield
    for guest in guests:
        await guest.leave()


async def test_the_expected_wait_goes_by_the_line_and_by_how_long_places_are_held(
    admission: LoadShedder, clock: Clock
) -> None:
    assert admission.expected_wait_s == 0
    async with full(admission, clock, 0.25, waiting=0):
        assert admission.expected_wait_s == pytest.approx(1 * 0.25 / 2)
    clock.s = 0
    async with full(admission, clock, 0.25, waiting=3):
        admission.check(None)
        assert admission.expected_wait_s == pytest.approx(4 * 0.25 / 2, rel=0.5)
    assert admission.expected_wait_s == 0  # there is a free place


async def test_who_would_wait_too_long_is_told_so(admission: LoadShedder, clock: Clock) -> None:
    async with full(admission, clock, 0.5, waiting=4):
        with pytest.raises(Overloaded, match=r"4 requests are waiting, and the expected wait is 1\.2 s") as caught:
            admission.check(None)
    assert caught.value.reason == "queue"
    assert caught.value.retry_after_s == 1.2


async def test_who_would_be_served_after_the_deadline_is_told_so(admission: LoadShedder, clock: Clock) -> None:
    async with full(admission, clock, 0.5, waiting=1):
        admission.check(0.6)
        with pytest.raises(Overloaded, match=r"its deadline is in 0\.4 s") as caught:
            admission.check(0.4)
    assert caught.value.reason == "deadline"


async def test_who_waited_past_the_deadline_is_not_started(admission: LoadShedder) -> None:
    order: list[str] = []
    guests = {name: Guest(admission, name, order) for name in "ab"}
    late = Guest(admission, "late", order, left_s=0.0)
    await settled()
    await guests["a"].leave()
    with pytest.raises(DeadlinePassed, match="allow more time"):
        await late.leave()
    assert order == ["a", "b"]
    async with admission.slot(no_deadline):  # the place is free again
        assert admission.retrieving == 2
    await guests["b"].leave()
