"""Vectors in two matrices, the rows that a former snapshot wrote and those that changed since, and codes of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled_apart, compiled_inside, finite_products, read_only
from hirag_dist.types import FloatMatrix, FloatVector, IntVector

MAX_CODED = 200_000  # vectors, whose codes take 77 MB of memory at 384 dimensions
_LARGEST_CODE = 127
_FLOAT32 = 2.0**-21  # more than the share of a value that rounding to float32 changes


class VectorParts(NamedTuple):
    """Vectors as compiled code reads them, by `vector_of`.

    Attributes:
        stored: (n_stored, dim).
        changed: (n_changed, dim).
        slots: (n,) row of each vector in `stored` or, from `n_stored` on, in `changed`; empty where the vectors are
            the rows of `stored`.
    """

    stored: FloatMatrix
    changed: FloatMatrix
    slots: NDArray[np.int32]


class SlottedVectors:
    """(n, dim) vectors that lie in two mapped matrices, with the part of an array's interface that readers use."""

    ndim = 2

    def __init__(self, stored: FloatMatrix, changed: FloatMatrix, slots: NDArray[np.int32]) -> None:
        """Put matrices together; nothing is copied."""
        self.parts = VectorParts(read_only(stored), read_only(changed), read_only(slots))
        self.shape = (len(slots), stored.shape[1])
        self.dtype = stored.dtype

    def __len__(self) -> int:
        """Number of vectors."""
        return self.shape[0]

    def __getitem__(self, rows: Any) -> FloatMatrix:
        """Return a copy of some vectors, by a row, a slice or an array of rows."""
        slots = self.parts.slots[rows]
        if np.ndim(slots) == 0:
            one: FloatMatrix = self[np.array([rows])][0]
            return one
        found = np.empty((len(slots), self.shape[1]), self.dtype)
        n_stored = len(self.parts.stored)
        is_stored = slots < n_stored
        found[is_stored] = self.parts.stored[slots[is_stored]]
        found[~is_stored] = self.parts.changed[slots[~is_stored] - n_stored]
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all vectors in memory."""
        return self[:].astype(dtype or self.dtype, copy=False)


Vectors = FloatMatrix | SlottedVectors


def taken(vectors: Vectors, rows: IntVector) -> SlottedVectors:
    """Return some of the vectors, in the order of `rows`; nothing is copied but slots."""
    stored, changed, slots = parts_of(vectors)
    return SlottedVectors(stored, changed, slots[rows] if len(slots) else rows.astype(np.int32))


def with_replaced(vectors: Vectors, rows: IntVector, places: IntVector, others: FloatMatrix) -> SlottedVectors:
    """Return some of the vectors with others in a few places; large matrices are not copied.

    Args:
        rows: (n,) rows of the vectors; −1 for a vector of zeros.
        places: (n_others,) places in the result of other vectors.
        others: (n_others, dim) these vectors.

    >>> sevens = np.full((1, 2), 7, np.float32)
    >>> with_replaced(np.eye(2, dtype=np.float32), np.array([1, 1, -1]), np.array([0]), sevens)[:]
    array([[7., 7.],
           [0., 1.],
           [0., 0.]], dtype=float32)
    """
    stored, changed, slots = parts_of(vectors)
    first = len(stored) + len(changed)
    now = np.where(rows >= 0, slots[rows] if len(slots) else rows, first).astype(np.int32)
    now[places] = first + 1 + np.arange(len(others))
    zeros = np.zeros((1, stored.shape[1]), np.float32)
    return SlottedVectors(stored, np.concatenate([changed, zeros, others]), now)


def stacked(blocks: Sequence[Vectors], join: Callable[[list[FloatMatrix]], FloatMatrix]) -> Vectors:
    """Return vectors one after another.

    Args:
        blocks: vectors; all that lie in two matrices have the same first one, which is not copied.
        join: returns matrices as one.
    """
    slotted = [block for block in blocks if isinstance(block, SlottedVectors)]
    if not slotted:
        return join([block for block in blocks if not isinstance(block, SlottedVectors)])
    stored = slotted[0].parts.stored
    slots, changed, first = [], [], len(stored)
    for block in blocks:
        if isinstance(block, SlottedVectors):
            own = block.parts.slots.astype(np.int64)
            slots.append(np.where(own < len(stored), own, own - len(stored) + first))
            changed.append(block.parts.changed)
        else:
            slots.append(first + np.arange(len(block)))
            changed.append(block)
        first += len(changed[-1])
    return SlottedVectors(stored, join(changed), np.concatenate(slots).astype(np.int32))


def parts_of(vectors: Vectors) -> VectorParts:
    """Return vectors as compiled code reads them.

    >>> parts_of(np.ones((2, 3), np.float32)).stored.shape
    (2, 3)
    """
    if isinstance(vectors, SlottedVectors):
        return vectors.parts
    return VectorParts(read_only(vectors), read_only(vectors[:0]), read_only(np.zeros(0, np.int32)))


@compiled_inside
def vector_of(parts: VectorParts, row: int) -> Any:
    """Return the vector of a row."""
    if len(parts.slots) == 0:
        return parts.stored[row]
    slot = parts.slots[row]
    if slot < len(parts.stored):
        return parts.stored[slot]
    return parts.changed[slot - len(parts.stored)]


def by_row(vectors: Vectors, values: Any) -> NDArray[Any]:
    """Return values of each vector, computed on whole matrices.

    Args:
        values: function of a matrix that returns an array with a value for each of its rows.
    """
    if not isinstance(vectors, SlottedVectors):
        found: NDArray[Any] = values(vectors)
        return found
    stored, changed, slots = vectors.parts
    return np.concatenate([values(stored), values(changed)])[slots]


@finite_products
def products(vectors: Vectors, query: NDArray[np.float32], end: int) -> NDArray[np.float32]:
    """Return the products of the first `end` vectors with a question, in float32: (end,)."""
    if isinstance(vectors, SlottedVectors):
        return by_row(vectors, lambda matrix: matrix @ query)[:end]
    found: NDArray[np.float32] = vectors[:end] @ query
    return found


class VectorCodes(NamedTuple):
    """Vectors in bytes, with a bound of what they miss: products with a quarter of the memory traffic.

    Attributes:
        codes: (n, dim) int8; a vector is about its scale times its codes.
        scales: (n,) float32.
        errors: (n,) float32, at least the length of the difference; infinite where a vector is not finite.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    errors: NDArray[np.float32]


