"""Shards that stay in the workers of a cluster, for iterative algorithms."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import ray

from hirag_dist.errors import HiragError
from hirag_dist.execution.ray.worker_pool import LOST, WorkerPool
from hirag_dist.execution.ray.workers import ShardStep

_STEPS = 2  # of a worker at a time: one runs, one is ready
_PREFETCH = 4  # steps for each worker beyond the awaited one; results that come early wait in Ray's store


class RayResidentShards:
    """Implements `protocols.ResidentShards`. Each shard has a home, the worker that loaded it.

    The shards of a worker that died are loaded by others. Every call names its shard and how to load it, so that a
    worker that was started again needs no bookkeeping. Results wait in Ray's store until it is their turn: the driver
    has one at a time.
    """

    def __init__(
        self, pool: WorkerPool, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool, on_gpu: bool
    ) -> None:
        self._pool = pool
        self._load = load
        self._shards = shards
        self._keep = keep
        self._on_gpu = on_gpu
        self._name = uuid.uuid4().hex
        self._homes: dict[int, int] = {}

    def each(self, step: Callable[[Any, Any, Any], Any], argument: Any) -> Iterator[Any]:
        """Do a step on every shard, yield the results in the order of the shards.

        Raises:
            HiragError: a step failed; the others in flight have ended.
        """
        self._rebalance()
        max_ahead = _PREFETCH * self._pool.size(self._on_gpu)
        return _ShardPass(self, self._pool, len(self._shards), max_ahead, step, argument).results()

    def drop(self) -> None:
        """Release the shards."""
        for worker in self.available():
            self._pool.workers[worker].drop.remote(self._name)

    def available(self) -> list[int]:
        """Return the workers that can hold shards."""
        return self._pool.available(self._on_gpu)

    def begin(self, worker: int, number: int, step: Callable[[Any, Any, Any], Any], argument: Any) -> list[Any]:
        """Start a step on a shard; return references to its status and its result."""
        work = ShardStep(self._name, number, self._shards[number], self._load, self._keep, step)
        refs: list[Any] = self._pool.workers[worker].step.options(num_returns=2).remote(work, argument)
        return refs

    def _rebalance(self) -> None:
        """Spread shards evenly over the workers that are there: some may have come since."""
        available = self.available()
        if not available:
            return
        max_per_worker = -(-len(self._shards) // len(available))
        kept: Counter[int] = Counter()
        for number, worker in sorted(self._homes.items()):
            if worker in available and kept[worker] < max_per_worker:
                kept[worker] += 1
                continue
            del self._homes[number]
            if worker in available and self._keep:
                self._pool.workers[worker].drop.remote(self._name, number)

    def home(self, number: int, load: Counter[int]) -> int | None:
        """Return the worker of a shard, or None if no worker is alive.

        A shard without a worker is given to one of those that hold the fewest shards.
        """
        available = self.available()
        if self._homes.get(number) not in available:
            if not available:
                return None
            held = Counter(self._homes.values())
            self._homes[number] = min(available, key=lambda n: (held[n], load[n], n))
        return self._homes[number]

    def lose(self, worker: int) -> None:
        """Note that a worker holds nothing more."""
        for number in [number for number, home in self._homes.items() if home == worker]:
            del self._homes[number]


class _ShardPass:
    """One step on every shard."""

    def __init__(
        self,
        held: RayResidentShards,
        pool: WorkerPool,
        n_shards: int,
        max_ahead: int,
        step: Callable[[Any, Any, Any], Any],
        argument: Any,
    ) -> None:
        self._held = held
        self._pool = pool
        self._step = step
        self._argument = ray.put(argument)
        self._pending = list(range(n_shards))
        self._running: dict[Any, tuple[int, int, Any]] = {}  # the call's status → worker, shard, result
        self._done: dict[int, tuple[int, Any]] = {}  # shard → worker, result
        self._load: Counter[int] = Counter()
        self._losses: Counter[Hashable] = Counter()
        self._failure: HiragError | None = None
        self._n_shards = n_shards
        self._max_ahead = max_ahead
        self._turn = 0

    def results(self) -> Iterator[Any]:
        """Yield them in order."""
        try:
            while self._turn < self._n_shards:
                if self._failure is None:
                    self._send()
                elif not self._running:
                    raise self._failure
                self._collect()
                while self._failure is None and self._turn in self._done:
                    worker, result = self._done.pop(self._turn)
                    outcome = self._pool.outcome(result, worker, self._turn, self._losses)
                    del result  # Ray may free it
                    if not self._has_failed(outcome, self._turn):
                        self._turn += 1
                        yield outcome
        finally:
            if self._running:  # the driver itself has failed, or stopped iterating
                for status in self._running:
                    ray.cancel(status)
                ray.wait(list(self._running), num_returns=len(self._running))

    def _send(self) -> None:
        """Give workers that have room their next shards, not far ahead of the one whose turn it is."""
        end = self._turn + self._max_ahead
        for number in [number for number in self._pending[: end - self._turn] if number < end]:
            worker = self._held.home(number, self._load)
            if worker is None:
                return
            if self._load[worker] < _STEPS:
                self._pending.remove(number)
                self._load[worker] += 1
                status, result = self._held.begin(worker, number, self._step, self._argument)
                self._running[status] = worker, number, result

    def _collect(self) -> None:
        """Wait until something has happened, and note which steps are done."""
        for status in self._pool.first_of(self._running):
            worker, number, result = self._running.pop(status)
            self._load[worker] -= 1
            outcome = self._pool.outcome(status, worker, number, self._losses)
            if outcome is LOST:
                self._held.lose(worker)
            if not self._has_failed(outcome, number):
                self._done[number] = worker, result

    def _has_failed(self, outcome: Any, number: int) -> bool:
        """Note a lost or failed step; return whether it is one of these."""
        if outcome is LOST:
            self._pending = sorted([*self._pending, number])
        elif isinstance(outcome, HiragError):
            self._failure = self._failure or outcome
        else:
            return False
        return True
