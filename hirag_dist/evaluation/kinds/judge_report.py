"""Report of verdicts: win rates with intervals and tests, and the influence of position, length and judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hirag_dist.evaluation.metrics.statistics import SignedRank, bootstrap_means, holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import (
    Agreement,
    AnswerPair,
    VerdictTable,
    WinTally,
    agreement,
    balanced_rate,
    by_question,
    length_bias,
    pair_titles,
    position_bias,
    replicate_agreement,
    score_differences,
    tally,
)
from hirag_dist.html import Bars, Cell, Matrix, Section, Table, Text
from hirag_dist.types import IntVector
from hirag_dist.types.statistics import NOTHING, Interval

_MAX_PAIRS = 6  # in a chart of all criteria
_RULE = (
    "Every pair of answers is judged in both orders. A win rate is of verdicts, a tie counting half; its interval is a "
    "95 % bootstrap over questions, with all verdicts on a question together. p is of the Wilcoxon signed-rank test "
    "over the questions' mean scores, corrected by Holm–Bonferroni over the pairs of methods of a criterion, as in "
    "appendix G of the GraphRAG paper."
)


@dataclass(frozen=True, slots=True)
class JudgingFinding:
    """Figures of the verdicts on one pair by one criterion.

    Attributes:
        win_rate: of the pair's first method.
        balanced: the same, with both orders weighing alike; None where an order has no verdict.
        test: the Wilcoxon signed-rank test alone; None without a verdict.
        p: its p-value, corrected within the criterion.
    """

    pair: AnswerPair
    criterion: str
    tally: WinTally
    win_rate: Interval
    balanced: float | None
    test: SignedRank | None
    p: float | None


def findings_of(verdicts: VerdictTable) -> list[JudgingFinding]:
    """Return the findings on each pair by each criterion, pairs in order, criteria in order."""
    cells = [(pair, criterion) for pair in range(len(verdicts.pairs)) for criterion in range(len(verdicts.criteria))]
    parts = [verdicts.where(pair=pair, criterion=criterion) for pair, criterion in cells]
    rates = _rates(parts)
    alone = [wilcoxon(score_differences(part)) if len(part) else None for part in parts]
    corrected: dict[int, float] = {}
    for criterion in range(len(verdicts.criteria)):
        family = {place: test.p for place, test in enumerate(alone) if test and cells[place][1] == criterion}
        corrected |= dict(zip(family, holm(list(family.values())), strict=True))
    return [
        JudgingFinding(
            verdicts.pairs[pair],
            verdicts.criteria[criterion],
            tally(parts[place]),
            rates[place],
            balanced_rate(parts[place]),
            alone[place],
            corrected.get(place),
        )
        for place, (pair, criterion) in enumerate(cells)
    ]


def _rates(parts: Sequence[VerdictTable]) -> list[Interval]:
    if not parts or not parts[0].questions:
        return [NOTHING] * len(parts)
    sums, counts = (np.stack(columns, axis=1) for columns in zip(*map(by_question, parts), strict=True))
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return bootstrap_means(means, counts)


def judging_results(
    verdicts: VerdictTable, lengths: Mapping[int, IntVector], found: Sequence[JudgingFinding]
) -> dict[str, Any]:
    """Return the results as JSON: docs/how-to/evaluate.md#judge-win-rates describes them.

    Args:
        lengths: place of a pair → (n_questions, 2) tokens of its answers, negative where unknown.
        found: `findings_of` the verdicts.
    """
    several = len(verdicts.judges) > 1
    apart = {name: findings_of(verdicts.where(judge=place)) for place, name in enumerate(verdicts.judges) if several}
    return {
        "criteria": list(verdicts.criteria),
        "judges": list(verdicts.judges),
        "questions": len(verdicts.questions),
        "verdicts": len(verdicts),
        "pairs": [
            {
                "name": pair.name,
                "first": pair.first,
                "second": pair.second,
                "criteria": {
                    each.criterion: _cell_results(
                        verdicts.where(pair=place, criterion=verdicts.criteria.index(each.criterion)),
                        each,
                        lengths.get(place),
                        {judge: own[number] for judge, own in apart.items()},
                    )
                    for number, each in enumerate(found)
                    if each.pair == pair
                },
            }
            for place, pair in enumerate(verdicts.pairs)
        ],
        "position": {
            name: asdict(position_bias(verdicts.where(judge=place))) for place, name in enumerate(verdicts.judges)
        },
        "agreement": _agreements(verdicts, several, agreement),
        "replicates": _agreements(verdicts, bool(np.any(verdicts.replicate > 0)), replicate_agreement),
    }


def _cell_results(
    part: VerdictTable, found: JudgingFinding, lengths: IntVector | None, apart: Mapping[str, JudgingFinding]
) -> dict[str, Any]:
    """Return the results of one pair by one criterion.

    Args:
        apart: judge → what its verdicts alone say, where there are several.
    """
    return {
        **_rate_results(found),
        "balanced_win_rate": found.balanced,
        "position": asdict(position_bias(part)),
        "length": None if lengths is None else asdict(length_bias(part, lengths)),
        "by_judge": {judge: _rate_results(own) for judge, own in apart.items()},
    }


def _rate_results(found: JudgingFinding) -> dict[str, Any]:
    return {
        "wins": found.tally.wins,
        "ties": found.tally.ties,
        "losses": found.tally.losses,
        "win_rate": found.win_rate,
        "z": None if found.test is None else found.test.z,
        "p": None if found.test is None else found.test.p,
        "p_holm": found.p,
    }


def _agreements(verdicts: VerdictTable, wanted: bool, measure: Callable[[VerdictTable], Agreement]) -> dict[str, Any]:
    """Return agreement by criterion; empty where there is no second rater."""
    if not wanted:
        return {}
    found = {}
    for place, criterion in enumerate(verdicts.criteria):
        agreed = measure(verdicts.where(criterion=place))
        found[criterion] = {
            "items": agreed.n_items,
            "same": agreed.same,
            "fleiss_kappa": agreed.fleiss,
            "cohen_kappa": [{"raters": list(raters), "kappa": kappa} for raters, kappa in agreed.cohen.items()],
        }
    return found


def judging_sections(
    verdicts: VerdictTable, results: Mapping[str, Any], found: Sequence[JudgingFinding]
) -> list[Section]:
    """Return the sections of the page."""
    titles = pair_titles(verdicts.pairs)
    sections: list[Section] = [Text("How to read this", [_RULE]), win_rate_table(found)]
    sections += _bars(verdicts, found)
    sections += _matrices(verdicts, found)
    sections.append(_position_table(results, titles))
    lengths = _length_table(results, titles)
    sections += [lengths] if lengths.rows else []
    if len(verdicts.judges) > 1:
        sections += [
            _judge_table(verdicts, results, titles),
            _agreement_table("Agreement of the judges", results["agreement"]),
        ]
    if results["replicates"]:
        sections.append(_agreement_table("Agreement of the judges with themselves, asked again", results["replicates"]))
    return sections


def win_rate_table(found: Sequence[JudgingFinding]) -> Table:
    """Return the win rates as a table."""
    titles = pair_titles(list(dict.fromkeys(each.pair for each in found)))
    rows: list[list[Cell]] = [
        [
            titles[each.pair],
            each.criterion,
            each.win_rate,
            each.tally.wins,
            each.tally.ties,
            each.tally.losses,
            p_text(each.p),
        ]
        for each in found
    ]
    columns = ["pair", "criterion", "win rate of the first", "wins", "ties", "losses", "p (Holm)"]
    return Table("Win rates", columns, rows, form=".1%")


def p_text(p: float | None) -> str:
    """Return a p-value as tables have it.

    >>> p_text(0.0370), p_text(2e-7), p_text(None)
    ('0.037', '<0.001', '–')
    """
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"


def _bars(verdicts: VerdictTable, found: Sequence[JudgingFinding]) -> list[Section]:
    titles = pair_titles(verdicts.pairs)
    note = "The share of verdicts that the first method of a pair wins, with 95 % intervals; half is no difference."
    if len(verdicts.pairs) <= _MAX_PAIRS:
        series = {
            name: [(titles[each.pair], each.win_rate) for each in found if each.criterion == name]
            for name in verdicts.criteria
        }
        return [Bars("Win rates of the first of two", series, note)]
    return [
        Bars(
            f"Win rates of the first of two: {name}",
            {name: [(titles[each.pair], each.win_rate) for each in found if each.criterion == name]},
            note,
        )
        for name in verdicts.criteria
    ]


def _matrices(verdicts: VerdictTable, found: Sequence[JudgingFinding]) -> list[Section]:
    """Return a square for each criterion, where three methods or more were compared each with another."""
    methods = list(dict.fromkeys(name for pair in verdicts.pairs for name in pair[:2]))
    if len(methods) < 3 or any(pair.name for pair in verdicts.pairs):
        return []
    sections: list[Section] = []
    for criterion in verdicts.criteria:
        cells: list[list[float | None]] = [[None] * len(methods) for _ in methods]
        for each in found:
            if each.criterion == criterion and each.tally.rate is not None:
                row, column = methods.index(each.pair.first), methods.index(each.pair.second)
                cells[row][column], cells[column][row] = each.tally.rate, 1 - each.tally.rate
        note = "How often the method of a row wins over that of a column."
        sections.append(Matrix(f"Each against each: {criterion}", methods, cells, note))
    return sections


def _pair(said: Mapping[str, Any]) -> AnswerPair:
    return AnswerPair(said["first"], said["second"], said["name"])


def _position_table(results: Mapping[str, Any], titles: Mapping[AnswerPair, str]) -> Table:
    rows: list[list[Cell]] = []
    for pair in results["pairs"]:
        for criterion, cell in pair["criteria"].items():
            bias = cell["position"]
            twice = bias["twice"]
            shares = [bias[key] / twice if twice else None for key in ("flipped", "half_tied")]
            rows.append(
                [titles[_pair(pair)], criterion, bias["first_shown"], bias["when_first"], bias["when_second"], *shares]
            )
    columns = ["pair", "criterion", "first shown wins", "first method, shown first", "… shown second"]
    columns += ["verdicts that flip", "tie in one order"]
    note = (
        "Without bias the answer shown first wins as often as the other, and a method as often in either place. A "
        "verdict flips where the judge prefers the other method once the answers are exchanged."
    )
    return Table("Position", columns, rows, note, ".1%")


def _length_table(results: Mapping[str, Any], titles: Mapping[AnswerPair, str]) -> Table:
    rows: list[list[Cell]] = []
    for pair in results["pairs"]:
        for criterion, cell in pair["criteria"].items():
            bias = cell["length"]
            if bias is not None and bias["mean_first"] is not None:
                shown = [bias[key] for key in ("longer_wins", "when_longer", "when_shorter")]
                means = [round(bias["mean_first"]), round(bias["mean_second"])]
                rows.append([titles[_pair(pair)], criterion, *means, *shown])
    columns = ["pair", "criterion", "mean tokens, first", "… second", "longer wins"]
    columns += ["first method, where longer", "… where shorter"]
    note = "How far the longer answer is preferred. A method that writes more gains by it whatever it says."
    return Table("Length", columns, rows, note, ".1%")


def _judge_table(verdicts: VerdictTable, results: Mapping[str, Any], titles: Mapping[AnswerPair, str]) -> Table:
    rows: list[list[Cell]] = [
        [
            titles[_pair(pair)],
            criterion,
            *(cell["by_judge"][judge]["win_rate"] for judge in verdicts.judges),
        ]
        for pair in results["pairs"]
        for criterion, cell in pair["criteria"].items()
    ]
    return Table(
        "Win rates of the first method, judge by judge", ["pair", "criterion", *verdicts.judges], rows, form=".1%"
    )


def _agreement_table(title: str, agreements: Mapping[str, Any]) -> Table:
    rows: list[list[Cell]] = [
        [criterion, agreed["items"], agreed["same"], agreed["fleiss_kappa"]] for criterion, agreed in agreements.items()
    ]
    note = "κ is 1 where all agree, 0 where they agree as often as chance would have it, and empty where undefined."
    return Table(title, ["criterion", "verdicts compared", "all the same", "Fleiss' κ"], rows, note)
