"""Scored answers of several systems to the same questions, and what a report says of them.

A question that can be answered is scored by EM and F1, one that cannot by whether the answer refuses; a question
without a gold answer is counted and not scored. The two are never averaged together: a system that refuses everything
is perfect on the one kind and nothing on the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hirag_dist.evaluation.metrics.exact_match_f1 import DEFINITIONS, REFUSALS, is_refusal, score_answer
from hirag_dist.evaluation.metrics.statistics import bootstrap_means, wilson
from hirag_dist.evaluation.questions import Question
from hirag_dist.evaluation.work_units import Findings
from hirag_dist.html import Bars, Section, Table, Text
from hirag_dist.llm.usage import known_cost
from hirag_dist.types.index_info import Interval

FIGURES = ("exact", "f1", "precision", "recall")
Sort = Literal["answerable", "unanswerable", "without gold"]


@dataclass(frozen=True, slots=True)
class ScoringRules:
    """Rules of scoring answers.

    Attributes:
        definitions: Names of `DEFINITIONS`, the first of them the one that charts and comparisons show.
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


@dataclass(frozen=True, slots=True)
class AnswerCost:
    """Cost of one answer, with replies that an earlier run paid; None for dollars that are not known."""

    calls: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    context_tokens: int
    retrieval_ms: float
    seconds: float


