"""Nearest neighbours among vectors: exact up to a size, within overlapping partitions above it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.array_module import finite_products
from hirag_dist.types import FloatMatrix, IntVector

EXACT_ROWS = 20_000  # above it, partitions: the product of all pairs takes 2 n² dim operations
_PARTITION_ROWS = 4096
_BLOCK_ROWS = 1024  # of a product: 1,024 × 20,000 float32 are 80 MB
_FEW = 4  # times `n_nearest` rows near enough, on average, are all kept at first
_HOMES = 2  # partitions that a row belongs to: its nearest pivots


def near_pairs(
    vectors: FloatMatrix, rows: IntVector, least: float, n_nearest: int, seed: int = 0
) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
    """Return pairs of rows (left < right) that are both among each other's nearest, with their cosine, sorted.

    Up to `EXACT_ROWS` rows all pairs are compared. Above, rows go to the partitions of their two nearest pivots, and
    only rows of one partition are compared: time grows with n instead of n², and a pair is missed whose rows have no
    pivot in common.

    Args:
        vectors: (n, dim) of unit length; rows that are all zero have no neighbours.
        rows: that are compared with each other, ascending. The vectors of a partition are copied, never those of all.
        least: cosine of a pair, at least.
        n_nearest: of each row that count, at most.
    """
    rows = rows[_not_zero(vectors, rows)].astype(np.int64)
    found: dict[tuple[int, int], float] = {}
    nearest: list[tuple[IntVector, IntVector, NDArray[np.float32]]] = []
    for part in _partitions(vectors, rows, seed):
        nearest.append(_nearest(vectors, part, least, n_nearest))
    lefts, rights, cosines = (np.concatenate(parts) for parts in zip(*nearest, strict=True)) if nearest else _NONE
    lefts, rights, cosines = _best(lefts, rights, cosines, n_nearest)
    both = set(zip(lefts.tolist(), rights.tolist(), strict=True))
    for left, right, cosine in zip(lefts.tolist(), rights.tolist(), cosines.tolist(), strict=True):
        if left < right and (right, left) in both:
            found[left, right] = cosine
    pairs = sorted(found)
    return (
        np.array([left for left, _ in pairs], np.int64),
        np.array([right for _, right in pairs], np.int64),
        np.array([found[pair] for pair in pairs], np.float32),
    )


_NONE: tuple[IntVector, IntVector, NDArray[np.float32]] = (
    np.zeros(0, np.int64),
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
)


def _not_zero(vectors: FloatMatrix, rows: IntVector) -> NDArray[np.bool_]:
    parts = (vectors[rows[first : first + _BLOCK_ROWS]].any(axis=1) for first in range(0, len(rows), _BLOCK_ROWS))
    return np.concatenate([np.zeros(0, bool), *parts])


def _partitions(vectors: FloatMatrix, rows: IntVector, seed: int) -> Iterator[IntVector]:
    if len(rows) <= EXACT_ROWS:
        if len(rows) > 1:
            yield rows
        return
    random = np.random.default_rng(seed)
    n_pivots = -(-_HOMES * len(rows) // _PARTITION_ROWS)
    pivots = vectors[np.sort(random.choice(rows, n_pivots, replace=False))]
    homes = _homes(vectors, rows, pivots)
    order = np.argsort(homes.ravel(), kind="stable")
    sizes = np.bincount(homes.ravel(), minlength=n_pivots)
    for own in np.split(order // _HOMES, np.cumsum(sizes)[:-1]):
        # One home that draws a crowd (copies of one vector, say) is cut: as rows of one place they are near anyway.
        for first in range(0, len(own), EXACT_ROWS):
            part = rows[own[first : first + EXACT_ROWS]]
            if len(part) > 1:
                yield part


@finite_products
def _homes(vectors: FloatMatrix, rows: IntVector, pivots: FloatMatrix) -> IntVector:
    """Return (len(rows), `_HOMES`) the pivots nearest to each row."""
    blocks = (vectors[rows[first : first + _BLOCK_ROWS]] for first in range(0, len(rows), _BLOCK_ROWS))
    return np.concatenate([_take_largest(block @ pivots.T, _HOMES)[0] for block in blocks])


@finite_products
def _nearest(
    vectors: FloatMatrix, rows: IntVector, least: float, n_nearest: int
) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
    """Return (row, neighbour, cosine) of each row's nearest within a partition, and maybe more."""
    inside = np.ascontiguousarray(vectors[rows])
    lefts, rights, cosines = [], [], []
    k = min(n_nearest, len(rows) - 1)
    for first in range(0, len(rows), _BLOCK_ROWS):
        product = inside[first : first + _BLOCK_ROWS] @ inside.T
        here = np.arange(len(product))
        product[here, here + first] = -2.0
        near_enough = product >= least
        if np.count_nonzero(near_enough) > _FEW * k * len(product):
            chosen, values = _take_largest(product, k)
            np.put_along_axis(product, chosen, values, axis=1)
            kept = np.zeros_like(near_enough)
            np.put_along_axis(kept, chosen, True, axis=1)
            near_enough &= kept
        at, which = np.nonzero(near_enough)  # a tenth of the time that finding each row's nearest takes
        lefts.append(rows[at + first])
        rights.append(rows[which])
        cosines.append(product[at, which])
    return np.concatenate(lefts), np.concatenate(rights), np.concatenate(cosines)


def _take_largest(scores: NDArray[np.float32], n_largest: int) -> tuple[IntVector, NDArray[np.float32]]:
    """Return columns and values of each row's largest scores, of equal ones the first; they are blotted out."""
    here = np.arange(len(scores))
    columns = np.empty((len(scores), n_largest), np.int64)
    values = np.empty((len(scores), n_largest), np.float32)
    for place in range(n_largest):
        columns[:, place] = scores.argmax(axis=1)
        values[:, place] = scores[here, columns[:, place]]
        scores[here, columns[:, place]] = -np.inf
    return columns, values


def _best(
    lefts: IntVector, rights: IntVector, cosines: NDArray[np.float32], n_nearest: int
) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
    """Return each row's nearest of all its partitions, each neighbour once."""
    _, once = np.unique(np.stack([lefts, rights]), axis=1, return_index=True)
    lefts, rights, cosines = lefts[once], rights[once], cosines[once]
    order = np.lexsort((rights, -cosines, lefts))
    lefts, rights, cosines = lefts[order], rights[order], cosines[order]
    starts = np.searchsorted(lefts, lefts)  # where each row's neighbours begin
    kept = np.arange(len(lefts)) - starts < n_nearest
    return lefts[kept], rights[kept], cosines[kept]
