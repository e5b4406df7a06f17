"""Models of a simulated cluster: endpoint, network, life of a worker; and the coordinator with its CPU time."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from benchmarks.simulated_setup import Fate, Setup
from hirag_dist.errors import HiragError, RateLimited
from hirag_dist.execution.ray.quota_actor import QuotaActor
from hirag_dist.execution.ray.worker_pool import least_busy
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.llm.limits.protocol import CallDemand, Grant, WorkerReport
from hirag_dist.llm.limits.rate_limiter import RateLimiter
from hirag_dist.llm.retry import RetriedCalls, RetryPolicy
from hirag_dist.testing.simulator.limits import SimulatedLimits
from hirag_dist.testing.simulator.options import SimulatorOptions

_IN_HAND_S = 0.5  # a loan may be used so much later than it was lent
_NEVER_RETRIED = RetryPolicy(outage_timeout_s=math.inf)


class TimedCoordinator(QuotaCoordinator):
    """The quota coordinator with the CPU time of its code."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.cpu_s = 0.0
        self._inside = False

    def _timed(self, work: Any, *arguments: Any) -> Any:
        if self._inside:
            return work(*arguments)
        self._inside = True
        begun = time.thread_time()
        try:
            return work(*arguments)
        finally:
            self.cpu_s += time.thread_time() - begun
            self._inside = False

    def _note(self, *arguments: Any) -> Any:
        return self._timed(super()._note, *arguments)

    def _serve(self, *arguments: Any) -> None:
        self._timed(super()._serve, *arguments)


class Endpoint:
    """The model: `simulate-llm`'s limits, and latencies that were drawn before."""

    def __init__(self, setup: Setup, fate: Fate) -> None:
        loop = asyncio.get_running_loop()
        options = SimulatorOptions(
            rpm=setup.rpm,
            tpm=setup.tpm,
            max_concurrent=setup.max_concurrent,
            burst_s=setup.burst_s + _IN_HAND_S,
        )
        self._gate = SimulatedLimits(options, loop.time)
        self._setup, self._fate = setup, fate
        self._clock = loop.time
        self.let_in: list[float] = []
        self.refused = 0
        self.answered: Counter[tuple[int, int]] = Counter()
        self.spent_tokens = 0
        self.busy_s = 0.0

    async def answer(self, chunk: int, step: int) -> int:
        """Return the tokens of the reply."""
        denied = self._gate.enter(self._setup.input_tokens)
        if denied is not None:
            self.refused += 1
            raise RateLimited(denied.message, denied.wait_s, denied.kind)  # type: ignore[arg-type]
        self.let_in.append(self._clock())
        latency_s = float(self._fate.latency_s[chunk, step])
        tokens = int(self._fate.output_tokens[chunk, step])
        try:
            await asyncio.sleep(latency_s)
        finally:
            self._gate.leave()
        self._gate.charge(tokens)
        self.answered[chunk, step] += 1
        self.busy_s += latency_s
        self.spent_tokens += self._setup.input_tokens + tokens
        return tokens

    def peak_minute(self) -> int:
        """Return the most calls that were let in within 60 s."""
        window: deque[float] = deque()
        most = 0
        for at in self.let_in:
            window.append(at)
            while window[0] <= at - 60.0:
                window.popleft()
            most = max(most, len(window))
        return most


class Line:
    """The coordinator's actor behind a network, which handles one message after another."""

    def __init__(self, actor: QuotaActor, setup: Setup) -> None:
        self.actor, self._setup = actor, setup
        self._clock = asyncio.get_running_loop().time
        self._free_at = 0.0
        self.asks = self.tells = 0
        self.backlog_s = 0.0
        self.by_second: Counter[int] = Counter()

    async def arrive(self) -> None:
        """Take a message there, and through the line."""
        await asyncio.sleep(self._setup.message_s)
        now = self._clock()
        self.by_second[int(now)] += 1
        self.backlog_s = max(self.backlog_s, self._free_at - now)
        self._free_at = max(self._free_at, now) + self._setup.handling_s
        await asyncio.sleep(self._free_at - now)

    async def back(self) -> None:
        """Take the answer home."""
        await asyncio.sleep(self._setup.message_s)


class Life:
    """A worker from its start to its death, and its end of the wire. Implements `llm.limits.rate_limiter.Lender`.

    Dead, it hangs wherever it would reach out: what it had asked of the endpoint goes on there, and comes to nothing.
    """

    def __init__(self, number: int, life: int, line: Line) -> None:
        self.name = f"{number}/{life}"
        self.dead = False
        self._line = line
        clock = asyncio.get_running_loop().time
        self.caller = RetriedCalls(RateLimiter(self, self.name, clock=clock), _NEVER_RETRIED, clock)

    async def here(self) -> None:
        """Go on only while alive."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    async def acquire(
        self, worker: str, endpoint: str, report: WorkerReport, demand: tuple[CallDemand, ...] = (), priority: int = 0
    ) -> Grant:
        """As `QuotaCoordinator.acquire`."""
        self._line.asks += bool(demand)
        self._line.tells += not demand
        actor = self._line.actor
        grant: Grant = await self._sent(partial(actor.acquire, worker, endpoint, report, demand, priority))
        return grant

    async def leave(self, holder: str) -> None:
        """As `QuotaCoordinator.leave`."""
        await self._sent(partial(self._line.actor.leave, holder))

    async def _sent(self, message: Callable[[], Awaitable[Any]]) -> Any:
        await self.here()
        await self._line.arrive()
        answer = await message()
        await self._line.back()
        await self.here()
        if isinstance(answer, HiragError):
            raise answer
        return answer


class SimulatedWorkerPool:
    """The workers that are alive; the choice of the least busy one is that of hirag_dist."""

    def __init__(self, count: int, line: Line) -> None:
        self.lives = [Life(number, 0, line) for number in range(count)]
        self.gone: set[int] = set()

    def least_busy(self, load: Mapping[int, int], room: int) -> int | None:
        """Return the worker that `WorkerPool.least_busy` would choose."""
        return least_busy((number for number in range(len(self.lives)) if number not in self.gone), load, room)
