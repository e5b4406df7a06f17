"""Vectors in two matrices: the rows that a former snapshot wrote, and those that changed since."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.arrays import compiled, finite_products, read_only
from hirag_dist.types import FloatMatrix


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
        """Put matrices together; nothing is copied.

        Args:
            stored, changed, slots: see `VectorParts`.
        """
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


def parts_of(vectors: Vectors) -> VectorParts:
    """Return vectors as compiled code reads them.

    >>> parts_of(np.ones((2, 3), np.float32)).stored.shape
    (2, 3)
    """
    if isinstance(vectors, SlottedVectors):
        return vectors.parts
    return VectorParts(read_only(vectors), read_only(vectors[:0]), read_only(np.zeros(0, np.int32)))


@compiled
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
