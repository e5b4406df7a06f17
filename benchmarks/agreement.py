"""Agreement of two sets of overlapping clusters. The cost of both measures grows with the pairs that share a member."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Agreement:
    """Agreement of two sets of clusters.

    Attributes:
        f1: mean over clusters of the best F1 with a cluster of the other set, averaged over the two sets.
        nmi: overlapping normalised mutual information, normalised by the larger entropy (McDaid, Greene, Hurley 2011).
    """

    f1: float
    nmi: float


def agreement(found: csr_array, planted: csr_array) -> Agreement:
    """Compare two sets of clusters of the same rows.

    Args:
        found: (n_clusters, n_rows), 1 for a member.
        planted: (n_clusters, n_rows) likewise.
    """
    n_rows = found.shape[1]
    shared = (found.astype(np.float64) @ planted.astype(np.float64).T).tocoo()
    mine, theirs = found.sum(axis=1).astype(float), planted.sum(axis=1).astype(float)
    one, two, both = shared.coords[0], shared.coords[1], shared.data
    f1 = 2 * both / (mine[one] + theirs[two])
    forwards, backwards = (_best(f1, at, n) for at, n in ((one, len(mine)), (two, len(theirs))))
    return Agreement(
        (float(forwards.mean()) + float(backwards.mean())) / 2,
        _overlapping_nmi(mine, theirs, one, two, both, n_rows),
    )


def members(clusters: NDArray[np.int64], rows: NDArray[np.int64], n_rows: int) -> csr_array:
    """Return memberships as a matrix of (cluster, row)."""
    shape = (int(clusters.max()) + 1, n_rows)
    return csr_array((np.ones(len(rows), np.float32), (clusters, rows)), shape=shape)


def _overlapping_nmi(mine: Floats, theirs: Floats, one: Rows, two: Rows, both: Floats, n: int) -> float:
    """Return I(X : Y) / max(H(X), H(Y)).

    The conditional entropy of a cluster given the other set is that given its best match; a cluster that is nearer to
    another's complement counts as unmatched.
    """
    neither = n - mine[one] - theirs[two] + both
    left, right = mine[one] - both, theirs[two] - both
    parts = [_bits(count, n) for count in (both, neither, left, right)]
    matched = parts[0] + parts[1] >= parts[2] + parts[3]
    joint = sum(parts)
    entropies, remaining = [], []
    for sizes, at, other, others in ((mine, one, two, theirs), (theirs, two, one, mine)):
        entropy = _bits(sizes, n) + _bits(n - sizes, n)
        given = joint - (_bits(others, n) + _bits(n - others, n))[other]
        # the largest saving over the matches of each cluster
        saved = _best(np.where(matched, entropy[at] - given, 0.0), at, len(sizes))
        entropies.append(float(entropy.sum()))
        remaining.append(float((entropy - saved).sum()))
    if max(entropies) <= 0:
        return 1.0  # nothing but clusters of all rows
    information = (entropies[0] - remaining[0] + entropies[1] - remaining[1]) / 2
    return information / max(entropies)


def _bits(counts: Floats, n: int) -> Floats:
    share = counts / n
    return np.where(counts > 0, -share * np.log2(np.where(counts > 0, share, 1.0)), 0.0)


def _best(values: Floats, at: Rows, n: int) -> Floats:
    best = np.zeros(n)
    np.maximum.at(best, at, values)
    return best
