"""Stages split by key: the first pass over their rows, and what is left of it when it is stopped. Toy stages."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from hirag_dist.core.groupby import partitions_of
from hirag_dist.errors import StageFailed
from hirag_dist.execution import partitioning
from hirag_dist.execution.dataset import Dataset, DatasetStore, TableSet
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByKey, Services, Split, Tables
from hirag_dist.execution.stage_results import stage_key
from hirag_dist.execution.task import Task, TaskResult
from hirag_dist.schemas import REJECTS
from hirag_dist.storage.store import Store
from tests.bare_services import SERVICES
from tests.mortal_store import Killed, MortalStore
from tests.table_rows import filled_table

VISITS = pa.schema([pa.field("cell", pa.int64(), nullable=False), pa.field("at", pa.int32(), nullable=False)])
CELLS = pa.schema([pa.field("cell", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])
RULES = pa.schema([pa.field("rule", pa.string(), nullable=False)])


N = 10


@dataclass(frozen=True)
class Count:
    """A row for each visit, with the cell's name and how many rules there are."""

    name: ClassVar[str] = "count"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByKey("cell", N)

    class Inputs(TableSet):
        visits: Annotated[Dataset, VISITS]
        cells: Annotated[Dataset, CELLS]
        rules: Annotated[Dataset, RULES]

    class Outputs(TableSet):
        seen: Annotated[Dataset, VISITS]
        rejects: Annotated[Dataset, REJECTS]

    refuses: tuple[int, ...] = ()

    async def run(self, tables: Tables, services: Services) -> Tables:
        ran.append(tables)
        visited = set(tables["visits"]["cell"].to_pylist())
        dead = [] if services.context.is_retry else [cell for cell in self.refuses if cell in visited]
        return {"seen": tables["visits"], "rejects": filled_table(REJECTS, ({"unit_id": str(cell)} for cell in dead))}


@dataclass(frozen=True)
class CountCombined(Count):
    """Drops odd visits on the way."""

    def combine(self, name: str, rows: pa.Table) -> pa.Table:
        return rows.filter(pc.equal(pc.bit_wise_and(rows["at"], 1), 0)) if name == "visits" else rows


ran: list[Tables] = []


class Breaking(InlineExecutor):
    """Runs so many tasks and then dies; notes what it was given."""

    def __init__(self, lives: int = 1000) -> None:
        super().__init__(lambda: SERVICES)
        self.lives = lives
        self.given: list[Task] = []

    def map(self, tasks: Iterable[Task]) -> Iterator[TaskResult]:
        for task in tasks:
            if self.lives == 0:
                raise StageFailed("died")
            self.lives -= 1
            self.given.append(task)
            yield from super().map([task])


@dataclass
class Bench:
    store: Store

    def inputs(self) -> dict[str, Dataset]:
        """Forty-five visits to nine cells in files of six, cells in two files, one rule."""
        visits = pa.table({"cell": [at * 7 % 9 for at in range(45)], "at": list(range(45))}, schema=VISITS)
        cells = pa.table({"cell": list(range(12)), "name": [f"cell {n}" for n in range(12)]}, schema=CELLS)
        rules = pa.table({"rule": ["all", "see", "these"]}, schema=RULES)
        return {
            name: self.put(name, table, n_rows)
            for name, table, n_rows in (("visits", visits, 6), ("cells", cells, 6), ("rules", rules, 3))
        }

    def put(self, name: str, table: pa.Table, n_rows: int) -> Dataset:
        """Store a table in files of so many rows."""
        whole = Dataset(table.schema, ())
        for first in range(0, table.num_rows, n_rows):
            whole += DatasetStore(self.store).put(name, table.slice(first, n_rows).combine_chunks())
        return whole

    def count(
        self, stage: Count | None = None, lives: int = 1000, retry: bool = False, **given: Dataset
    ) -> tuple[dict[str, Dataset], list[Task]]:
        """Run the stage; return its outputs and the tasks that were done."""
        ran.clear()
        executor = Breaking(lives)
        runner = StageRunner(self.store, executor, (), 1, retry=retry)
        try:
            return runner.run(stage or Count(), "count", **(given or self.inputs())), executor.given
        finally:
            executor.close()

    def folder(self, stage: Count | None = None) -> str:
        return f"work/count/{stage_key(stage or Count(), self.inputs())}"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(Store(str(tmp_path)))


def digests(found: Any) -> list[str]:
    return [part.digest for part in found.seen.parts]


