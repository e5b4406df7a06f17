"""Win rates of pairs of methods from a judge's verdicts, and how far the position of an answer decides them.

A verdict says of one question, of two answers in one order, and of one criterion which of the two is better. It is
kept as the score of the pair's first method: 1 for a win, 0.5 for a tie, 0 for a loss. The GraphRAG paper (appendix G)
scores the same way with 100, 50 and 0, and averages over its runs before it compares questions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from hirag_dist.types import FloatVector, IntVector

T = TypeVar("T", bound=Hashable)
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


class VerdictRow(NamedTuple):
    """One verdict.

    Attributes:
        asking: the judge and the replicate, or whatever else tells two verdicts on the same answers apart.
        swapped: whether the pair's second method was shown first.
        score: Score of the pair's first method: 1 (won), 0.5 (tie) or 0.
    """

    pair: AnswerPair
    criterion: str
    question: str
    asking: Hashable
    swapped: bool
    score: float


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """Verdicts as columns of (n,) each; names are places in the lists.

    Attributes:
        pairs, criteria, questions: what the columns point at.
        pair, criterion, question, asking: int64 places.
        swapped: bool, whether the pair's second method was shown first.
        score: float64 of the pair's first method: 1, 0.5 or 0.
    """

    pairs: tuple[AnswerPair, ...]
    criteria: tuple[str, ...]
    questions: tuple[str, ...]
    pair: IntVector
    criterion: IntVector
    question: IntVector
    asking: IntVector
    swapped: Mask
    score: FloatVector

    def __len__(self) -> int:
        return len(self.score)

    def where(self, pair: int | None = None, criterion: int | None = None, extra: Mask | None = None) -> VerdictTable:
        """Return the verdicts on a pair and by a criterion; None leaves all."""
        kept = np.ones(len(self), bool) if extra is None else extra.copy()
        for column, place in ((self.pair, pair), (self.criterion, criterion)):
            if place is not None:
                kept &= column == place
        columns = ("pair", "criterion", "question", "asking", "swapped", "score")
        return replace(self, **{name: getattr(self, name)[kept] for name in columns})


def verdict_table(
    rows: Sequence[VerdictRow], pairs: Sequence[AnswerPair] = (), criteria: Sequence[str] = ()
) -> VerdictTable:
    """Return verdicts as a table.

    Args:
        rows: the verdicts.
        pairs, criteria: these first and in this order, whether or not there is a verdict on them.
    """
    all_pairs, pair = _places(pairs, (row.pair for row in rows))
    all_criteria, criterion = _places(criteria, (row.criterion for row in rows))
    questions, question = _places((), (row.question for row in rows))
    _, asking = _places((), (row.asking for row in rows))
    swapped = np.array([row.swapped for row in rows], bool)
    score = np.array([row.score for row in rows], np.float64)
    return VerdictTable(all_pairs, all_criteria, questions, pair, criterion, question, asking, swapped, score)


def _places(first: Iterable[T], names: Iterable[T]) -> tuple[tuple[T, ...], IntVector]:
    """Return the different names, and the place of each name among them."""
    places = {name: place for place, name in enumerate(dict.fromkeys(first))}
    column = [places.setdefault(name, len(places)) for name in names]
    return tuple(places), np.array(column, np.int64)


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
    """Return the first method's scores of each question, added up over orders and askings.

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
        twice: questions that were judged in both orders by one judge in one replicate.
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
    columns = (verdicts.pair, verdicts.criterion, verdicts.question, verdicts.asking)
    keys = _joint(columns)
    found = []
    for swapped in (False, True):
        mine = verdicts.swapped == swapped
        places, at = np.unique(keys[mine], return_index=True)
        found.append((places, verdicts.score[mine][at]))
    (left, one), (right, other) = found
    _, in_left, in_right = np.intersect1d(left, right, assume_unique=True, return_indices=True)
    return one[in_left], other[in_right]


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


def _joint(columns: Sequence[NDArray[np.int64] | Mask]) -> IntVector:
    """Return one number for each combination of the columns' values."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values = column.astype(np.int64)
        key = key * (int(values.max()) + 1 if len(values) else 1) + values
    return key
