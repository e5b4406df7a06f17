"""Limits, latency, options, and starting and stopping."""

from __future__ import annotations

from collections import Counter

import pytest

from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.faults import plan_of

RATES = {"fail_rate": 0.1, "hang_rate": 0.15, "malformed_rate": 0.2, "truncate_rate": 0.1}


def test_each_fault_has_its_share_and_repeats() -> None:
    options = SimulatorOptions(seed=3, **RATES)  # type: ignore[arg-type]
    plans = [plan_of(options, f"r{i}", 0) for i in range(4000)]
    shares = Counter(plan.fault for plan in plans)
    for name, rate in RATES.items():
        assert shares[name.removesuffix("_rate")] / 4000 == pytest.approx(rate, rel=0.15)
    assert plans == [plan_of(options, f"r{i}", 0) for i in range(4000)]
    assert plans != [plan_of(SimulatorOptions(seed=4, **RATES), f"r{i}", 0) for i in range(4000)]  # type: ignore[arg-type]
