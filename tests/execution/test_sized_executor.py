"""The choice of an executor by the number of a stage's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from hirag_dist.execution import sized_executor
from hirag_dist.execution.lazy_executor import LazyExecutor
from hirag_dist.execution.sized_executor import MAX_INLINE_TASKS, SizedExecutor
from hirag_dist.execution.task import Task, TaskResult


class Engine:
    """Runs nothing, and records what it was asked."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stages: list[int] = []
        self.closed = False

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        results = [TaskResult(task.number, {}, [], 0.0) for task in tasks]
        self.stages.append(len(results))
        yield from results

    def release_idle(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class Pair:
    """A sized executor of two recording engines."""

    def __init__(self) -> None:
        self.small, self.large = Engine("inline"), Engine("ray")
        self.made: list[str] = []
        self.sized = SizedExecutor(
            LazyExecutor("inline", lambda: self._make(self.small)), LazyExecutor("ray", lambda: self._make(self.large))
        )

    def run(self, n_tasks: int, calls: bool = False) -> None:
        tasks: Any = (SimpleNamespace(number=number, stage=calls) for number in range(n_tasks))
        assert [each.number for each in self.sized.map(tasks)] == list(range(n_tasks))

    def _make(self, engine: Engine) -> Any:
        self.made.append(engine.name)
        return engine


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Pair:
    monkeypatch.setattr(sized_executor, "waits_for_models", bool)
    return Pair()


def test_small_stages_start_no_ray(pair: Pair) -> None:
    pair.run(0)
    assert pair.made == []
    pair.run(1)
    pair.run(MAX_INLINE_TASKS, calls=True)
    assert (pair.made, pair.small.stages, pair.sized.name) == (["inline"], [1, MAX_INLINE_TASKS], "inline")


def test_a_large_stage_moves_the_build_to_ray(pair: Pair) -> None:
    pair.run(2)
    pair.run(MAX_INLINE_TASKS + 1, calls=True)
    pair.run(1)
    assert pair.small.closed
    assert (pair.small.stages, pair.large.stages, pair.sized.name) == ([2], [MAX_INLINE_TASKS + 1, 1], "ray")


def test_calls_decide_for_the_rest_of_a_build(pair: Pair) -> None:
    """Two executors would grant the rates of an endpoint twice."""
    pair.run(3, calls=True)
    pair.run(10 * MAX_INLINE_TASKS)
    assert (pair.made, pair.small.stages) == (["inline"], [3, 10 * MAX_INLINE_TASKS])


def test_the_executor_that_is_chosen_is_closed(pair: Pair) -> None:
    pair.run(MAX_INLINE_TASKS + 1)
    pair.sized.close()
    assert pair.large.closed
