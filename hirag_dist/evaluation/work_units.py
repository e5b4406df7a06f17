"""Units of work of an evaluation, each done once and recorded, and their outcomes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from hirag_dist._version import __version__
from hirag_dist.config.model import RetrievalConfig
from hirag_dist.evaluation.questions import Question
from hirag_dist.html import Section, Table
from hirag_dist.llm.reply_store import Ledger
from hirag_dist.llm.usage import UsageMeter
from hirag_dist.types import Rejected


@dataclass(frozen=True)
class Findings:
    """The result of a kind.

    Attributes:
        results: JSON, for `report.json`; documented by the kind. Intervals become {value, low, high}.
        headline: tables that the command prints, in addition to those of every kind.
        questions: counts of the question file (`Questions.counts`), empty where there was none.
    """

    results: Mapping[str, Any]
    sections: Sequence[Section]
    headline: Sequence[Table] = ()
    questions: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SystemUnderTest:
    """One system to compare: a mode, with the configured settings of retrieval or with a variant's.

    Attributes:
        name: the mode, and the variant behind a colon.
        variant: its name; "" for the configured settings.
    """

    name: str
    mode: str
    variant: str
    retrieval: RetrievalConfig

    @property
    def decides(self) -> dict[str, Any]:
        """The settings that decide a retrieval, for `WorkUnit.decides`."""
        return {"mode": self.mode, "retrieval": self.retrieval.model_dump(mode="json", exclude={"mode"})}


@dataclass(frozen=True, slots=True)
class Trial:
    """One question put to one system."""

    place: int
    question: Question
    system: SystemUnderTest


T = TypeVar("T")
Value = dict[str, Any]
Work = Callable[[T], Awaitable[Value | Rejected]]
_BLOCK = 256  # records in memory at a time


@dataclass(frozen=True, slots=True)
class WorkUnit(Generic[T]):
    """A piece of work whose outcome is kept.

    Attributes:
        id: for people, in reports and letters; best unique within its step.
        decides: JSON; everything that decides the outcome: the question, the snapshot, the settings, the models and
            prompts (`Session.asks`). Units of one step that are equal in it are one.
    """

    id: str
    decides: Any
    item: T


def trial_units(
    questions: Iterable[Question], systems: Sequence[SystemUnderTest], decides: Callable[[Trial], Any]
) -> Iterator[WorkUnit[Trial]]:
    """Yield a unit for every question with every system, question by question.

    Args:
        decides: returns what decides the outcome of a unit (`WorkUnit.decides`).
    """
    for place, question in enumerate(questions):
        for system in systems:
            trial = Trial(place, question, system)
            yield WorkUnit(f"{question.id} {system.name}", decides(trial), trial)


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """A unit that is done.

    Attributes:
        value: what the work returned, as JSON has it: tuples are lists, keys are strings.
        usage: of its calls, whenever they were paid.
        seconds: that the work took when it was done, waiting for models included.
    """

    id: str
    item: T
    value: Value
    usage: UsageMeter
    seconds: float


@dataclass(frozen=True, slots=True)
class EvaluationLetter:
    """A dead letter: a unit that could not be done, or a record that could not be read, and why."""

    step: str
    id: str
    reason: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class JournalEntry(Generic[T]):
    """A unit as it is remembered during a run.

    Attributes:
        key: hash of what decides the outcome.
    """

    id: str
    key: str
    item: T


@dataclass
class Outcomes(Generic[T]):
    """Outcomes of the units of one step; `async for` gives those that are done, in the order of the units.

    Values are read from the journal as they are asked for, so that no more than a few hundred are in memory.

    Attributes:
        letters: units that are not done.
        usage: of all units that are done, whenever their calls were paid.
    """

    step: str
    entries: Sequence[JournalEntry[T]]
    journal: Ledger
    letters: list[EvaluationLetter] = field(default_factory=list)
    usage: UsageMeter = field(default_factory=UsageMeter)
    n_done: int = 0

    def __len__(self) -> int:
        """Return how many units are done."""
        return self.n_done

    async def __aiter__(self) -> AsyncIterator[Outcome[T]]:
        """Yield the outcome of each unit that is done."""
        for start in range(0, len(self.entries), _BLOCK):
            block = self.entries[start : start + _BLOCK]
            records = await self.journal.get_many([entry.key for entry in block])
            for entry in block:
                record = records.get(entry.key)
                if record is not None:
                    usage = UsageMeter.from_rows(record["usage"])
                    yield Outcome(entry.id, entry.item, record["value"], usage, float(record["seconds"]))


def json_line(value: Mapping[str, Any]) -> bytes:
    """Return a line of JSON in UTF-8."""
    return (json.dumps(value, ensure_ascii=False) + "\n").encode("utf-8", "replace")


def unit_key(step: str, decides: Any) -> str:
    """Return the key of an outcome (40 hex digits); another version of this package does the unit again."""
    return _hash(["unit", __version__, step, decides])


def letter_key(key: str) -> str:
    """Return the key of a unit's dead letter."""
    return _hash(["letter", key])


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:40]
