"""One task: read its rows from the store, run the stage on them, write the outputs and then the marker."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise
from typing import Any, Final, NamedTuple, TypeVar, cast

import pyarrow as pa
from threadpoolctl import threadpool_limits

from hirag_dist.core.groupby import by_partition
from hirag_dist.core.prompts.reply_validation import KEPT
from hirag_dist.errors import SchemaMismatch, StoreError
from hirag_dist.execution.dataset import read_part_rows
from hirag_dist.execution.stage import AnyStage, Combines, Services, Tables, TaskStage, input_schemas, output_schemas
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import PackingPool
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.storage.checked_json import write_checked
from hirag_dist.storage.digest import table_digest
from hirag_dist.storage.spill import read_piece, write_pieces
from hirag_dist.storage.store import Store
from hirag_dist.types import ChatReply, ChatRequest, Rejected

T = TypeVar("T")
TASKS: Final = "tasks"  # folder of markers
SHUFFLE: Final = "shuffle"  # folder of a first pass
_PIECES = 64


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows [start, stop) of a Parquet file in the store."""

    path: str
    start: int
    stop: int
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class Shuffled:
    """One partition of a table that tasks have scattered: a piece of each of their files.

    Attributes:
        name: the input that was scattered.
        tasks: numbers of the tasks that did, [first, last).
        number: of the partition.
    """

    folder: str
    name: str
    tasks: tuple[int, int]
    number: int


@dataclass(frozen=True, slots=True)
class Scatter:
    """Parameters of a task of the first pass: its rows go to one file in `count` pieces, by the hash of a column."""

    column: str
    count: int


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of a stage: what to read, and where to write.

    Attributes:
        attempt: 0 for the first run, 1, 2, … for retries of its dead letters, in which refused units get new attempts
            in addition to those in the ledger. Each attempt writes files of its own, since a marker may name those of
            the one before.
        dropped: dead letters, of the attempt before or of before `fresh`, that stay dead: their loss was accepted.
        scatter: where it is set, the stage does not run: the task hands its one input on to those that will run it.
    """

    stage: AnyStage
    number: int
    inputs: Mapping[str, tuple[Slice, ...] | Shuffled]
    folder: str
    store: Store
    attempt: int = 0
    dropped: tuple[Rejected, ...] = ()
    scatter: Scatter | None = None

    @property
    def marker(self) -> str:
        """The file that says the task is done."""
        return f"{self.folder}/{TASKS}/{self.number:06d}.json"


class OutputFile(NamedTuple):
    """An output of a task, as its marker records it.

    Attributes:
        sha256: of the file's bytes; "" in markers of earlier versions.
        size: bytes; -1 in markers of earlier versions.
    """

    rows: int
    digest: str
    sha256: str = ""
    size: int = -1


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Content of a marker: outputs by name, usage, and duration."""

    number: int
    outputs: dict[str, OutputFile]
    usage: list[dict[str, Any]]
    seconds: float
    attempt: int = 0


async def run_task(task: Task, services: Services) -> TaskResult:
    """Run a task and make its output durable; doing it again changes nothing.

    The usage of a failed task is written next to the markers, for the bill.
    """
    one_thread()
    started = time.perf_counter()
    if task.scatter is not None:
        return await asyncio.to_thread(_scatter, task, task.scatter, started)
    meter = UsageMeter()
    context = CallContext(meter, is_retry=task.attempt > 0, stage=task.folder)
    services = services.for_task(context)
    writing = False
    if task.dropped:
        services = replace(services, chat=_AcceptedLosses(services.chat, task.dropped))
    try:
        await services.catch_up()
        # in a thread: others wait for replies on this loop
        tables = await asyncio.to_thread(lambda: {name: _read(task, name) for name in task.inputs})
        outputs = await _run_stage(task, tables, services, context)
        writing = True
        return await asyncio.to_thread(write_outputs, task, outputs, meter, started)
    except BaseException as error:
        # A cancelled wait does not end the writing: the marker will be there, and says what was spent.
        if meter.uses and not (writing and isinstance(error, asyncio.CancelledError)):
            left = f"{failed_path(task.folder)}/{task.number:06d}-{uuid.uuid4().hex[:8]}.json"
            with suppress(StoreError):  # a full disk is what the failure itself tells
                task.store.write_json(left, meter.rows(), durable=False)
        raise


async def _run_stage(task: Task, tables: Tables, services: Services, context: CallContext) -> Tables:
    """Return the outputs of a stage, from replies that the ledger gives to every reader.

    A build that was taken over and still has requests in flight may have stored an equal request's reply first. The
    stage is then run again with that one, and its usage counts what was paid twice.
    """
    stage = cast(TaskStage[..., Any], task.stage)
    outputs = await stage.run(tables, services)
    while await services.is_superseded(context):
        context.stored.clear()
        outputs = await stage.run(tables, services)
    return outputs


def write_outputs(task: Task, outputs: Tables, meter: UsageMeter, started: float) -> TaskResult:
    """Write the outputs of a task, then its marker."""
    written = {}
    for name, schema in output_schemas(task.stage).items():
        table = outputs[name]
        if not table.schema.equals(schema):
            raise SchemaMismatch(f"stage {task.stage.name} gave {name} with columns {table.schema.names}")
        file = task.store.write_table(output_path(task.folder, name, task), table)
        written[name] = OutputFile(table.num_rows, table_digest(table), file.sha256, file.size)
    result = TaskResult(task.number, written, meter.rows(), time.perf_counter() - started, task.attempt)
    write_checked(task.store, task.marker, marker_of(result))
    return result


