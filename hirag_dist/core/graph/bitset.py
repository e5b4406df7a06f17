"""Compiled operations on rows of bits, 64 in a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.numba_jit import compiled


@compiled
def has_bit(bits: NDArray[np.uint64], row: int, number: int) -> Any:
    """Return whether a bit of a row of `bits`, (n_rows, n_words), is set."""
    return (bits[row, number >> 6] >> np.uint64(number & 63)) & np.uint64(1) != 0


@compiled
def set_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Set a bit of a row."""
    bits[row, number >> 6] |= np.uint64(1) << np.uint64(number & 63)


@compiled
def clear_bit(bits: NDArray[np.uint64], row: int, number: int) -> None:
    """Clear a bit of a row."""
    bits[row, number >> 6] &= ~(np.uint64(1) << np.uint64(number & 63))
