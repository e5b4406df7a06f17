"""From verdicts to figures and sections: the family that is corrected, pairs without a verdict, what is drawn when."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import pytest

from hirag_dist.evaluation.kinds.judge_report import findings_of, judging_results, judging_sections
from hirag_dist.evaluation.metrics.statistics import holm, wilcoxon
from hirag_dist.evaluation.metrics.win_rates import AnswerPair, VerdictRow, VerdictTable, verdict_table

CRITERIA = ("diversity", "overall")


def judged(wins: Mapping[tuple[str, str], Sequence[int]]) -> VerdictTable:
    """Verdicts of both orders: the first method wins so many of the two on each question, by each criterion alike."""
    pairs = [AnswerPair(*methods) for methods in wins]
    rows = [
        VerdictRow(pair, criterion, f"q{question}", "judge", swapped, float(count > swapped))
        for pair, counts in zip(pairs, wins.values(), strict=True)
        for question, count in enumerate(counts)
        for criterion in CRITERIA
        for swapped in (False, True)
    ]
    return verdict_table(rows, pairs, CRITERIA)


THREE = judged({("a", "b"): [2, 2, 2, 2, 1, 0], ("a", "c"): [1, 1, 2, 2, 0, 1], ("b", "c"): [1] * 6})


def test_the_family_is_the_pairs_of_one_criterion() -> None:
    found = [each for each in findings_of(THREE) if each.criterion == "overall"]
    differences = [[100, 100, 100, 100, 0, -100], [0, 0, 100, 100, -100, 0], [0] * 6]
    alone = [wilcoxon(each).p for each in differences]
    assert [each.test.p for each in found if each.test] == pytest.approx(alone)
    assert [each.p for each in found] == pytest.approx(holm(alone))
    assert found[0].p != pytest.approx(found[0].test.p if found[0].test else 0)


def test_a_pair_without_a_verdict_has_no_figure_and_is_in_no_family() -> None:
    verdicts = judged({("a", "b"): [2, 2, 1], ("a", "c"): []})
    found = {(each.pair.second, each.criterion): each for each in findings_of(verdicts)}
    empty = found["c", "overall"]
    assert (empty.tally.n, empty.balanced, empty.test, empty.p) == (0, None, None, None)
    assert math.isnan(empty.win_rate.value)
    assert found["b", "overall"].p == found["b", "overall"].test.p  # type: ignore[union-attr]
    results = judging_results(verdicts, list(found.values()))
    assert results["pairs"][1]["criteria"]["overall"]["p_holm"] is None
    assert judging_sections(verdicts, list(found.values()))
