"""The work folder of a stage: its key, markers of finished tasks, outputs and dead letters.

Damaged files count as not done.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from itertools import compress
from typing import Any, Final

import pyarrow as pa

from hirag_dist.core.prompts.reply_validation import KEPT, by_reason, without_details
from hirag_dist.execution.dataset import Dataset, DatasetPart, is_damaged, read_part
from hirag_dist.execution.partitioning import layout
from hirag_dist.execution.stage import AnyStage, output_schemas
from hirag_dist.execution.task import SHUFFLE, TASKS, TaskResult, failed_path, marker_of, output_path, result_of
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import DROPPED, REJECTS
from hirag_dist.storage.checked_json import read_checked, write_checked
from hirag_dist.storage.layout import DROPS, work_path
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected


def stage_key(stage: AnyStage, inputs: Mapping[str, Dataset]) -> str:
    """Return a hash of the stage, its whole configuration, and the content of its inputs.

    Paths, endpoints, machines and worker counts are not in it.
    """
    config: Any = dataclasses.asdict(stage)  # type: ignore[call-overload]
    content = {name: [(part.digest, part.rows) for part in dataset.parts] for name, dataset in inputs.items()}
    partitions = layout(stage, inputs)  # tasks of another number of partitions must not be mixed with these
    hashed = json.dumps([stage.name, stage.version, config, content, *partitions], sort_keys=True, default=repr)
    return hashlib.sha256(hashed.encode()).hexdigest()[:24]


class StageStore:
    """State of one stage in the store, under the key of its configuration and inputs."""

    def __init__(self, store: Store, stage: AnyStage, inputs: Mapping[str, Dataset], drops: Drops) -> None:
        self.store = store
        self.path = work_path(stage.name, stage_key(stage, inputs))
        self._stage = stage
        self._drops = drops
        self._has_drops = any(name == stage.name for name, _ in drops)

    def outputs(self, results: Iterable[TaskResult]) -> dict[str, Dataset]:
        """Return the output datasets by name, without empty parts."""
        finished = list(results)
        return {
            name: Dataset(
                schema,
                tuple(
                    DatasetPart(output_path(self.path, name, result), *result.outputs[name][:3])
                    for result in finished
                    if result.outputs[name][0]
                ),
            )
            for name, schema in output_schemas(self._stage).items()
        }

    def begin(self, fresh: bool, accepted: Mapping[int, Sequence[Rejected]]) -> None:
        """Prepare the folder for running tasks; the caller holds the fence.

        Args:
            fresh: delete the finished tasks.
            accepted: dropped letters by task, kept for a later run in case that this one is killed.
        """
        if fresh and accepted:
            letters = {str(number): [asdict(letter) for letter in of_task] for number, of_task in accepted.items()}
            self.store.write_json(f"{self.path}/{ACCEPTED}", {"tasks": letters})
        self.store.delete(f"{self.path}/{DONE}")  # first: an interrupted run must not find it next to other output
        if fresh:
            self.store.delete(f"{self.path}/{TASKS}")
            drop_shuffle(self.store, self.path)

    def finish(self, results: Iterable[TaskResult], accepted: Mapping[int, Sequence[Rejected]]) -> None:
        """Write the marker of the whole stage, and delete the dropped letters that `begin` kept.

        The caller holds the fence.
        """
        write_checked(self.store, f"{self.path}/{DONE}", {"tasks": [marker_of(result) for result in results]})
        if accepted:
            self.store.delete(f"{self.path}/{ACCEPTED}")

    def letters_to_retry(self, results: Mapping[int, TaskResult]) -> dict[int, tuple[Rejected, ...]]:
        """Return the tasks with open dead letters, each with its dropped letters, which stay dead."""
        tasks = {}
        for number, result in results.items():
            if n_rejects(result):
                still_open, dropped = split_letters(task_letters(self.store, self.path, result), self._drops)
                if still_open.num_rows:
                    tasks[number] = rejected(dropped)
        return tasks

    def accepted_letters(self, results: Mapping[int, TaskResult]) -> dict[int, tuple[Rejected, ...]]:
        """Return the dropped letters by task for a stage that is run from the beginning.

        Args:
            results: whose letters count in addition to those that an interrupted run has kept.
        """
        if not self._has_drops:
            return {}
        kept = f"{self.path}/{ACCEPTED}"
        tasks = self.store.read_json(kept)["tasks"] if self.store.exists(kept) else {}
        letters = {int(number): tuple(Rejected(**letter) for letter in of_task) for number, of_task in tasks.items()}
        for number, result in results.items():
            letters[number] = rejected(split_letters(task_letters(self.store, self.path, result), self._drops)[1])
        name = self._stage.name
        dropped = {
            number: tuple(letter for letter in of_task if (name, letter.unit) in self._drops)
            for number, of_task in letters.items()
        }
        return {number: of_task for number, of_task in dropped.items() if of_task}

    def count_rejects(self, results: Sequence[TaskResult]) -> tuple[int, int]:
        """Return the numbers of open and of dropped dead letters."""
        total = sum(map(n_rejects, results))
        if not total or not self._has_drops:
            return total, 0
        n_open = sum(table.num_rows for table in self._open_letters(results, ["stage", "unit_id"]))
        return n_open, total - n_open

    def count_kept(self, results: Sequence[TaskResult]) -> int:
        """Return the number of open dead letters of units of which a part was kept."""
        tables = self._open_letters(results, ["stage", "unit_id", "reason"])
        return sum(reason.startswith(KEPT) for table in tables for reason in table["reason"].to_pylist())

    def dominant_reason(self, results: Sequence[TaskResult]) -> tuple[str, int, str]:
        """Return the most frequent reason of the open dead letters, how many have it, and one of their replies."""
        tables = self._open_letters(results, ["stage", "unit_id", "reason"])
        reason, positions = next(
            iter(by_reason(row for table in tables for row in table["reason"].to_pylist()).items())
        )
        for table in self._open_letters(results, REJECTS.names):
            for letter in table.to_pylist():
                if letter["reply"] and without_details(letter["reason"]) == without_details(reason):
                    return reason, len(positions), letter["reply"]
        return reason, len(positions), ""

    def add_unreported_usage(self, usage: UsageMeter, running: Mapping[int, int]) -> None:
        """Add the usage of tasks that ended without a result reaching the driver, failed or not."""
        failed = failed_path(self.path)
        for name in self.store.names(failed):
            usage.add(UsageMeter.from_rows(self.store.read_json(f"{failed}/{name}")))
        self.store.delete(failed)
        for name in self.store.names(f"{self.path}/{TASKS}"):
            if int(name.partition(".")[0]) in running:
                marker = read_checked(self.store, f"{self.path}/{TASKS}/{name}")
                if marker is None:
                    continue
                result = result_of(marker)
                if running[result.number] == result.attempt:
                    usage.add(UsageMeter.from_rows(result.usage))

    def _open_letters(self, results: Sequence[TaskResult], columns: Sequence[str]) -> Iterator[pa.Table]:
        for result in results:
            if n_rejects(result):
                yield split_letters(task_letters(self.store, self.path, result, columns), self._drops)[0]


logger = logging.getLogger(__name__)
DONE: Final = "done.json"
_READERS = 16  # of a stage's files at a time: on an object store each takes a round trip


@dataclass(frozen=True, slots=True)
class StageResults:
    """State of a stage in the store: the results of finished tasks by number, and whether all are."""

    results: Mapping[int, TaskResult]
    finished: bool


def stage_results(store: Store, folder: str) -> StageResults:
    """Return the results of finished tasks, of which in a local folder every output has the size that was written."""
    done = read_checked(store, f"{folder}/{DONE}")
    read = [] if done is None else [_result(marker) for marker in done.get("tasks", ())]
    is_listed = done is not None and None not in read
    if not is_listed:
        names = store.names(f"{folder}/{TASKS}")
        with ThreadPoolExecutor(_READERS) as readers:
            read = list(readers.map(lambda name: _result(read_checked(store, f"{folder}/{TASKS}/{name}")), names))
    found = [result for result in read if result is not None]
    present = _present(store, folder, found) if store.local is not None else found
    if len(present) < len(found):
        logger.warning(
            "%s/%s: files of %d of %d tasks are damaged or gone, and are made again",
            store.uri,
            folder,
            len(found) - len(present),
            len(found),
        )
    results = {result.number: result for result in present}
    return StageResults(results, is_listed and len(present) == len(found))


def output_files(folder: str, results: Iterable[TaskResult]) -> list[str]:
    """Return the paths of the outputs of tasks."""
    return [output_path(folder, name, result) for result in results for name in result.outputs]


def drop_shuffle(store: Store, folder: str) -> None:
    """Delete the files of a stage's first pass, markers first: a remaining marker would vouch for a missing file."""
    store.delete(f"{folder}/{SHUFFLE}/{TASKS}")
    store.delete(f"{folder}/{SHUFFLE}")


