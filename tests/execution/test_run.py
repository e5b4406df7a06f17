"""Whether a stage runs, and over which rows: on toy stages, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from hirag_dist.errors import IndexBusy, SchemaMismatch, StageFailed
from hirag_dist.execution.events import StageFinished, StageStarted, TaskFinished
from hirag_dist.execution.inline import InlineExecutor
from hirag_dist.execution.run import Dataset, Run, stage_key
from hirag_dist.index.digest import table_digest
from hirag_dist.index.store import Store
from hirag_dist.schemas import REJECTS
from hirag_dist.stages.base import ByKey, ByRows, Services, Split, Tables, Whole, no_other_workers

WORDS = pa.schema([pa.field("word", pa.string(), nullable=False)])
GROUPS = pa.schema([pa.field("words", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False)])
ran: list[list[str]] = []  # the rows that each task of a toy stage was given


@dataclass(frozen=True)
class Group:
    """A row with all words that the task saw."""

    name: ClassVar[str] = "group"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(3)
    reads: ClassVar = {"words": WORDS, "others": WORDS}
    writes: ClassVar = {"groups": GROUPS, "rejects": REJECTS}

    prefix: str = ""
    refuses: tuple[str, ...] = ()
    breaks_at: str = ""

    async def run(self, tables: Tables, services: Services) -> Tables:
        words = [self.prefix + word for word in tables["words"]["word"].to_pylist()]
        ran.append(words)
        if self.breaks_at in words:
            raise StageFailed(f"cannot take {self.breaks_at}")
        dead = [
            {
                "stage": "group",
                "unit_id": word,
                "reason": f"{word} is refused",
                "attempts": 1,
                "request": "",
                "reply": "",
            }
            for word in words
            if word in self.refuses
        ]
        return {
            "groups": pa.table({"words": [words]}, schema=GROUPS),
            "rejects": pa.Table.from_pylist(dead, REJECTS),
        }


@dataclass(frozen=True)
class GroupByKey(Group):
    split: ClassVar[Split] = ByKey("word", 4)


@dataclass(frozen=True)
class GroupAll(Group):
    split: ClassVar[Split] = Whole("toys")


@dataclass(frozen=True)
class Later(Group):
    version: ClassVar[int] = 2


@dataclass(frozen=True)
class Careless(Group):
    async def run(self, tables: Tables, services: Services) -> Tables:
        return {"groups": tables["words"], "rejects": REJECTS.empty_table()}


async def _close(services: Services) -> None:
    return None


SERVICES: Any = SimpleNamespace(catch_up=no_other_workers)  # these stages need nothing of what a worker lends


@pytest.fixture
def executor() -> Iterator[InlineExecutor]:
    ran.clear()
    made = InlineExecutor(lambda: SERVICES, _close, in_flight=1)
    yield made
    made.close()


class Bench:
    def __init__(self, store: Store, executor: InlineExecutor) -> None:
        self.store = store
        self.executor = executor
        self.events: list[Any] = []

    def run(self, fresh: bool = False, ratio: float = 0.2) -> Run:
        return Run(self.store, self.executor, (self.events.append,), ratio, fresh)

    def words(self, *parts: str) -> Dataset:
        """A dataset of one file for each argument."""
        whole = Dataset(WORDS, ())
        for part in parts:
            table = pa.table({"word": part.split()}, schema=WORDS)
            whole += self.run().put("words", table, table_digest(table))
        return whole


@pytest.fixture
def bench(tmp_path: Path, executor: InlineExecutor) -> Bench:
    return Bench(Store(str(tmp_path)), executor)


def test_rows_are_cut_across_files(bench: Bench) -> None:
    words = bench.words("a b c d", "e", "f g h")
    found = bench.run().stage(Group(), "group", words=words)["groups"]
    assert ran == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]
    assert bench.run().read(found)["words"].to_pylist() == ran


def test_further_inputs_are_seen_whole(bench: Bench) -> None:
    @dataclass(frozen=True)
    class Second(Group):
        async def run(self, tables: Tables, services: Services) -> Tables:
            return await super().run({"words": tables["others"]}, services)

    bench.run().stage(Second(), "group", words=bench.words("a b c d"), others=bench.words("x", "y z"))
    assert ran == [["x", "y", "z"]] * 2


def test_keys_meet_and_each_is_in_one_task(bench: Bench) -> None:
    words = bench.words("a b c a d e", "b a f g h i", "a b")
    bench.run().stage(GroupByKey(), "group", words=words)
    assert len(ran) == 4  # 14 rows, 4 a task
    homes = {word: [at for at, seen in enumerate(ran) if word in seen] for word in "abcdefghi"}
    assert all(len(places) == 1 for places in homes.values())
    assert sorted(word for seen in ran for word in seen) == sorted("abcadebafghiab")


def test_whole_is_one_task(bench: Bench) -> None:
    bench.run().stage(GroupAll(), "group", words=bench.words("a b c d", "e f"))
    assert ran == [list("abcdef")]


@pytest.mark.parametrize(("stage", "tasks"), [(Group(), 0), (GroupByKey(), 1), (GroupAll(), 1)])
def test_nothing_in(bench: Bench, stage: Group, tasks: int) -> None:
    found = bench.run().stage(stage, "group", words=Dataset(WORDS, ()))["groups"]
    assert len(ran) == tasks
    assert bench.run().read(found).schema == GROUPS


def test_a_finished_stage_is_not_run_again(bench: Bench) -> None:
    words = bench.words("a b c d")
    first = bench.run()
    found = first.stage(Group(), "group", words=words)
    again = bench.run()
    assert again.stage(Group(), "again", words=words) == found
    assert (len(ran), first.stages_run, again.stages_run) == (2, 1, 0)
    finished = [event for event in bench.events if isinstance(event, StageFinished)]
    assert [(event.label, event.reused, event.n_rows) for event in finished] == [
        ("group", False, 4),
        ("again", True, 4),
    ]
    fresh = bench.run(fresh=True)
    assert fresh.stage(Group(), "group", words=words) == found
    assert (len(ran), fresh.stages_run) == (4, 1)


def test_the_key_is_what_decides_the_output(bench: Bench, tmp_path: Path) -> None:
    words = bench.words("a b c d")
    key = stage_key(Group(), {"words": words})
    assert key == stage_key(Group(), {"words": bench.words("a b c d")})
    others = [
        stage_key(Group("x"), {"words": words}),
        stage_key(Later(), {"words": words}),
        stage_key(Group(), {"words": bench.words("a b c e")}),
        stage_key(Group(), {"words": bench.words("a b", "c d")}),
        stage_key(Group(), {"others": words}),
    ]
    assert len({key, *others}) == 6
    elsewhere = Bench(Store(str(tmp_path / "elsewhere")), bench.executor)
    assert key == stage_key(Group(), {"words": elsewhere.words("a b c d")})


def test_only_the_missing_tasks_of_a_half_finished_stage_run(bench: Bench) -> None:
    words = bench.words("a b c d e f g h i")
    with pytest.raises(StageFailed, match="cannot take g"):
        bench.run().stage(Group(breaks_at="g"), "group", words=words)
    folder = next(iter(bench.store.names("work/group")))
    assert bench.store.names(f"work/group/{folder}/tasks") == ["000000.json", "000001.json"]
    ran.clear()
    bench.events.clear()
    with pytest.raises(StageFailed):
        bench.run().stage(Group(breaks_at="g"), "group", words=words)
    assert ran == [["g", "h", "i"]]
    (started,) = [event for event in bench.events if isinstance(event, StageStarted)]
    assert (started.n_tasks, started.n_done, started.n_rows) == (3, 2, 9)


def test_a_task_without_its_marker_runs_again(bench: Bench) -> None:
    words = bench.words("a b c d")
    found = bench.run().stage(Group(), "group", words=words)
    folder = f"work/group/{stage_key(Group(), {'words': words})}"
    bench.store.delete(f"{folder}/done.json")
    bench.store.delete(f"{folder}/tasks/000001.json")
    ran.clear()
    assert bench.run().stage(Group(), "group", words=words) == found
    assert ran == [["d"]]


def test_too_many_dead_letters_fail_the_stage_with_the_first_reason(bench: Bench) -> None:
    words = bench.words("a b c d e f g h i j")
    stage = Group(refuses=("e", "i", "j"))
    with pytest.raises(StageFailed, match=r"group: 3 of 10 units were refused.*ratio 0\.2 allows.*: e is refused"):
        bench.run(ratio=0.2).stage(stage, "group", words=words)
    assert len(ran) == 4  # the letters are counted when all is done: nothing was lost
    found = bench.run(ratio=0.3).stage(stage, "group", words=words)
    assert len(ran) == 4
    assert found["rejects"].rows == 3
    assert bench.run(ratio=0.0).stage(Group(), "group", words=words)["rejects"].rows == 0
    tolerant = bench.run(ratio=0.0).stage(Group(refuses=("a",)), "group", any_rejects=True, words=words)
    assert tolerant["rejects"].rows == 1


def test_a_rerun_with_the_same_bytes_leaves_downstream_alone(bench: Bench) -> None:
    first = bench.run().stage(Group(), "group", words=bench.words("a b c d"))["groups"]
    second = bench.run().stage(Later(), "group", words=bench.words("a b c d"))["groups"]
    assert first.parts[0].path != second.parts[0].path
    assert stage_key(GroupAll(), {"words": first}) == stage_key(GroupAll(), {"words": second})


def test_a_stage_that_gives_other_columns_is_told(bench: Bench) -> None:
    with pytest.raises(SchemaMismatch, match="stage group gave groups with columns"):
        bench.run().stage(Careless(), "group", words=bench.words("a"))


def test_every_task_is_told_once(bench: Bench) -> None:
    bench.run().stage(Group(refuses=("a",)), "group", words=bench.words("a b c d e f"))
    told = [event for event in bench.events if isinstance(event, TaskFinished)]
    assert [(event.n_rows, event.rejects) for event in told] == [(3, 1), (3, 0)]


def test_ctrl_c_lets_what_was_begun_end(bench: Bench) -> None:
    """SIGINT in a task: its neighbours in flight end, and KeyboardInterrupt rises."""
    import asyncio
    import signal

    ended: list[str] = []

    @dataclass(frozen=True)
    class Interrupted(Group):
        split: ClassVar[Split] = ByRows(1)

        async def run(self, tables: Tables, services: Services) -> Tables:
            word = tables["words"]["word"][0].as_py()
            if word == "a":
                signal.raise_signal(signal.SIGINT)
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                ended.append(word)
                raise
            return await super().run(tables, services)

    executor = InlineExecutor(lambda: SERVICES, _close, in_flight=3)
    with pytest.raises(KeyboardInterrupt):
        Run(bench.store, executor, (), 0.2).stage(Interrupted(), "group", words=bench.words("a b c d e"))
    executor.close()
    assert not {"d", "e"} & {word for seen in ran for word in seen}


def test_a_run_that_was_taken_over_marks_nothing_as_done(bench: Bench) -> None:
    taken = False

    @contextmanager
    def fence() -> Iterator[None]:
        if taken:
            raise IndexBusy("taken over")
        yield

    def run() -> Run:
        return Run(bench.store, bench.executor, (), 0.2, fence=fence)

    words = bench.words("a b c")
    taken = True
    with pytest.raises(IndexBusy):
        run().stage(Group(), "group", words=words)
    (key,) = bench.store.names("work/group")
    assert not bench.store.exists(f"work/group/{key}/done.json")
    taken = False
    run().stage(Group(), "group", words=words)
    assert bench.store.exists(f"work/group/{key}/done.json")
    assert ran == [["a", "b", "c"]], "the tasks were kept"
