"""Report of claim counts: methods, pairs of methods, and the agreement of the counts with a judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from hirag_dist.evaluation.claims import MEASURES, ClaimCounts
from hirag_dist.evaluation.judging_report import p_text
from hirag_dist.evaluation.metrics.claims import THRESHOLDS, LabelAgreement, label_agreement
from hirag_dist.evaluation.metrics.statistics import bootstrap_means, holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import VerdictTable, majority
from hirag_dist.html import Bars, Cell, Lines, Section, Table, Text
from hirag_dist.types import FloatVector

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
    """Return the results as JSON: docs/how-to/judge-answers.md describes them.

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