def scattering(tasks: list[Task]) -> list[int]:
    return [task.number for task in tasks if task.scatter is not None]


def test_every_input_that_has_the_column_is_split_and_the_others_are_seen_whole(bench: Bench) -> None:
    _, given = bench.count()
    assert scattering(given) == [0, 1, 2, 3, 4, 5, 6]  # five runs of visits, two of cells
    assert len(ran) == 5  # by the visits alone, whatever the cells
    for number, tables in enumerate(ran):
        visited, cells = tables["visits"]["cell"].to_pylist(), tables["cells"]["cell"].to_pylist()
        assert set(partitions_of(tables["visits"]["cell"], 5)) <= {number}
        assert set(visited) <= set(cells)
        assert tables["visits"]["at"].to_pylist() == [at for at in range(45) if at * 7 % 9 in visited]  # in their order
        assert tables["rules"]["rule"].to_pylist() == ["all", "see", "these"]
        assert all(tables[name].schema.equals(Count.Inputs.schemas[name]) for name in tables)
    assert sorted(cell for tables in ran for cell in tables["cells"]["cell"].to_pylist()) == list(range(12))
    assert sorted(at for tables in ran for at in tables["visits"]["at"].to_pylist()) == list(range(45))


def test_rows_are_combined_before_they_are_sent(bench: Bench) -> None:
    bench.count(CountCombined())
    assert sorted(at for tables in ran for at in tables["visits"]["at"].to_pylist()) == list(range(0, 45, 2))
    assert sum(tables["cells"].num_rows for tables in ran) == 12


def test_killed_after_every_fifth_change_of_a_file(bench: Bench) -> None:
    """Which is now that of a table, now that of a marker."""
    whole, _ = Bench(Store(f"{bench.store.root}/whole")).count()
    for at in itertools.count(1, 5):
        root = f"{bench.store.root}/{at}"
        inputs = Bench(Store(root)).inputs()
        try:
            Bench(MortalStore(root, at)).count(**inputs)
        except Killed:
            found, _ = Bench(Store(root)).count(**inputs)
            assert digests(found) == digests(whole), at
            assert not Store(root).exists(f"work/count/{stage_key(Count(), inputs)}/shuffle")
        else:
            break
    assert at > 7 * 2 + 5 * 3  # a file and a marker of each task that scatters, two and a marker of the others


@pytest.mark.parametrize("gone", ["a file", "a folder"])
def test_files_of_the_first_pass_that_are_gone_are_made_again(bench: Bench, gone: str) -> None:
    """As their message says to do with one that is damaged."""
    with pytest.raises(StageFailed):
        bench.count(lives=8)
    visits = f"{bench.folder()}/shuffle/visits"
    names = sorted(bench.store.names(visits))
    bench.store.delete(f"{visits}/{names[1]}" if gone == "a file" else visits)
    found, given = bench.count()
    assert len(scattering(given)) == (1 if gone == "a file" else len(names))
    whole, _ = Bench(Store(f"{bench.store.root}/elsewhere")).count()
    assert digests(found) == digests(whole)


def test_a_retry_shuffles_for_the_tasks_that_it_does_again(bench: Bench) -> None:
    stage = Count(refuses=(3,))
    before, _ = bench.count(stage)
    assert before.rejects.rows == 1
    after, given = bench.count(stage, retry=True)
    assert len(scattering(given)) == 7
    (tables,) = ran
    assert 3 in tables["visits"]["cell"].to_pylist()
    assert after.rejects.rows == 0
    assert digests(after) == digests(before)
    assert not bench.store.exists(f"{bench.folder(stage)}/shuffle")
    assert bench.count(stage)[1] == []


@pytest.mark.parametrize("kind", [Count, CountCombined])
def test_files_of_the_first_pass_grow_with_the_rows_and_the_result_is_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, kind: type[Count]
) -> None:
    """Forty-five visits of ten to a task are five partitions: with two files at most, three tasks' rows make one."""
    inputs = bench.inputs()
    key = stage_key(kind(), inputs)
    before, short = bench.count(kind(), **inputs)
    monkeypatch.setattr(partitioning, "_FILES", 2)
    other = Bench(Store(bench.store.uri + "-other"))
    after, long = other.count(kind(), **other.inputs())
    assert [len(scattering(tasks)) for tasks in (short, long)] == [5 + 2, 2 + 1]
    assert digests(after) == digests(before)
    assert stage_key(kind(), inputs) != key  # what files cut otherwise have begun is not gone on with
