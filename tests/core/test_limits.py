"""Rates by a clock that is passed in."""

import pytest

from hirag_dist.core.limits import Allowance


def grants(allowance: Allowance, tokens: int, until: float) -> list[float]:
    """Return the times at which calls begin when each is asked for as soon as it is allowed, and ends at once."""
    now, times = 0.0, []
    while True:
        wait = allowance.wait_s(now)
        assert wait is not None
        now += wait
        if now > until:
            return times
        allowance.take(now, tokens)
        allowance.settle(tokens, tokens)
        times.append(now)


def test_requests_a_minute_are_kept_and_used() -> None:
    times = grants(Allowance(600, None, 8), 10, until=60.0)
    assert 600 <= len(times) <= 612


def test_tokens_a_minute_are_kept_and_used() -> None:
    times = grants(Allowance(None, 6000, 8), 100, until=60.0)
    assert 60 <= len(times) <= 62


def test_a_reply_shorter_than_reserved_gives_tokens_back() -> None:
    allowance = Allowance(None, 6000, 8)
    allowance.take(0.0, 600)
    busy = allowance.wait_s(0.0)
    allowance.settle(600, 100)
    assert busy == pytest.approx(5.0)
    assert allowance.wait_s(0.0) == 0.0


def test_no_more_calls_at_a_time_than_allowed() -> None:
    allowance = Allowance(None, None, 2)
    allowance.take(0.0, 1)
    allowance.take(0.0, 1)
    assert allowance.wait_s(0.0) is None
    allowance.settle(1, 1)
    assert allowance.wait_s(0.0) == 0.0


def test_a_pause_holds_everybody() -> None:
    allowance = Allowance(None, None, 8)
    allowance.pause(30.0)
    assert allowance.wait_s(10.0) == pytest.approx(20.0)
    assert allowance.wait_s(30.0) == 0.0


def test_a_quiet_hour_is_not_saved_up() -> None:
    allowance = Allowance(60, None, 1000)
    allowance.take(0.0, 1)
    begun = 0
    while allowance.wait_s(3600.0) == 0.0:
        allowance.take(3600.0, 1)
        begun += 1
    assert begun <= 2
