"""A cluster in virtual time: the real quota coordinator, its clients, retries and partitioning; the rest is a model.

Real are `llm.limits` (coordinator, rate limiter, adaptive limits), `llm.retry`,
`execution.partitioning`, the actor's detection of dead workers (`execution.ray.quota_actor.QuotaActor`) and
`simulate-llm`'s limits. Models replace time, the network, the time that Ray's actor takes for a message, the endpoint's
latency, deaths, and the driver's choice of a worker (the least busy with room, as
`execution.ray.worker_pool.WorkerPool` has it).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.simulated_parts import Endpoint, Life, Line, SimulatedWorkerPool, TimedCoordinator
from benchmarks.simulated_setup import Fate, Outcome, Setup, jain, least_s
from hirag_dist.core.prompts.templates import Prompts
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.partitioning import plan
from hirag_dist.execution.ray.quota_actor import QuotaActor
from hirag_dist.execution.task import Task
from hirag_dist.indexing.stages.extract import ExtractGraph
from hirag_dist.llm.call import Call, CallReply
from hirag_dist.llm.limits.adaptive import EndpointLimits
from hirag_dist.schemas import CHUNKS
from hirag_dist.storage.store import Store
from hirag_dist.types import RateLimits

ENDPOINT = "model"


@dataclass(frozen=True, slots=True)
class _Target:
    """The endpoint as one worker calls it for one chunk."""

    cluster: Cluster
    number: int
    life: Life
    chunk: int
    endpoint: str = ENDPOINT
    name: str = ENDPOINT
    weight: float = 1.0

    async def ping(self, call: Call[int, None]) -> bool:
        return False

    def max_use(self, call: Call[int, None]) -> tuple[int, float]:
        """Return the largest use of the call: tokens and USD."""
        return call.tokens, 0.0

    async def send(self, call: Call[int, None]) -> CallReply[None]:
        """Send the call; the payload is the step of the chunk."""
        setup = self.cluster.setup
        await self.life.here()
        tokens = await self.cluster.endpoint.answer(self.chunk, call.payload)
        await self.life.here()
        self.cluster.given[self.number] += 1
        return CallReply(None, ENDPOINT, setup.input_tokens + tokens, 0.0, RateLimits(setup.rpm, setup.tpm))


@dataclass(slots=True)
class Cluster:
    """Driver, workers, quota coordinator and endpoint of one run."""

    setup: Setup
    fate: Fate
    endpoint: Endpoint
    line: Line
    pool: SimulatedWorkerPool
    stored: set[tuple[int, int]] = field(default_factory=set)
    given: Counter[int] = field(default_factory=Counter)
    died: set[int] = field(default_factory=set)
    ended: asyncio.Queue[tuple[int, Life, Task] | None] = field(default_factory=asyncio.Queue)

    async def build(self) -> None:
        """Do all tasks, as `RayExecutor.map` does them: each to the least busy worker with room."""
        waiting = _tasks(self.setup)
        lost: list[Task] = []
        running: dict[tuple[int, Life, int], tuple[Task, asyncio.Task[None]]] = {}
        load: Counter[int] = Counter()
        following: Task | None = None
        while True:
            while True:
                following = following or (lost.pop() if lost else next(waiting, None))
                chosen = None if following is None else self.pool.least_busy(load, self.setup.room())
                if following is None or chosen is None:
                    break
                life = self.pool.lives[chosen]
                work = asyncio.ensure_future(self._run(chosen, life, following))
                running[chosen, life, following.number] = following, work
                load[chosen] += 1
                following = None
            if not running and following is None:
                return
            event = await self.ended.get()
            if event is not None and not event[1].dead:
                number, life, task = event
                _, work = running.pop((number, life, task.number))
                work.result()
                load[number] -= 1
            for key in [key for key in running if key[1].dead and key[0] in self.pool.gone]:
                lost.append(running.pop(key)[0])
                load[key[0]] -= 1

    async def _run(self, number: int, life: Life, task: Task) -> None:
        try:
            (pieces,) = task.inputs.values()
            assert isinstance(pieces, tuple)
            rows = [row for piece in pieces for row in range(piece.start, piece.stop)]
            await asyncio.gather(*(self._chunk(number, life, row) for row in rows))
            await asyncio.sleep(self.setup.task_s)
        finally:
            self.ended.put_nowait((number, life, task))

    async def _chunk(self, number: int, life: Life, chunk: int) -> None:
        setup = self.setup
        expected = setup.input_tokens + setup.output_tokens

        target = _Target(self, number, life, chunk)
        for step in range(setup.calls_a_chunk):
            if (chunk, step) not in self.stored:
                await life.caller(Call(step, [target], "extract", expected, expected))
                await asyncio.sleep(setup.store_s)
                await life.here()
                self.stored.add((chunk, step))

    async def kill(self, at_s: float, number: int) -> None:
        """Let a worker die, be missed, and come back."""
        await asyncio.sleep(at_s)
        if number in self.pool.gone:
            return
        life = self.pool.lives[number]
        life.dead = True
        self.died.add(number)
        await asyncio.sleep(self.setup.noticed_s)
        self.pool.gone.add(number)
        await self.line.actor.forget(number)
        self.ended.put_nowait(None)
        await asyncio.sleep(self.setup.away_s)
        self.pool.lives[number] = Life(number, int(life.name.partition("/")[2]) + 1, self.line)
        self.pool.gone.discard(number)
        self.ended.put_nowait(None)


async def simulate(setup: Setup) -> Outcome:
    """Run a build in the virtual time of the running loop."""
    random.seed(setup.seed)  # of waits after a refusal
    fate = Fate.drawn(setup)
    loop = asyncio.get_running_loop()
    allowance = EndpointLimits(setup.rpm, setup.tpm, setup.max_concurrent, setup.burst_s)
    coordinator = TimedCoordinator({ENDPOINT: allowance}, clock=loop.time)
    endpoint = Endpoint(setup, fate)
    line = Line(QuotaActor(lambda: coordinator), setup)
    cluster = Cluster(setup, fate, endpoint, line, SimulatedWorkerPool(setup.workers, line))
    bound_s, by = least_s(setup, fate)
    rng = random.Random(f"{setup.seed}/deaths")
    victims = [(rng.uniform(0.0, 0.8 * bound_s), rng.randrange(setup.workers)) for _ in range(setup.deaths)]
    killing = [asyncio.ensure_future(cluster.kill(at_s, number)) for at_s, number in victims]
    begun = loop.time()
    await cluster.build()
    wall_s = loop.time() - begun
    for each in killing:
        each.cancel()
    calls = [cluster.given[n] for n in range(setup.workers) if n not in cluster.died]
    answered = endpoint.answered.total()
    return Outcome(
        wall_s=wall_s,
        bound_s=bound_s,
        by=by,
        longest_s=float(fate.latency_s.sum(axis=1).max()),
        calls=answered,
        paid_again=answered - len(endpoint.answered),
        stored=len(cluster.stored),
        refused=endpoint.refused,
        peak_minute=None if setup.rpm is None else endpoint.peak_minute() / setup.rpm,
        asks=line.asks,
        tells=line.tells,
        peak_messages=max(line.by_second.values(), default=0),
        backlog_s=line.backlog_s,
        coordinator_s=coordinator.cpu_s,
        fairness=jain(calls),
        deaths=len(cluster.died),
    )


def _tasks(setup: Setup) -> Iterator[Task]:
    """Return the tasks of the extraction as the program splits it; nothing is read from the store."""
    chunks = Dataset(CHUNKS, (DatasetPart("chunks", setup.chunks, ""),))
    stage = ExtractGraph("two_step", False, 0, (), False, False, Prompts(), ())
    return plan(stage, "extract", Store("nowhere"), {"chunks": chunks}).tasks()
