"""Win rates of pairs of methods from a judge's verdicts, and what makes one doubt them: position, length, flips.

A verdict says of one question, of two answers in one order, and of one criterion which of the two is better. It is
kept as the score of the pair's first method: 1 for a win, 0.5 for a tie, 0 for a loss. The GraphRAG paper (appendix G)
scores the same way with 100, 50 and 0, and averages over its runs before it compares questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatVector, IntVector

_EXACT = 1e-12


def cohen_kappa(one: IntVector, other: IntVector) -> float | None:
    """Return the agreement of two raters: 1 for full, 0 for what chance gives, below 0 for less.

    Cohen (1960), "A coefficient of agreement for nominal scales".

    Args:
        one, other: (n_items,) category of each item, the same items in the same order.

    Returns:
        κ, or None where it is undefined: no item, or both raters gave one and the same category to all.

    >>> cohen_kappa(np.array([0, 0, 1, 1]), np.array([0, 0, 1, 0]))
    0.5
    """
    n_items = len(one)
    if not n_items:
        return None
    n_categories = int(max(one.max(), other.max())) + 1
    table = np.bincount(one * n_categories + other, minlength=n_categories**2).reshape(n_categories, n_categories)
    observed = float(np.trace(table)) / n_items
    expected = float(table.sum(axis=1) @ table.sum(axis=0)) / n_items**2
    return _beyond_chance(observed, expected)


def fleiss_kappa(counts: IntVector) -> float | None:
    """Return the agreement of any number of raters.

    Fleiss (1971), "Measuring nominal scale agreement among many raters".

    Args:
        counts: (n_items, n_categories) how many raters gave each item each category; as many for every item.

    Returns:
        κ, or None where it is undefined: no item, fewer than two raters, or one category for everything.

    Raises:
        ValueError: items have different numbers of ratings.
    """
    if not len(counts):
        return None
    raters = counts.sum(axis=1)
    n_raters = int(raters[0])
    if np.any(raters != n_raters):
        raise ValueError("every item must have as many ratings as the others")
    if n_raters < 2:
        return None
    pairs = (counts * (counts - 1)).sum(axis=1) / (n_raters * (n_raters - 1))
    shares = counts.sum(axis=0) / (len(counts) * n_raters)
    return _beyond_chance(float(pairs.mean()), float(shares @ shares))


def _beyond_chance(observed: float, expected: float) -> float | None:
    return None if expected >= 1 - _EXACT else (observed - expected) / (1 - expected)


Mask = NDArray[np.bool_]


class AnswerPair(NamedTuple):
    """Two methods compared. `name` tells comparisons of equal methods apart where there are several."""

    first: str
    second: str
    name: str = ""


def pair_titles(pairs: Sequence[AnswerPair]) -> dict[AnswerPair, str]:
    """Return how each pair is shown: by its methods, and with its name where other pairs have the same methods.

    >>> list(pair_titles([AnswerPair("a", "b", "x"), AnswerPair("a", "c"), AnswerPair("a", "c", "y")]).values())
    ['a – b', 'a – c', 'y: a – c']
    """
    times = Counter((pair.first, pair.second) for pair in pairs)
    return {
        pair: f"{pair.name}: {pair.first} – {pair.second}"
        if pair.name and times[pair.first, pair.second] > 1
        else f"{pair.first} – {pair.second}"
        for pair in pairs
    }


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """Verdicts as columns of (n,) each; names are places in the lists.

    Attributes:
        pairs, criteria, questions, judges: what the columns point at.
        pair, criterion, question, judge: int64 places.
        replicate: int64, 0 for the first asking.
        swapped: bool, whether the pair's second method was shown first.
        score: float64 of the pair's first method: 1, 0.5 or 0.
    """

    pairs: tuple[AnswerPair, ...]
    criteria: tuple[str, ...]
    questions: tuple[str, ...]
    judges: tuple[str, ...]
    pair: IntVector
    criterion: IntVector
    question: IntVector
    judge: IntVector
    replicate: IntVector
    swapped: Mask
    score: FloatVector

    def __len__(self) -> int:
        return len(self.score)

    def where(
        self, pair: int | None = None, criterion: int | None = None, judge: int | None = None, extra: Mask | None = None
    ) -> VerdictTable:
        """Return the verdicts on a pair, by a criterion, of a judge; None leaves all."""
        kept = np.ones(len(self), bool) if extra is None else extra.copy()
        for column, place in ((self.pair, pair), (self.criterion, criterion), (self.judge, judge)):
            if place is not None:
                kept &= column == place
        return replace(
            self,
            pair=self.pair[kept],
            criterion=self.criterion[kept],
            question=self.question[kept],
            judge=self.judge[kept],
            replicate=self.replicate[kept],
            swapped=self.swapped[kept],
            score=self.score[kept],
        )


@dataclass(frozen=True, slots=True)
class WinTally:
    """Verdicts counted, from the first method's side."""

    wins: int
    ties: int
    losses: int

    @property
    def n(self) -> int:
        """All of them."""
        return self.wins + self.ties + self.losses

    @property
    def rate(self) -> float | None:
        """The first method's win rate, 0 to 1, a tie counting half; None without a verdict."""
        return (self.wins + self.ties / 2) / self.n if self.n else None


