"""What listeners are told while an index is built."""

from __future__ import annotations

from dataclasses import dataclass, field

from hirag_dist.pool.metering import Meter


@dataclass(frozen=True, slots=True)
class StageStarted:
    """A stage begins. `label` is for people; `n_done` tasks of an earlier run are kept."""

    label: str
    n_tasks: int
    n_done: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class TaskFinished:
    """One task is done and its output is in the store."""

    label: str
    n_rows: int
    rejects: int
    seconds: float
    usage: Meter = field(default_factory=Meter)


@dataclass(frozen=True, slots=True)
class StageFinished:
    """A stage is done. `reused`: its output was there already."""

    label: str
    reused: bool
    n_rows: int
    rejects: int
    seconds: float
    usage: Meter = field(default_factory=Meter)
