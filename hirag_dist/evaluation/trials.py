"""Questions put to systems: the units of most kinds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hirag_dist.config.model import RetrievalConfig
from hirag_dist.evaluation.questions import Question


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
    """One question put to one system.

    Attributes:
        place: of the question among the questions.
    """

    place: int
    question: Question
    system: SystemUnderTest

    @property
    def name(self) -> str:
        """The name of its unit."""
        return f"{self.question.id} {self.system.name}"


def trials(questions: Iterable[Question], systems: Sequence[SystemUnderTest]) -> Iterator[Trial]:
    """Yield every question with every system, question by question."""
    for place, question in enumerate(questions):
        for system in systems:
            yield Trial(place, question, system)
