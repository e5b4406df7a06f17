"""A cluster in virtual time: the program's own treasury, desks, callers and splitting; the rest is a model.

Real are `pool.treasury`, `pool.desk`, `pool.budget`, `pool.calling`, `core.limits`, `execution.splitting`, the actor's
knowledge of who lives (`execution.ray.treasury.TreasuryActor`) and `simulate-llm`'s limits. A model are: time, the
network, the time that Ray's actor takes for a message, the endpoint's latency, deaths, and the driver's choice of a
worker (the least busy with room, as `execution.ray.workers.Crew` has it).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter, deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hirag_dist.core.limits import Allowance
from hirag_dist.core.prompts import Prompts
from hirag_dist.errors import HiragError, RateLimited
from hirag_dist.execution.dataset import Dataset, Part
from hirag_dist.execution.ray.crew import Crew
from hirag_dist.execution.ray.treasury import TakenForDead, TreasuryActor
from hirag_dist.execution.splitting import plan
from hirag_dist.execution.task import Task
from hirag_dist.index.store import Store
from hirag_dist.pool.budget import Budget
from hirag_dist.pool.calling import Answered, Caller, Need, Patience
from hirag_dist.pool.loans import Events, Loan, Order, State, Want
from hirag_dist.pool.treasury import Treasury
from hirag_dist.schemas import CHUNKS
from hirag_dist.simulator.limits import Gate
from hirag_dist.simulator.options import SimulatorOptions
from hirag_dist.stages.base import ByRows
from hirag_dist.stages.extract import ExtractGraph

ENDPOINT = "model"
_NEVER_RETRIED = Patience(outage_s=math.inf)


@dataclass(frozen=True, slots=True)
class Setup:
    """A cluster, an endpoint and the calls to be made.

    Attributes:
        chunks: rows of the stage that calls; each makes `calls_a_chunk`, one after the other.
        input_tokens, output_tokens: of a call; replies are lognormal around the second with `spread`, as latencies are.
        rpm, tpm, max_concurrent: of the endpoint, known to the configuration; None for no limit.
        latency_s: median of a call.
        spread: standard deviation of the logarithm of latency and of reply length.
        stragglers: share of calls that take `straggler_times` as long.
        deaths: workers that die, at times drawn over the first four fifths of T_min.
        noticed_s: until the driver knows of a death; away_s: until the worker is there again, from then on.
        message_s: one way, between a worker and the treasury.
        handling_s: the treasury's process for each message, Ray's part of it; one after the other.
        store_s: until a reply is durable. task_s: of a task beside its calls.
        tasks_in_flight: tasks that a worker holds; None as the program chooses.
    """

    workers: int = 4
    chunks: int = 1000
    calls_a_chunk: int = 2
    input_tokens: int = 3000
    output_tokens: int = 1500
    rpm: float | None = None
    tpm: float | None = None
    max_concurrent: int = 64
    latency_s: float = 1.0
    spread: float = 0.3
    stragglers: float = 0.0
    straggler_times: float = 10.0
    deaths: int = 0
    noticed_s: float = 5.0
    away_s: float = 20.0
    message_s: float = 0.0005
    handling_s: float = 0.0003
    store_s: float = 0.002
    task_s: float = 0.02
    tasks_in_flight: int | None = None
    seed: int = 0

    def room(self) -> int:
        """Return the tasks that a worker holds at a time, as `wiring` chooses them."""
        if self.tasks_in_flight is not None:
            return self.tasks_in_flight
        return max(-(-self.max_concurrent * 2 // (_rows_a_task() * self.workers)), 4)


@dataclass(frozen=True, slots=True)
class Fate:
    """What a call would take, drawn before anything begins, so that it is the same for any number of workers."""

    latency_s: np.ndarray
    output_tokens: np.ndarray

    @classmethod
    def drawn(cls, setup: Setup) -> Fate:
        """Draw for all calls: arrays of (chunks, calls_a_chunk)."""
        rng = np.random.default_rng(setup.seed)
        shape = setup.chunks, setup.calls_a_chunk
        latency = setup.latency_s * np.exp(setup.spread * rng.standard_normal(shape))
        latency[rng.random(shape) < setup.stragglers] *= setup.straggler_times
        output = setup.output_tokens * np.exp(setup.spread * rng.standard_normal(shape))
        return cls(latency, np.maximum(output, 1).astype(np.int64))


@dataclass(slots=True)
class Outcome:
    """What a run came to.

    Attributes:
        wall_s: virtual seconds.
        bound_s: T_min: no schedule within the limits could be faster. by: the limit that says so.
        calls: answered; paid_again: of those, answered again since the worker died before it stored the first reply.
        refused: 429s. peak_minute: most calls let in within 60 s, over rpm; None where there is none.
        asks, tells: messages to the treasury. peak_messages: in one second, at most.
        backlog_s: longest that a message stood in the treasury's line.
        treasury_s: real CPU seconds of the treasury's own code in this process.
        fairness: Jain's index of the calls that workers were given which never died; 1 is equal shares.
    """

    wall_s: float
    bound_s: float
    by: str
    calls: int
    paid_again: int
    refused: int
    peak_minute: float | None
    asks: int
    tells: int
    peak_messages: int
    backlog_s: float
    treasury_s: float
    fairness: float
    deaths: int

    def figures(self) -> dict[str, Any]:
        """Return them as a line has them, with ratios."""
        messages = self.asks + self.tells
        return {
            "wall_s": round(self.wall_s, 2),
            "t_min_s": round(self.bound_s, 2),
            "wall_over_t_min": round(self.wall_s / self.bound_s, 4),
            "bound_by": self.by,
            "calls": self.calls,
            "calls_per_s": round(self.calls / self.wall_s, 1),
            "paid_again": self.paid_again,
            "rate_limited": self.refused,
            "peak_minute_over_rpm": None if self.peak_minute is None else round(self.peak_minute, 4),
            "asks_per_s": round(self.asks / self.wall_s, 1),
            "tells_per_s": round(self.tells / self.wall_s, 1),
            "peak_messages_per_s": self.peak_messages,
            "treasury_backlog_ms": round(self.backlog_s * 1000, 2),
            "treasury_code_us_per_message": round(self.treasury_s / max(messages, 1) * 1e6, 1),
            "treasury_code_share": round(self.treasury_s / self.wall_s, 4),
            "fairness": round(self.fairness, 4),
            "deaths": self.deaths,
        }


class TimedTreasury(Treasury):
    """The treasury, and how much CPU its code took."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.cpu_s = 0.0
        self._inside = False

    def _timed(self, work: Any, *arguments: Any) -> Any:
        if self._inside:
            return work(*arguments)
        self._inside = True
        begun = time.perf_counter()
        try:
            return work(*arguments)
        finally:
            self.cpu_s += time.perf_counter() - begun
            self._inside = False

    def _note(self, *arguments: Any) -> None:
        self._timed(super()._note, *arguments)

    def _serve(self, *arguments: Any) -> None:
        self._timed(super()._serve, *arguments)


