"""Limits of an endpoint, by a clock that is passed in."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hirag_dist.llm.limits.adaptive import EndpointLimits, GcraBucket
from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.options import SimulatedLimits


def begins(allowance: EndpointLimits, tokens: int, until: float) -> list[float]:
    """Return the times at which calls begin when each is asked for as soon as it is allowed."""
    now, times = 0.0, []
    while True:
        now += allowance.wait_s(now)
        if now > until:
            return times
        allowance.take(now, 1, tokens)
        times.append(now)


@pytest.mark.parametrize(
    ("rpm", "tpm", "tokens", "burst_s"),
    [(600, None, 10, 10.0), (None, 6000, 10, 10.0), (600, 60_000, 100, 10.0), (3, None, 1, 10.0), (40, None, 1, 1.0)],
)
def test_a_known_rate_is_kept_and_used(rpm: float | None, tpm: float | None, tokens: int, burst_s: float) -> None:
    """Also one of which a burst is less than one call."""
    times = begins(EndpointLimits(rpm, tpm, 8, burst_s=burst_s), tokens, until=600.0)
    rate = min(rpm or 600, (tpm or 60_000) / tokens)
    assert len(times) == pytest.approx(10 * rate, abs=1 + rate / 60)  # a second's worth is there at once


def test_tokens_that_were_not_used_come_back() -> None:
    allowance = EndpointLimits(None, 6000, 8, burst_s=1)
    allowance.take(0.0, 1, 700)
    assert allowance.wait_s(0.0) == pytest.approx(6.01)
    allowance.take(0.0, 0, -600)
    assert allowance.wait_s(0.0) == pytest.approx(0.01)


def test_tokens_that_were_taken_in_advance_are_due_at_a_new_rate() -> None:
    allowance = EndpointLimits(None, 6000, 8, burst_s=1)
    allowance.take(0.0, 1, 700)
    allowance.on_rate_limits(0.0, None, 3000)
    assert allowance.wait_s(0.0) == pytest.approx(12.02)


@given(rate=st.floats(0.5, 500), burst_s=st.floats(0.1, 20), gaps=st.lists(st.floats(0, 5), min_size=1, max_size=60))
@settings(max_examples=60, deadline=None)
def test_no_window_of_time_sees_more_than_its_rate_and_one_burst(
    rate: float, burst_s: float, gaps: list[float]
) -> None:
    pace = GcraBucket(rate, burst_s)
    pace.begin(0.0)
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        now += pace.wait_s(now)
        pace.take(now, 1)
        taken.append(now)
    for first in range(len(taken)):
        for last in range(first, len(taken)):
            allowed = rate * (taken[last] - taken[first]) + max(rate * burst_s, 1.0) + 1.0
            assert last - first + 1 <= allowed + 1e-6


@pytest.mark.parametrize(
    ("tpm", "named", "limits"),
    [
        (60_000, (1200, 240_000), (20.0, 1000.0)),  # the configured limit is the lower one and stays
        (60_000, (600, 30_000), (10.0, 500.0)),
        (None, (600, 60_000), (10.0, 1000.0)),
        (None, (600, None), (10.0, None)),
        (None, (None, 60_000), (None, 1000.0)),
    ],
)
def test_the_endpoint_s_headers_name_what_the_configuration_leaves_open(
    tpm: float | None, named: tuple[float | None, float | None], limits: tuple[float | None, float | None]
) -> None:
    allowance = EndpointLimits(None, tpm, None)
    allowance.take(0.0, 1, 1000)
    allowance.on_rate_limits(1.0, *named)
    assert allowance.limits() == limits


def test_retry_after_stops_every_call() -> None:
    allowance = EndpointLimits(6000, None, 8)
    allowance.limited(5.0, 2.5, "requests", 3)
    assert allowance.wait_s(5.0) == pytest.approx(2.5)
    assert allowance.pause_s(6.0) == pytest.approx(1.5)
    assert allowance.limits()[0] == 100.0  # a known rate is right; what was kept from quieter times was too much


def test_too_many_at_a_time_means_fewer_and_then_one_more_at_a_time() -> None:
    allowance = EndpointLimits(None, None, None)
    for n in range(40):  # slow start: as many more as came back
        allowance.answered(n * 0.1, 1, 10, 0.1, int(allowance.window))
    assert allowance.window == 48
    allowance.limited(5.0, None, "concurrency", 21)
    assert allowance.window == pytest.approx(18.0)
    allowance.limited(5.01, None, "concurrency", 21)  # an echo of the same moment
    assert allowance.window == pytest.approx(18.0)
    for n in range(18 * 8):
        allowance.answered(6 + n * 0.1, 1, 10, 0.1, 18)
    assert allowance.window == pytest.approx(19.0, abs=0.1)
    assert allowance.wait_s(30.0) == 0.0  # nothing has to pause


def test_replies_that_get_slower_without_getting_more_stop_the_search() -> None:
    """An endpoint that works on four calls and lets the others wait: more in flight only take longer."""
    allowance = EndpointLimits(None, None, None)
    now = 0.0
    for _ in range(400):
        in_flight = int(allowance.window)
        now += 0.25
        allowance.answered(now, 1, 100, in_flight * 0.25, in_flight)
    assert allowance.window <= 40


def test_time_outs_halve_the_window_nearly_and_once() -> None:
    allowance = EndpointLimits(None, None, 100)
    for _ in range(50):
        allowance.slow(10.0)
    assert allowance.window == pytest.approx(70)
    allowance.slow(20.0)
    assert allowance.window == pytest.approx(49)


@pytest.mark.parametrize("limit", [{"rpm": 600.0}, {"tpm": 60_000.0}, {"max_concurrent": 9}])
def test_an_unknown_limit_is_found_with_few_refusals(limit: dict[str, float]) -> None:
    """The simulator's limiter, asked as by the coordinator: it names the exceeded limit, and never a delay."""
    now, latency_s = [0.0], 0.05
    options = SimulatorOptions(burst_s=5.0, latency_ms=latency_s * 1000, **limit)  # type: ignore[arg-type]
    gate = SimulatedLimits(options, lambda: now[0])
    allowance = EndpointLimits(None, None, None)
    running: deque[float] = deque()
    answered = refused = 0
    while now[0] < 60.0:
        most = len(running)
        while running and running[0] <= now[0]:
            running.popleft()
            gate.leave()
            answered += 1
            allowance.answered(now[0], 1, 100, latency_s, most)
        if len(running) < int(allowance.window) and allowance.wait_s(now[0]) == 0.0:
            allowance.take(now[0], 1, 100)
            denied = gate.enter(100)
            if denied is None:
                running.append(now[0] + latency_s)
                continue
            refused += 1
            allowance.limited(now[0], None, denied.kind, len(running) + 1)  # type: ignore[arg-type]
        now[0] += 0.005
    best = 600 / 60 * 60 if "max_concurrent" not in limit else 9 / latency_s * 60
    assert refused <= 0.05 * answered
    assert answered >= 0.8 * best