def tally(verdicts: VerdictTable) -> WinTally:
    """Count wins, ties and losses of the first method."""
    return WinTally(*(int(np.sum(verdicts.score == score)) for score in (1.0, 0.5, 0.0)))


def balanced_rate(verdicts: VerdictTable) -> float | None:
    """Return the mean of the win rates in both orders, which weigh alike also where verdicts are missing.

    None where an order has no verdict.
    """
    orders = [tally(verdicts.where(extra=verdicts.swapped == swapped)).rate for swapped in (False, True)]
    return None if orders[0] is None or orders[1] is None else (orders[0] + orders[1]) / 2


def by_question(verdicts: VerdictTable) -> tuple[FloatVector, IntVector]:
    """Return the first method's scores of each question, added up over orders, judges and replicates.

    Returns:
        (n_questions,) sums and (n_questions,) counts; both 0 for a question without a verdict.
    """
    n_questions = len(verdicts.questions)
    sums = np.bincount(verdicts.question, weights=verdicts.score, minlength=n_questions).astype(np.float64)
    return sums, np.bincount(verdicts.question, minlength=n_questions).astype(np.int64)


def score_differences(verdicts: VerdictTable) -> FloatVector:
    """Return, of every question with a verdict, the mean score of the first method less that of the second.

    In points of 100, as the GraphRAG paper's Table 6 has them: 100 where the first method always won, -100 where the
    second did. Two wins of three and one of three are as far from zero to the last bit, so that they tie in ranks.
    """
    sums, counts = by_question(verdicts)
    known = counts > 0
    scores: FloatVector = 100.0 * (2.0 * sums[known] - counts[known]) / counts[known]
    return scores


@dataclass(frozen=True, slots=True)
class PositionBias:
    """Influence of an answer's position on verdicts.

    Attributes:
        first_shown: win rate of whichever answer stood first; 0.5 without bias where both methods stand first as often.
        when_first, when_second: win rate of the pair's first method when its answer stood first, and second.
        twice: how many times one judge saw one question in both orders of one replicate.
        flipped: of these, both decided, for different methods.
        half_tied: of these, decided in one order, and a tie in the other.
    """

    first_shown: float | None
    when_first: float | None
    when_second: float | None
    twice: int
    flipped: int
    half_tied: int


def position_bias(verdicts: VerdictTable) -> PositionBias:
    """Return how far the order of the answers decides. Verdicts of several pairs and criteria may be mixed."""
    shown = np.where(verdicts.swapped, 1.0 - verdicts.score, verdicts.score)
    rates = [tally(verdicts.where(extra=verdicts.swapped == swapped)).rate for swapped in (False, True)]
    one, other = _both_orders(verdicts)
    decided = (one != 0.5) & (other != 0.5)
    return PositionBias(
        float(shown.mean()) if len(shown) else None,
        rates[0],
        rates[1],
        len(one),
        int(np.sum(decided & (one != other))),
        int(np.sum((one == 0.5) != (other == 0.5))),
    )


def _both_orders(verdicts: VerdictTable) -> tuple[FloatVector, FloatVector]:
    """Return the scores of what was judged in both orders: in the one, and in the other."""
    columns = (verdicts.pair, verdicts.criterion, verdicts.question, verdicts.judge, verdicts.replicate)
    keys = _joint(columns)
    found = []
    for swapped in (False, True):
        mine = verdicts.swapped == swapped
        places, at = np.unique(keys[mine], return_index=True)
        found.append((places, verdicts.score[mine][at]))
    (left, one), (right, other) = found
    _, in_left, in_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return one[in_left], other[in_right]


