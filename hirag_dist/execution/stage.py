"""Protocols of a stage: a frozen configuration with typed inputs and outputs, and how its input may be split."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, ParamSpec, Protocol, TypeVar, cast, runtime_checkable

import pyarrow as pa
import tiktoken

from hirag_dist.execution.dataset import Schemas, TableSet
from hirag_dist.llm.call import CallContext
from hirag_dist.llm.chat import PackingPool
from hirag_dist.protocols import CPU, Embedder, Kernels, ResidentShards
from hirag_dist.types import Rejected

T = TypeVar("T")
In = ParamSpec("In")
Out = TypeVar("Out", covariant=True)
Tables = dict[str, pa.Table]


@dataclass(frozen=True)
class ByRows:
    """The first input is cut into tasks of `n` rows; every task sees the other inputs whole."""

    n: int


@dataclass(frozen=True)
class ByKey:
    """Partition rows by the hash of a column, so that equal keys meet: one task for `n` rows of the first input.

    Every input that has the column is split so, the others are seen whole. A task sees rows in the order of the input.
    A key is never split: one with more than `n` rows makes a larger task (see `Combines`).
    """

    column: str
    n: int


@dataclass(frozen=True)
class Whole:
    """One task sees everything. `limit` says up to where that is meant to work, for people."""

    limit: str


@dataclass(frozen=True)
class Iterative:
    """The only input stays with the workers in shards of `n` rows, over which the stage iterates (`IterativeStage`).

    Attributes:
        n: rows of a shard. It decides in what order numbers are added up, and so the last bits of the output.
        keep: False reads the rows again for each step, if they are too large to stay in memory.
    """

    n: int
    keep: bool = True


Split = ByRows | ByKey | Whole | Iterative


async def no_other_workers() -> None:
    """Do nothing: there is one worker."""


async def _never_superseded(context: CallContext) -> bool:
    return False


async def _nothing_to_close() -> None:
    pass


@dataclass(frozen=True)
class Services:
    """Services of a worker for the stages that it runs.

    Attributes:
        kernels: name of kernels → those, made here; a stage names its own. Raises BackendUnavailable where this
            machine lacks what they need.
        is_superseded: whether another process has stored a reply to one of a task's requests before the one it uses.
    """

    chat: PackingPool
    embedder: Embedder
    kernels: Callable[[str], Kernels]
    encoding: tiktoken.Encoding
    count_tokens: Callable[[str], int]
    catch_up: Callable[[], Awaitable[None]] = no_other_workers  # see the replies that other workers have stored
    close: Callable[[], Awaitable[None]] = _nothing_to_close
    bind: Callable[[CallContext], tuple[PackingPool, Embedder]] | None = None  # None if calls carry no context
    is_superseded: Callable[[CallContext], Awaitable[bool]] = _never_superseded

    def for_task(self, context: CallContext) -> Services:
        """Return these services with models whose calls carry the context of a task."""
        if self.bind is None:
            return self
        chat, embedder = self.bind(context)
        return replace(self, chat=chat, embedder=embedder)


class Stage(Protocol[In, Out]):
    """A step of the build. Instances are frozen dataclasses whose fields are all that decides the output.

    A stage that sends chat requests has the field `models`, the models that may answer; one that embeds texts
    `embedder`, the name of its model; one that computes on a numerical backend `kernels`, the name of that.

    Attributes:
        version: raise it when the same input would give another output.
    """

    name: ClassVar[str]
    version: ClassVar[int]

    @property
    def Inputs(self) -> Callable[In, object]:  # noqa: N802 (a nested class)
        """The `TableSet` of its inputs; the first one is split into tasks."""
        ...

    @property
    def Outputs(self) -> Callable[..., Out]:  # noqa: N802 (a nested class)
        """The `TableSet` of its outputs."""
        ...

    @property
    def split(self) -> Split:
        """Splitting of the input into tasks. A class attribute does."""
        ...


AnyStage = Stage[..., Any]


class TaskStage(Stage[In, Out], Protocol[In, Out]):
    """A stage whose tasks are independent of each other."""

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the outputs of one task; the names are the fields of `Inputs` and `Outputs`."""
        ...


class IterativeStage(Stage[In, Out], Protocol[In, Out]):
    """A stage with the split `Iterative`: the driver iterates over resident shards, e.g. for EM.

    Each iteration returns small statistics of every shard. The output is written by the driver, so it must be small.
    """

    def load(self, rows: pa.Table, first_row: int) -> Any:
        """Return the resident form of a shard; `first_row` is the number of its first row among all rows."""
        ...

    def iterate(self, shards: ResidentShards, kernels: Kernels, n_rows: int) -> Tables:
        """Return the outputs.

        Args:
            shards: of all rows, each as `load` returned it.
            kernels: those of a worker; arguments and results travel.
            n_rows: of all shards.
        """
        ...


@runtime_checkable
class Combines(Protocol):
    """A stage split by key that makes less of its rows before they are sent to the tasks of their keys.

    Only some of a key's rows are seen at a time, in any division of them; where there is one task it is not called. So
    `run` gives the same whatever was combined.
    """

    def combine(self, name: str, rows: pa.Table) -> pa.Table:
        """Return the rows of the input `name`, or fewer or lighter ones, with the same columns."""
        ...


def input_schemas(stage: AnyStage) -> Schemas:
    """Return the schemas of a stage's inputs by name."""
    return cast(type[TableSet], stage.Inputs).schemas


def output_schemas(stage: AnyStage) -> Schemas:
    """Return the schemas of a stage's outputs by name."""
    return cast(type[TableSet], stage.Outputs).schemas


def waits_for_models(stage: AnyStage) -> bool:
    """Return whether tasks of a stage mostly wait for models, so that many can run at once."""
    return hasattr(stage, "models") or hasattr(stage, "embedder")


def kernels_of(stage: AnyStage) -> str:
    """Return the name of the kernels that a stage computes on; the CPU's if it names none."""
    return str(getattr(stage, "kernels", CPU))


async def gather_calls(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return the results of calls in their order.

    If one fails, the others are cancelled and awaited before its error is raised: a request that was sent ends and is
    stored, and no call outlives its task.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return []
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        rest = [task for task in tasks if not task.done()]
        for task in rest:
            task.cancel()  # once: a second cancel would interrupt the shielded request
        if rest:
            await asyncio.wait(rest)
        failures = [task.exception() for task in tasks if not task.cancelled()]
    for failure in failures:
        if failure is not None:
            raise failure
    return [task.result() for task in tasks]


def reject_row(stage: str, rejected: Rejected) -> dict[str, object]:
    """Return a row of REJECTS."""
    return {
        "stage": stage,
        "unit_id": rejected.unit,
        "reason": rejected.reason,
        "attempts": rejected.attempts,
        "request": rejected.request,
        "reply": rejected.reply,
    }
