"""By which rules answers are scored, and which questions are scored how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hirag_dist.evaluation.metrics.exact_match_f1 import REFUSALS, is_refusal
from hirag_dist.evaluation.questions import Question

FIGURES = ("exact", "f1", "precision", "recall")
Sort = Literal["answerable", "unanswerable", "without gold"]


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Rules of scoring answers.

    Attributes:
        definitions: of `DEFINITIONS`, the first of them the one that charts and comparisons show.
        refusals: answers that say that there is none.
        unanswerable_types: types of questions that have no answer, besides those that the file marks, and those whose
            gold answers are themselves refusals.
    """

    definitions: tuple[str, ...] = ("hotpotqa",)
    refusals: tuple[str, ...] = REFUSALS
    unanswerable_types: frozenset[str] = frozenset()

    def sort_of(self, question: Question) -> Sort:
        """Return how answers to a question are scored."""
        if question.answerable is False or question.type in self.unanswerable_types:
            return "unanswerable"
        if not question.answers:
            return "without gold"
        if all(is_refusal(answer, self.refusals) for answer in question.answers):
            return "unanswerable"
        return "answerable"
