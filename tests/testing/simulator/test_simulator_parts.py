"""Limits, latency, options, and starting and stopping."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import statistics
from collections import Counter

import pytest

from hirag_dist.errors import BackendUnavailable, ConfigError
from hirag_dist.testing.simulator import Simulator, SimulatorOptions, SimulatorThread, run_simulator
from hirag_dist.testing.simulator.fault_plan import plan_of
from hirag_dist.testing.simulator.limits import LimitExceeded, SimulatedLimits, TokenBucket, retry_headers

LOOPBACK = "127.0.0.1:0"
RATES = {"fail_rate": 0.1, "hang_rate": 0.05, "drop_rate": 0.15, "malformed_rate": 0.2, "truncate_rate": 0.1}


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_bucket_fills_at_its_rate_up_to_its_burst() -> None:
    clock = Clock()
    bucket = TokenBucket(per_minute=60.0, burst_s=10.0, clock=clock)
    bucket.take(10.0)
    assert bucket.wait_s(3.0) == 3.0
    clock.now += 2.0
    assert (bucket.level(), bucket.wait_s(3.0)) == (2.0, 1.0)
    clock.now += 1000.0
    assert bucket.level() == 10.0
    bucket.take(15.0)
    assert (bucket.level(), bucket.wait_s(1.0)) == (-5.0, 6.0)


def test_a_small_limit_still_lets_one_in() -> None:
    assert TokenBucket(per_minute=3.0, burst_s=1.0, clock=Clock()).wait_s(1.0) == 0.0


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


def test_tokens_of_replies_count_too() -> None:
    clock = Clock()
    gate = SimulatedLimits(SimulatorOptions(tpm=600.0, burst_s=60.0), clock)
    assert gate.enter(400) is None
    gate.charge(300)
    denied = gate.enter(100)
    assert denied is not None
    assert denied.kind == "tokens"
    assert denied.wait_s == pytest.approx(20.0)
    assert gate.headers()["x-ratelimit-remaining-tokens"] == "0"
    assert retry_headers(denied) == {"Retry-After": "20", "retry-after-ms": "20000"}


def test_a_request_larger_than_the_limit_never_fits() -> None:
    denied = SimulatedLimits(SimulatorOptions(tpm=600.0, burst_s=10.0), Clock()).enter(101)
    assert denied == LimitExceeded("tokens", "Request too large: limit 100 tokens at once, requested 101.", None)
    assert retry_headers(denied) == {}


def test_latency_is_drawn_by_request_and_attempt() -> None:
    options = SimulatorOptions(latency_ms=100.0, jitter=0.5, seed=1)
    delays = [plan_of(options, f"r{i}", 0).delay_s for i in range(400)]
    assert delays == [plan_of(options, f"r{i}", 0).delay_s for i in range(400)]
    assert 0.05 <= min(delays) < 0.06
    assert 0.14 < max(delays) < 0.15
    assert statistics.fmean(delays) == pytest.approx(0.1, rel=0.03)
    assert plan_of(options, "r0", 1) != plan_of(options, "r0", 0)
    assert plan_of(SimulatorOptions(latency_ms=100.0), "r0", 0).delay_s == 0.1


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
        {"fail_rate": -0.1}, {"storm_rate": 1.1},
        {"fail_rate": 0.6, "drop_rate": 0.5}, {"max_faults_per_request": -1}, {"malformed_rate": float("nan")},
    ],
)  # fmt: skip
def test_options_that_cannot_work(changes: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="simulate-llm"):
        SimulatorOptions(**changes)  # type: ignore[arg-type]


def test_the_key_is_not_shown() -> None:
    assert "right-key" not in repr(SimulatorOptions(api_key="right-key"))


async def test_a_port_in_use_is_said_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BackendUnavailable, match=f"cannot listen on {listen}: the port is in use") as caught:
            await run_simulator(SimulatorOptions(listen=listen), print)
        assert "\n" not in str(caught.value)
        with pytest.raises(BackendUnavailable), SimulatorThread(SimulatorOptions(listen=listen)):
            raise AssertionError("it cannot have started")


async def test_an_address_of_another_machine() -> None:
    with pytest.raises(BackendUnavailable, match="cannot listen on"):
        async with Simulator(SimulatorOptions(listen="192.0.2.1:80")):
            raise AssertionError("it cannot have started")


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
