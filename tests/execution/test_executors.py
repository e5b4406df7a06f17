"""An executor that is made when there is something to do, and chosen by the number of a stage's tasks."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hirag_dist.composition.build import make_executor
from hirag_dist.config.model import Config, ExecutionConfig
from hirag_dist.errors import BackendUnavailable
from hirag_dist.execution import executors
from hirag_dist.execution.events import CallsProgress
from hirag_dist.execution.executors import MAX_SMALL_TASKS, InlineExecutor, LazyExecutor, polled_calls
from hirag_dist.execution.stage import no_other_workers
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.storage.store import Store


def test_the_calls_of_a_stage_are_those_since_its_start() -> None:
    """Each look finds ten replies more."""
    answered = itertools.count(10, 10)
    executor: Any = SimpleNamespace(name="counting", call_totals=lambda: CallTotals(next(answered), 100, in_flight=3))
    events: list[Any] = []
    enough = threading.Event()

    def emit(event: object) -> None:
        events.append(event)
        if len(events) == 3:
            enough.set()

    with polled_calls(executor, emit, "extract", interval_s=0.001):
        assert enough.wait(60)
    n_events = len(events)
    assert events[:2] == [
        CallsProgress("extract", CallTotals(answered=10, in_flight=3)),
        CallsProgress("extract", CallTotals(answered=20, in_flight=3)),
    ]
    assert len(events) == n_events  # the thread has ended
    assert not [each for each in threading.enumerate() if each.name.startswith("call-poll")]


def test_shards_are_held_by_the_executor_that_is_made_for_them() -> None:
    services: Any = SimpleNamespace(close=no_other_workers)
    executor = LazyExecutor("lazy", lambda: InlineExecutor(lambda: services))
    with executor.hold(lambda services, shard: 10 * shard, [1, 2]) as held:
        assert list(held.each(lambda services, data, more: data + more, 5)) == [15, 25]
    executor.close()


class Engine:
    """Runs nothing, and notes how many tasks the stages had."""

    def __init__(self) -> None:
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


SMALL = [(1, False), (MAX_SMALL_TASKS, True)]  # number of tasks, and whether they call a model


@pytest.mark.parametrize(
    ("stages", "small", "large"),
    [
        ([(0, False)], [], []),
        (SMALL, [1, MAX_SMALL_TASKS], []),
        ([(2, False), (MAX_SMALL_TASKS + 1, True), (1, False)], [2], [MAX_SMALL_TASKS + 1, 1]),
        # calls decide for the rest of a build: two executors would grant the rates of an endpoint twice
        ([(3, True), (10 * MAX_SMALL_TASKS, False)], [3, 10 * MAX_SMALL_TASKS], []),
    ],
)
def test_small_stages_start_no_ray_and_a_large_one_moves_the_build_there(
    monkeypatch: pytest.MonkeyPatch, stages: list[tuple[int, bool]], small: list[int], large: list[int]
) -> None:
    monkeypatch.setattr(executors, "waits_for_models", bool)
    made: dict[str, Engine] = {}

    def make(name: str) -> Any:
        made[name] = Engine()
        return made[name]

    sized = LazyExecutor("inline", partial(make, "inline"), large=("ray", partial(make, "ray")))
    for n_tasks, calls in stages:
        tasks: Any = (SimpleNamespace(number=number, stage=calls) for number in range(n_tasks))
        assert [each.number for each in sized.map(tasks)] == list(range(n_tasks))
    ran = {name: engine.stages for name, engine in made.items()}
    assert ran == {name: sizes for name, sizes in (("inline", small), ("ray", large)) if sizes}
    assert sized.name == ("ray" if large else "inline")
    assert {name for name, engine in made.items() if engine.closed} == ({"inline"} if large else set())


def test_ray_that_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "hirag_dist.execution.ray", raising=False)
    for name in [name for name in sys.modules if name.startswith("hirag_dist.execution.ray.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    executor = make_executor(Config(execution=ExecutionConfig(executor="ray")), Store(str(tmp_path)), None, None)
    said = r"needs the package ray, .* or use --executor inline$"
    with pytest.raises(BackendUnavailable, match=said), executor.hold(lambda services, shard: shard, [1]):
        pass