class Scoreboard:
    """Scores by question and system. Holds some hundred bytes an answer, none of the texts."""

    def __init__(self, questions: Sequence[Question], systems: Sequence[str], rules: ScoringRules) -> None:
        self.rules = rules
        self.systems = tuple(systems)
        self._types = [question.type for question in questions]
        self.sorts = [rules.sort_of(question) for question in questions]
        n_columns = len(rules.definitions) * len(FIGURES)
        shape = (len(questions), len(systems))
        self._scores = np.full((*shape, n_columns), np.nan)
        self._refused = np.full(shape, np.nan)
        self._costs = np.full((*shape, len(fields(AnswerCost))), np.nan)
        self._missing = np.zeros(len(systems), np.int64)

    def add(
        self, place: int, system: str, question: Question, answer: str, cost: AnswerCost | None = None
    ) -> dict[str, Any]:
        """Score the answer to the question at a place; return the scores as they stand in a report."""
        column = self.systems.index(system)
        refused = is_refusal(answer, self.rules.refusals)
        self._refused[place, column] = refused
        said: dict[str, Any] = {"sort": self.sorts[place], "refused": refused}
        if self.sorts[place] == "answerable":
            scores = {
                name: score_answer(answer, question.answers, DEFINITIONS[name]) for name in self.rules.definitions
            }
            self._scores[place, column] = [getattr(score, figure) for score in scores.values() for figure in FIGURES]
            said["scores"] = {name: asdict(score) for name, score in scores.items()}
        if cost is not None:
            values = [getattr(cost, each.name) for each in fields(AnswerCost)]
            self._costs[place, column] = [np.nan if value is None else value for value in values]
            said["cost"] = asdict(cost)
        return said

    def add_missing(self, place: int, system: str) -> None:
        """Score nothing where a system should have answered and did not: as the official scripts, by zero."""
        column = self.systems.index(system)
        self._missing[column] += 1
        self._refused[place, column] = False
        if self.sorts[place] == "answerable":
            self._scores[place, column] = 0.0

    def findings(self, counts: Mapping[str, int]) -> Findings:
        """Return the report.

        Args:
            counts: of the questions, as `Questions.counts`.
        """
        means = self._means(np.ones(len(self.sorts), bool))
        results = {
            "definitions": list(self.rules.definitions),
            "questions": {sort: self.sorts.count(sort) for sort in ("answerable", "unanswerable", "without gold")},
            "systems": {system: self._system(system, means) for system in self.systems},
            "differences": list(self._differences()),
            "by_type": self._by_type(),
        }
        return Findings(results, answer_sections(results, self.rules), answer_headline(results), dict(counts))

    def _rows(self, sort: Sort) -> NDArray[np.bool_]:
        return np.array([each == sort for each in self.sorts], bool)

    def _means(self, rows: NDArray[np.bool_]) -> dict[tuple[str, str, str], Interval]:
        """Return the mean of each system, definition and figure over some questions, with its interval."""
        keys = [
            (system, name, figure) for system in self.systems for name in self.rules.definitions for figure in FIGURES
        ]
        rows = rows & self._rows("answerable")
        values = self._scores[rows].reshape(int(rows.sum()), len(keys))
        return dict(zip(keys, bootstrap_means(values), strict=True))

    def _system(self, system: str, means: Mapping[tuple[str, str, str], Interval]) -> dict[str, Any]:
        column = self.systems.index(system)
        refused = {sort: self._refused[self._rows(sort), column] for sort in ("answerable", "unanswerable")}
        scored, unanswerable = (values[~np.isnan(values)] for values in refused.values())
        return {
            "scored": len(scored),
            "missing": int(self._missing[column]),
            "scores": {
                name: {figure: means[system, name, figure] for figure in FIGURES} for name in self.rules.definitions
            },
            "refused_though_answerable": float(scored.mean()) if len(scored) else None,
            "unanswerable": {
                "questions": len(unanswerable),
                "refused": wilson(float(unanswerable.sum()), len(unanswerable)) if len(unanswerable) else None,
            },
            "cost": self._cost(column),
        }

    def _cost(self, column: int) -> dict[str, float | None] | None:
        """Return means an answer (None for unknown dollars), of times the median and the 95th percentile too."""
        costs = self._costs[~np.isnan(self._costs[:, column, 0]), column]
        if not len(costs):
            return None
        by_name = {each.name: costs[:, at] for at, each in enumerate(fields(AnswerCost))}
        found = {name: known_cost(float(values.mean())) for name, values in by_name.items()}
        for name in ("retrieval_ms", "seconds"):
            found |= {f"{name}_p{at}": float(np.percentile(by_name[name], at)) for at in (50, 95)}
        return found

    def _differences(self) -> Iterator[dict[str, Any]]:
        """Yield the paired difference of each two systems, by the first definition, all over the same resamples."""
        scores = self._scores[self._rows("answerable")][:, :, :2]  # exact match and F1
        pairs = list(combinations(range(len(self.systems)), 2))
        if not pairs:
            return
        columns = np.concatenate([scores[:, one] - scores[:, other] for one, other in pairs], axis=1)
        intervals = bootstrap_means(columns)
        for at, (one, other) in enumerate(pairs):
            yield {
                "first": self.systems[one],
                "second": self.systems[other],
                "questions": int((~np.isnan(columns[:, 2 * at])).sum()),
                "exact": intervals[2 * at],
                "f1": intervals[2 * at + 1],
            }

    def _by_type(self) -> dict[str, dict[str, Any]]:
        found = {}
        answerable = self._rows("answerable")
        for name in dict.fromkeys(self._types):
            rows = np.array([each == name for each in self._types], bool)
            if name and (rows & answerable).any():
                means = self._means(rows)
                first = self.rules.definitions[0]
                systems = {system: {f: means[system, first, f] for f in ("exact", "f1")} for system in self.systems}
                found[name] = {"questions": int((rows & answerable).sum()), "systems": systems}
        return found


_NAMES = {"exact": "EM", "f1": "F1", "precision": "precision", "recall": "recall"}
_COSTS = {
    "calls": "calls",
    "input_tokens": "tokens in",
    "output_tokens": "tokens out",
    "usd": "US dollars",
    "context_tokens": "context tokens",
    "retrieval_ms": "retrieval ms",
    "seconds": "seconds",
}


def answer_headline(results: Mapping[str, Any]) -> list[Table]:
    """Return the tables that fit a terminal: exact match and F1, refusals, and the first system against the others."""
    first, systems = results["definitions"][0], results["systems"]
    scores = Table(
        f"Exact match and F1 by the definition of {first}",
        ["system", "questions", "EM", "F1", "no answer"],
        [
            (system, said["scored"], said["scores"][first]["exact"], said["scores"][first]["f1"], said["missing"])
            for system, said in systems.items()
        ],
    )
    against = [each for each in results["differences"] if each["first"] == next(iter(systems))]
    return [scores, *_refusals(results), *_paired(first, against)]


