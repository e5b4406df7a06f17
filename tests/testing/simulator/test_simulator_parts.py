"""Limits, latency, options, and starting and stopping."""

from __future__ import annotations

from collections import Counter

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.testing.simulator import SimulatorOptions
from hirag_dist.testing.simulator.fault_plan import plan_of

RATES = {"fail_rate": 0.1, "hang_rate": 0.15, "malformed_rate": 0.2, "truncate_rate": 0.1}


def test_each_fault_has_its_share_and_repeats() -> None:
    options = SimulatorOptions(seed=3, **RATES)  # type: ignore[arg-type]
    plans = [plan_of(options, f"r{i}", 0) for i in range(4000)]
    shares = Counter(plan.fault for plan in plans)
    for name, rate in RATES.items():
        assert shares[name.removesuffix("_rate")] / 4000 == pytest.approx(rate, rel=0.15)
    assert plans == [plan_of(options, f"r{i}", 0) for i in range(4000)]
    assert plans != [plan_of(SimulatorOptions(seed=4, **RATES), f"r{i}", 0) for i in range(4000)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "changes",
    [
        {"listen": "8000"}, {"listen": "host:http"}, {"listen": "h:70000"}, {"latency_ms": -1.0}, {"jitter": 1.5},
        {"rpm": 0.0}, {"tpm": -1.0}, {"max_concurrent": 0}, {"burst_s": 0.0},
        {"fail_rate": -0.1}, {"hang_rate": 1.1},
        {"fail_rate": 0.6, "hang_rate": 0.5}, {"max_faults_per_request": -1}, {"malformed_rate": float("nan")},
    ],
)  # fmt: skip
def test_options_that_cannot_work(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="simulate-llm"):
        SimulatorOptions(**changes)  # type: ignore[arg-type]
