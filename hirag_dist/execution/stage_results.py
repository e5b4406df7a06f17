"""Results of a stage's finished tasks, from its markers. What is damaged or gone counts as not done."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from hirag_dist.execution.part_files import is_damaged
from hirag_dist.execution.task import SHUFFLE, TASKS, TaskResult, marker_of, output_path, result_of
from hirag_dist.storage.checked_json import read_checked, write_checked
from hirag_dist.storage.store import Store

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
