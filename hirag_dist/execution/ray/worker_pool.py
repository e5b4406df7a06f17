"""The workers of an executor: of which kind each is, which of them are there, and when those with a GPU come and go."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import ray

from hirag_dist.errors import StageFailed
from hirag_dist.execution.ray.cluster import count_gpus, last_line
from hirag_dist.execution.ray.workers import MakeServices, Worker, actor

log = logging.getLogger(__name__)
_CLOSE_S = 30.0
_SAY_AGAIN_S = 600.0
_MOST_LOST_WORKERS = 100  # without one piece of work being done
_MOST_LOSSES = 5  # a piece of work that took so many workers with it is to blame itself


@dataclass(frozen=True, slots=True)
class GpuWorkers:
    """Workers that have a GPU each, and do what is computed on it, and nothing else.

    They are started when there is such work and end when there has been none for a while, so that a group of nodes
    can be at zero while models are called.

    Attributes:
        count: at most; fewer where there is less to do at a time. 0: no such kind, every worker does all work.
        idle_s: how long they stay without work: to start one again takes seconds on a node that is still there.
        notice_s: how long nobody need be told that none is there yet.
    """

    count: int = 0
    idle_s: float = 30.0
    notice_s: float = 10.0


@dataclass(slots=True, eq=False)
class PoolLease:
    """A use of workers that is under way.

    Attributes:
        n: workers that it has work for, at most.
    """

    n: int


class WorkerLost:
    """What became of work whose worker died: it is to be done again."""


LOST = WorkerLost()


class WorkerPool:
    """The workers of an executor, and which of them are there.

    A worker that dies is given no work until it is there again: its node may never be, and the others go on. Numbers
    below `count` are of workers of the first kind, which are there from the beginning; those above of workers with a
    GPU.
    """

    def __init__(
        self,
        make_services: MakeServices,
        treasury_name: str,
        count: int,
        forget: Callable[[int], object],
        listen: Callable[[], Any],
        gpu: GpuWorkers | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start `count` workers.

        Args:
            forget: told the number of each that dies.
            listen: begins a call that ends with the next warning of what they share.
            gpu: workers of the second kind, started when there is work for them.
            clock: seconds, monotonic.
        """
        self._make_services = make_services
        self._treasury_name = treasury_name
        self._count = count
        self._forget = forget
        self._listen = listen
        self._warning: list[Any] = [listen()]  # empty once there is nobody to warn
        self._gpu = gpu or GpuWorkers()
        self._clock = clock
        self._n_lost = 0
        self.workers: dict[int, Any] = {}
        # A call that ends when the worker is there → the worker. A busy cluster may have no room for some yet.
        self._away: dict[Any, int] = {}
        self._uses: list[PoolLease] = []  # of the workers with a GPU
        self._worked: dict[int, float] = {}  # worker with a GPU → when it worked last, or was started
        self._say_at: float | None = None  # when to say that none of them is there
        for number in range(count):
            self._start(number, num_cpus=1)

    def size(self, on_gpu: bool = False) -> int:
        """Return how many workers of a kind there may be."""
        return self._gpu.count if self._apart(on_gpu) else self._count

    def there(self, on_gpu: bool = False) -> list[int]:
        """Return the numbers of the workers of a kind that can be given work."""
        away = set(self._away.values())
        apart = self._apart(on_gpu)
        return [n for n in self.workers if n not in away and (n >= self._count) == apart]

    def least_busy(self, load: Mapping[int, int], room: int, on_gpu: bool = False) -> int | None:
        """Return a worker of a kind that is there and has less than `room` to do, None where there is none."""
        return least_busy(self.there(on_gpu), load, room)

    @contextmanager
    def using(self, n: int, on_gpu: bool) -> Iterator[PoolLease]:
        """Have up to n workers of a kind while the block lasts: those with a GPU are asked for, the others are there.

        No more of them are started than there are pieces of work, and no more are kept: each may be a node that is
        paid for. Who uses them lowers `PoolLease.n` where less is left to do.
        """
        use = PoolLease(n)
        if not self._apart(on_gpu):
            yield use
            return
        for number in range(self._count, self._count + min(n, self._gpu.count)):
            if number not in self.workers:
                self._start_gpu(number)
        self._uses.append(use)
        try:
            yield use
        finally:
            self._uses.remove(use)
            self._say_at = None

    def first_of(self, running: Mapping[Any, tuple[Any, ...]]) -> list[Any]:
        """Wait until something happened; return those of the calls that ended, which may be none.

        Args:
            running: call → its worker, and whatever else is known of it.
        """
        busy = {worker for worker, *_ in running.values()}
        pause = self._pause(busy)
        try:
            done, _ = ray.wait([*running, *self._away, *self._warning], num_returns=1, timeout=pause)
        except KeyboardInterrupt:
            log.warning("interrupted: waiting for the replies in flight; Ctrl-C again drops them")
            raise
        now = self._clock()
        self._worked |= dict.fromkeys(busy & self._worked.keys(), now)
        for ref in done:
            if ref in self._away:
                self._come_back(ref)
            elif ref in self._warning:
                self._pass_on(ref)
        return [ref for ref in done if ref in running]

    def outcome(self, ref: Any, worker: int, unit: Hashable, losses: Counter[Hashable]) -> Any:
        """Return what a call gave: its value, an error of ours, or LOST where the worker died.

        Args:
            unit: of work, which is to blame itself where workers keep dying over it.
            losses: workers that died over each.
        """
        try:
            value = ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)
            return _lost(unit, losses, error)
        except ray.exceptions.ObjectLostError as error:  # the worker gave it, and its node died before we had it
            return _lost(unit, losses, error)
        except ray.exceptions.RayError as error:
            return StageFailed(f"a worker failed: {last_line(error)}")
        self._n_lost = 0
        return value

    def release_idle(self) -> None:
        """Stop the workers with a GPU that have nothing to do: nobody looks at the clock for them for a while."""
        if not self._uses:
            self._stop(list(self._worked))

    def close(self) -> None:
        """Stop the workers."""
        self._stop(list(self.workers))

    def _apart(self, on_gpu: bool) -> bool:
        """Whether work is for the workers with a GPU: only where there is such a kind."""
        return on_gpu and self._gpu.count > 0

    def _start(self, number: int, **resources: int) -> None:
        kind = actor(Worker).options(**resources)
        self.workers[number] = kind.remote(self._make_services, self._treasury_name, number)
        self._away[self._when_ready(number)] = number

    def _start_gpu(self, number: int) -> None:
        self._start(number, num_cpus=0, num_gpus=1)  # no CPU: where others have taken all, it still has room
        self._worked[number] = self._clock()

    def _stop(self, numbers: list[int]) -> None:
        """Stop workers: those that are there let what is on its way arrive."""
        away = set(self._away.values())
        closing = [self.workers[n].close.remote() for n in numbers if n not in away]
        if closing:
            ray.wait(closing, num_returns=len(closing), timeout=_CLOSE_S)
        for number in numbers:
            ray.kill(self.workers.pop(number))
            self._worked.pop(number, None)
        self._away = {ref: number for ref, number in self._away.items() if number in self.workers}

    def _pause(self, busy: Set[int]) -> float | None:
        """Return how long to wait for news at most, None for as long as it takes; do what is due by now."""
        until = [at for at in (self._end_idle(busy), self._say_none_is_there()) if at is not None]
        return max(min(until) - self._clock(), 0.0) if until else None

    def _end_idle(self, busy: Set[int]) -> float | None:
        """Stop workers with a GPU that nobody needs any more; return when the next is to be, None if none is."""
        ends = sorted((at + self._gpu.idle_s, -number) for number, at in self._worked.items() if number not in busy)
        ends = ends[: max(len(self._worked) - sum(use.n for use in self._uses), 0)]
        now = self._clock()
        over = [-number for at, number in ends if at <= now]
        if over:
            log.info("workers with a GPU that have had nothing to do for %g s end: %d", self._gpu.idle_s, len(over))
            self._stop(over)
        return min((at for at, _ in ends if at > now), default=None)

    def _say_none_is_there(self) -> float | None:
        """Say where work waits for a GPU; return when to say so next, None where none does."""
        if not self._uses or self.there(on_gpu=True):
            self._say_at = None
            return None
        now = self._clock()
        if self._say_at is None:
            self._say_at = now + self._gpu.notice_s
        elif now >= self._say_at:
            log.warning(
                "waiting for a GPU: the cluster has %g, and no worker has one yet. The build goes on when a node with "
                "a GPU comes, which takes minutes where a group grows from nothing; Ctrl-C ends it and loses nothing",
                count_gpus(),
            )
            self._say_at = now + _SAY_AGAIN_S
        return self._say_at

    def _go_away(self, worker: int, error: Exception) -> None:
        if worker in self.workers and worker not in self._away.values():
            self._n_lost += 1
            if self._n_lost > _MOST_LOST_WORKERS:
                raise StageFailed(f"workers die as soon as they start: {last_line(error)}") from error
            log.warning("a worker was lost, what it had to do goes to the others: %s", last_line(error))
            self._forget(worker)
            if worker < self._count:
                self._away[self._when_ready(worker)] = worker  # Ray starts it again
            else:  # as a new one, since Ray would tell the user again and again that it cannot yet
                ray.kill(self.workers[worker])
                self._start_gpu(worker)

    def _come_back(self, ref: Any) -> None:
        worker = self._away.pop(ref)
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            self._go_away(worker, error)

    def _pass_on(self, ref: Any) -> None:
        """Log a warning where the run is watched."""
        try:
            log.warning("%s", ray.get(ref))
        except ray.exceptions.RayActorError:  # who needs what is gone will say so
            self._warning = []
        else:
            self._warning = [self._listen()]

    def _when_ready(self, worker: int) -> Any:
        return self.workers[worker].ready.options(max_task_retries=-1).remote()


def least_busy(there: Iterable[int], load: Mapping[int, int], room: int) -> int | None:
    """Return which of the workers that are there has least to do, of equals the first; None where all have `room`."""
    free = [n for n in there if load[n] < room]
    return min(free, key=lambda n: (load[n], n), default=None)


def _lost(unit: Hashable, losses: Counter[Hashable], error: Exception) -> WorkerLost | StageFailed:
    losses[unit] += 1
    if losses[unit] < _MOST_LOSSES:
        return LOST
    return StageFailed(f"{_MOST_LOSSES} workers died over the same task: {last_line(error)}")
