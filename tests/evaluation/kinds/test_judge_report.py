"""From verdicts to figures and sections: the family that is corrected, pairs without a verdict, what is drawn when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from hirag_dist.evaluation.kinds.judge_report import findings_of, judging_results, judging_sections
from hirag_dist.evaluation.metrics.judge_replies import FIRST, SECOND
from hirag_dist.evaluation.metrics.statistics import holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictTable
from hirag_dist.evaluation.verdict_records import VerdictColumns
from hirag_dist.html import Bars, Matrix, Section, Table
from hirag_dist.types.statistics import Interval

CRITERIA = ("diversity", "overall")


def judged(wins: Mapping[tuple[str, str], Sequence[int]], judges: Sequence[str] = ("judge",)) -> VerdictTable:
    """Verdicts of both orders: the first method wins so many of the two on each question, by each criterion alike."""
    columns = VerdictColumns()
    pairs = [AnswerPair(*methods) for methods in wins]
    for pair, counts in zip(pairs, wins.values(), strict=True):
        for question, count in enumerate(counts):
            for judge in judges:
                for criterion in CRITERIA:
                    columns.add(pair, criterion, f"q{question}", judge, 0, False, FIRST if count > 0 else SECOND)
                    columns.add(pair, criterion, f"q{question}", judge, 0, True, SECOND if count > 1 else FIRST)
    return columns.verdicts(pairs, CRITERIA)


THREE = judged({("a", "b"): [2, 2, 2, 2, 1, 0], ("a", "c"): [1, 1, 2, 2, 0, 1], ("b", "c"): [1] * 6})


def test_the_family_is_the_pairs_of_one_criterion() -> None:
    found = [each for each in findings_of(THREE) if each.criterion == "overall"]
    differences = [[100, 100, 100, 100, 0, -100], [0, 0, 100, 100, -100, 0], [0] * 6]
    alone = [wilcoxon(each).p for each in differences]
    assert [each.test.p for each in found if each.test] == pytest.approx(alone)
    assert [each.p for each in found] == pytest.approx(holm(alone))
    assert found[0].p != pytest.approx(found[0].test.p if found[0].test else 0)


def test_a_win_rate_has_an_interval_over_questions() -> None:
    found = findings_of(THREE)
    first, last = found[0], found[-1]
    assert first.win_rate.value == pytest.approx(9 / 12)
    assert first.win_rate.low < 9 / 12 < first.win_rate.high
    assert (last.win_rate.value, last.win_rate.low, last.win_rate.high) == (0.5, 0.5, 0.5), "every question is the same"


def test_a_pair_without_a_verdict_has_no_figure_and_is_in_no_family() -> None:
    verdicts = judged({("a", "b"): [2, 2, 1], ("a", "c"): []})
    found = {(each.pair.second, each.criterion): each for each in findings_of(verdicts)}
    empty = found["c", "overall"]
    assert (empty.tally.n, empty.balanced, empty.test, empty.p) == (0, None, None, None)
    assert math.isnan(empty.win_rate.value)
    assert found["b", "overall"].p == found["b", "overall"].test.p  # type: ignore[union-attr]
    results = judging_results(verdicts, {}, list(found.values()))
    assert results["pairs"][1]["criteria"]["overall"]["p_holm"] is None
    assert judging_sections(verdicts, results, list(found.values()))


def kinds(verdicts: VerdictTable, lengths: Mapping[int, np.ndarray] | None = None) -> list[Section]:
    found = findings_of(verdicts)
    return judging_sections(verdicts, judging_results(verdicts, lengths or {}, found), found)


def titles(sections: Sequence[Section]) -> list[str]:
    return [section.title for section in sections]


def test_a_square_takes_three_methods() -> None:
    squares = [section for section in kinds(THREE) if isinstance(section, Matrix)]
    assert titles(squares) == ["Each against each: diversity", "Each against each: overall"]
    assert squares[0].names == ["a", "b", "c"]
    assert squares[0].cells == [[None, 0.75, 7 / 12], [0.25, None, 0.5], [1 - 7 / 12, 0.5, None]]
    assert not [section for section in kinds(judged({("a", "b"): [2, 1]})) if isinstance(section, Matrix)]


def test_many_pairs_have_a_chart_for_each_criterion() -> None:
    few = [section for section in kinds(THREE) if isinstance(section, Bars)]
    assert [list(bars.series) for bars in few] == [list(CRITERIA)]
    pairs = [(one, other) for one in "abcd" for other in "wxyz" if one < other]
    many = [section for section in kinds(judged({pair: [2, 1] for pair in pairs})) if isinstance(section, Bars)]
    assert [list(bars.series) for bars in many] == [["diversity"], ["overall"]]


def test_lengths_and_judges_are_told_where_there_are_any() -> None:
    assert not {"Length", "Agreement of the judges"} & set(titles(kinds(THREE)))
    two = judged({("a", "b"): [2, 0]}, judges=("one", "two"))
    sections = kinds(two, {0: np.array([[30, 10], [10, 30]])})
    tables = {section.title: section for section in sections if isinstance(section, Table)}
    assert tables["Length"].rows[1] == ["a – b", "overall", 20, 20, 1.0, 1.0, 0.0]
    assert tables["Agreement of the judges"].rows[1] == ["overall", 4, 1.0, 1.0]
    apart = tables["Win rates of the first method, judge by judge"].rows[1]
    assert [cell.value if isinstance(cell, Interval) else cell for cell in apart] == ["a – b", "overall", 0.5, 0.5]


def test_no_verdict_at_all() -> None:
    nothing = VerdictColumns().verdicts([AnswerPair("a", "b")], CRITERIA)
    assert [each.tally.n for each in findings_of(nothing)] == [0, 0]
    assert kinds(nothing)