def few_codes(vectors: Vectors) -> VectorCodes | None:
    """Return the codes of vectors; None where there are more than `MAX_CODED`, for which they take too much memory."""
    return encode(vectors) if len(vectors) <= MAX_CODED else None


def encode(vectors: Vectors) -> VectorCodes:
    """Return the codes of vectors, in their order."""
    n, dim = vectors.shape
    found = VectorCodes(np.empty((n, dim), np.int8), np.empty(n, np.float32), np.empty(n, np.float32))
    _encode(parts_of(vectors), *found)
    return found


@compiled_apart
def _encode(
    vectors: VectorParts, codes: NDArray[np.int8], scales: NDArray[np.float32], errors: NDArray[np.float32]
) -> None:
    for row in range(len(codes)):
        vector = vector_of(vectors, row)
        largest = np.float32(0.0)
        for value in vector:
            largest = max(largest, abs(value)) if np.isfinite(value) else np.float32(np.inf)
        scale = largest / np.float32(_LARGEST_CODE) if largest < np.inf else np.float32(0.0)
        steps = np.float64(1.0) / scale if scale > 0.0 else 0.0
        missed = 0.0
        for k in range(len(vector)):
            code = np.rint(vector[k] * steps) if steps else 0.0
            codes[row, k] = np.int8(code)
            missed += (np.float64(vector[k]) - code * scale) ** 2
        scales[row] = scale
        errors[row] = np.sqrt(missed) * (1.0 + _FLOAT32) if largest < np.inf else np.inf


def product_bounds(codes: VectorCodes, query: NDArray[np.float32], end: int) -> tuple[FloatVector, FloatVector]:
    """Return (least, most) that the product of each of the first vectors with a finite question can be: (end,) each.

    The bounds are those of the product of the vector itself, rounded to float32.

    >>> vectors = np.array([[0.6, 0.8], [1.0, 0.0]], np.float32)
    >>> least, most = product_bounds(encode(vectors), np.array([0.0, 1.0], np.float32), 2)
    >>> bool((least <= [0.8, 0.0]).all()), bool((most >= [0.8, 0.0]).all()), bool((most - least).max() < 0.04)
    (True, True, True)
    """
    exact = query.astype(np.float64)
    # the codes of a question are finer than those of vectors: as fine as sums of int32 allow
    largest_code = min(2**15 - 1, (2**31 - 1) // (_LARGEST_CODE * max(len(query), 1)))
    step = float(np.abs(exact).max(initial=0.0)) / largest_code or 1.0
    coded = np.rint(exact / step)
    missed = float(np.linalg.norm(exact - coded * step)) * _LARGEST_CODE * len(query) ** 0.5
    bounds = np.empty((2, end))
    _fill_bounds(codes, coded.astype(np.int16), step, missed, float(np.linalg.norm(exact)), bounds)
    return bounds[0], bounds[1]


@compiled_apart
def _fill_bounds(
    codes: VectorCodes, query: NDArray[np.int16], step: float, missed: float, length: float, bounds: NDArray[np.float64]
) -> None:
    least, most = bounds[0], bounds[1]
    for row in range(len(least)):
        own = codes.codes[row]
        total = np.int32(0)
        for k in range(len(query)):  # without the casts the sums are of int64, and three times as slow
            total = np.int32(total + np.int32(np.int32(own[k]) * np.int32(query[k])))
        most[row] = total
    for row in range(len(least)):
        scale = np.float64(codes.scales[row])
        found, error = scale * step * most[row], codes.errors[row] * length + scale * missed
        error += (abs(found) + error) * _FLOAT32
        least[row], most[row] = found - error, found + error
