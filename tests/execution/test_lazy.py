"""The executor that starts with its first task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hirag_dist.execution.lazy import LazyExecutor


class Counting:
    """Gives back its tasks, and adds up what it is charged."""

    name = "counting"

    def __init__(self) -> None:
        self.charged: list[tuple[int, float]] = []

    def map(self, tasks: Iterable[Any]) -> Iterator[Any]:
        yield from tasks

    def charge(self, tokens: int, usd: float) -> None:
        self.charged.append((tokens, usd))

    def close(self) -> None:
        pass


def test_what_is_charged_before_there_is_an_executor_reaches_it_once() -> None:
    made: list[Counting] = []

    def make() -> Counting:
        made.append(Counting())
        return made[0]

    lazy = LazyExecutor("counting", make)
    lazy.charge(5, 1.0)
    lazy.charge(7, 0.5)
    assert not made
    task: Any = "a task"
    assert list(lazy.map([task])) == ["a task"]
    lazy.charge(1, 0.25)
    assert made[0].charged == [(12, 1.5), (1, 0.25)]
