"""The simulated cluster: its clock, its bounds, and what the program's scheduler does in it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from benchmarks.simulated_cluster import Fate, Outcome, Setup, jain, least_s, simulate
from benchmarks.virtual_time import Stuck, run

SMALL = Setup(workers=4, chunks=320, rpm=3000.0, max_concurrent=200)


def simulated(setup: Setup) -> Outcome:
    return run(simulate(setup))


def test_hours_pass_at_once_and_in_order() -> None:
    told: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        told.append((name, asyncio.get_running_loop().time()))

    async def main() -> None:
        await asyncio.gather(sleeper("late", 7200.0), sleeper("early", 3600.0), sleeper("first", 0.5))

    begun = time.monotonic()
    run(main())
    assert time.monotonic() - begun < 60
    assert told == [("first", 0.5), ("early", 3600.0), ("late", 7200.0)]


def test_who_waits_for_what_never_comes_is_told() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Stuck):
        run(main())


def test_the_same_setup_comes_out_the_same() -> None:
    setup = replace(SMALL, deaths=2, stragglers=0.02)
    first, again = simulated(setup), simulated(setup)
    first.treasury_s = again.treasury_s = 0.0  # real seconds
    assert first == again


def test_calls_go_as_fast_as_the_rate_allows_and_no_faster() -> None:
    outcome = simulated(SMALL)
    assert (outcome.by, outcome.bound_s) == ("requests", 640 / 50)
    assert outcome.calls == 640
    assert outcome.paid_again == outcome.refused == 0
    assert outcome.bound_s - 1.0 <= outcome.wall_s < 1.15 * outcome.bound_s  # it begins with a second's credit
    assert outcome.fairness > 0.95


def test_the_bound_of_each_limit_by_hand() -> None:
    setup = Setup(chunks=10, calls_a_chunk=1, spread=0.0, latency_s=2.0, max_concurrent=4)
    fate = Fate.drawn(setup)
    assert least_s(setup, fate) == (5.0, "concurrency")  # 10 calls of 2 s, 4 at a time
    assert least_s(replace(setup, rpm=60.0), fate) == (10.0, "requests")
    assert least_s(replace(setup, tpm=45_000.0), fate) == (60.0, "tokens")  # 4,500 each
    assert least_s(replace(setup, max_concurrent=100), fate) == (2.0, "slowest chunk")


def test_workers_die_and_every_call_is_made_with_few_paid_twice() -> None:
    outcome = simulated(replace(SMALL, deaths=3))
    assert outcome.deaths == 3
    assert outcome.calls - outcome.paid_again == 640
    assert 0 < outcome.paid_again <= 3 * 200  # what was in flight there, and no more
    assert outcome.refused == 0


def test_no_minute_has_more_calls_than_the_limit_with_its_burst() -> None:
    outcome = simulated(Setup(workers=8, chunks=2400, rpm=1500.0, max_concurrent=100))
    assert outcome.peak_minute is not None
    assert outcome.peak_minute <= 1.0 + 10.0 / 60.0  # burst_s
    assert outcome.refused == 0


def test_reports_grow_rarer_with_the_number_of_workers() -> None:
    few = simulated(Setup(workers=4, chunks=1280, rpm=6000.0, max_concurrent=400))
    many = simulated(Setup(workers=64, chunks=1280, rpm=6000.0, max_concurrent=400))
    assert (few.tells + few.asks) / few.wall_s < 250
    assert many.tells / many.wall_s < 3 * 200  # 640 with a report of each in 0.1 s
    assert many.wall_s < 1.3 * few.wall_s


def test_fairness_by_hand() -> None:
    assert jain([5, 5, 5]) == 1.0
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([3, 1]) == 0.8
