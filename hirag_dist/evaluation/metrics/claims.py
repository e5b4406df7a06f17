"""Comprehensiveness and diversity of answers from their claims, without a judge (GraphRAG paper, section 4.2).

Comprehensiveness is the number of distinct claims, diversity the number of clusters of them, by complete linkage over
1 - ROUGE-L. How many clusters there are depends on the distance at which they are cut, so several are reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.cluster.hierarchy import linkage

from hirag_dist.evaluation.metrics.overlap import rouge_l_distances, rouge_tokens
from hirag_dist.types import FloatVector, IntVector

THRESHOLDS: Final = (0.5, 0.6, 0.7, 0.8)  # of the paper's Table 4
_ROUNDING = 1e-9  # distances are ratios of small numbers: 1 - 2/5 is meant to be 0.6


def distinct_claims(claims: Sequence[str]) -> list[str]:
    """Return the claims, each once: those that differ in case, white space or punctuation alone are the same.

    What holds no word is no claim. The first of equal ones stays, as it was written.

    >>> distinct_claims(["Ann owns a mill.", "ann  owns a mill", "…", "Bob owns a mill."])
    ['Ann owns a mill.', 'Bob owns a mill.']
    """
    first: dict[tuple[str, ...], str] = {}
    for claim in claims:
        words = tuple(rouge_tokens(claim))
        if words:
            first.setdefault(words, claim)
    return list(first.values())


def cluster_counts(claims: Sequence[str], thresholds: Sequence[float] = THRESHOLDS) -> list[int]:
    """Return how many clusters the claims make at each distance.

    Two clusters are merged where no claim of one is farther from a claim of the other than the threshold (the paper's
    rule; scikit-learn's `distance_threshold` leaves clusters at exactly the threshold apart). Complete linkage is
    monotone, so one tree of merges serves all thresholds.

    Args:
        claims: distinct claims of one answer; none make no cluster.
        thresholds: distances 1 - ROUGE-L.

    >>> cluster_counts(["Ann owns a mill", "Ann owns a farm", "It rained"])
    [2, 2, 2, 2]
    """
    if len(claims) < 2:
        return [len(claims)] * len(thresholds)
    heights = linkage(rouge_l_distances(claims), "complete")[:, 2]
    return [len(claims) - int(np.sum(heights <= threshold + _ROUNDING)) for threshold in thresholds]


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """Agreement between a count of claims and the judge's preference (GraphRAG paper, section 5.2).

    Attributes:
        compared: questions that have both a label and two counts.
        labelled: of these, the judge prefers one of the two answers.
        same: of those labelled, the same answer has the larger count.
        tied: of those labelled, both counts are equal.
    """

    compared: int
    labelled: int
    same: int
    tied: int

    @property
    def rate(self) -> float | None:
        """The share of labels that the counts agree with, a tie of counts being none; None without a label."""
        return self.same / self.labelled if self.labelled else None


def label_agreement(labels: IntVector, differences: FloatVector) -> LabelAgreement:
    """Compare labels with counts.

    Args:
        labels: (n_questions,) 1 where the judge prefers the first method, -1 the second, 0 a tie.
        differences: (n_questions,) count of the first less that of the second; NaN where one is not known.
    """
    known = ~np.isnan(differences)
    labelled = known & (labels != 0)
    signs = np.sign(differences[labelled])
    return LabelAgreement(
        int(known.sum()), int(labelled.sum()), int(np.sum(signs == labels[labelled])), int(np.sum(signs == 0))
    )