@dataclass(frozen=True, slots=True)
class LengthBias:
    """Influence of an answer's length on verdicts.

    Attributes:
        mean_first, mean_second: mean length of the answers of the pair's methods, over its questions.
        longer_wins: win rate of the longer answer, a tie counting half; equal lengths are left out.
        when_longer, when_shorter: win rate of the first method where its answer is the longer, and the shorter.
        n_longer, n_shorter: verdicts in each.
    """

    mean_first: float | None
    mean_second: float | None
    longer_wins: float | None
    when_longer: float | None
    when_shorter: float | None
    n_longer: int
    n_shorter: int


def length_bias(verdicts: VerdictTable, lengths: IntVector) -> LengthBias:
    """Return how verdicts on one pair go with the lengths of its answers.

    Args:
        verdicts: on one pair.
        lengths: (n_questions, 2) of the answers of its first and its second method, in any unit; negative where
            unknown, and then left out.
    """
    known = np.all(lengths >= 0, axis=1)
    used = known & (by_question(verdicts)[1] > 0)
    means = lengths[used].mean(axis=0).tolist() if np.any(used) else (None, None)
    ahead = np.sign(lengths[:, 0] - lengths[:, 1]) * known
    side = ahead[verdicts.question]
    longer, shorter = (tally(verdicts.where(extra=side == sign)) for sign in (1, -1))
    won = longer.wins + longer.ties / 2 + shorter.losses + shorter.ties / 2
    n = longer.n + shorter.n
    return LengthBias(means[0], means[1], won / n if n else None, longer.rate, shorter.rate, longer.n, shorter.n)


def majority(verdicts: VerdictTable) -> IntVector:
    """Return the label of each question: 1 the first method, -1 the second, 0 a tie or no majority.

    A method has to win more than half of the verdicts: two wins, one loss and two ties are a tie (GraphRAG paper,
    section 5.2).

    Returns:
        (n_questions,) labels; a question without a verdict is a tie.
    """
    n_questions = len(verdicts.questions)
    counts = np.bincount(verdicts.question, minlength=n_questions)
    wins, losses = (
        np.bincount(verdicts.question[verdicts.score == score], minlength=n_questions) for score in (1.0, 0.0)
    )
    labels: IntVector = (2 * wins > counts).astype(np.int64) - (2 * losses > counts)
    return labels


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of judges on the items that all of them judged.

    Attributes:
        n_items: verdicts that all judges gave: of a pair, a question, an order and a replicate.
        same: share on which all gave the same.
        cohen: Cohen's κ of each two judges, by their places; None where undefined.
        fleiss: Fleiss' κ of all of them.
    """

    n_items: int
    same: float | None
    cohen: dict[tuple[int, int], float | None]
    fleiss: float | None


def agreement(verdicts: VerdictTable) -> Agreement:
    """Return how far the judges agree, on verdicts that may be of several pairs and criteria."""
    columns = (verdicts.pair, verdicts.criterion, verdicts.question, verdicts.replicate, verdicts.swapped)
    return _agreement(_joint(columns), verdicts.judge, verdicts.score, len(verdicts.judges))


def replicate_agreement(verdicts: VerdictTable) -> Agreement:
    """Return how far one judge agrees with itself when asked again, over the replicates that there are."""
    columns = (verdicts.pair, verdicts.criterion, verdicts.question, verdicts.judge, verdicts.swapped)
    n_replicates = int(verdicts.replicate.max()) + 1 if len(verdicts) else 0
    return _agreement(_joint(columns), verdicts.replicate, verdicts.score, n_replicates)


def _agreement(items: IntVector, raters: IntVector, scores: FloatVector, n_raters: int) -> Agreement:
    """Put ratings into a table of items and raters, and keep the items that all of them rated."""
    names, rows = np.unique(items, return_inverse=True)
    ratings = np.full((len(names), n_raters), -1, np.int64)
    ratings[rows, raters] = np.rint(2 * scores).astype(np.int64)
    shared = ratings[np.all(ratings >= 0, axis=1)] if n_raters else ratings[:0]
    if n_raters < 2 or not len(shared):
        return Agreement(0, None, {}, None)
    counts = np.stack([np.sum(shared == category, axis=1) for category in range(3)], axis=1)
    cohen = {
        (one, other): cohen_kappa(shared[:, one], shared[:, other])
        for one in range(n_raters)
        for other in range(one + 1, n_raters)
    }
    same = float(np.mean(counts.max(axis=1) == n_raters))
    return Agreement(len(shared), same, cohen, fleiss_kappa(counts))


def _joint(columns: Sequence[NDArray[np.int64] | Mask]) -> IntVector:
    """Return one number for each combination of the columns' values."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = column.astype(np.int64)
        key = key * (int(values.max()) + 1 if len(values) else 1) + values
    return key
