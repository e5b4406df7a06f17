"""Report of verdicts: win rates with intervals and tests, and the influence of the position of an answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hirag_dist.evaluation.metrics.statistics import SignedRank, bootstrap_means, holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import (
    AnswerPair,
    PositionBias,
    VerdictTable,
    WinTally,
    balanced_rate,
    by_question,
    pair_titles,
    position_bias,
    score_differences,
    tally,
)
from hirag_dist.html import Bars, Cell, Matrix, Section, Table, Text
from hirag_dist.types.index_info import NOTHING, Interval

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
        position: how far the position of an answer decides.
    """

    pair: AnswerPair
    criterion: str
    tally: WinTally
    win_rate: Interval
    balanced: float | None
    test: SignedRank | None
    p: float | None
    position: PositionBias


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
            position_bias(parts[place]),
        )
        for place, (pair, criterion) in enumerate(cells)
    ]


def _rates(parts: Sequence[VerdictTable]) -> list[Interval]:
    if not parts or not parts[0].questions:
        return [NOTHING] * len(parts)
    sums, counts = (np.stack(columns, axis=1) for columns in zip(*map(by_question, parts), strict=True))
    means = np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)
    return bootstrap_means(means, counts)


def judging_results(verdicts: VerdictTable, found: Sequence[JudgingFinding]) -> dict[str, Any]:
    """Return the results as JSON: docs/how-to/evaluate.md#judge-win-rates describes them.

    Args:
        found: `findings_of` the verdicts.
    """
    return {
        "criteria": list(verdicts.criteria),
        "questions": len(verdicts.questions),
        "verdicts": len(verdicts),
        "pairs": [
            {
                "name": pair.name,
                "first": pair.first,
                "second": pair.second,
                "criteria": {each.criterion: _cell_results(each) for each in found if each.pair == pair},
            }
            for pair in verdicts.pairs
        ],
        "position": asdict(position_bias(verdicts)),
    }


def _cell_results(found: JudgingFinding) -> dict[str, Any]:
    """Return the results of one pair by one criterion."""
    return {
        "wins": found.tally.wins,
        "ties": found.tally.ties,
        "losses": found.tally.losses,
        "win_rate": found.win_rate,
        "balanced_win_rate": found.balanced,
        "z": None if found.test is None else found.test.z,
        "p": None if found.test is None else found.test.p,
        "p_holm": found.p,
        "position": asdict(found.position),
    }


def judging_sections(verdicts: VerdictTable, found: Sequence[JudgingFinding]) -> list[Section]:
    """Return the sections of the page."""
    return [
        Text("How to read this", [_RULE]),
        win_rate_table(found),
        *_bars(verdicts, found),
        *_matrices(verdicts, found),
        _position_table(found),
    ]


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


def _position_table(found: Sequence[JudgingFinding]) -> Table:
    titles = pair_titles(list(dict.fromkeys(each.pair for each in found)))
    rows: list[list[Cell]] = []
    for each in found:
        bias = each.position
        shares = [count / bias.twice if bias.twice else None for count in (bias.flipped, bias.half_tied)]
        rates = (bias.first_shown, bias.when_first, bias.when_second)
        rows.append([titles[each.pair], each.criterion, *rates, *shares])
    columns = ["pair", "criterion", "first shown wins", "first method, shown first", "… shown second"]
    columns += ["verdicts that flip", "tie in one order"]
    note = (
        "Without bias the answer shown first wins as often as the other, and a method as often in either place. A "
        "verdict flips where the judge prefers the other method once the answers are exchanged."
    )
    return Table("Position", columns, rows, note, ".1%")
