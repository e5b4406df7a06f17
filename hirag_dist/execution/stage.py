"""What a stage is: a frozen record of its configuration that says what it reads, writes, and how it may be split."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import tiktoken

from hirag_dist.errors import Deferred
from hirag_dist.llm.call import CallContext
from hirag_dist.protocols import CPU, ChatPool, Embedder, Kernels, ResidentShards
from hirag_dist.types import Rejected

T = TypeVar("T")
Tables = dict[str, pa.Table]
Schemas = Mapping[str, pa.Schema]


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
class InRounds:
    """The only input stays with the workers in shards of `n` rows, and the stage goes round them (`RoundStage`).

    Attributes:
        n: rows of a shard. It decides in what order numbers are added up, and so the last bits of the output.
        keep: False reads the rows anew for each step, where they are too large to stay in memory.
    """

    n: int
    keep: bool = True


Split = ByRows | ByKey | Whole | InRounds


async def no_other_workers() -> None:
    """Catch up with nobody: what a lone worker does."""


async def _nothing_to_close() -> None:
    pass


@dataclass(frozen=True)
class Services:
    """What a worker lends to the stages it runs.

    Attributes:
        kernels: name of kernels → those, made here; a stage names its own. Raises BackendUnavailable where this
            machine lacks what they need.
    """

    chat: ChatPool
    embedder: Embedder
    kernels: Callable[[str], Kernels]
    encoding: tiktoken.Encoding
    count_tokens: Callable[[str], int]
    catch_up: Callable[[], Awaitable[None]] = no_other_workers  # see the replies that other workers have stored
    close: Callable[[], Awaitable[None]] = _nothing_to_close
    bind: Callable[[CallContext], tuple[ChatPool, Embedder]] | None = None  # None if calls carry no context

    def for_task(self, context: CallContext) -> Services:
        """Return these services with models whose calls carry the context of a task."""
        if self.bind is None:
            return self
        chat, embedder = self.bind(context)
        return replace(self, chat=chat, embedder=embedder)


class Stage(Protocol):
    """A step of the build. Instances are frozen dataclasses whose fields are all that decides the output."""

    name: ClassVar[str]
    version: ClassVar[int]  # raise it when the same input would give another output
    reads: ClassVar[Schemas]
    writes: ClassVar[Schemas]

    @property
    def split(self) -> Split:
        """How its input may be cut. A class attribute does."""
        ...


class TaskStage(Stage, Protocol):
    """A stage whose tasks know nothing of each other."""

    async def run(self, tables: Tables, services: Services) -> Tables:
        """Return the outputs of one task."""
        ...


class RoundStage(Stage, Protocol):
    """A stage that is split `InRounds`, for iterative algorithms.

    In each round the shards return a few numbers, from which the driver decides the next step. The driver writes the
    output, so it must be small too.
    """

    def load(self, rows: pa.Table, first_row: int) -> Any:
        """Return what a worker holds of a shard; `first_row` is the number of its first row among all."""
        ...

    def go_round(self, shards: ResidentShards, kernels: Kernels, n_rows: int) -> Tables:
        """Return the outputs.

        Args:
            shards: of all rows, each as `load` returned it.
            kernels: a worker's: what is asked of them travels.
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


def asks_models(stage: Stage) -> bool:
    """Whether a stage's tasks spend their time waiting for models, so that many can be under way at once."""
    return hasattr(stage, "models") or hasattr(stage, "embedder")


def kernels_of(stage: object) -> str:
    """Return the name of the kernels that a stage computes on, its field `kernels`; the CPU's where it has none."""
    return str(getattr(stage, "kernels", CPU))


async def together(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Return what all calls give, in their order.

    Where one fails the others are cancelled and waited for before it rises: a request that was sent ends and is
    stored, and no call outlives its task. One that waits for a batch (Deferred) lets the others go on first, so that
    theirs can be part of it.
    """
    tasks = [asyncio.ensure_future(call) for call in calls]
    if not tasks:
        return []
    running = set(tasks)
    try:
        while running:
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_EXCEPTION)
            if not all(task.cancelled() or isinstance(task.exception(), Deferred | None) for task in done):
                break
    finally:
        rest = [task for task in tasks if not task.done()]
        for task in rest:
            task.cancel()  # once: a second time would tear it from what it waits for
        if rest:
            await asyncio.wait(rest)
        failures = [task.exception() for task in tasks if not task.cancelled()]
    found = [failure for failure in failures if failure is not None]
    if found:
        raise next((failure for failure in found if not isinstance(failure, Deferred)), found[0])
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
