"""Dead letters: units that failed after their last attempt, and those whose loss was accepted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from hirag_dist.execution.part_files import read_part
from hirag_dist.execution.stage_results import stage_results
from hirag_dist.execution.task import TaskResult, output_path
from hirag_dist.schemas import DROPPED, REJECTS
from hirag_dist.storage.layout import DROPS
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected

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
