"""What listeners are told while an index is built."""

from __future__ import annotations

from dataclasses import dataclass, field

from hirag_dist.llm.usage import UsageMeter


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins. `label` is for people; `n_done` tasks of an earlier run, with `n_rows_done` rows, are kept."""

    label: str
    n_tasks: int
    n_done: int
    n_rows: int
    n_rows_done: int = 0
    folder: str = ""  # where its tasks leave markers and outputs


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """One task is done and its output is in the store."""

    label: str
    n_rows: int
    rejects: int
    seconds: float
    usage: UsageMeter = field(default_factory=UsageMeter)


@dataclass(frozen=True, slots=True)
class KernelsResolved:
    """A worker with a GPU has said which kernels it has: the name that stages have in their keys from here on."""

    name: str


@dataclass(frozen=True, slots=True)
class BatchesSubmitted:
    """Calls of a stage are out in batches, and are waited for."""

    label: str
    n_batches: int
    n_calls: int


@dataclass(frozen=True, slots=True)
class UsageRecorded:
    """Calls were paid that no finished task counts as sent: a batch came home. Tasks find the replies in the ledger.

    Attributes:
        outside: of any stage; no task will find these replies, so that this alone puts them on the bill.
    """

    label: str
    usage: UsageMeter = field(default_factory=UsageMeter)
    outside: bool = False


@dataclass(frozen=True, slots=True)
class StageFailedEvent:
    """A stage was left before its end; `usage` is of tasks of which nobody was told, finished or not."""

    label: str
    usage: UsageMeter = field(default_factory=UsageMeter)


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage is done. `reused`: its output was there already. `rejects` are open dead letters, not `dropped` ones."""

    label: str
    reused: bool
    n_rows: int
    rejects: int
    seconds: float
    usage: UsageMeter = field(default_factory=UsageMeter)
    dropped: int = 0
    folder: str = ""