def discard(store: Store, path: str) -> None:
    """Remove what names a damaged file of the work folder, so that it is made again.

    Of a stage these are the markers of all tasks with a damaged output, and their outputs: those of a retry would stay.
    Every output is read, so that damage of many files is found at once.

    Args:
        path: an output of a stage, a file of a first pass, or a table that no stage made: nothing names that one, and
            `DatasetStore.put` compares it.
    """
    folder, _, rest = path.partition("/")
    stage, key, *inner = rest.split("/")
    of_stage = f"{folder}/{stage}/{key}"
    if len(inner) == 1:
        return
    if inner[0] == SHUFFLE:
        drop_shuffle(store, of_stage)
        return

    def has_damage(result: TaskResult) -> bool:
        outputs = result.outputs.items()
        return any(is_damaged(store, output_path(of_stage, name, result), file.sha256) for name, file in outputs)

    found = list(stage_results(store, of_stage).results.values())
    with ThreadPoolExecutor(_READERS) as readers:
        damaged = list(compress(found, readers.map(has_damage, found)))
    store.delete(f"{of_stage}/{DONE}")  # first: it names them
    for result in damaged:
        store.delete(f"{of_stage}/{TASKS}/{result.number:06d}.json")
    for damaged_path in output_files(of_stage, damaged):
        store.delete(damaged_path)