class Endpoint:
    """The model: `simulate-llm`'s limits, and latencies that were drawn before."""

    def __init__(self, setup: Setup, fate: Fate) -> None:
        loop = asyncio.get_running_loop()
        self._gate = Gate(
            SimulatorOptions(rpm=setup.rpm, tpm=setup.tpm, max_concurrent=setup.max_concurrent), loop.time
        )
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
    """The treasury's actor at the end of a wire, one message after another."""

    def __init__(self, actor: TreasuryActor, setup: Setup) -> None:
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
    """A worker from its start to its death, and its end of the wire. Implements `pool.budget.Lender`.

    Dead, it hangs wherever it would reach out: what it had asked of the endpoint goes on there, and comes to nothing.
    """

    def __init__(self, number: int, life: int, line: Line) -> None:
        self.name = f"{number}/{life}"
        self.dead = False
        self._line = line
        clock = asyncio.get_running_loop().time
        self.caller = Caller(Budget(self, self.name, clock=clock), _NEVER_RETRIED, clock)

    async def here(self) -> None:
        """Go on only while alive."""
        if self.dead:
            await asyncio.get_running_loop().create_future()

    async def ask(self, holder: str, endpoint: str, state: State, want: Want, events: Events) -> Loan:
        """As `Treasury.ask`."""
        self._line.asks += 1
        loan: Loan = await self._sent(self._line.actor.ask(holder, endpoint, state, want, events))
        return loan

    async def tell(self, holder: str, endpoint: str, state: State, events: Events) -> Order:
        """As `Treasury.tell`."""
        self._line.tells += 1
        order: Order = await self._sent(self._line.actor.tell(holder, endpoint, state, events))
        return order

    async def leave(self, holder: str) -> None:
        """As `Treasury.leave`."""
        await self._sent(self._line.actor.leave(holder))

    async def _sent(self, message: Coroutine[Any, Any, Any]) -> Any:
        if self.dead:
            message.close()
            await self.here()
        await self._line.arrive()
        answer = await message
        await self._line.back()
        await self.here()
        if isinstance(answer, TakenForDead | HiragError):
            raise answer
        return answer


@dataclass(frozen=True, slots=True)
class _Target:
    endpoint: str = ENDPOINT
    name: str = ENDPOINT
    weight: float = 1.0


class SimulatedCrew(Crew):
    """Who is there; the choice of the least busy is the program's."""

    def __init__(self, count: int, line: Line) -> None:
        """Start the workers, without Ray: nothing of the parent's beginning is wanted."""
        self.lives = [Life(number, 0, line) for number in range(count)]
        self.gone: set[int] = set()

    def there(self, on_gpu: bool = False) -> list[int]:
        """As `Crew.there`."""
        return [number for number in range(len(self.lives)) if number not in self.gone]


