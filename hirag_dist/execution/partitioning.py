"""Splitting of a stage's input into tasks. It depends on the rows alone, never on the number of workers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from hirag_dist.core.groupby import HASH_VERSION
from hirag_dist.execution.dataset import Dataset, read_part_rows
from hirag_dist.execution.stage import (
    AnyStage,
    ByKey,
    ByRows,
    Iterative,
    IterativeStage,
    Services,
    input_schemas,
    kernels_of,
)
from hirag_dist.execution.task import (
    SHUFFLE,
    Scatter,
    Shuffled,
    Slice,
    Task,
    TaskResult,
    one_thread,
    write_outputs,
)
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Executor, Kernels, ResidentShards
from hirag_dist.storage.store import Store

_FILES = 64  # of the first pass, of each input that is as long as the main one
_MAX_RUNS = 8  # task sizes in one task of the first pass, which holds its rows twice


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The first pass over the inputs of a stage split by key into several partitions.

    Each of its tasks takes a run of rows of one input and writes them in a piece for each partition; a task of the
    stage reads its piece of each of those files. Only the number of files is kept in memory. With r rows
    of which n make a task of the stage there are r / n pieces in a file; a file has n rows too while there are few, and
    up to eight times as many beyond `_FILES` of them. So a task reads 64 pieces of an input of 50 million rows where n
    is 100,000, and an eighth of r / n of a larger one. A longer input has as many files: its runs are longer, as its
    share of a task is.

    Attributes:
        folder: of the files and markers; it may be removed once the stage is done.
    """

    folder: str
    rows: list[int]
    tasks: Callable[[], Iterator[Task]]


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The tasks of a stage, made when they are asked for.

    Attributes:
        rows: of the first input in each task; of a task of a shuffled input its even share.
        shuffle: the first pass, which has to be done before the first of them.
    """

    rows: list[int]
    tasks: Callable[[], Iterator[Task]]
    shuffle: Shuffle | None = None


def plan(stage: AnyStage, folder: str, store: Store, inputs: Mapping[str, Dataset]) -> PartitionPlan:
    """Return how a stage is split. Its tasks write to `folder`.

    Raises:
        TypeError: an input's column cannot be split by, or is of another type in another input.
    """
    main = next(iter(inputs))
    split = stage.split
    if isinstance(split, ByRows):
        n_rows = split.n

        def tasks() -> Iterator[Task]:
            whole = _whole(inputs)
            for number, run in enumerate(cut(_slices(inputs[main]), n_rows)):
                yield Task(stage, number, {**whole, main: run}, folder, store)

        return PartitionPlan(_runs(inputs[main].rows, n_rows), tasks)
    count = n_partitions(stage, inputs)
    if isinstance(split, ByKey) and count > 1:
        return _by_key(stage, folder, store, inputs, Scatter(split.column, count), split.n)
    return PartitionPlan([inputs[main].rows], lambda: iter([Task(stage, 0, _whole(inputs), folder, store)]))


def n_partitions(stage: AnyStage, inputs: Mapping[str, Dataset]) -> int:
    """Return into how many partitions keys are split; 1 where a stage is not split by key."""
    if not isinstance(stage.split, ByKey):
        return 1
    return max(1, -(-next(iter(inputs.values())).rows // stage.split.n))


def layout(stage: AnyStage, inputs: Mapping[str, Dataset]) -> list[object]:
    """Return the parameters, apart from the rows, that assign rows to tasks by key; empty if keys are not split."""
    if not isinstance(stage.split, ByKey) or n_partitions(stage, inputs) == 1:
        return []
    longer = runs_per_file(n_partitions(stage, inputs))
    keyed = [name for name in inputs if stage.split.column in input_schemas(stage)[name].names]
    wider = {name: times for name in keyed if (times := _times_main(inputs, name)) > 1}
    parameters = [stage.split.column, stage.split.n, HASH_VERSION, *([longer] if longer > 1 else [])]
    return [*parameters, *([wider] if wider else [])]


def runs_per_file(partitions: int) -> int:
    """Return how many tasks' rows make one run of the first pass.

    >>> [runs_per_file(partitions) for partitions in (2, 64, 65, 200, 1768)]
    [1, 1, 2, 4, 8]
    """
    return min(-(-partitions // _FILES), _MAX_RUNS)


def _times_main(inputs: Mapping[str, Dataset], name: str) -> int:
    """Return how many times as long as the first input another one is, rounded up: so many rows it has to a task."""
    return max(1, -(-inputs[name].rows // max(next(iter(inputs.values())).rows, 1)))


def _by_key(
    stage: AnyStage, folder: str, store: Store, inputs: Mapping[str, Dataset], scatter: Scatter, n: int
) -> PartitionPlan:
    """Split every input that has the column; see the others whole."""
    keyed = [name for name in inputs if scatter.column in input_schemas(stage)[name].names]
    types: dict[str, pa.DataType] = {name: input_schemas(stage)[name].field(scatter.column).type for name in keyed}
    if len(set(types.values())) != 1:
        types_of = ", ".join(f"{name}: {kind}" for name, kind in types.items()) or "it is in none of its inputs"
        raise TypeError(f"stage {stage.name} is split by {scatter.column}, which must be of one type ({types_of})")
    shuffled_to = f"{folder}/{SHUFFLE}"
    run_rows = {name: n * runs_per_file(scatter.count) * _times_main(inputs, name) for name in keyed}
    n_files = {name: len(_runs(inputs[name].rows, run_rows[name])) for name in keyed}

    def first_pass() -> Iterator[Task]:
        number = 0
        for name in keyed:
            for pieces in cut(_slices(inputs[name]), run_rows[name]):
                yield Task(stage, number, {name: pieces}, shuffled_to, store, scatter=scatter)
                number += 1

    def tasks() -> Iterator[Task]:
        whole = {name: pieces for name, pieces in _whole(inputs).items() if name not in keyed}
        for number in range(scatter.count):
            first = 0
            shuffled: dict[str, tuple[Slice, ...] | Shuffled] = {}
            for name in keyed:
                shuffled[name] = Shuffled(shuffled_to, name, (first, first + n_files[name]), number)
                first += n_files[name]
            yield Task(stage, number, {**whole, **shuffled}, folder, store)

    total = inputs[next(iter(inputs))].rows
    shares = [total * (at + 1) // scatter.count - total * at // scatter.count for at in range(scatter.count)]
    runs = [rows for name in keyed for rows in _runs(inputs[name].rows, run_rows[name])]
    return PartitionPlan(shares, tasks, Shuffle(shuffled_to, runs, first_pass))


def _whole(inputs: Mapping[str, Dataset]) -> dict[str, tuple[Slice, ...] | Shuffled]:
    return {name: _slices(dataset) for name, dataset in inputs.items()}


def _slices(dataset: Dataset) -> tuple[Slice, ...]:
    return tuple(Slice(part.path, 0, part.rows, part.sha256) for part in dataset.parts)


def _runs(total: int, n: int) -> list[int]:
    """Return the rows of each run that `cut` yields."""
    return [min(n, total - first) for first in range(0, total, n)]


def cut(pieces: Iterable[Slice], n: int) -> Iterator[tuple[Slice, ...]]:
    """Yield runs of `n` rows, which may span files."""
    run: list[Slice] = []
    room = n
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            stop = min(piece.stop, start + room)
            run.append(Slice(piece.path, start, stop, piece.sha256))
            room -= stop - start
            start = stop
            if room == 0:
                yield tuple(run)
                run, room = [], n
    if run:
        yield tuple(run)


@dataclass(frozen=True, slots=True)
class _Shard:
    """Rows of a stage's input."""

    stage: IterativeStage[..., Any]
    pieces: tuple[Slice, ...]
    first_row: int
    store: Store


