"""Rate at which the quota coordinator of a cluster can grant calls.

Workers acquire and end calls that do nothing, as fast as they can, within an allowance that never binds: in one
process, and on Ray with 1, 2 and 4 workers that ask the coordinator's actor. For comparison, the same number
of plain calls to that actor, which is what one call per permission would cost.

    python benchmarks/grants.py [--grants 40000] [--in-flight 64]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
import uuid
from typing import Any

import ray

from hirag_dist.execution.ray.quota_actor import QuotaActor, RemoteQuotaCoordinator
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import QuotaClient
from hirag_dist.llm.limits.rate_limiter import RateLimiter


class Worker:
    """Asks for permissions."""

    def __init__(self, name: str) -> None:
        self._name = name

    async def grants(self, n_calls: int, in_flight: int) -> None:
        """Acquire and end so many calls."""
        await take(RemoteQuotaCoordinator(ray.get_actor(self._name)), uuid.uuid4().hex, n_calls, in_flight)

    async def calls(self, n_calls: int, in_flight: int) -> None:
        """Make so many calls to the actor itself."""
        actor = ray.get_actor(self._name)

        async def work(n: int) -> None:
            for _ in range(n):
                await actor.forget.remote(-1)

        await asyncio.gather(*(work(n_calls // in_flight) for _ in range(in_flight)))


async def take(client: QuotaClient, holder: str, n_calls: int, in_flight: int) -> None:
    """Acquire and end so many calls."""
    budget = RateLimiter(client, holder)

    async def work(n: int) -> None:
        for _ in range(n):
            permit = await budget.acquire("e", 100, 0.0)
            await asyncio.sleep(0)
            permit.answered(100, 0.0)

    await asyncio.gather(*(work(n_calls // in_flight) for _ in range(in_flight)))
    budget.close()


def make_coordinator() -> QuotaCoordinator:
    """Return one whose limits never bind."""
    return QuotaCoordinator({"e": EndpointLimits(1e9, 1e12, 10_000)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--grants", type=int, default=40_000)
    parser.add_argument("--in-flight", type=int, default=64)
    arguments = parser.parse_args()
    n, in_flight = arguments.grants, arguments.in_flight
    started = time.perf_counter()
    asyncio.run(take(make_coordinator(), "", n, in_flight))
    report("inline", "granted in blocks", n, time.perf_counter() - started)
    ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    for n_workers in (1, 2, 4):
        name = uuid.uuid4().hex
        actor: Any = ray.remote(QuotaActor)
        held = actor.options(name=name, num_cpus=0, max_concurrency=10_000).remote(make_coordinator)
        kind: Any = ray.remote(Worker)
        workers = [kind.options(num_cpus=1).remote(name) for _ in range(n_workers)]
        ray.get([each.grants.remote(1000, in_flight) for each in workers])
        for way, each_n in (("grants", n // n_workers), ("calls", n // n_workers // 10)):
            started = time.perf_counter()
            ray.get([getattr(each, way).remote(each_n, in_flight) for each in workers])
            label = "granted in blocks" if way == "grants" else "a call each"
            report(f"ray{n_workers}", label, each_n * n_workers, time.perf_counter() - started)
        for each in (*workers, held):
            ray.kill(each)
    ray.shutdown()


def report(way: str, permits: str, n: int, seconds: float) -> None:
    """Print a line."""
    figures = {"grants": n, "grants_per_s": round(n / seconds)}
    print(json.dumps({"benchmark": "grants", "way": way, "permits": permits} | figures), flush=True)


if __name__ == "__main__":
    main()
