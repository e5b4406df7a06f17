"""Decisions to run a stage, and over which rows: on toy stages, in this process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hirag_dist.errors import IndexBusy, SchemaMismatch, StageFailed, StoreError, WorkFileDamaged
from hirag_dist.execution.dataset import Dataset, TableSet
from hirag_dist.execution.events import StageFailedEvent, StageFinished, StageStarted
from hirag_dist.execution.executors import InlineExecutor
from hirag_dist.execution.runner import StageRunner
from hirag_dist.execution.stage import ByRows, Services, Split, Tables, Whole
from hirag_dist.execution.stage_results import stage_key
from hirag_dist.execution.task import Slice, Task, run_task
from hirag_dist.llm.call import CallContext
from hirag_dist.schemas import REJECTS
from hirag_dist.storage.digest import WrittenFile
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply
from tests.bare_services import SERVICES
from tests.table_rows import filled_table

WORDS = pa.schema([pa.field("word", pa.string(), nullable=False)])
GROUPS = pa.schema([pa.field("words", pa.list_(pa.field("item", pa.string(), nullable=False)), nullable=False)])
ran: list[list[str]] = []  # the rows that each task of a toy stage was given
breaks_at: set[str] = set()  # rows that a task of a toy stage cannot take


@dataclass(frozen=True)
class Group:
    """A row with all words that the task saw."""

    name: ClassVar[str] = "group"
    version: ClassVar[int] = 1
    split: ClassVar[Split] = ByRows(3)

    class Inputs(TableSet):
        words: Annotated[Dataset, WORDS]
        others: Annotated[Dataset | None, WORDS] = None

    class Outputs(TableSet):
        groups: Annotated[Dataset, GROUPS]
        rejects: Annotated[Dataset, REJECTS]

    prefix: str = ""
    refuses: tuple[str, ...] = ()

    async def run(self, tables: Tables, services: Services) -> Tables:
        words = [self.prefix + word for word in tables["words"]["word"].to_pylist()]
        ran.append(words)
        if broken := breaks_at.intersection(words):
            raise StageFailed(f"cannot take {', '.join(broken)}")
        dead = ({"unit_id": word, "reason": f"{word} is refused"} for word in words if word in self.refuses)
        return {"groups": pa.table({"words": [words]}, schema=GROUPS), "rejects": filled_table(REJECTS, dead)}


@dataclass(frozen=True)
class GroupAll(Group):
    split: ClassVar[Split] = Whole("toys")


@dataclass(frozen=True)
class Later(Group):
    version: ClassVar[int] = 2


@dataclass(frozen=True)
class Improving(Group):
    """Refuses its words until a retry. Each row costs a call."""

    async def run(self, tables: Tables, services: Services) -> Tables:
        words = tables["words"]["word"].to_pylist()
        context: CallContext = services.context  # type: ignore[attr-defined]
        meter = context.meter
        for _ in words:
            meter.count("extract", "m", "llm", ChatReply("", input_tokens=10, output_tokens=1), 0.5, from_ledger=False)
        return await Group(self.prefix, () if context.is_retry else self.refuses).run(tables, services)


@dataclass(frozen=True)
class Careless(Improving):
    async def run(self, tables: Tables, services: Services) -> Tables:
        await super().run(tables, services)
        return {"groups": tables["words"], "rejects": REJECTS.empty_table()}


@pytest.fixture
def executor() -> Iterator[InlineExecutor]:
    ran.clear()
    breaks_at.clear()
    made = InlineExecutor(lambda: SERVICES, in_flight=1)
    yield made
    made.close()


class Bench:
    def __init__(self, store: Store, executor: InlineExecutor) -> None:
        self.store = store
        self.executor = executor
        self.events: list[Any] = []

    def run(self, fresh: bool = False, ratio: float = 0.2, retry: bool = False) -> StageRunner:
        return StageRunner(self.store, self.executor, (self.events.append,), ratio, fresh, retry)

    def words(self, *parts: str) -> Dataset:
        """A dataset of one file for each argument."""
        whole = Dataset(WORDS, ())
        for part in parts:
            whole += self.run().datasets.put("words", pa.table({"word": part.split()}, schema=WORDS))
        return whole


@pytest.fixture
def bench(tmp_path: Path, executor: InlineExecutor) -> Bench:
    return Bench(Store(str(tmp_path)), executor)


def test_rows_are_cut_across_files(bench: Bench) -> None:
    words = bench.words("a b c d", "e", "f g h")
    found = bench.run().run(Group(), "group", words=words).groups
    assert ran == [["a", "b", "c"], ["d", "e", "f"], ["g", "h"]]
    assert bench.run().datasets.read(found)["words"].to_pylist() == ran


def test_a_finished_stage_is_not_run_again(bench: Bench) -> None:
    words = bench.words("a b c d")
    first = bench.run()
    found = first.run(Group(), "group", words=words)
    again = bench.run()
    assert again.run(Group(), "again", words=words) == found
    assert (len(ran), first.stages_run, again.stages_run) == (2, 1, 0)
    finished = [event for event in bench.events if isinstance(event, StageFinished)]
    assert [(event.label, event.reused, event.n_rows) for event in finished] == [
        ("group", False, 4),
        ("again", True, 4),
    ]
    fresh = bench.run(fresh=True)
    assert fresh.run(Group(), "group", words=words) == found
    assert (len(ran), fresh.stages_run) == (4, 1)
    bench.store.write_bytes(found.groups.parts[0].path, b"")  # as a power cut may leave it
    assert bench.run().run(Group(), "group", words=words) == found
    assert ran[4:] == [["a", "b", "c"]]


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
    first, second = (bench.run().run(stage, "group", words=words).groups for stage in (Group(), Later()))
    assert first.parts[0].path != second.parts[0].path
    assert stage_key(GroupAll(), {"words": first}) == stage_key(GroupAll(), {"words": second}), "of equal bytes"


def test_only_the_missing_tasks_of_a_half_finished_stage_run(bench: Bench) -> None:
    words = bench.words("a b c d e f g h i")
    breaks_at.add("g")
    with pytest.raises(StageFailed, match="cannot take g"):
        bench.run().run(Group(), "group", words=words)
    folder = next(iter(bench.store.names("work/group")))
    assert bench.store.names(f"work/group/{folder}/tasks") == ["000000.json", "000001.json"]
    ran.clear()
    bench.events.clear()
    with pytest.raises(StageFailed):
        bench.run().run(Group(), "group", words=words)
    assert ran == [["g", "h", "i"]]
    (started,) = [event for event in bench.events if isinstance(event, StageStarted)]
    assert (started.n_tasks, started.n_done, started.n_rows) == (3, 2, 9)


def test_damaged_outputs_of_a_stage_are_found_together_and_made_again(bench: Bench) -> None:
    words = bench.words("a b c d e f g h i j k l")
    found = bench.run().run(Group(), "group", words=words).groups
    for part in found.parts[::2]:
        bench.store.write_bytes(part.path, bench.store.read_bytes(part.path)[::-1])
    ran.clear()
    again = bench.run()
    with pytest.raises(WorkFileDamaged) as raised:
        again.datasets.read(again.run(Group(), "group", words=words).groups)
    again.repair(raised.value)
    assert [bench.store.exists(part.path) for part in found.parts[:2]] == [False, True]
    assert again.run(Group(), "group", words=words).groups == found
    assert ran == [["a", "b", "c"], ["g", "h", "i"]]
    assert again.datasets.read(found).num_rows == 4


def test_too_many_dead_letters_fail_the_stage_with_the_first_reason(bench: Bench) -> None:
    words = bench.words("a b c d e f g h i j")
    stage = Group(refuses=("e", "i", "j"))
    with pytest.raises(StageFailed, match=r"group: refused 3 of 10 units.*ratio 0\.2 allows.*: e is refused"):
        bench.run(ratio=0.2).run(stage, "group", words=words)
    assert len(ran) == 4  # the letters are counted when all is done: nothing was lost
    found = bench.run(ratio=0.3).run(stage, "group", words=words)
    assert len(ran) == 4
    assert found.rejects.rows == 3
    assert bench.run(ratio=0.0).run(Group(), "group", words=words).rejects.rows == 0
    tolerant = bench.run(ratio=0.0).run_tolerant(Group(refuses=("a",)), "group", words=words)
    assert tolerant.rejects.rows == 1


def test_ctrl_c_starts_nothing_more(bench: Bench) -> None:
    @dataclass(frozen=True)
    class Interrupted(Group):
        split: ClassVar[Split] = ByRows(1)

        async def run(self, tables: Tables, services: Services) -> Tables:
            if tables["words"]["word"][0].as_py() == "a":
                signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(0)
            return await super().run(tables, services)

    executor = InlineExecutor(lambda: SERVICES, in_flight=3)
    with pytest.raises(KeyboardInterrupt):
        StageRunner(bench.store, executor, (), 0.2).run(Interrupted(), "group", words=bench.words("a b c d e"))
    executor.close()
    assert not {"d", "e"} & {word for seen in ran for word in seen}


class TestRetry:
    """Tasks with dead letters in rounds of their own. Of nine words b and h are refused: tasks 0 and 2."""

    STAGE = Improving(refuses=("b", "h"))
    WORDS = "a b c d e f g h i"

    def first(self, bench: Bench) -> tuple[Dataset, dict[str, Dataset]]:
        """Return the words, and the outputs with two letters."""
        words = bench.words(self.WORDS)
        found = bench.run(ratio=1).run(self.STAGE, "group", words=words)
        assert found.rejects.rows == 2
        return words, found

    def test_only_their_tasks_run_and_write_files_of_their_own(self, bench: Bench) -> None:
        words, before = self.first(bench)
        old = {part.path: bench.store.read_bytes(part.path) for part in before.groups.parts}
        ran.clear()
        after = bench.run(ratio=0, retry=True).run(self.STAGE, "group", words=words)
        assert ran == [["a", "b", "c"], ["g", "h", "i"]]
        assert after.rejects.rows == 0
        names = [part.path.rpartition("/")[2] for part in after.groups.parts]
        assert names == ["part-000000.r1.parquet", "part-000001.parquet", "part-000002.r1.parquet"]
        assert {path: bench.store.read_bytes(path) for path in old} == old  # a reader with the old names can read on
        ran.clear()
        assert bench.run().run(self.STAGE, "group", words=words) == after
        assert ran == []

    def test_stopped_in_between_either_command_goes_on(self, bench: Bench) -> None:
        words, _ = self.first(bench)
        breaks_at.add("g")
        with pytest.raises(StageFailed, match="cannot take g"):
            bench.run(ratio=1, retry=True).run(self.STAGE, "group", words=words)
        assert not bench.store.exists(f"work/group/{stage_key(self.STAGE, {'words': words})}/done.json")
        breaks_at.clear()
        ran.clear()
        found = bench.run(ratio=1).run(self.STAGE, "group", words=words)  # a plain run takes what is there
        assert ran == []
        assert [row["unit_id"] for row in bench.run().datasets.read(found.rejects).to_pylist()] == ["h"]
        healed = bench.run(retry=True).run(self.STAGE, "group", words=words)
        assert ran == [["g", "h", "i"]]
        assert healed.rejects.rows == 0
        assert [part.digest for part in healed.groups.parts] == [
            part.digest for part in bench.run().run(Group(), "whole", words=words).groups.parts
        ]


@pytest.mark.parametrize(("stage", "error"), [(Careless(), SchemaMismatch), (Improving(), StoreError)])
def test_what_was_spent_on_an_output_that_cannot_be_written_is_told(
    tmp_path: Path, executor: InlineExecutor, stage: Improving, error: type[Exception]
) -> None:
    class Full(Store):
        def write_table(self, path: str, table: pa.Table) -> WrittenFile:
            if path.startswith("work/group"):
                raise StoreError("the disk is full")
            return super().write_table(path, table)

    bench = Bench(Full(str(tmp_path)), executor)
    runner = bench.run()
    with pytest.raises(error):
        runner.run(stage, "group", words=bench.words("a b c"))
    (stopped,) = (event for event in bench.events if isinstance(event, StageFailedEvent))
    assert stopped.usage.spent() == runner.bill.sent.spent() == (33, 1.5)


def test_a_run_that_was_taken_over_marks_nothing_as_done(bench: Bench) -> None:
    """Another build takes the index while the tasks run."""
    entered = 0
    taken = True

    @contextmanager
    def fence() -> Iterator[None]:
        nonlocal entered
        entered += 1
        if taken and entered > 1:
            raise IndexBusy("taken over")
        yield

    def run() -> StageRunner:
        return StageRunner(bench.store, bench.executor, (), 0.2, fence=fence)

    words = bench.words("a b c")
    with pytest.raises(IndexBusy):
        run().run(Group(), "group", words=words)
    (key,) = bench.store.names("work/group")
    assert not bench.store.exists(f"work/group/{key}/done.json")
    taken = False
    run().run(Group(), "group", words=words)
    assert bench.store.exists(f"work/group/{key}/done.json")
    assert ran == [["a", "b", "c"]], "the tasks were kept"


async def test_a_task_reads_no_more_of_a_file_than_its_rows_need(bench: Bench, tmp_path: Path) -> None:
    """The end of a large file is damaged: a task over its beginning does not notice, one over its end does."""
    words = pa.table({"word": [f"{n} {'lorem ipsum ' * 1000}{n}" for n in range(1000)]}, WORDS)
    bench.store.write_table("words.parquet", words)
    path = Path(bench.store.root) / "words.parquet"
    file = pq.ParquetFile(path).metadata
    last = file.row_group(file.num_row_groups - 1).column(0)
    data = bytearray(path.read_bytes())
    begins = last.dictionary_page_offset or last.data_page_offset
    data[begins : begins + last.total_compressed_size] = bytes(last.total_compressed_size)
    path.write_bytes(data)

    def task(start: int, stop: int) -> Task:
        return Task(Group(), 0, {"words": (Slice("words.parquet", start, stop),)}, f"work/{start}", bench.store)

    await run_task(task(0, 3), SERVICES)
    assert ran == [words["word"][:3].to_pylist()]
    with pytest.raises(StoreError):
        await run_task(task(997, 1000), SERVICES)
