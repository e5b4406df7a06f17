"""When workers with a GPU are ended: by a clock that is passed in, with actors that are names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import ray

from hirag_dist.execution.ray.cluster import cpus_of
from hirag_dist.execution.ray.worker_pool import GpuWorkers, WorkerPool


class Actors:
    """Stands in for Ray: every actor is there at once, no call ends by itself, and waiting moves the clock."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.alive: set[int] = set()
        patch.setattr(ray, "remote", lambda **options: lambda kind: SimpleNamespace(options=self._kind))
        patch.setattr(ray, "wait", self._wait)
        patch.setattr(ray, "get", lambda ref: None)
        patch.setattr(ray, "kill", lambda handle: self.alive.remove(handle.number))

    def _kind(self, **resources: int) -> Any:
        return SimpleNamespace(remote=self._start)

    def _start(self, make_services: Any, coordinator: str, number: int) -> Any:
        assert number not in self.alive
        self.alive.add(number)
        ready = SimpleNamespace(remote=lambda: ("ready", number))
        return SimpleNamespace(
            number=number,
            ready=SimpleNamespace(options=lambda **options: ready),
            close=SimpleNamespace(remote=lambda: ("closed", number)),
        )

    def _wait(self, refs: Sequence[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        done = [ref for ref in refs if ref[0] in ("ready", "closed")]
        if not done:
            self.now += 3600.0 if timeout is None else timeout
        return done, []


@pytest.fixture
def actors(monkeypatch: pytest.MonkeyPatch) -> Actors:
    return Actors(monkeypatch)


def pool_of(actors: Actors, gpus: int) -> WorkerPool:
    """One worker of the first kind, 0, and up to so many with a GPU, from 1 on."""
    return WorkerPool(
        lambda client, holder: None,  # type: ignore[arg-type, return-value]
        "coordinator",
        1,
        lambda number: None,
        lambda: ("warning",),
        GpuWorkers(gpus, idle_s=30.0),
        lambda: actors.now,
    )


def wait(pool: WorkerPool, actors: Actors, until: float, busy: Iterable[int]) -> None:
    """Have the workers of `busy` work up to a time."""
    calls = {("call", worker): (worker, "task") for worker in busy}
    while actors.now < until:
        assert pool.first_of(calls) == []


def test_they_end_after_other_work_has_taken_a_while(actors: Actors) -> None:
    pool = pool_of(actors, gpus=2)
    with pool.using(5, on_gpu=True):
        wait(pool, actors, 100.0, busy=[1, 2])
    assert actors.alive == {0, 1, 2}
    worked_until = actors.now
    with pool.using(5, on_gpu=False):
        pool.first_of({("call", 0): (0, "task")})
        assert actors.now == worked_until + 30.0
        pool.first_of({("call", 0): (0, "task")})
    assert actors.alive == {0}


def test_those_that_the_next_work_does_not_need_end(actors: Actors) -> None:
    pool = pool_of(actors, gpus=4)
    with pool.using(4, on_gpu=True):
        wait(pool, actors, 100.0, busy=[1, 2, 3, 4])
    with pool.using(1, on_gpu=True):
        wait(pool, actors, 10_000.0, busy=[3])
        assert actors.alive == {0, 3}
        assert pool.available(on_gpu=True) == [3]
    assert actors.alive == {0, 3}


def test_those_that_hold_shards_stay_while_others_work(actors: Actors) -> None:
    pool = pool_of(actors, gpus=3)
    with ExitStack() as stack:
        stack.enter_context(pool.using(2, on_gpu=True))
        stack.enter_context(pool.using(1, on_gpu=True))
        wait(pool, actors, 10_000.0, busy=[2])
        assert actors.alive == {0, 1, 2}


@pytest.mark.parametrize(
    ("nodes", "beside_gpus", "n"),
    [
        ([{"CPU": 0}, {"CPU": 16, "GPU": 1}, {"CPU": 16, "GPU": 1}], True, 32),
        ([{"memory": 1}, {"CPU": 16, "GPU": 1}, {"CPU": 8}], True, 8),
        ([{"CPU": 4}, {"CPU": 16, "GPU": 1}], False, 20),
    ],
)
def test_cpus_beside_gpus_are_those_of_nodes_that_have_some(
    nodes: list[dict[str, float]], beside_gpus: bool, n: int
) -> None:
    assert cpus_of(nodes, beside_gpus) == n