def test_a_configured_rate_that_is_refused_again_and_again_is_not_believed() -> None:
    allowance = EndpointLimits(6000, None, 50)
    now = 0.0
    for _ in range(10):
        now += 2.0
        allowance.answered(now, 20, 200, 0.1, 5)
        allowance.limited(now, 1.0, "requests", 5)
    rate = allowance.limits()[0]
    assert rate is not None
    assert rate < 30
    for _ in range(400):  # and is tried again, up to what is configured
        now += 1.0
        allowance.answered(now, 200, 2000, 0.1, 5)
    assert allowance.limits()[0] == pytest.approx(100)


@pytest.mark.parametrize("named", [(0.001, None), (None, 1.0), (1e-300, 5.0), (-5.0, 0.0)])
def test_a_limit_with_which_no_build_would_end_is_not_believed(named: tuple[float | None, float | None]) -> None:
    limits = EndpointLimits(None, None, 8)
    limits.on_rate_limits(0.0, *named)
    assert limits.limits() == (None, None)
    assert limits.wait_s(1.0) == 0.0
    believable = {kind: value for kind, value in zip(("requests", "tokens"), named, strict=True) if value and value > 0}
    assert limits.disbelieved == believable


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 1e308), st.floats(0, 1e308)), max_size=8))
@settings(max_examples=50, deadline=None)
def test_no_headers_stall_for_more_than_some_minutes(headers: list[tuple[float, float, float]]) -> None:
    limits = EndpointLimits(None, None, 8)
    for at, requests, tokens in sorted(headers):
        limits.on_rate_limits(at, requests, tokens)
        if limits.wait_s(at) == 0.0:
            limits.take(at, 1, 4000)
    assert limits.wait_s(100.0) <= 320.0  # 4,000 tokens at 1,000 a minute, and a request a minute
