"""The work folder of a stage: its key, markers of finished tasks, outputs and dead letters."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from hirag_dist.core.prompts.reply_validation import KEPT, by_reason, without_details
from hirag_dist.execution.dataset import Dataset, DatasetPart
from hirag_dist.execution.partitioning import layout
from hirag_dist.execution.stage import AnyStage, output_schemas
from hirag_dist.execution.stage_results import (
    ACCEPTED,
    DONE,
    Drops,
    StageResults,
    drop_shuffle,
    n_rejects,
    output_files,
    read_accepted,
    rejected,
    split_letters,
    stage_results,
    task_letters,
    write_accepted,
    write_done,
)
from hirag_dist.execution.task import TASKS, TaskResult, failed_path, output_path, result_of
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.schemas import REJECTS
from hirag_dist.storage.checked_json import read_checked
from hirag_dist.storage.layout import work_path
from hirag_dist.storage.store import Store
from hirag_dist.types import Rejected


@dataclass(frozen=True, slots=True)
class RefusalSummary:
    """The most frequent reason of a stage's open dead letters, how many have it, and one of their replies."""

    reason: str
    n_letters: int
    reply: str = ""


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
    """State of one stage in the store, under the key of its configuration and inputs.

    Attributes:
        path: the folder.
    """

    def __init__(self, store: Store, stage: AnyStage, inputs: Mapping[str, Dataset], drops: Drops) -> None:
        """Open the folder.

        Args:
            drops: accepted losses of the index.
        """
        self.store = store
        self.path = work_path(stage.name, stage_key(stage, inputs))
        self._stage = stage
        self._drops = drops
        self._has_drops = any(name == stage.name for name, _ in drops)

    def load(self) -> StageResults:
        """Return the results of finished tasks; what is damaged or gone counts as not done."""
        return stage_results(self.store, self.path)

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
            write_accepted(self.store, self.path, accepted)
        self.store.delete(f"{self.path}/{DONE}")  # first: an interrupted run must not find it next to other output
        if fresh:
            self.store.delete(f"{self.path}/{TASKS}")
            self.drop_shuffle()

    def finish(self, results: Iterable[TaskResult]) -> None:
        """Write the marker of the whole stage; the caller holds the fence."""
        write_done(self.store, self.path, results)

    def files(self, results: Iterable[TaskResult]) -> tuple[list[str], str]:
        """Return the paths of the outputs, and of the marker of the whole stage."""
        return output_files(self.path, results), f"{self.path}/{DONE}"

    def forget_accepted(self) -> None:
        """Delete the dropped letters that `begin` kept."""
        self.store.delete(f"{self.path}/{ACCEPTED}")

    def drop_shuffle(self) -> None:
        """Delete the files of a first pass."""
        drop_shuffle(self.store, self.path)

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
        letters = read_accepted(self.store, self.path)
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

    def dominant_reason(self, results: Sequence[TaskResult]) -> RefusalSummary:
        """Return the most frequent reason of the open dead letters."""
        tables = self._open_letters(results, ["stage", "unit_id", "reason"])
        reason, positions = next(
            iter(by_reason(row for table in tables for row in table["reason"].to_pylist()).items())
        )
        for table in self._open_letters(results, REJECTS.names):
            for letter in table.to_pylist():
                if letter["reply"] and without_details(letter["reason"]) == without_details(reason):
                    return RefusalSummary(reason, len(positions), letter["reply"])
        return RefusalSummary(reason, len(positions))

    def clear_failures(self) -> None:
        """Delete the usage that failed tasks of an earlier run left."""
        self.store.delete(failed_path(self.path))

    def add_unreported_usage(self, usage: UsageMeter, running: Mapping[int, int]) -> None:
        """Add the usage of tasks that ended without a result reaching the driver, failed or not.

        Args:
            usage: the sum.
            running: task number → attempt.
        """
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