def answer_sections(results: Mapping[str, Any], rules: ScoringRules) -> list[Section]:
    """Return the page."""
    first = results["definitions"][0]
    return [
        *_bars(results),
        *_scores(results),
        *_refusals(results),
        *_paired(first, results["differences"]),
        *_by_type(results),
        *_costs(results),
        _explained(rules),
    ]


def _bars(results: Mapping[str, Any]) -> Iterator[Section]:
    first = results["definitions"][0]
    if results["questions"]["answerable"]:
        yield Bars(
            f"Exact match and F1 ({first})",
            {
                _NAMES[figure]: [(system, said["scores"][first][figure]) for system, said in results["systems"].items()]
                for figure in ("exact", "f1")
            },
            note="Means over the questions that have an answer; 95 % bootstrap intervals over questions.",
        )


def _scores(results: Mapping[str, Any]) -> Iterator[Table]:
    for name in results["definitions"]:
        rows = [
            (system, said["scored"], *(said["scores"][name][figure] for figure in FIGURES), said["missing"])
            for system, said in results["systems"].items()
        ]
        columns = ["system", "questions", *(_NAMES[figure] for figure in FIGURES), "no answer"]
        yield Table(f"Answers by the definition of {name}", columns, rows)


def _refusals(results: Mapping[str, Any]) -> Iterator[Table]:
    if results["questions"]["unanswerable"]:
        yield Table(
            "Refusals",
            ["system", "questions without an answer", "refused", "refused though answerable"],
            [
                (
                    system,
                    said["unanswerable"]["questions"],
                    said["unanswerable"]["refused"],
                    said["refused_though_answerable"],
                )
                for system, said in results["systems"].items()
            ],
            note="Questions without an answer are in no other figure; their intervals are Wilson's.",
        )


def _paired(definition: str, differences: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    if differences:
        yield Table(
            f"Paired differences ({definition})",
            ["first", "second", "questions", "EM, first − second", "F1, first − second"],
            [tuple(each.values()) for each in differences],
            note="Over the questions that both answered. Where an interval holds no zero, one system is better by this "
            "comparison alone: intervals are not widened for there being several.",
            form="+.3f",
        )


def _by_type(results: Mapping[str, Any]) -> Iterator[Table]:
    rows = [
        (name, system, said["questions"], scores["exact"], scores["f1"])
        for name, said in results["by_type"].items()
        for system, scores in said["systems"].items()
    ]
    if rows:
        yield Table("By type of question", ["type", "system", "questions", "EM", "F1"], rows)


def _costs(results: Mapping[str, Any]) -> Iterator[Table]:
    rows = [
        (system, *(said["cost"][name] for name in _COSTS))
        for system, said in results["systems"].items()
        if said["cost"] is not None
    ]
    if rows:
        yield Table(
            "An answer costs, on average",
            ["system", *_COSTS.values()],
            rows,
            note="Of replies that an earlier run paid too. Times are those of several questions at a time.",
            form=",.4g",
        )


def _explained(rules: ScoringRules) -> Text:
    return Text(
        "How answers are scored",
        [_EXPLAINED[name] for name in rules.definitions]
        + [
            "With several gold answers each figure is the best over them. A refusal is an answer whose whole text or "
            f"first sentence is one of: {', '.join(rules.refusals)}."
        ],
    )


_OFFICIAL = (
    "lower case, without the punctuation of ASCII and the words a, an and the; F1 counts the words that both have as "
    "often as both have them"
)
_EXPLAINED = {
    "hotpotqa": f"hotpotqa: {_OFFICIAL}; yes, no and noanswer are right or wrong as a whole.",
    "2wikimultihopqa": f"2wikimultihopqa: {_OFFICIAL}; yes, no and noanswer are right or wrong as a whole.",
    "musique": f"musique: {_OFFICIAL}; yes and no are words like others.",
    "hirag": (
        "hirag: exact match in lower case without punctuation, articles kept; F1 over cl100k_base tokens of the texts "
        "as they are written, as in the evaluation of the HiRAG reference."
    ),
    "unicode": (
        "unicode: without case, punctuation and symbols of any script, articles kept; letters of scripts without "
        "spaces count one by one. A definition of this program, not to be compared with published figures."
    ),
}
