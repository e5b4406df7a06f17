"""Results and dead letters of the finished tasks of a stage, from its markers. Damaged files count as not done."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, Final

import pyarrow as pa

from hirag_dist.execution.dataset import is_damaged, read_part
from hirag_dist.execution.task import SHUFFLE, TASKS, TaskResult, marker_of, output_path, result_of
from hirag_dist.schemas import DROPPED, REJECTS
from hirag_dist.storage.checked_json import read_checked, write_checked
from hirag_dist.storage.layout import DROPS
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

logger = logging.getLogger(__name__)
DONE: Final = "done.json"
_READERS = 16  # of a stage's files at a time: on an object store each takes a round trip


@dataclass(frozen=True, slots=True)
class StageResults:
    """State of a stage in the store.

    Attributes:
        results: of finished tasks, by number.
        finished: whether every task is done.
    """

    results: Mapping[int, TaskResult]
    finished: bool


def stage_results(store: Store, folder: str) -> StageResults:
    """Return the results of finished tasks, of which in a local folder every output has the size that was written."""
    listed = _listed(read_checked(store, f"{folder}/{DONE}"))
    found = _marked(store, folder) if listed is None else listed
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
    return StageResults(results, listed is not None and len(present) == len(listed))


def write_done(store: Store, folder: str, results: Iterable[TaskResult]) -> None:
    """Write the marker of the whole stage."""
    write_checked(store, f"{folder}/{DONE}", {"tasks": [marker_of(result) for result in results]})


def output_files(folder: str, results: Iterable[TaskResult]) -> list[str]:
    """Return the paths of the outputs of tasks."""
    return [output_path(folder, name, result) for result in results for name in result.outputs]


def drop_shuffle(store: Store, folder: str) -> None:
    """Delete the files of a stage's first pass, markers first: a remaining marker would vouch for a missing file."""
    store.delete(f"{folder}/{SHUFFLE}/{TASKS}")
    store.delete(f"{folder}/{SHUFFLE}")


def discard(store: Store, path: str) -> None:
    """Remove a damaged file of the work folder, and what names it, so that it is made again.

    Args:
        store: the index.
        path: an output of a stage, a file of a first pass, or a table that no stage made.
    """
    folder, _, rest = path.partition("/")
    stage, key, *inner = rest.split("/")
    of_stage = f"{folder}/{stage}/{key}"
    if inner[0] == SHUFFLE:
        drop_shuffle(store, of_stage)
    elif len(inner) > 1:
        _discard_damaged(store, of_stage)
    store.delete(path)


def _discard_damaged(store: Store, folder: str) -> int:
    """Remove the markers of the tasks with a damaged output, and their outputs; return the number of these tasks.

    Every output of the stage is read, so that damage of many files is found at once.
    """
    found = list(stage_results(store, folder).results.values())
    with ThreadPoolExecutor(_READERS) as readers:
        damaged = [
            result
            for result, bad in zip(found, readers.map(lambda one: _has_damage(store, folder, one), found), strict=True)
            if bad
        ]
    store.delete(f"{folder}/{DONE}")  # first: it names them
    for result in damaged:
        store.delete(f"{folder}/{TASKS}/{result.number:06d}.json")
    for path in output_files(folder, damaged):
        store.delete(path)
    return len(damaged)


def _listed(done: Mapping[str, Any] | None) -> list[TaskResult] | None:
    if done is None:
        return None
    results = [_result(marker) for marker in done.get("tasks", ())]
    return None if any(result is None for result in results) else [result for result in results if result is not None]


def _marked(store: Store, folder: str) -> list[TaskResult]:
    names = store.names(f"{folder}/{TASKS}")
    with ThreadPoolExecutor(_READERS) as readers:
        found = readers.map(lambda name: _result(read_checked(store, f"{folder}/{TASKS}/{name}")), names)
        return [result for result in found if result is not None]


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


def _has_damage(store: Store, folder: str, result: TaskResult) -> bool:
    return any(
        is_damaged(store, output_path(folder, name, result), file.sha256) for name, file in result.outputs.items()
    )


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


def write_accepted(store: Store, folder: str, letters: Mapping[int, Sequence[Rejected]]) -> None:
    """Write dropped letters, by task, while their stage is run from the beginning."""
    found = {str(number): [asdict(letter) for letter in of_task] for number, of_task in letters.items() if of_task}
    store.write_json(f"{folder}/{ACCEPTED}", {"tasks": found})


def read_accepted(store: Store, folder: str) -> dict[int, tuple[Rejected, ...]]:
    """Return the letters that `write_accepted` wrote."""
    if not store.exists(f"{folder}/{ACCEPTED}"):
        return {}
    tasks = store.read_json(f"{folder}/{ACCEPTED}")["tasks"]
    return {int(number): tuple(Rejected(**letter) for letter in letters) for number, letters in tasks.items()}


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
