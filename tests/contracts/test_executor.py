"""Contract of Executor: run inline, and on a real local Ray."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import pyarrow as pa
import pytest
import ray
from ray import cloudpickle

from hirag_dist.errors import HiragError, RateLimited, RequestRejected
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.ray import RayExecutor
from hirag_dist.execution.stage import ByRows, Services, Tables
from hirag_dist.execution.task import Slice, Task, result_of
from hirag_dist.llm.limits.coordinator import QuotaCoordinator
from hirag_dist.protocols import Executor
from hirag_dist.storage.store import Store
from tests.bare_services import SERVICES

NUMBERS = pa.schema([pa.field("n", pa.int64(), nullable=False)])
cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import a test module


@dataclass(frozen=True)
class Double:
    """Numbers, twice; refuses the numbers of its schedule, with the error that stands there."""

    name: ClassVar[str] = "double"
    version: ClassVar[int] = 1
    split: ClassVar[ByRows] = ByRows(1)

    class Inputs(TableSet):
        numbers: Annotated[Dataset, NUMBERS]

    class Outputs(TableSet):
        doubled: Annotated[Dataset, NUMBERS]

    schedule: tuple[tuple[int, HiragError], ...] = ()

    async def run(self, tables: Tables, services: Services) -> Tables:
        assert services == SERVICES
        for number in tables["numbers"]["n"].to_pylist():
            for refused, error in self.schedule:
                if number == refused:
                    raise error
        return {"doubled": pa.table({"n": [2 * n for n in tables["numbers"]["n"].to_pylist()]}, schema=NUMBERS)}


ON_RAY = (pytest.mark.integration, pytest.mark.xdist_group("ray"), pytest.mark.smoke)


@pytest.fixture(scope="module", params=["inline", pytest.param("ray", marks=ON_RAY)])
def executor(request: pytest.FixtureRequest) -> Iterator[Executor]:
    made: Executor
    if request.param == "inline":
        made = InlineExecutor(lambda: SERVICES, in_flight=2)
    else:
        request.getfixturevalue("ray_cluster")
        made = RayExecutor(
            lambda client, holder: SERVICES, lambda: QuotaCoordinator({}), workers=2, in_flight=lambda n_workers: 1
        )
    yield made
    made.close()
    assert request.param == "inline" or ray.is_initialized(), "it was not the executor's"


def make_tasks(store: Store, n: int, *schedule: tuple[int, HiragError]) -> list[Task]:
    store.write_table("numbers.parquet", pa.table({"n": list(range(n))}, schema=NUMBERS))
    stage = Double(schedule)
    return [Task(stage, at, {"numbers": (Slice("numbers.parquet", at, at + 1),)}, "work", store) for at in range(n)]


def test_every_task_runs_once_and_leaves_its_output_and_marker(executor: Executor, store: Store) -> None:
    tasks = make_tasks(store, 9)
    results = list(executor.map(tasks))
    assert sorted(result.number for result in results) == list(range(9))
    for result in results:
        assert store.read_table(f"work/doubled/part-{result.number:06d}.parquet")["n"].to_pylist() == [
            2 * result.number
        ]
        assert result_of(store.read_json(tasks[result.number].marker)) == result
        assert result.outputs["doubled"][0] == 1


def test_tasks_are_taken_as_there_is_room(executor: Executor, store: Store) -> None:
    taken: list[int] = []

    def source() -> Iterator[Task]:
        for task in make_tasks(store, 15):
            taken.append(task.number)
            yield task

    results = executor.map(source())
    next(results)
    assert len(taken) < 10
    assert len(list(results)) == 14


@pytest.mark.parametrize(
    "error",
    [RateLimited("slowly", retry_after_s=1.5), RequestRejected("wrong key", fatal=True)],
    ids=lambda error: type(error).__name__,
)
def test_a_failure_rises_as_it_is_after_the_others_in_flight(
    executor: Executor, store: Store, error: HiragError
) -> None:
    tasks = make_tasks(store, 200, (4, error))
    kept: list[int] = []
    with pytest.raises(type(error), match=str(error)) as caught:
        kept.extend(result.number for result in executor.map(tasks))
    assert vars(caught.value) == vars(error)
    done = {int(name.removesuffix(".json")) for name in store.names("work/tasks")}
    assert 4 not in done
    assert set(kept) <= done  # reported results are stored
    assert {0, 1, 2, 3} <= done
    assert len(done) < 199  # and it was the end: a busy machine may hear late of the failure, but not last
    assert len(list(executor.map(make_tasks(store, 3)))) == 3  # it goes on


def load_numbers(services: Services, shard: tuple[str, int]) -> list[float]:
    """Ten numbers of a shard; leaves a file for each time."""
    assert services == SERVICES
    folder, number = shard
    Path(folder, f"load-{number}-{uuid.uuid4().hex}").touch()
    return [1.0 / (10 * number + place + 1) for place in range(10)]


def scaled_sum(services: Services, numbers: list[float], argument: tuple[str, float]) -> float:
    """The sum, scaled; leaves a file for each time."""
    assert services == SERVICES
    folder, factor = argument
    Path(folder, f"step-{uuid.uuid4().hex}").touch()
    return factor * sum(numbers)


def refuse(services: Services, numbers: list[float], argument: HiragError) -> None:
    """Fails on the shard that begins with a third."""
    if numbers[0] == 1.0 / 31:
        raise argument


def traces(folder: Path, kind: str) -> int:
    return len(list(folder.glob(f"{kind}-*")))


@pytest.mark.parametrize("keep", [True, False])
def test_shards_are_loaded_once_or_for_each_step_and_results_come_in_their_order(
    executor: Executor, tmp_path: Path, keep: bool
) -> None:
    shards = [(str(tmp_path), number) for number in range(23)]
    with executor.hold(load_numbers, shards, keep=keep) as held:
        for factor in (1.0, 3.0):
            found = list(held.each(scaled_sum, (str(tmp_path), factor)))
            assert found == [factor * sum(1.0 / (10 * n + place + 1) for place in range(10)) for n in range(23)]
    assert traces(tmp_path, "step") == 2 * 23
    moved = 23 if executor.name == "ray" else 0  # to a worker that came after the first round had begun
    assert (23 if keep else 46) <= traces(tmp_path, "load") <= (23 + moved if keep else 46)


def test_steps_are_not_done_far_ahead_of_who_takes_the_results(executor: Executor, tmp_path: Path) -> None:
    with executor.hold(load_numbers, [(str(tmp_path), number) for number in range(40)]) as held:
        results = held.each(scaled_sum, (str(tmp_path), 1.0))
        next(results)
        results.close()  # type: ignore[attr-defined]  # a generator in both
        assert 1 <= traces(tmp_path, "step") <= 9
        assert len(list(held.each(scaled_sum, (str(tmp_path), 1.0)))) == 40


def test_a_failed_step_rises_as_it_is_and_the_shards_are_still_held(executor: Executor, tmp_path: Path) -> None:
    with executor.hold(load_numbers, [(str(tmp_path), number) for number in range(8)]) as held:
        with pytest.raises(RateLimited, match="slowly") as caught:
            list(held.each(refuse, RateLimited("slowly", retry_after_s=1.5)))
        assert caught.value.retry_after_s == 1.5
        assert len(list(held.each(scaled_sum, (str(tmp_path), 1.0)))) == 8
