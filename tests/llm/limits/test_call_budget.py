"""Budget of calls: by minute and by day, of a process and of a caller."""

from __future__ import annotations

import math

from hirag_dist.llm.limits.call_budget import DAY_S, CallBudget, CallLimits


class Clock:
    now = 10.0 * DAY_S

    def __call__(self) -> float:
        return self.now


def test_calls_a_minute_are_limited_for_each_caller_and_for_all() -> None:
    clock = Clock()
    budget = CallBudget(CallLimits(3), CallLimits(2), clock)
    assert [budget.take("a"), budget.take("a")] == ["", ""]
    assert "this caller has had 2 reports" in budget.take("a")
    assert budget.take("b") == ""
    assert "this process has had 3 reports" in budget.take("b")
    clock.now += 60.0
    assert budget.take("a") == ""


def test_dollars_a_day_are_limited_and_unknown_prices_count_nothing() -> None:
    clock = Clock()
    budget = CallBudget(CallLimits(), CallLimits(None, 0.5), clock)
    assert budget.take("a") == ""
    budget.spend("a", math.nan)
    budget.spend("a", 0.6)
    assert "this caller has spent its 0.5 dollars" in budget.take("a")
    assert budget.take("b") == ""
    clock.now += DAY_S
    assert budget.take("a") == ""


def test_a_call_that_was_not_made_is_given_back() -> None:
    budget = CallBudget(CallLimits(1), CallLimits(), Clock())
    assert budget.take("a") == ""
    budget.give_back("a")
    assert budget.take("b") == ""