def run_iterations(tasks: Iterable[Task], executor: Executor) -> Iterator[TaskResult]:
    """Run the one task of an iterative stage, in the driver and on the workers of an executor.

    Its outputs are written as any task's, the marker last. A run that is killed begins again with the first iteration.
    """
    for task in tasks:
        started = time.perf_counter()
        stage = cast(IterativeStage[..., Any], task.stage)
        split = cast(Iterative, stage.split)
        (whole,) = task.inputs.values()
        pieces = cast(tuple[Slice, ...], whole)
        runs = enumerate(cut(pieces, split.n))
        shards = [_Shard(stage, run, number * split.n, task.store) for number, run in runs]
        one_thread()  # in the driver too, which has sums of its own
        kernels = kernels_of(stage)
        with (
            executor.hold(_load, shards, split.keep, kernels) as held,
            executor.hold(_lend, [kernels], kernels=kernels) as lent,
        ):
            n_rows = sum(piece.stop - piece.start for piece in pieces)
            outputs = stage.iterate(held, cast(Kernels, _LentKernels(lent)), n_rows)
        yield write_outputs(task, outputs, UsageMeter(), started)


class _LentKernels:
    """The kernels of one worker; the driver may have no such device."""

    def __init__(self, lent: ResidentShards) -> None:
        self._lent = lent

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            (result,) = self._lent.each(_call, (name, arguments))
            return result

        return call


def _load(services: Services, shard: _Shard) -> Any:
    (schema,) = input_schemas(shard.stage).values()
    tables = [
        read_part_rows(shard.store, piece.path, piece.sha256, piece.start, piece.stop, schema.names)
        for piece in shard.pieces
    ]
    return shard.stage.load(pa.concat_tables(tables).cast(schema), shard.first_row)


def _lend(services: Services, kernels: str) -> Kernels:
    return services.kernels(kernels)


def _call(services: Services, kernels: Kernels, call: tuple[str, tuple[Any, ...]]) -> Any:
    name, arguments = call
    return getattr(kernels, name)(*arguments)
