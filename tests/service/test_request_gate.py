"""Limits of callers, as a process counts them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from hirag_dist.service.callers import Caller
from hirag_dist.service.request_gate import DAY_S, CallerQuotas, LoadShedder
from hirag_dist.wire.error_status import DeadlinePassed, Overloaded, QuotaExceeded

NOON = 20_000 * DAY_S + DAY_S / 2


class Clocks:
    """Both clocks of the limits."""

    s = 0.0

    def steady(self) -> float:
        return self.s

    def now(self) -> float:
        return NOON + self.s


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def limits(clocks: Clocks) -> CallerQuotas:
    return CallerQuotas(clocks.steady, clocks.now)


def ask(limits: CallerQuotas, caller: Caller) -> str:
    """Ask once: empty when that is allowed, else the reason and when to come back."""
    try:
        with limits.admitted(caller):
            return ""
    except QuotaExceeded as error:
        return f"{error.reason} {error.retry_after_s:.4g}"


def test_a_rate_is_a_bucket(limits: CallerQuotas, clocks: Clocks) -> None:
    caller = Caller("web", per_second=2.0, burst=3.0)
    assert [ask(limits, caller) for _ in range(5)] == ["", "", "", "rate 0.5", "rate 0.5"]
    clocks.s += 0.25
    assert ask(limits, caller) == "rate 0.25"
    clocks.s += 0.25
    assert [ask(limits, caller) for _ in range(2)] == ["", "rate 0.5"]
    clocks.s += 3600
    assert [ask(limits, caller) for _ in range(4)] == ["", "", "", "rate 0.5"]  # no more than the burst is saved up


def test_a_quota_ends_with_the_day(limits: CallerQuotas, clocks: Clocks) -> None:
    caller = Caller("web", per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S / 2:.4g}"]
    clocks.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S:.4g}"]


def test_a_clock_set_back_over_midnight_gives_no_second_quota(limits: CallerQuotas, clocks: Clocks) -> None:
    caller = Caller("web", per_day=2)
    clocks.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(2)] == ["", ""]
    clocks.s -= 10
    assert ask(limits, caller) == f"quota {DAY_S + 10:.4g}"
    clocks.s += DAY_S + 10
    assert ask(limits, caller) == ""


def test_what_is_refused_is_not_charged(limits: CallerQuotas, clocks: Clocks) -> None:
    caller = Caller("web", per_second=1.0, burst=1.0, per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "rate 1", "rate 1"]
    clocks.s += 1
    assert ask(limits, caller) == ""


def test_calls_at_a_time(limits: CallerQuotas) -> None:
    caller = Caller("web", max_concurrent=2)
    with limits.admitted(caller):
        with limits.admitted(caller):
            assert ask(limits, caller) == "concurrent 0.25"
        assert ask(limits, caller) == ""
        with pytest.raises(ZeroDivisionError), limits.admitted(caller):
            raise ZeroDivisionError
        assert ask(limits, caller) == ""


@pytest.fixture
def admission(clocks: Clocks) -> LoadShedder:
    return LoadShedder(
        max_retrievals=2, max_queue_wait_s=1.0, max_requests=10, max_answers=2, short_queue=4, clock=clocks.steady
    )


class Guest:
    """A caller that holds a slot until it is released."""

    waited_s: float | None = None

    def __init__(self, admission: LoadShedder, name: str, order: list[str], left_s: float | None = None) -> None:
        self._go = asyncio.Event()
        self.stay = asyncio.create_task(self._sit(admission, name, order, left_s))

    async def _sit(self, admission: LoadShedder, name: str, order: list[str], left_s: float | None) -> None:
        async with admission.slot(lambda: left_s) as self.waited_s:
            order.append(name)
            await self._go.wait()

    async def leave(self) -> None:
        self._go.set()
        await self.stay


async def settled() -> None:
    """Let every task get as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_places_are_given_in_the_order_of_coming(admission: LoadShedder, clocks: Clocks) -> None:
    order: list[str] = []
    guests = {name: Guest(admission, name, order) for name in "abcde"}
    await settled()
    assert (order, admission.retrieving, admission.waiting) == (["a", "b"], 2, 3)
    clocks.s = 3.0
    guests["c"].stay.cancel()  # who gives up delays no other
    await guests["b"].leave()
    await settled()
    assert order == ["a", "b", "d"]
    assert (guests["a"].waited_s, guests["d"].waited_s) == (0.0, 3.0)
    for name in "ade":
        await guests[name].leave()
    assert order == ["a", "b", "d", "e"]
    assert (admission.retrieving, admission.waiting) == (0, 0)


@asynccontextmanager
async def full(admission: LoadShedder, clocks: Clocks, stay_s: float, waiting: int) -> AsyncIterator[None]:
    """Places that are held for `stay_s` each, all taken, with some waiting."""
    for _ in range(2):
        async with admission.slot(lambda: None):
            clocks.s += stay_s
    guests = [Guest(admission, str(number), []) for number in range(2 + waiting)]
    await settled()
    yield
    for guest in guests:
        await guest.leave()


async def test_who_would_wait_too_long_is_told_so(admission: LoadShedder, clocks: Clocks) -> None:
    assert admission.expected_wait_s == 0
    async with full(admission, clocks, 0.5, waiting=4):
        with pytest.raises(Overloaded, match=r"4 requests are waiting, and the expected wait is 1\.2 s") as caught:
            admission.check(None)
    assert caught.value.reason == "queue"
    assert caught.value.retry_after_s == 1.2


async def test_who_would_be_served_after_the_deadline_is_told_so(admission: LoadShedder, clocks: Clocks) -> None:
    async with full(admission, clocks, 0.5, waiting=1):
        admission.check(0.6)
        with pytest.raises(Overloaded, match=r"its deadline is in 0\.4 s") as caught:
            admission.check(0.4)
    assert caught.value.reason == "deadline"


def test_who_comes_after_the_deadline_meets_no_overload(admission: LoadShedder) -> None:
    with pytest.raises(DeadlinePassed, match="allow more time"):
        admission.check(0.0)


async def test_who_waited_past_the_deadline_is_not_started(admission: LoadShedder) -> None:
    order: list[str] = []
    guests = {name: Guest(admission, name, order) for name in "ab"}
    late = Guest(admission, "late", order, left_s=0.0)
    await settled()
    await guests["a"].leave()
    with pytest.raises(DeadlinePassed, match="allow more time"):
        await late.leave()
    assert order == ["a", "b"]
    async with admission.slot(lambda: None):  # the place is free again
        assert admission.retrieving == 2
    await guests["b"].leave()
