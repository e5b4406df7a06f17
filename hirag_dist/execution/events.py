"""Events of a build, passed to its listeners, and the usage that they add up to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hirag_dist.llm.limits.protocol import CallTotals
from hirag_dist.llm.usage import UsageMeter, added


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
class CallsProgress:
    """Calls that a stage has sent in this run so far. Emitted every second, from a thread of its own."""

    label: str
    calls: CallTotals


@dataclass(frozen=True, slots=True)
class CallsExpected:
    """The estimated calls of a whole build to endpoints that are no built-in models, once its chunks are known.

    Attributes:
        calls: expected calls by stage (`indexing.estimate.works_of_build`), in the order of the build.
    """

    calls: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ExecutorStarting:
    """The executor of this name starts, for the first task of a build."""

    name: str


@dataclass(frozen=True, slots=True)
class KernelsResolved:
    """A worker with a GPU has named its kernels; the keys of all later stages contain the name."""

    name: str


@dataclass(frozen=True, slots=True)
class StagesRepeated:
    """The stages begin from the first one again: a file of the work folder was damaged. Finished ones are reused."""

    path: str


@dataclass(frozen=True, slots=True)
class UsageRecorded:
    """Usage outside any stage: no task reports it, so only this event puts it on the bill."""

    label: str
    usage: UsageMeter = field(default_factory=UsageMeter)


@dataclass(frozen=True, slots=True)
class Publishing:
    """All stages are done, and the snapshot is being written."""


@dataclass(frozen=True, slots=True)
class StageFailedEvent:
    """A stage ended by an exception; `usage` is of tasks without a `TaskFinished`, completed or not."""

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


class UsageBill:
    """Event listener that adds up usage.

    Attributes:
        by_stage: label → usage of the replies that the stage's output rests on, whenever they were paid.
        sent: usage of this run alone; by label in `sent_by_stage`.
        earlier: rows of USAGE that earlier runs paid since the index was built from nothing; None: not known.
        is_new: whether this run built the index from nothing, so that the bill is what its stages rest on.
    """

    def __init__(self) -> None:
        self.by_stage: dict[str, UsageMeter] = {}
        self._finished: set[str] = set()  # labels
        self.sent = UsageMeter()
        self.sent_by_stage: dict[str, UsageMeter] = {}
        self.earlier: list[dict[str, Any]] | None = None
        self.is_new = False

    def __call__(self, event: object) -> None:
        """Add the usage of an event."""
        if isinstance(event, StageFinished | UsageRecorded):
            self.by_stage.setdefault(event.label, UsageMeter()).add(event.usage)
        if isinstance(event, StageFinished):
            self._finished.add(event.label)
        if isinstance(event, StagesRepeated):  # each stage reports its usage again
            self.by_stage = {label: meter for label, meter in self.by_stage.items() if label not in self._finished}
        if isinstance(event, TaskFinished | UsageRecorded | StageFailedEvent):
            self.sent.add(event.usage)
            self.sent_by_stage.setdefault(event.label, UsageMeter()).add(event.usage.sent())

    def paid(self) -> list[dict[str, Any]] | None:
        """Return rows of USAGE since the index was built from nothing; None where what was paid before is not known.

        A reply from the ledger was paid by an earlier run, and is not counted again.
        """
        if self.earlier is None and not self.is_new:
            return None
        earlier, now = ([], self.by_stage) if self.is_new else (self.earlier or [], self.sent_by_stage)
        return added([*earlier, *({"stage": label} | row for label, meter in now.items() for row in meter.rows())])

    def total(self) -> UsageMeter:
        """Return the usage of all stages together."""
        usage = UsageMeter()
        for meter in self.by_stage.values():
            usage.add(meter)
        return usage
