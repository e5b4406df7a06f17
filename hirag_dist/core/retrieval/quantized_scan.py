"""Scan of quantized vectors for the nearest of all rows (paper Eq. 12), with exact scores.

`QuantizedVectors` have a byte for each number and a bound of the quantization error. Rows that may be among the nearest
within the bounds are scored exactly (`vector_scoring`), so the result is that of scoring everything, with a quarter of
the memory traffic.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access.filter import visible_rows
from hirag_dist.core.access.labels import PARTIAL, VISIBLE
from hirag_dist.core.numba_jit import compiled, compiled_apart
from hirag_dist.core.retrieval.vector_scoring import nearest
from hirag_dist.types import AccessFilter, FloatMatrix, IntVector

AT_ONCE = 50_000  # rows, a millisecond's scan: a longer one runs in a thread
_LEVELS = 127  # of a code, either way
_SAMPLE = 1024  # rows by which the share of visible rows is estimated
_DENSE = 0.2  # share of visible rows, from which on hidden ones are not skipped
_FLOAT32 = 2.0**-21  # more than rounding to float32 changes, for its share


class QuantizedVectors(NamedTuple):
    """Quantized vectors.

    Attributes:
        codes: (n, dim) int8; a row is about `scales` times its codes.
        scales: (n,) float32.
        errors: (n,) float32, at least the length of the difference.
    """

    codes: NDArray[np.int8]
    scales: NDArray[np.float32]
    errors: NDArray[np.float32]


def encode(vectors: FloatMatrix) -> QuantizedVectors:
    """Return the codes of some rows: (n, dim) vectors, whose order and number they keep."""
    n, dim = vectors.shape
    found = QuantizedVectors(np.empty((n, dim), np.int8), np.empty(n, np.float32), np.empty(n, np.float32))
    _encode(vectors, found)
    return found


def nearest_of_all(
    vectors: FloatMatrix,
    codes: QuantizedVectors,
    query: NDArray[np.float32],
    limit: int,
    end: int,
    access: AccessFilter | None = None,
) -> tuple[IntVector, NDArray[np.float32]]:
    """Return (rows, similarities) of the best among the first `end` rows, best first, ties by row.

    Args:
        vectors: (n, dim).
        codes: of the vectors.
        query: (dim,).
        limit: rows at most.
        end: rows looked at.
        access: filter of visible rows and parts; None: all are visible.
    """
    step, coded, missed = _coded(query)
    if end <= limit or not np.isfinite(missed):
        rows = np.arange(end)
        rows = rows if access is None else rows[visible_rows(access, rows)]
    else:
        length = float(np.linalg.norm(query.astype(np.float64)))
        rows = _candidates(codes, coded, step, length, missed, limit, end, access, _is_dense(access, end))
    return nearest(vectors, rows, query, limit, access)


def _is_dense(access: AccessFilter | None, end: int) -> bool:
    """Return whether a good part of the first rows is visible, by a sample."""
    if access is None:
        return True
    sample = np.arange(0, end, max(end // _SAMPLE, 1))
    return bool(visible_rows(access, sample).mean() >= _DENSE)


def _coded(query: NDArray[np.float32]) -> tuple[float, NDArray[np.int16], float]:
    """Return (step, codes, error) of a question: finer than those of rows, as fine as sums of int32 allow."""
    levels = min(32_767, (2**31 - 1) // (_LEVELS * max(len(query), 1)))
    exact = query.astype(np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    if not 0.0 < largest < np.inf:
        return 0.0, np.zeros(len(query), np.int16), 0.0 if largest == 0.0 else np.inf
    step = largest / levels
    codes = np.rint(exact / step)
    return step, codes.astype(np.int16), float(np.linalg.norm(exact - codes * step))


@compiled
def _encode(vectors: FloatMatrix, found: QuantizedVectors) -> None:
    for row in range(len(vectors)):
        own = vectors[row]
        largest = 0.0
        usable = True
        for k in range(len(own)):
            usable = usable and np.isfinite(own[k])
            largest = max(largest, abs(np.float64(own[k])))
        scale = np.float32(largest / _LEVELS) if usable else np.float32(0.0)
        found.scales[row] = scale
        missed = 0.0
        for k in range(len(own)):
            code = 0.0
            if scale > 0.0:
                code = min(max(np.rint(np.float64(own[k]) / np.float64(scale)), -_LEVELS), _LEVELS)
            found.codes[row, k] = np.int8(code)
            missed += (np.float64(own[k]) - code * np.float64(scale)) ** 2
        # what is not finite is always scored exactly, whatever that gives
        found.errors[row] = np.float32(np.sqrt(missed)) * (1.0 + _FLOAT32) if usable else np.inf


@compiled_apart
def _candidates(
    codes: QuantizedVectors,
    query: NDArray[np.int16],
    step: float,
    length: float,
    missed: float,
    limit: int,
    end: int,
    access: AccessFilter | None,
    dense: bool,
) -> Any:
    """Return the rows that may be among the `limit` nearest of the first `end`, ascending.

    A row's similarity differs from that of its codes by at most `errors` times the question's length, and what the
    question's own codes miss times the length of the row's. Rows whose upper bound is below `limit` lower bounds cannot
    be among the nearest. Partially visible rows all may be: there are no codes of their parts.

    Args:
        query: codes of the question; `step` each.
        length: of the question.
        missed: length of what its codes miss.
        dense: whether so many rows are visible that skipping the others costs more than to score them.
    """
    lower = np.full(limit, -np.inf)  # a heap: the smallest of the largest lower bounds is first
    upper = np.empty(end, np.float64)
    span = _fill_bounds(codes, query, step, length, missed, access, dense, lower, upper)
    bar = lower[0] - span * _FLOAT32  # scores that are equal in float32 are ties
    count = 0
    for row in range(end):
        count += upper[row] >= bar and upper[row] > -np.inf
    rows = np.empty(count, np.int64)
    count = 0
    for row in range(end):
        if upper[row] >= bar and upper[row] > -np.inf:
            rows[count] = row
            count += 1
    return rows


@compiled
def _fill_bounds(
    codes: QuantizedVectors,
    query: NDArray[np.int16],
    step: float,
    length: float,
    missed: float,
    access: AccessFilter | None,
    dense: bool,
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
) -> Any:
    """Fill the upper bounds of the first rows and the heap of the largest lower ones; return the largest score."""
    span = 0.0
    longest = _LEVELS * np.sqrt(len(query))  # of a row's codes
    for row in range(len(upper)):
        state = VISIBLE
        if access is not None:
            state = access.entity_states[access.entity_patterns[row]]
            if state != VISIBLE and not dense:
                upper[row] = np.inf if state == PARTIAL else -np.inf
                continue
        own = codes.codes[row]
        total = np.int32(0)
        for k in range(len(query)):  # without the casts sums are of int64, and three times as slow
            total = np.int32(total + np.int32(np.int32(own[k]) * np.int32(query[k])))
        if state != VISIBLE:
            upper[row] = np.inf if state == PARTIAL else -np.inf
            continue
        scale = np.float64(codes.scales[row])
        score = scale * step * total
        error = codes.errors[row] * length + scale * longest * missed
        upper[row] = score + error
        if error < np.inf:
            span = max(span, abs(score) + error)
        if score - error > lower[0]:
            replace_first(lower, score - error)
    return span


@compiled
def replace_first(heap: NDArray[np.float64], value: float) -> None:
    """Put a value in the place of a heap's smallest."""
    at = 0
    while True:
        child = 2 * at + 1
        if child + 1 < len(heap) and heap[child + 1] < heap[child]:
            child += 1
        if child >= len(heap) or value <= heap[child]:
            heap[at] = value
            return
        heap[at] = heap[child]
        at = child
