"""Shards that stay in the workers of a cluster, for algorithms that go round."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import ray

from hirag_dist.errors import HiragError
from hirag_dist.execution.ray.workers import LOST, Crew, ShardStep

_STEPS = 2  # of a worker at a time: one runs, one is ready
_AHEAD = 4  # steps a worker beyond the one whose result is awaited: what came too early waits in Ray's store


class RayHeld:
    """Implements `ports.Held`. Each shard has a home, the worker that loaded it.

    The shards of a worker that died are loaded by others. Every call names its shard and how to load it, so that a
    worker that was started again needs no bookkeeping. Results wait in Ray's store until it is their turn: the driver
    has one at a time.
    """

    def __init__(self, crew: Crew, load: Callable[[Any, Any], Any], shards: Sequence[Any], keep: bool) -> None:
        self._crew = crew
        self._load = load
        self._shards = shards
        self._keep = keep
        self._name = uuid.uuid4().hex
        self._homes: dict[int, int] = {}

    def each(self, step: Callable[[Any, Any, Any], Any], argument: Any) -> Iterator[Any]:
        """Do a step on every shard, yield the results in the order of the shards.

        Raises:
            HiragError: a step failed; the others in flight have ended.
        """
        self._settle()
        shared = ray.put(argument)
        load: Counter[int] = Counter()
        losses: Counter[Hashable] = Counter()
        running: dict[Any, tuple[int, int, Any]] = {}  # the call's status → worker, shard, result
        done: dict[int, tuple[int, Any]] = {}  # shard → worker, result
        waiting = list(range(len(self._shards)))
        failure: HiragError | None = None
        turn = 0
        try:
            while turn < len(self._shards):
                if failure is None:
                    end = turn + _AHEAD * len(self._crew.workers)
                    for number in [number for number in waiting[: end - turn] if number < end]:
                        worker = self._home(number, load)
                        if worker is None:
                            break
                        if load[worker] < _STEPS:
                            waiting.remove(number)
                            load[worker] += 1
                            status, result = self._begin(worker, number, step, shared)
                            running[status] = worker, number, result
                elif not running:
                    raise failure
                for status in self._crew.first_of(running):
                    worker, number, result = running.pop(status)
                    load[worker] -= 1
                    outcome = self._crew.outcome(status, worker, number, losses)
                    if outcome is LOST:
                        self._lose(worker)
                        _put_back(waiting, number)
                    elif isinstance(outcome, HiragError):
                        failure = failure or outcome
                    else:
                        done[number] = worker, result
                while failure is None and turn in done:
                    worker, result = done.pop(turn)
                    outcome = self._crew.outcome(result, worker, turn, losses)
                    del result
                    if outcome is LOST:  # it was done, but died with the node that it lay on
                        _put_back(waiting, turn)
                    elif isinstance(outcome, HiragError):
                        failure = outcome
                    else:
                        turn += 1
                        yield outcome
        finally:
            if running:  # the driver itself has failed, or wants no more
                for status in running:
                    ray.cancel(status)
                ray.wait(list(running), num_returns=len(running))

    def drop(self) -> None:
        """Let go of the shards."""
        for worker in self._crew.there():
            self._crew.workers[worker].drop.remote(self._name)

    def _begin(self, worker: int, number: int, step: Callable[[Any, Any, Any], Any], argument: Any) -> list[Any]:
        work = ShardStep(self._name, number, self._shards[number], self._load, self._keep, step)
        refs: list[Any] = self._crew.workers[worker].step.options(num_returns=2).remote(work, argument)
        return refs

    def _settle(self) -> None:
        """Spread shards evenly over the workers that are there: some may have come since."""
        there = self._crew.there()
        if not there:
            return
        most = -(-len(self._shards) // len(there))
        kept: Counter[int] = Counter()
        for number, worker in sorted(self._homes.items()):
            if worker in there and kept[worker] < most:
                kept[worker] += 1
                continue
            del self._homes[number]
            if worker in there and self._keep:
                self._crew.workers[worker].drop.remote(self._name, number)

    def _home(self, number: int, load: Counter[int]) -> int | None:
        """Return the worker of a shard; a new one, of those with least to hold, where it has none. None if nobody is
        there."""
        there = self._crew.there()
        if self._homes.get(number) not in there:
            if not there:
                return None
            held = Counter(self._homes.values())
            self._homes[number] = min(there, key=lambda n: (held[n], load[n], n))
        return self._homes[number]

    def _lose(self, worker: int) -> None:
        for number in [number for number, home in self._homes.items() if home == worker]:
            del self._homes[number]


def _put_back(waiting: list[int], number: int) -> None:
    waiting.append(number)
    waiting.sort()
