"""Measures of several systems on the same questions: means with intervals, paired tests, and their tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hirag_dist.html import Bars, Cell, Section, Table
from hirag_dist.types import FloatVector
from hirag_dist.types.index_info import NOTHING, Interval

_DRAWN_AT_ONCE = 1 << 16  # numbers of rows that stay in the cache of a processor


def bootstrap_means(values: ArrayLike, *, n_resamples: int = 10_000, seed: int = 0) -> list[Interval]:
    """Return the mean of each column with its 95 % percentile bootstrap interval, all over the same resamples.

    Rows (questions) are drawn with replacement, all columns of a row together: the interval of the mean of a column of
    differences is the paired one.

    Args:
        values: (n_rows, n_columns); NaN where a column has no value for a row, which then counts for nothing.
        seed: of the draws; equal input gives equal intervals.

    Returns:
        (n_columns,) intervals; all NaN for a column without a value. Of one row the interval is the mean itself: it
        says nothing.

    Raises:
        ValueError: values without two dimensions.
    """
    table = np.asarray(values, np.float64)
    if table.ndim != 2:
        raise ValueError(f"values must have two dimensions, got {table.ndim}")
    n_rows, n_columns = table.shape
    known = ~np.isnan(table)
    rows = np.concatenate([np.where(known, table, 0.0), known], axis=1)
    rng = np.random.default_rng(seed)
    sums = np.zeros((n_resamples, 2 * n_columns))
    n_at_once = max(_DRAWN_AT_ONCE // max(n_rows, 1), 1)
    for first in range(0, n_resamples if n_rows else 0, n_at_once):
        block = sums[first : first + n_at_once]
        drawn_rows = rng.integers(0, n_rows, (len(block), n_rows)) + n_rows * np.arange(len(block))[:, None]
        times = np.bincount(drawn_rows.ravel(), minlength=len(block) * n_rows).reshape(len(block), n_rows)
        block[:] = times @ rows
    found = []
    for column in range(n_columns):
        drawn = sums[:, n_columns + column]
        if not drawn.any():
            found.append(NOTHING)
            continue
        means = sums[drawn > 0, column] / drawn[drawn > 0]  # a draw that meets no value of the column has no mean
        low, high = np.quantile(means, [0.025, 0.975])
        found.append(Interval(float(table[known[:, column], column].mean()), float(low), float(high)))
    return found


class SignedRank(NamedTuple):
    """A Wilcoxon signed-rank test: the standardised sum of ranks, positive where the first is larger, and p."""

    z: float
    p: float


def wilcoxon(differences: ArrayLike) -> SignedRank | None:
    """Test whether paired differences are symmetric about zero, by scipy's normal approximation, two-sided.

    Args:
        differences: (n,) first minus second of each pair; NaN and pairs without a difference are left out.

    Returns:
        z = 0 and p = 1 where no pair differs; None without a pair.
    """
    known = np.asarray(differences, np.float64)
    known = known[~np.isnan(known)]
    if not len(known):
        return None
    if not np.any(known):
        return SignedRank(0.0, 1.0)
    from scipy import stats  # not at the top: a large import

    # Of the one-sided test, since that of the two-sided one hides the sign.
    z = float(stats.wilcoxon(known, correction=False, alternative="greater", method="asymptotic").zstatistic)
    return SignedRank(z, min(1.0, math.erfc(abs(z) / math.sqrt(2))))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p-values of one family of tests, adjusted by Holm–Bonferroni, in the same order.

    The k-th smallest of m is multiplied by m − k + 1; none is below a smaller one's, or above 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda each: p_values[each])):
        largest = max(largest, min(1.0, p_values[place] * (len(p_values) - rank)))
        adjusted[place] = largest
    return adjusted


def tested(differences: Sequence[ArrayLike]) -> list[dict[str, float | None]]:
    """Return `z`, `p` and `p_holm` of each test of a family, as `wilcoxon` takes its pairs; None without a pair."""
    tests = [wilcoxon(each) for each in differences]
    corrected = iter(holm([test.p for test in tests if test is not None]))
    return [
        {"z": None, "p": None, "p_holm": None} if test is None else {**test._asdict(), "p_holm": next(corrected)}
        for test in tests
    ]


_MAX_TYPES = 20
_BASELINE = "naive"
Rows = NDArray[np.bool_]
Pairs = Sequence[tuple[str, str]]


class Board:
    """Numbers by question, system and measure.

    Args:
        types: (n_questions,) types of the questions, by which results are grouped.
    """

    def __init__(self, types: Sequence[str], systems: Sequence[str], measures: Sequence[str]) -> None:
        self.systems, self.measures = tuple(systems), tuple(measures)
        self._types = np.array(types, dtype=object)
        self._values = np.full((len(types), len(systems), len(measures)), np.nan)

    def add(self, question: int, system: str, values: Mapping[str, float | None]) -> None:
        """Note values of one system on one question, by measure; None is no value."""
        column = self.systems.index(system)
        for measure, value in values.items():
            self._values[question, column, self.measures.index(measure)] = np.nan if value is None else value

    def column(self, system: str, measure: str) -> FloatVector:
        """Return (n_questions,) values, NaN where there is none."""
        return self._values[:, self.systems.index(system), self.measures.index(measure)]

    def known(self, system: str, measure: str) -> FloatVector:
        """Return the values that there are."""
        values = self.column(system, measure)
        return values[~np.isnan(values)]

    def average(self, system: str, measure: str) -> float | None:
        """Return the mean of the known values; None without one."""
        values = self.known(system, measure)
        return float(values.mean()) if len(values) else None

    def averages(self, measures: Sequence[str]) -> dict[str, dict[str, float | None]]:
        """Return the mean of each measure by system."""
        return {system: {name: self.average(system, name) for name in measures} for system in self.systems}

    def results(self, measures: Sequence[str], pairs: Pairs | None = None) -> dict[str, Any]:
        """Return the comparison as JSON: `measures`, `systems`, `differences`, and the same of each type `by_type`.

        Args:
            pairs: Systems to compare two by two; by default every other one with the first, and with naive retrieval.
        """
        whole = np.ones(len(self._types), bool)
        kinds = sorted({kind for kind in self._types.tolist() if kind})
        groups = {kind: self._types == kind for kind in kinds} if 1 < len(set(self._types)) <= _MAX_TYPES else {}
        chosen = list(pairs or ())
        if pairs is None:
            for other in dict.fromkeys([*(name for name in self.systems if name == _BASELINE), *self.systems[:1]]):
                chosen += [(one, other) for one in self.systems if one != other and (other, one) not in chosen]
        return {
            "measures": list(measures),
            **self._group(measures, chosen, whole),
            "by_type": {kind: self._group(measures, chosen, rows) for kind, rows in groups.items()},
        }

    def _group(self, measures: Sequence[str], pairs: Pairs, rows: Rows) -> dict[str, Any]:
        cells = [(system, name) for system in self.systems for name in measures]
        means = zip(cells, bootstrap_means(_columns(self.column(*cell)[rows] for cell in cells)), strict=True)
        systems: dict[str, dict[str, Interval]] = {system: {} for system in self.systems}
        for (system, name), interval in means:
            systems[system][name] = interval
        known = ~np.isnan(self._values[rows][:, :, [self.measures.index(name) for name in measures]])
        return {
            "questions": int(known.any(axis=(1, 2)).sum()),
            "systems": systems,
            "differences": list(self._differences(measures, pairs, rows)),
        }

    def _differences(self, measures: Sequence[str], pairs: Pairs, rows: Rows) -> Iterator[dict[str, Any]]:
        """Yield the paired difference of each two systems; tests are corrected over the pairs of one measure."""
        if not pairs:
            return
        cells = [(name, first, second) for name in measures for first, second in pairs]
        gaps = [(self.column(first, name) - self.column(second, name))[rows] for name, first, second in cells]
        families = (gaps[start : start + len(pairs)] for start in range(0, len(gaps), len(pairs)))
        tests = [test for family in families for test in tested(family)]
        for (name, first, second), gap, interval, test in zip(
            cells, gaps, bootstrap_means(_columns(gaps)), tests, strict=True
        ):
            yield {
                "measure": name,
                "first": first,
                "second": second,
                "questions": int((~np.isnan(gap)).sum()),
                "difference": interval,
                **test,
            }


def _columns(vectors: Any) -> FloatVector:
    return np.stack(list(vectors), axis=1)


NOTE = (
    "Intervals are 95 % percentile bootstrap intervals over questions. Differences are paired, over the questions that "
    "both have; p is of the Wilcoxon signed-rank test, corrected by Holm–Bonferroni over the pairs of a measure."
)


def mean_table(title: str, results: Mapping[str, Any], form: str = ".3f") -> Table:
    """Return the means of each system with their intervals."""
    names = results["measures"]
    rows: list[list[Cell]] = [
        [system, *(found[name] for name in names)] for system, found in results["systems"].items()
    ]
    return Table(title, ["system", *names], rows, form=form)


def difference_table(
    results: Mapping[str, Any], form: str = "+.3f", measures: Sequence[str] | None = None
) -> list[Table]:
    """Return the paired differences as a table; none where there is one system."""
    rows: list[list[Cell]] = [
        [each["measure"], each["first"], each["second"], each["questions"], each["difference"], p_text(each["p_holm"])]
        for each in results["differences"]
        if measures is None or each["measure"] in measures
    ]
    columns = ["measure", "first", "second", "questions", "first − second", "p (Holm)"]
    return [Table("Paired differences", columns, rows, form=form)] if rows else []


def comparison(title: str, results: Mapping[str, Any], form: str = ".3f", drawn: Sequence[str] = ()) -> list[Section]:
    """Return the sections of a comparison: bars and a table of the means, differences, and means by type.

    Args:
        drawn: Measures that are drawn and shown by type; empty for all.
    """
    names = list(drawn) or list(results["measures"])
    series = {name: [(system, found[name]) for system, found in results["systems"].items()] for name in names}
    by_type: list[list[Cell]] = [
        [kind, system, found["questions"], *(means[name] for name in names)]
        for kind, found in results["by_type"].items()
        for system, means in found["systems"].items()
    ]
    whole = 1.0 if all(found[name].high <= 1 for found in results["systems"].values() for name in names) else None
    sections: list[Section] = [
        Bars(title, series, "", form, whole),
        mean_table(f"{title}, means", results, form),
        *difference_table(results, f"+{form}"),
    ]
    if by_type:
        sections.append(Table("By type of question", ["type", "system", "questions", *names], by_type, form=form))
    return sections


def p_text(p: float | None) -> str:
    """Return a p-value as tables have it.

    >>> p_text(0.0370), p_text(2e-7), p_text(None)
    ('0.037', '<0.001', '–')
    """
    return "–" if p is None else "<0.001" if p < 0.001 else f"{p:.3f}"
