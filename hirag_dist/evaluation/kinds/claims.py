"""`eval claims`: answers taken apart into factual claims, which are counted and grouped (GraphRAG paper, section 4.2).

Comprehensiveness is the number of distinct claims of an answer, diversity the number of clusters that they make. No
judge compares anything, so neither position nor style decides; a model lists the claims, and what it lists is what is
counted. Claims are not checked: a false one counts as a true one does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, Final

import numpy as np

from hirag_dist.core.prompts.evaluation_requests import answer_claims_request, parse_list
from hirag_dist.evaluation.answer_collections import AnswerCollections
from hirag_dist.evaluation.kinds.judge import AnswerMaterial, read_verdicts
from hirag_dist.evaluation.kinds.judge_report import p_text
from hirag_dist.evaluation.metrics.overlap import (
    THRESHOLDS,
    LabelAgreement,
    cluster_counts,
    distinct_claims,
    label_agreement,
)
from hirag_dist.evaluation.metrics.statistics import bootstrap_means, holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import VerdictTable, majority
from hirag_dist.evaluation.questions import question_id, take_records
from hirag_dist.evaluation.session import Session
from hirag_dist.evaluation.work_units import Findings, WorkUnit
from hirag_dist.html import Bars, Cell, Lines, Section, Table, Text
from hirag_dist.readers import Unreadable
from hirag_dist.types import FloatVector, Rejected

STEP: Final = "claims"
MEASURES: Final = ("claims", *(f"clusters at {threshold:g}" for threshold in THRESHOLDS))


@dataclass
class ClaimCounts:
    """The measures of each answer, by method and question.

    Attributes:
        counts: method → question id → (1 + n_thresholds,) distinct claims, then clusters at each threshold.
        listed: claims as they were listed, equal ones too.
    """

    counts: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    listed: int = 0

    def add(self, method: str, question: str, claims: Sequence[str]) -> None:
        """Count the claims of an answer."""
        distinct = distinct_claims(claims)
        self.listed += len(claims)
        self.counts.setdefault(method, {})[question] = [len(distinct), *cluster_counts(distinct)]

    @property
    def methods(self) -> list[str]:
        """Their names, in order."""
        return list(self.counts)

    def table(self, questions: Sequence[str]) -> FloatVector:
        """Return (n_methods, n_questions, 1 + n_thresholds) measures, NaN where an answer has none."""
        table = np.full((len(self.counts), len(questions), len(MEASURES)), np.nan)
        for row, found in enumerate(self.counts.values()):
            for column, question in enumerate(questions):
                if question in found:
                    table[row, column] = found[question]
        return table

    @property
    def questions(self) -> list[str]:
        """The ids of all questions that an answer was counted of."""
        return list(dict.fromkeys(question for found in self.counts.values() for question in found))


async def list_claims(session: Session, sets: AnswerCollections, role: str) -> ClaimCounts:
    """Have the claims of all answers listed, and count them; what failed is a dead letter.

    An empty answer has no claims, and no call is made about it.

    Args:
        role: who lists them.
    """
    form = "claims" if await session.structured(role) else None

    async def ask(item: tuple[str, str]) -> dict[str, Any] | Rejected:
        method, question = item
        answer = sets.answers[method][question]
        found: list[str] | Rejected = []
        if answer:
            request = answer_claims_request(sets.texts[question], answer, session.prompts, role=role, form=form)
            found = await session.pool.ask(request, lambda reply: parse_list(reply, "claims", may_be_empty=True))
        if isinstance(found, Rejected):
            return found
        return {"query_id": question, "method": method, "claims": found}

    counts = ClaimCounts({method: {} for method in sets.methods})
    async for outcome in await session.map(STEP, _units(session, sets, role), ask):
        counts.add(*outcome.item, outcome.value["claims"])
    return counts


def _units(session: Session, sets: AnswerCollections, role: str) -> Iterator[WorkUnit[tuple[str, str]]]:
    asks = session.asks(role, "claims")
    for question, text in sets.texts.items():
        for method, answers in sets.answers.items():
            if question in answers:
                decides = {
                    "id": question,
                    "question": text,
                    "method": method,
                    "answer": answers[question],
                    "role": role,
                    "asks": asks,
                }
                yield WorkUnit(f"{question} {method}", decides, (method, question))


def read_claims(paths: Sequence[str]) -> tuple[ClaimCounts, list[Unreadable]]:
    """Read recorded claims, and count them; with the records that hold none, and why.

    A record has `query_id` (or `question_id`), `method`, and `claims`, a list of texts, which may be empty. Lines of
    `outcomes/claims.jsonl` are such records.

    Raises:
        InputError: a file is not there, or holds no claims.
    """
    counts = ClaimCounts()

    def take(fields: Mapping[str, Any]) -> str:
        value = fields.get("value")  # of a line of outcomes/claims.jsonl
        if isinstance(value, dict):
            fields = value
        question, method, claims = question_id(fields), fields.get("method"), fields.get("claims")
        if "dead_letter" in fields:
            return f"a dead letter: {fields['dead_letter']}"
        if not question or not isinstance(method, str) or not method:
            return "no query_id and method"
        if not isinstance(claims, list) or not all(isinstance(claim, str) for claim in claims):
            return "claims is not a list of texts"
        if question in counts.counts.get(method, {}):
            return f"claims of {method} for question {question!r} stand there a second time"
        counts.add(method, question, claims)
        return ""

    return counts, take_records(paths, "claims", take)


async def count_claims(
    session: Session, *, material: AnswerMaterial, role: str, judgements: Sequence[str] = ()
) -> Findings:
    """Have claims of the answers listed, and return what is found.

    Args:
        role: who lists them.
        judgements: files of a judge's verdicts on the same answers.

    Raises:
        InputError: a file holds nothing that can be used.
    """
    verdicts = _verdicts(session, judgements)  # before anything is paid
    counts = await list_claims(session, await material.gather(session), role)
    return _findings(counts, verdicts, material.counts)


async def recount_claims(session: Session, *, paths: Sequence[str], judgements: Sequence[str] = ()) -> Findings:
    """Count recorded claims, and return what is found.

    Raises:
        InputError: a file holds nothing that can be used.
    """
    counts, unreadable = read_claims(paths)
    session.refuse_records("claims", unreadable)
    return _findings(counts, _verdicts(session, judgements), {})


def _verdicts(session: Session, judgements: Sequence[str]) -> VerdictTable | None:
    if not judgements:
        return None
    verdicts, unreadable = read_verdicts(judgements)
    session.refuse_records("verdicts", unreadable)
    return verdicts


def _findings(counts: ClaimCounts, verdicts: VerdictTable | None, read: Mapping[str, int]) -> Findings:
    results = claim_results(counts, verdicts)
    return Findings(results, claim_sections(results), [claim_table(results)], read)


_LABELS: Mapping[str, Sequence[int]] = {  # criterion of a judge → places of the measures that stand for it
    "comprehensiveness": [0],
    "diversity": range(1, len(MEASURES)),
}
_RULE = (
    "Claims are the distinct factual claims that a model lists of an answer; clusters are groups of them by complete "
    "linkage over 1 - ROUGE-L, cut at each distance (GraphRAG paper, section 4.2, tables 3 and 4). Intervals are 95 % "
    "bootstraps over questions. p is of the Wilcoxon signed-rank test over the questions that both methods have, "
    "corrected by Holm–Bonferroni over the pairs of methods of a measure. Claims are counted, not checked."
)


def claim_results(counts: ClaimCounts, verdicts: VerdictTable | None = None) -> dict[str, Any]:
    """Return the results as JSON: docs/how-to/evaluate.md#judge-win-rates describes them.

    Args:
        verdicts: of a judge on the same answers, to compare the counts with.
    """
    questions = counts.questions
    table = counts.table(questions)
    flat = np.moveaxis(table, 0, 1).reshape(len(questions), -1)
    means = bootstrap_means(flat)
    methods = {
        method: {
            "answers": int(np.sum(~np.isnan(table[row, :, 0]))),
            **dict(zip(MEASURES, means[row * len(MEASURES) : (row + 1) * len(MEASURES)], strict=True)),
        }
        for row, method in enumerate(counts.methods)
    }
    return {
        "thresholds": list(THRESHOLDS),
        "questions": len(questions),
        "claims_listed": counts.listed,
        "claims_distinct": int(np.nansum(table[:, :, 0])),
        "methods": methods,
        "pairs": _pairs(counts, table),
        "agreement": [] if verdicts is None else _agreement(counts, questions, table, verdicts),
    }


def _pairs(counts: ClaimCounts, table: FloatVector) -> list[dict[str, Any]]:
    pairs = list(combinations(range(len(counts.methods)), 2))
    if not pairs:
        return []
    differences = np.stack([table[one] - table[other] for one, other in pairs], axis=1)  # questions, pairs, measures
    intervals = bootstrap_means(differences.reshape(len(differences), -1))
    compared = [int(np.sum(~np.isnan(differences[:, place, 0]))) for place in range(len(pairs))]
    tested = [place for place in range(len(pairs)) if compared[place]]  # others are no test of the family
    alone = {place: [wilcoxon(differences[:, place, number]) for number in range(len(MEASURES))] for place in tested}
    corrected = [
        dict(zip(tested, holm([alone[place][number].p for place in tested]), strict=True))
        for number in range(len(MEASURES))
    ]
    return [
        {
            "first": counts.methods[one],
            "second": counts.methods[other],
            "questions": compared[place],
            "measures": {
                name: {
                    "difference": intervals[place * len(MEASURES) + number],
                    "z": alone[place][number].z if place in alone else None,
                    "p": alone[place][number].p if place in alone else None,
                    "p_holm": corrected[number].get(place),
                }
                for number, name in enumerate(MEASURES)
            },
        }
        for place, (one, other) in enumerate(pairs)
    ]


def _agreement(
    counts: ClaimCounts, questions: Sequence[str], table: FloatVector, verdicts: VerdictTable
) -> list[dict[str, Any]]:
    """Return, for each criterion and measure, how far they agree: over all pairs together, and pair by pair."""
    column_of = {question: column for column, question in enumerate(questions)}
    known = [place for place, question in enumerate(verdicts.questions) if question in column_of]
    columns = [column_of[verdicts.questions[place]] for place in known]
    found = []
    for criterion, measures in _LABELS.items():
        if criterion not in verdicts.criteria:
            continue
        for measure in measures:
            labels, differences, rows = [], [], []
            for place, pair in enumerate(verdicts.pairs):
                if pair.first not in counts.counts or pair.second not in counts.counts:
                    continue
                part = verdicts.where(pair=place, criterion=verdicts.criteria.index(criterion))
                judged = np.bincount(part.question, minlength=len(verdicts.questions))[known] > 0
                one, other = (counts.methods.index(name) for name in pair[:2])
                gap = (table[one, :, measure] - table[other, :, measure])[columns]
                labels.append(majority(part)[known])
                differences.append(np.where(judged, gap, np.nan))
                rows.append((pair, label_agreement(labels[-1], differences[-1])))
            if not rows:
                continue
            whole = label_agreement(np.concatenate(labels), np.concatenate(differences))
            about = {"criterion": criterion, "measure": MEASURES[measure]}
            found.append(about | {"first": None, "second": None} | _said(whole))
            found += [about | {"first": pair.first, "second": pair.second} | _said(each) for pair, each in rows]
    return found


def _said(agreed: LabelAgreement) -> dict[str, Any]:
    return {
        "compared": agreed.compared,
        "labelled": agreed.labelled,
        "same": agreed.same,
        "tied_counts": agreed.tied,
        "rate": agreed.rate,
    }


def claim_sections(results: Mapping[str, Any]) -> list[Section]:
    """Return the sections of the page."""
    methods = results["methods"]
    claims = {"claims": [(method, found["claims"]) for method, found in methods.items()]}
    curves = {
        method: [(threshold, found[name].value) for threshold, name in zip(THRESHOLDS, MEASURES[1:], strict=True)]
        for method, found in methods.items()
        if found["answers"]
    }
    sections: list[Section] = [
        Text("How to read this", [_RULE]),
        claim_table(results),
        Bars("Comprehensiveness: claims of an answer", claims, "Mean distinct claims, with intervals.", ".1f", None),
        Lines("Diversity: clusters of claims", "distance at which clusters are cut", "clusters", curves, form=".1f"),
    ]
    if results["pairs"]:
        sections.append(_pair_table(results))
    if results["agreement"]:
        sections.append(_agreement_table(results))
    return sections


def claim_table(results: Mapping[str, Any]) -> Table:
    """Return the means of each method as a table."""
    rows: list[list[Cell]] = [
        [method, found["answers"], *(found[name] for name in MEASURES)] for method, found in results["methods"].items()
    ]
    return Table("Claims and clusters of an answer", ["method", "answers", *MEASURES], rows, form=".2f")


def _pair_table(results: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [f"{pair['first']} – {pair['second']}", name, pair["questions"], found["difference"], p_text(found["p_holm"])]
        for pair in results["pairs"]
        for name, found in pair["measures"].items()
    ]
    return Table("Pairs of methods", ["pair", "measure", "questions", "difference", "p (Holm)"], rows, form=".2f")


def _agreement_table(results: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [
            "all pairs" if row["first"] is None else f"{row['first']} – {row['second']}",
            row["criterion"],
            row["measure"],
            *(row[name] for name in ("compared", "labelled", "same", "tied_counts", "rate")),
        ]
        for row in results["agreement"]
    ]
    columns = ["pair", "criterion", "measure", "compared", "labelled", "same", "counts equal", "rate"]
    note = (
        "A label is the answer that more than half of the verdicts on a question prefer; where there is none, the "
        "question is not labelled. The rate is the share of labels that the counts agree with (GraphRAG paper, 5.2)."
    )
    return Table("Agreement with the judge", columns, rows, note, ".1%")