def _result(marker: Mapping[str, Any] | None) -> TaskResult | None:
    """Return the result that a marker holds, None where it holds none."""
    if marker is None:
        return None
    try:
        return result_of(dict(marker))
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _present(store: Store, folder: str, results: list[TaskResult]) -> list[TaskResult]:
    """Return the results whose outputs are there with the size that was written."""
    names = {name for result in results for name in result.outputs}
    entries = {name: store.entries(f"{folder}/{name}") for name in names}

    def is_there(result: TaskResult, name: str) -> bool:
        entry = entries[name].get(output_path("", name, result).rpartition("/")[2])
        return entry is not None and result.outputs[name].size in (entry.size, -1)

    return [result for result in results if all(is_there(result, name) for name in result.outputs)]


ACCEPTED = "spared.json"  # dropped letters of a stage that is run from the beginning
_DROP_COLUMNS = ("dropped_by", "dropped_at", "dropped_why")


@dataclass(frozen=True, slots=True)
class DroppedLetter:
    """A loss that was accepted. It holds for the unit, in every later request about it too.

    Attributes:
        at: when, UTC, ISO 8601.
    """

    stage: str
    unit_id: str
    by: str
    at: str
    why: str


Drops = Mapping[tuple[str, str], DroppedLetter]


def load_drops(store: Store) -> dict[tuple[str, str], DroppedLetter]:
    """Return the accepted losses of an index by (stage, unit id)."""
    if not store.exists(DROPS):
        return {}
    found = (DroppedLetter(**entry) for entry in store.read_json(DROPS)["drops"])
    return {(drop.stage, drop.unit_id): drop for drop in found}


def add_drops(store: Store, new: Iterable[DroppedLetter]) -> None:
    """Accept losses; one that was accepted before stays as it is. The caller holds the build lock."""
    known = load_drops(store)
    for drop in new:
        known.setdefault((drop.stage, drop.unit_id), drop)
    store.write_json(DROPS, {"drops": [asdict(known[key]) for key in sorted(known)]})


def n_rejects(result: TaskResult) -> int:
    """Return how many of a task's units are dead letters, accepted or not."""
    return result.outputs["rejects"].rows if "rejects" in result.outputs else 0


def task_letters(store: Store, folder: str, result: TaskResult, columns: Sequence[str] | None = None) -> pa.Table:
    """Return the dead letters of a task (REJECTS, or some of its columns)."""
    if not n_rejects(result):
        empty = REJECTS.empty_table()
        return empty if columns is None else empty.select(columns)
    return read_part(store, output_path(folder, "rejects", result), result.outputs["rejects"].sha256, columns)


def stage_letters(store: Store, folder: str, columns: Sequence[str] = REJECTS.names) -> pa.Table:
    """Return the dead letters of a stage (REJECTS, or some of its columns), whether or not it has finished."""
    results = stage_results(store, folder).results
    found = (task_letters(store, folder, results[number], columns) for number in sorted(results))
    return pa.concat_tables([REJECTS.empty_table().select(columns), *found])


def rejected(letters: pa.Table) -> tuple[Rejected, ...]:
    """Return letters (REJECTS, further columns may follow) as values."""
    return tuple(
        Rejected(row["unit_id"], row["reason"], row["attempts"], row["request"], row["reply"])
        for row in letters.to_pylist()
    )


def split_letters(letters: pa.Table, drops: Drops) -> tuple[pa.Table, pa.Table]:
    """Return the letters that are open (REJECTS) and those that were dropped (DROPPED), in their order.

    Args:
        letters: REJECTS, or some of its columns with `stage` and `unit_id` among them; the results have the same ones.
    """
    schema = pa.schema(
        [field for field in DROPPED if field.name in letters.schema.names or field.name in _DROP_COLUMNS]
    )
    if not drops or not letters.num_rows:
        return letters, schema.empty_table()
    keys = list(zip(letters["stage"].to_pylist(), letters["unit_id"].to_pylist(), strict=True))
    dropped = pa.array([key in drops for key in keys], pa.bool_())
    gone = letters.filter(dropped)
    which = [drops[key] for key in keys if key in drops]
    values_of = ([drop.by for drop in which], [drop.at for drop in which], [drop.why for drop in which])
    for name, values in zip(_DROP_COLUMNS, values_of, strict=True):
        gone = gone.append_column(DROPPED.field(name), pa.array(values, pa.string()))
    return letters.filter(pa.array([key not in drops for key in keys], pa.bool_())), gone.select(schema.names).cast(
        schema
    )


def letter_rows(open_letters: pa.Table, dropped: pa.Table) -> list[dict[str, Any]]:
    """Return letters as plain rows; `dropped` is None or has `by`, `at` and `why`."""
    rows: list[dict[str, Any]] = [row | {"dropped": None} for row in open_letters.to_pylist()]
    for row in dropped.to_pylist():
        drop = {name: row.pop(f"dropped_{name}") for name in ("by", "at", "why")}
        rows.append(row | {"dropped": drop})
    return rows
