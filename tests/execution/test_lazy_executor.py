"""An executor that is made when there is something to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from types import SimpleNamespace
from typing import Any

from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.lazy_executor import LazyExecutor
from hirag_dist.execution.stage import no_other_workers
from hirag_dist.execution.task import Task, TaskResult


class OneByOne:
    """Gives a result for each task before it takes the next."""

    name = "one by one"

    def __init__(self) -> None:
        self.closed = False
        self.rests = 0

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        for task in tasks:
            yield TaskResult(task.number, {}, [], 0.0)

    def release_idle(self) -> None:
        self.rests += 1

    def close(self) -> None:
        self.closed = True


def endless() -> Iterator[Any]:
    return (SimpleNamespace(number=number) for number in count())


def test_nothing_to_do_starts_nothing() -> None:
    made: list[OneByOne] = []
    executor = LazyExecutor("lazy", lambda: made.append(OneByOne()) or made[-1])
    assert list(executor.map([])) == []
    executor.close()
    assert made == []


def test_it_is_made_once_and_closed() -> None:
    made: list[OneByOne] = []
    executor = LazyExecutor("lazy", lambda: made.append(OneByOne()) or made[-1])
    for _ in range(2):
        assert next(executor.map(endless())).number == 0
    executor.close()
    assert [each.closed for each in made] == [True]


def test_there_is_nothing_to_let_go_of_before_it_is_made() -> None:
    made: list[OneByOne] = []
    executor = LazyExecutor("lazy", lambda: made.append(OneByOne()) or made[-1])
    executor.release_idle()
    assert made == []
    next(executor.map(endless()))
    executor.release_idle()
    assert made[0].rests == 1


SERVICES: Any = SimpleNamespace(close=no_other_workers)


def shard_of(services: Any, shard: int) -> int:
    return 10 * shard


def plus(services: Any, data: int, argument: int) -> int:
    return data + argument


def test_shards_are_held_by_the_executor_that_is_made_for_them() -> None:
    made: list[InlineExecutor] = []
    executor = LazyExecutor("lazy", lambda: made.append(InlineExecutor(lambda: SERVICES)) or made[-1])
    with executor.hold(shard_of, [1, 2]) as held:
        assert list(held.each(plus, 5)) == [15, 25]
    executor.close()
    assert len(made) == 1


def test_tasks_are_taken_as_the_other_executor_takes_them() -> None:
    """A stage of a million tasks is not a million objects: here there is no end to them."""
    results = LazyExecutor("lazy", OneByOne).map(endless())
    assert [next(results).number for _ in range(3)] == [0, 1, 2]
