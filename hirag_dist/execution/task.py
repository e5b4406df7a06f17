"""One task: read its rows from the store, run the stage on them, write the outputs and then the marker."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
from threadpoolctl import threadpool_limits

from hirag_dist.errors import SchemaMismatch
from hirag_dist.index.digest import table_digest
from hirag_dist.index.store import Store
from hirag_dist.pool.metering import Meter, current_meter
from hirag_dist.stages.base import Services, Stage


@dataclass(frozen=True, slots=True)
class Slice:
    """Rows [start, stop) of a Parquet file in the store."""

    path: str
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class KeyPart:
    """Keep the rows whose column hashes to `number` of `count`."""

    column: str
    number: int
    count: int


@dataclass(frozen=True, slots=True)
class Task:
    """A piece of a stage: what to read, and where to write."""

    stage: Stage
    number: int
    inputs: dict[str, tuple[Slice, ...]]
    folder: str
    store: Store
    key_part: KeyPart | None = None

    @property
    def marker(self) -> str:
        """The file that says the task is done."""
        return f"{self.folder}/tasks/{self.number:06d}.json"


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What a marker holds: rows and content digest of each output, what was spent, and the time it took."""

    number: int
    outputs: dict[str, tuple[int, str]]
    usage: list[dict[str, Any]]
    seconds: float


async def run_task(task: Task, services: Services) -> TaskResult:
    """Run a task and make its output durable; doing it again changes nothing."""
    _one_thread()
    started = time.perf_counter()
    meter = Meter()
    token = current_meter.set(meter)
    try:
        await services.catch_up()
        tables = {name: _read(task, name) for name in task.inputs}
        outputs = await task.stage.run(tables, services)
    finally:
        current_meter.reset(token)
    written = {}
    for name, schema in task.stage.writes.items():
        table = outputs[name]
        if not table.schema.equals(schema):
            raise SchemaMismatch(f"stage {task.stage.name} gave {name} with columns {table.schema.names}")
        task.store.write_table(output_path(task.folder, name, task.number), table)
        written[name] = (table.num_rows, table_digest(table))
    result = TaskResult(task.number, written, meter.rows(), time.perf_counter() - started)
    task.store.write_json(
        task.marker,
        {"number": result.number, "outputs": written, "usage": result.usage, "seconds": result.seconds},
    )
    return result


@cache
def _one_thread() -> None:
    """Keep numerical libraries of this process to one thread: a sum split over threads depends on their number."""
    threadpool_limits(1)


def output_path(folder: str, name: str, number: int) -> str:
    """Return where a task's output lies."""
    return f"{folder}/{name}/part-{number:06d}.parquet"


def result_of(marker: dict[str, Any]) -> TaskResult:
    """Return the result that a marker holds."""
    outputs = {name: (int(rows), str(digest)) for name, (rows, digest) in marker["outputs"].items()}
    return TaskResult(int(marker["number"]), outputs, list(marker["usage"]), float(marker["seconds"]))


def _read(task: Task, name: str) -> pa.Table:
    schema = task.stage.reads[name]
    parts = []
    for piece in task.inputs[name]:
        table = task.store.read_table(piece.path, columns=schema.names)
        if (piece.start, piece.stop) != (0, table.num_rows):
            table = table.slice(piece.start, piece.stop - piece.start)
        if task.key_part is not None and task.key_part.column in schema.names and task.key_part.count > 1:
            table = _keep(table, task.key_part)
        parts.append(table)
    whole = pa.concat_tables(parts).cast(schema) if parts else schema.empty_table()
    return whole.combine_chunks()


def _keep(table: pa.Table, part: KeyPart) -> pa.Table:
    keys = table[part.column].to_pylist()
    mask = pa.array([zlib.crc32(key.encode("utf-8", "surrogatepass")) % part.count == part.number for key in keys])
    return table.filter(mask)
