"""Functions for code that runs on NumPy or on CuPy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

# Decorates functions of finite rows: on some processors with AVX-512, OpenBLAS raises floating-point flags in products
# with a few float32 vectors, and NumPy would warn of an invalid value.
finite_products = np.errstate(invalid="ignore", over="ignore")


def to_numpy(xp: Any, values: Any) -> Any:
    """Return values of the array module `xp` as numpy's; numpy's own as they are."""
    return values if xp is np else xp.asnumpy(values)


def batches(shapes: Sequence[tuple[int, int]], max_elements: int) -> Iterator[tuple[list[int], tuple[int, int]]]:
    """Yield the numbers of arrays that share a batch, and the shape that all are padded to.

    >>> list(batches([(9, 3), (100, 5), (90, 6)], 20_000))
    [([1], (112, 5)), ([2], (96, 6)), ([0], (10, 3))]

    Args:
        shapes: two axes of each array.
        max_elements: Maximum number of elements of a batch; 0 gives each array alone, without padding.
    """
    if not max_elements:
        yield from (([number], shape) for number, shape in enumerate(shapes))
        return
    alike: dict[tuple[int, int], list[int]] = {}
    for number, (rows, columns) in enumerate(shapes):
        alike.setdefault((_padded(rows), _padded(columns)), []).append(number)
    for shape in sorted(alike, reverse=True):
        step = max(max_elements // (shape[0] * shape[1]), 1)
        for first in range(0, len(alike[shape]), step):
            yield alike[shape][first : first + step], shape


def _padded(size: int) -> int:
    """Return the next of four sizes to an octave: at most a quarter is padding."""
    step = max(1 << max(size - 1, 1).bit_length() >> 3, 1)
    return -(-size // step) * step