def _scatter(task: Task, scatter: Scatter, started: float) -> TaskResult:
    """Write the rows in a piece for each partition, then the marker. No digest: the rows are only on their way."""
    written = {}
    for name in task.inputs:
        rows = _read(task, name)
        if isinstance(task.stage, Combines):
            rows = task.stage.combine(name, rows)
            if not rows.schema.equals(input_schemas(task.stage)[name]):
                raise SchemaMismatch(f"stage {task.stage.name} combined {name} to columns {rows.schema.names}")
        ordered, bounds = by_partition(rows, scatter.column, scatter.count)
        del rows
        pieces = (ordered.slice(start, stop - start) for start, stop in pairwise(bounds.tolist()))
        write_pieces(task.store, _pieces_file(task.folder, name, task.number), pieces)
        written[name] = OutputFile(ordered.num_rows, "")
    result = TaskResult(task.number, written, [], time.perf_counter() - started)
    write_checked(task.store, task.marker, marker_of(result))
    return result


class _AcceptedLosses:
    """A chat pool that returns the dead letters of units whose loss was accepted, without a call."""

    def __init__(self, inner: PackingPool, dropped: tuple[Rejected, ...]) -> None:
        self._inner = inner
        self.unit_replies = inner.unit_replies
        # A unit of which a part was kept is asked about again: its replies are stored, and the part stays.
        self._dropped = {letter.request: letter for letter in dropped if not letter.reason.startswith(KEPT)}

    async def ask(self, request: ChatRequest, accept: Callable[[ChatReply], T]) -> T | Rejected:
        letter = self._dropped.get(request.text)
        return letter if letter is not None else await self._inner.ask(request, accept)


@cache
def one_thread() -> None:
    """Keep numerical libraries of this process to one thread: a sum split over threads depends on their number."""
    threadpool_limits(1)


def output_path(folder: str, name: str, task: Task | TaskResult) -> str:
    """Return where a task's output lies."""
    suffix = f".r{task.attempt}" if task.attempt else ""
    return f"{folder}/{name}/part-{task.number:06d}{suffix}.parquet"


def failed_path(folder: str) -> str:
    """Return where a stage's failed tasks leave what they spent, a JSON file of meter rows each."""
    return f"{folder}/failed"


def marker_of(result: TaskResult) -> dict[str, Any]:
    """Return the JSON of a marker; it shares the values of the result."""
    return {
        "number": result.number,
        "outputs": result.outputs,
        "usage": result.usage,
        "seconds": result.seconds,
        "round": result.attempt,
    }


def result_of(marker: dict[str, Any]) -> TaskResult:
    """Return the result that a marker holds."""
    outputs = {
        name: OutputFile(int(rows), str(digest), *recorded)
        for name, (rows, digest, *recorded) in marker["outputs"].items()
    }
    return TaskResult(
        int(marker["number"]), outputs, list(marker["usage"]), float(marker["seconds"]), int(marker.get("round", 0))
    )


def scattered(store: Store, folder: str) -> set[int]:
    """Return the tasks of a first pass that are done: their markers are there, and the files that these vouch for."""
    done = {int(name.partition(".")[0]) for name in store.names(f"{folder}/{TASKS}")}
    if not done:
        return done
    written = {name for part in store.names(folder) if part != TASKS for name in store.names(f"{folder}/{part}")}
    return {number for number in done if _pieces_name(number) in written}


def _pieces_name(number: int) -> str:
    return f"part-{number:06d}.pieces"


def _pieces_file(folder: str, name: str, number: int) -> str:
    return f"{folder}/{name}/{_pieces_name(number)}"


def _read(task: Task, name: str) -> pa.Table:
    schema = input_schemas(task.stage)[name]
    tables = _parts(task, name, schema)
    batches = []
    while some := list(islice(tables, _PIECES)):  # a few rows in a table of their own take many times their size
        batches.append(_joined(some))
    if not batches:
        return schema.empty_table()
    return (batches[0] if len(batches) == 1 else _joined(batches)).cast(schema)


def _joined(tables: list[pa.Table]) -> pa.Table:
    """Return tables as one; the list is emptied. Never are there two copies of more than a column.

    A column is one chunk, or as few as hold it: an array's text or bytes end at 2 GiB.
    """
    whole = pa.concat_tables(tables)
    tables.clear()
    columns = {}
    for name in whole.column_names:
        columns[name] = whole.select([name]).combine_chunks()[name]
        whole = whole.drop_columns(name)
    return pa.table(columns)


def _parts(task: Task, name: str, schema: pa.Schema) -> Iterator[pa.Table]:
    source = task.inputs[name]
    if isinstance(source, Shuffled):
        for number in range(*source.tasks):
            yield read_piece(task.store, _pieces_file(source.folder, source.name, number), source.number, schema)
    else:
        for piece in source:
            yield read_part_rows(task.store, piece.path, piece.sha256, piece.start, piece.stop, schema.names)
