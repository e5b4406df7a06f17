"""Limits, latency, options, and starting and stopping."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter

import pytest

from hirag_dist.errors import ConfigError
from hirag_dist.testing.simulator import SimulatorOptions, SimulatorThread, run_simulator
from hirag_dist.testing.simulator.fault_plan import plan_of
from hirag_dist.testing.simulator.limits import SimulatedLimits

LOOPBACK = "127.0.0.1:0"
RATES = {"fail_rate": 0.1, "hang_rate": 0.15, "malformed_rate": 0.2, "truncate_rate": 0.1}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_the_gate_keeps_the_rate_over_minutes() -> None:
    clock = Clock()
    gate = SimulatedLimits(SimulatorOptions(rpm=120.0, burst_s=1.0), clock)
    let_in = 0
    while clock.now < 1000.0 + 300.0:
        if gate.enter(1) is None:
            gate.leave()
            let_in += 1
        clock.now += 0.125
    assert let_in == pytest.approx(600, abs=2)


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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_runs_until_a_signal(number: signal.Signals) -> None:
    urls: list[str] = []

    def ready(url: str) -> None:
        urls.append(url)
        os.kill(os.getpid(), number)

    async with asyncio.timeout(10):
        stats = await run_simulator(SimulatorOptions(listen=LOOPBACK), ready)
    assert urls[0].startswith("http://127.0.0.1:")
    assert stats["total"]["calls"] == 0


async def test_serves_from_a_thread() -> None:
    thread = SimulatorThread(SimulatorOptions(listen=LOOPBACK))
    with thread as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.removesuffix("/v1").rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b'{"status":"ok"}' in await reader.read()
        writer.close()
        await writer.wait_closed()
        assert thread.stats()["total"]["calls"] == 0
