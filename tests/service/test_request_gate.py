"""Limits of callers, as a process counts them."""

from __future__ import annotations

import pytest

from hirag_dist.service.callers import Caller
from hirag_dist.service.request_gate import DAY_S, CallerQuotas
from hirag_dist.wire.error_status import QuotaExceeded

NOON = 20_000 * DAY_S + DAY_S / 2


class Clock:
    """Both clocks of the limits."""

    def __init__(self) -> None:
        self.s = 1000.0

    def steady(self) -> float:
        return self.s

    def now(self) -> float:
        return NOON + self.s - 1000.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def limits(clock: Clock) -> CallerQuotas:
    return CallerQuotas(clock.steady, clock.now)


def ask(limits: CallerQuotas, caller: Caller) -> str:
    """Ask once: empty when that is allowed, else the reason and when to come back."""
    try:
        with limits.admitted(caller):
            return ""
    except QuotaExceeded as error:
        return f"{error.reason} {error.retry_after_s:.4g}"


def test_a_rate_is_a_bucket(limits: CallerQuotas, clock: Clock) -> None:
    caller = Caller("web", per_second=2.0, burst=3.0)
    assert [ask(limits, caller) for _ in range(5)] == ["", "", "", "rate 0.5", "rate 0.5"]
    clock.s += 0.25
    assert ask(limits, caller) == "rate 0.25"
    clock.s += 0.25
    assert [ask(limits, caller) for _ in range(2)] == ["", "rate 0.5"]
    clock.s += 3600
    assert [ask(limits, caller) for _ in range(4)] == ["", "", "", "rate 0.5"]  # no more than the burst is saved up


def test_a_quota_ends_with_the_day(limits: CallerQuotas, clock: Clock) -> None:
    caller = Caller("web", per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S / 2:.4g}"]
    clock.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(3)] == ["", "", f"quota {DAY_S:.4g}"]


def test_a_clock_set_back_over_midnight_gives_no_second_quota(limits: CallerQuotas, clock: Clock) -> None:
    caller = Caller("web", per_day=2)
    clock.s += DAY_S / 2
    assert [ask(limits, caller) for _ in range(2)] == ["", ""]
    clock.s -= 10
    assert ask(limits, caller) == f"quota {DAY_S + 10:.4g}"
    clock.s += DAY_S + 10
    assert ask(limits, caller) == ""


def test_what_is_refused_is_not_charged(limits: CallerQuotas, clock: Clock) -> None:
    caller = Caller("web", per_second=1.0, burst=1.0, per_day=2)
    assert [ask(limits, caller) for _ in range(3)] == ["", "rate 1", "rate 1"]
    clock.s += 1
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
