"""Calls and time left of a build, by the estimate and by the stages that are done."""

from __future__ import annotations

import pytest

from hirag_dist.execution.calls_left import CallRate, CallsLeft

EXPECTED = {"extract": 1000, "describe": 10, "summarise": 200, "reports": 300, "embed": 40}


def test_calls_of_a_stage_that_runs_are_taken_off() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_calls("extract", 400)
    assert left.calls == 1150
    left.on_calls("extract", 1200)  # more than was estimated
    assert left.calls == 550


def test_stages_that_are_over_have_nothing_left() -> None:
    left = CallsLeft(EXPECTED)
    left.on_started("extract", 1.0)
    left.on_started("summarise layer 0", 1.0)
    left.on_calls("summarise layer 0", 150)
    assert left.calls == 50 + 300 + 40
    left.on_started("summarise layer 1", 1.0)
    left.on_calls("summarise layer 1", 20)
    assert left.calls == 30 + 300 + 40
    left.on_finished("reports")
    assert left.calls == 0


def rate_after(*noted: tuple[float, int]) -> float:
    rate = CallRate()
    for now, number in noted:
        rate.note(now, number)
    return rate.per_s


def test_the_rate_is_unknown_before_the_first_reply_and_falls_while_none_comes() -> None:
    assert rate_after((0.0, 0), (30.0, 0), (300.0, 0)) == 0.0
    assert rate_after((0.0, 0), (100.0, 1)) == 0.01
    assert rate_after((0.0, 0), (100.0, 1), *((100.0 + second, 1) for second in range(101))) == 0.005


def test_the_rate_is_that_of_the_last_minute_or_of_the_last_few_replies() -> None:
    fast = [(float(second), 10 * second) for second in range(100)]
    slower = [(100.0 + second, 1000 + second) for second in range(62)]
    assert rate_after(*fast, *slower) == pytest.approx(1.0, rel=0.2)
    assert rate_after(*((90.0 * number, number) for number in range(30))) == pytest.approx(1 / 90)
