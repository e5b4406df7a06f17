"""Iterative stages: shards of rows stay with the workers, and each iteration depends on the results of the last."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa

from hirag_dist.execution.partitioning import cut
from hirag_dist.execution.stage import Iterative, IterativeStage, Services, input_schemas, kernels_of
from hirag_dist.execution.task import Slice, Task, TaskResult, one_thread, read_rows, write_outputs
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.protocols import Executor, Kernels, ResidentShards
from hirag_dist.storage.store import Store


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
    tables = [read_rows(shard.store, piece, schema.names) for piece in shard.pieces]
    return shard.stage.load(pa.concat_tables(tables).cast(schema), shard.first_row)


def _lend(services: Services, kernels: str) -> Kernels:
    return services.kernels(kernels)


def _call(services: Services, kernels: Kernels, call: tuple[str, tuple[Any, ...]]) -> Any:
    name, arguments = call
    return getattr(kernels, name)(*arguments)