@dataclass(slots=True)
class Cluster:
    """Driver, workers, treasury and endpoint of one run."""

    setup: Setup
    fate: Fate
    endpoint: Endpoint
    line: Line
    crew: SimulatedCrew
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
                chosen = None if following is None else self.crew.least_busy(load, self.setup.room())
                if following is None or chosen is None:
                    break
                life = self.crew.lives[chosen]
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
            for key in [key for key in running if key[1].dead and key[0] in self.crew.gone]:
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

        async def send(target: _Target, step: int) -> Answered[None]:
            await life.here()
            tokens = await self.endpoint.answer(chunk, step)
            await life.here()
            self.given[number] += 1
            limits = setup.rpm, setup.tpm
            return Answered(None, setup.input_tokens + tokens, 0.0, limits)

        async def store(target: _Target, value: None, step: int) -> None:
            await asyncio.sleep(setup.store_s)
            await life.here()
            self.stored.add((chunk, step))

        for step in range(setup.calls_a_chunk):
            if (chunk, step) not in self.stored:
                await life.caller.call(
                    [_Target()],
                    lambda target, step=step: send(target, step),  # type: ignore[misc]
                    lambda target, value, step=step: store(target, value, step),  # type: ignore[misc]
                    lambda target: Need(expected, expected, 0.0),
                    "extract",
                )

    async def kill(self, at_s: float, number: int) -> None:
        """Let a worker die, be missed, and come back."""
        await asyncio.sleep(at_s)
        if number in self.crew.gone:
            return
        life = self.crew.lives[number]
        life.dead = True
        self.died.add(number)
        await asyncio.sleep(self.setup.noticed_s)
        self.crew.gone.add(number)
        await self.line.actor.forget(number)
        self.ended.put_nowait(None)
        await asyncio.sleep(self.setup.away_s)
        self.crew.lives[number] = Life(number, int(life.name.partition("/")[2]) + 1, self.line)
        self.crew.gone.discard(number)
        self.ended.put_nowait(None)


async def simulate(setup: Setup) -> Outcome:
    """Run a build in the virtual time of the running loop."""
    random.seed(setup.seed)  # of waits after a refusal
    fate = Fate.drawn(setup)
    loop = asyncio.get_running_loop()
    allowance = Allowance(setup.rpm, setup.tpm, setup.max_concurrent)
    treasury = TimedTreasury({ENDPOINT: allowance}, clock=loop.time)
    endpoint = Endpoint(setup, fate)
    line = Line(TreasuryActor(lambda: treasury), setup)
    cluster = Cluster(setup, fate, endpoint, line, SimulatedCrew(setup.workers, line))
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
        calls=answered,
        paid_again=answered - len(endpoint.answered),
        refused=endpoint.refused,
        peak_minute=None if setup.rpm is None else endpoint.peak_minute() / setup.rpm,
        asks=line.asks,
        tells=line.tells,
        peak_messages=max(line.by_second.values(), default=0),
        backlog_s=line.backlog_s,
        treasury_s=treasury.cpu_s,
        fairness=jain(calls),
        deaths=len(cluster.died),
    )


def least_s(setup: Setup, fate: Fate) -> tuple[float, str]:
    """Return (T_min, what says so): the seconds that the endpoint's limits, or the slowest chunk, make it take."""
    calls = setup.chunks * setup.calls_a_chunk
    tokens = calls * setup.input_tokens + int(fate.output_tokens.sum())
    bounds = {
        "requests": calls / setup.rpm * 60.0 if setup.rpm else 0.0,
        "tokens": tokens / setup.tpm * 60.0 if setup.tpm else 0.0,
        "concurrency": float(fate.latency_s.sum()) / setup.max_concurrent,
        "slowest chunk": float(fate.latency_s.sum(axis=1).max()),
    }
    by = max(bounds, key=lambda name: bounds[name])
    return bounds[by], by


def jain(shares: list[int]) -> float:
    """Return Jain's index of fairness, 1 where all are equal, 1 / n where one has all.

    >>> jain([2, 2]), jain([1, 0])
    (1.0, 0.5)
    """
    squares = sum(share * share for share in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


def _tasks(setup: Setup) -> Iterator[Task]:
    """Return the tasks of the extraction as the program splits it; nothing is read from the store."""
    chunks = Dataset(CHUNKS, (Part("chunks", setup.chunks, ""),))
    stage = ExtractGraph("two_step", False, 0, (), False, False, Prompts(), ())
    return plan(stage, "extract", Store("nowhere"), {"chunks": chunks}).tasks()


def _rows_a_task() -> int:
    split = ExtractGraph.split
    assert isinstance(split, ByRows)
    return split.n
