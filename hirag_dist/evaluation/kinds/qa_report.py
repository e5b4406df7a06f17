"""Report of scored answers: `Scoreboard.findings` as tables and bars."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hirag_dist.evaluation.kinds.scoring_rules import FIGURES, ScoringRules
from hirag_dist.html import Bars, Section, Table, Text

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
    "cognee": "cognee: exact match but for case; F1 over words in lower case without punctuation, articles kept.",
    "unicode": (
        "unicode: without case, punctuation and symbols of any script, articles kept; letters of scripts without "
        "spaces count one by one. A definition of this program, not to be compared with published figures."
    ),
}
