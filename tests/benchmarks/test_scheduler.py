"""The simulated cluster: its clock, its bounds, and what the program's scheduler does in it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.simulated_cluster import simulate
from benchmarks.simulated_setup import Fate, Outcome, Setup, jain, least_s
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
    first.coordinator_s = again.coordinator_s = 0.0  # real seconds
    assert first == again


@pytest.mark.parametrize(
    "limits",
    [
        pytest.param({"rpm": 6000.0}, id="requests"),
        pytest.param({"tpm": 27e6}, id="tokens"),
        pytest.param({"max_concurrent": 50}, id="calls at a time"),
        pytest.param({"rpm": 9000.0, "tpm": 30e6, "max_concurrent": 100}, id="all three"),
        pytest.param({"rpm": 6000.0, "stragglers": 0.01}, id="stragglers"),
        pytest.param({"rpm": 6000.0, "deaths": 3}, id="deaths"),
        pytest.param({"rpm": 9000.0, "message_s": 0.05}, id="slow network"),
    ],
)
def test_no_limit_is_passed_nothing_is_lost_and_no_time_either(limits: dict[str, Any]) -> None:
    """The endpoint refuses whatever passes a limit: one second's worth of a rate, and half of one, is all it saves."""
    setup = replace(Setup(workers=20, chunks=640, max_concurrent=200, burst_s=1.0), **limits)
    outcome = simulated(setup)
    assert outcome.refused == 0
    assert outcome.stored == 1280
    assert outcome.calls - outcome.paid_again == 1280
    assert outcome.paid_again <= setup.deaths * 200 / 20  # what was in flight at the dead, and no more
    grace_s = outcome.longest_s + (setup.noticed_s + setup.away_s if setup.deaths else 0.0)
    assert outcome.bound_s * 0.99 <= outcome.wall_s <= 1.05 * outcome.bound_s + grace_s
    assert outcome.fairness > 0.9


def test_calls_go_as_fast_as_the_rate_allows_and_no_faster() -> None:
    outcome = simulated(SMALL)
    assert (outcome.by, outcome.bound_s) == ("requests", 640 / 50 - 1.0)  # it begins with a second's credit
    assert outcome.calls == 640
    assert outcome.paid_again == outcome.refused == 0
    assert outcome.bound_s <= outcome.wall_s < 1.15 * outcome.bound_s + 1.0
    assert outcome.fairness > 0.95


def test_a_rate_is_kept_where_a_question_takes_longer_than_a_call_is_due() -> None:
    """Thirty calls a second, and a tenth of one until an answer comes: a request an answer would be ten a second."""
    far = Setup(workers=1, chunks=300, calls_a_chunk=1, rpm=1800.0, latency_s=0.5, message_s=0.05)
    outcome = simulated(far)
    assert outcome.wall_s < outcome.bound_s + 2.0
    assert outcome.refused == 0


def test_the_bound_of_each_limit_by_hand() -> None:
    setup = Setup(chunks=10, calls_a_chunk=1, spread=0.0, latency_s=2.0, max_concurrent=4)
    fate = Fate.drawn(setup)
    assert least_s(setup, fate) == (5.0, "concurrency")  # 10 calls of 2 s, 4 at a time
    assert least_s(replace(setup, rpm=60.0), fate) == (9.0, "requests")  # and one that was saved up
    assert least_s(replace(setup, tpm=45_000.0), fate) == (59.0, "tokens")  # 4,500 each
    assert least_s(replace(setup, max_concurrent=100), fate) == (2.0, "slowest chunk")


def test_workers_die_and_every_call_is_made_with_few_paid_twice() -> None:
    outcome = simulated(replace(SMALL, deaths=3))
    assert outcome.deaths == 3
    assert outcome.calls - outcome.paid_again == 640
    assert 0 < outcome.paid_again <= 3 * 200  # what was in flight there, and no more
    assert outcome.refused == 0


def test_no_minute_has_more_calls_than_the_limit_with_its_burst() -> None:
    outcome = simulated(Setup(workers=8, chunks=640, calls_a_chunk=1, rpm=480.0, max_concurrent=100))
    assert outcome.wall_s > 60.0
    assert outcome.peak_minute is not None
    assert 0.9 < outcome.peak_minute <= 1.0 + 10.0 / 60.0  # burst_s
    assert outcome.refused == 0


def test_many_workers_need_less_than_a_question_a_call_and_report_now_and_then() -> None:
    """One actor serves a thousand workers: a question and a report a call were more than it can take."""
    outcome = simulated(Setup(workers=50, chunks=1600, rpm=12_000.0, max_concurrent=400))
    assert outcome.asks < 0.75 * 3200
    assert outcome.tells / outcome.wall_s < 1.2 * 200
    assert outcome.wall_s < 1.1 * outcome.bound_s + 1.0


def test_fairness_by_hand() -> None:
    assert jain([5, 5, 5]) == 1.0
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([3, 1]) == 0.8
