"""Trees of merges, mixtures of cells and k-means by kernels of our own (cells.cu), through CuPy.

Cells are independent: each has one block of threads, which goes from its first row to its last result by itself. A card
works at thousands of them at a time, none is padded, and a cell has the same bits whatever the others are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from typing import Any

import cupy
import numpy as np

from hirag_dist.core.clustering import gaussian_mixture, kmeans
from hirag_dist.core.clustering.ward import Tree, tree_of_places
from hirag_dist.types import FloatMatrix, FloatVector, GroupSums, IntVector, LabelledCell, Memberships

_THREADS = 256  # threads of a block: MAX_THREADS of cells.cu
_SUM_THREADS = 64
_FAR = 3e38  # above every squared distance
_BATCH_BYTES = 4 << 30  # size of the working arrays of a batch
_OF_MIXTURES = ("ABSENT", "MAX_ITERATIONS", "MIN_COUNT", "MIN_LOG_SHARE", "MIN_VARIANCE", "TOLERANCE")
_CONSTANTS = {name: getattr(gaussian_mixture, name) for name in _OF_MIXTURES} | {
    name: getattr(kmeans, name) for name in ("DRAW_UNITS", "SMALLEST")
}


def trees(groups: Sequence[FloatMatrix | FloatVector], sizes: Sequence[IntVector] | None) -> list[Tree]:
    """Return the tree of each set of rows by Ward's criterion: that of `core.clustering.ward.ward_tree`, bit for bit.

    Memory: 8 bytes a pair of rows; sets are taken some at a time.

    Args:
        groups: (n, d) each, finite, n ≥ 1.
        sizes: (n,) rows that each row stands for as their mean; None for one each.
    """
    found: list[Tree] = []
    for part in _parts([8 * len(rows) * (len(rows) + rows.shape[1]) for rows in groups]):
        counts = np.array([len(rows) for rows in groups[part]])
        first = _offsets(counts)
        columns = cupy.asarray(np.concatenate(groups[part])).astype(np.float64).T.copy()
        n_total = int(first[-1])
        stand_for = np.ones(n_total) if sizes is None else np.concatenate(sizes[part]).astype(np.float64)
        pairs = _offsets(counts**2)
        merges = cupy.zeros((n_total, 3))
        apart, chain = cupy.zeros(int(pairs[-1])), cupy.zeros(n_total, dtype=np.int32)
        places = (cupy.asarray(first), cupy.asarray(pairs))
        shape = np.int32(len(columns)), np.int64(n_total)
        _run("merge_rows", len(counts), (*places, columns, cupy.asarray(stand_for), *shape, apart, chain, merges))
        merged = cupy.asnumpy(merges)
        found += [
            tree_of_places(merged[begin : begin + count - 1]) for begin, count in zip(first, counts, strict=False)
        ]
    return found


def memberships(cells: Sequence[LabelledCell], threshold: float) -> list[Memberships]:
    """Return the memberships of each cell's rows in the components that it keeps, as those of `gaussian_mixture`.

    Memory: 16 bytes a number of the rows, and 8 bytes a row and component; cells are taken some at a time.

    Args:
        cells: Cells with at least one row each, all of the same dimension.
        threshold: responsibility that makes a member.
    """
    found: list[Memberships] = []
    for part in _parts([len(cell.rows) * (16 * cell.rows.shape[1] + 8 * cell.n_labels) for cell in cells]):
        found += _batch_memberships(cells[part], threshold)
    return found


def _batch_memberships(cells: Sequence[LabelledCell], threshold: float) -> Iterator[Memberships]:
    n_rows, n_labels = np.array([len(cell.rows) for cell in cells]), np.array([cell.n_labels for cell in cells])
    first, component, pair = (_offsets(counts) for counts in (n_rows, n_labels, n_rows * n_labels))
    n_total, n_components, n_pairs = (int(offsets[-1]) for offsets in (first, component, pair))
    rows = cupy.asarray(np.concatenate([cell.rows for cell in cells]))
    n_dims = rows.shape[1]
    labels = cupy.asarray(np.concatenate([cell.labels for cell in cells]).astype(np.int32))
    is_home = cupy.asarray(np.concatenate([cell.is_home for cell in cells]).astype(np.uint8))
    offsets = [cupy.asarray(each) for each in (first, component, pair)]
    found, densities = cupy.zeros(n_pairs, dtype=np.float32), cupy.zeros(n_total, dtype=np.float32)
    is_kept = cupy.zeros(n_components, dtype=np.uint8)
    scales, expected = cupy.zeros(len(cells)), cupy.zeros(len(cells))
    working = [cupy.zeros(size, dtype=np.float32) for size in (rows.size, n_pairs, n_components * n_dims)]
    working += [cupy.zeros(size) for size in (n_components * n_dims, n_components, n_components)]
    working += [cupy.zeros(size, dtype=np.float32) for size in (n_components, n_total)]
    given = (*offsets, rows, labels, is_home, np.int32(n_dims), np.float32(threshold))
    _run("fit_cells", len(cells), (*given, *working, found, densities, is_kept, scales, expected))

    (entries,) = cupy.nonzero(found >= 0)
    shares, numbers = cupy.asnumpy(found[entries]), cupy.asnumpy(entries)
    log_densities, kept = cupy.asnumpy(densities), cupy.asnumpy(is_kept).astype(bool)
    shifts = np.log(cupy.asnumpy(expected)) - n_dims * np.log(cupy.asnumpy(scales))
    bounds = np.searchsorted(numbers, pair)
    for number in range(len(cells)):
        part = slice(bounds[number], bounds[number + 1])
        row, label = np.divmod(numbers[part] - pair[number], n_labels[number])
        is_there = kept[component[number] : component[number + 1]]
        evidence = log_densities[first[number] + row].astype(np.float64) + shifts[number]
        yield Memberships(row, (np.cumsum(is_there) - 1)[label], shares[part], evidence, int(is_there.sum()))


def start_means(rows: FloatMatrix, k: int, seed: int) -> FloatMatrix:
    """Return k rows drawn by greedy k-means++, as `core.clustering.kmeans.start_means` does.

    Args:
        rows: (n, d) float32, finite, n ≥ k ≥ 1.
    """
    sample, first, draws = kmeans.start_draws(rows, k, seed)
    n_rows, n_drawn, n_dims = len(sample), draws.shape[1], rows.shape[1]
    held, drawn_at = cupy.asarray(sample), cupy.asarray(draws)
    columns, norms = held.T.copy(), (held * held).sum(axis=1)
    chosen, drawn = cupy.zeros(k, dtype=np.int32), cupy.zeros(n_drawn, dtype=np.int32)
    distances, sums = cupy.zeros((n_drawn, n_rows), dtype=np.float32), cupy.zeros(n_drawn)
    near, top = cupy.full(n_rows, _FAR, dtype=np.float32), cupy.zeros(1, dtype=np.float32)
    units, drawn[0] = cupy.zeros(n_rows, dtype=np.int64), first
    blocks, size = -(-n_rows // _THREADS), np.int32(n_rows)
    for number in range(k):
        n_now = n_drawn if number else 1
        if number:
            _run("weigh_rows", blocks, (near, top, size, units))
            heights = cupy.cumsum(units)
            _run("draw_rows", 1, (heights, size, drawn_at[number - 1], np.int32(n_drawn), drawn))
        shape = np.int32(n_now), size
        _run("approach_rows", blocks, (columns, norms, near, drawn, *shape, np.int32(n_dims), distances))
        _run("sum_distances", n_now, (distances, size, sums))
        _run("choose_row", 1, (distances, sums, drawn, *shape, near, top, chosen[number:]))
    found: FloatMatrix = sample[cupy.asnumpy(chosen)]
    return found


def nearest_sums(rows: Any, means: FloatMatrix, block_rows: int) -> GroupSums:
    """Return the sums of rows by their nearest mean, the first of equally near ones, added up in the order of the rows.

    Args:
        rows: (n, d) float32 of the host or the device, finite; may be memory-mapped.
        means: (k, d) float32.
        block_rows: rows of a product, of k columns. It decides the last bits.
    """
    (k, n_dims), n_rows = means.shape, len(rows)
    columns, halves = cupy.asarray(means.T), cupy.asarray(0.5 * np.einsum("ij,ij->i", means, means))
    held = cupy.asarray(rows)
    labels = cupy.zeros(n_rows, dtype=np.int64)
    for begin in range(0, n_rows, block_rows):
        closeness = held[begin : begin + block_rows] @ columns
        part = labels[begin : begin + block_rows]
        _run("nearest_columns", len(part), (closeness, halves, np.int32(k), part))
    order = cupy.argsort(labels * n_rows + cupy.arange(n_rows))  # distinct, so there is one order
    counts = cupy.asnumpy(cupy.bincount(labels, minlength=k))
    sums = cupy.zeros((k, n_dims))
    _run("sum_groups", k, (held, order, cupy.asarray(_offsets(counts)), np.int32(n_dims), sums), _SUM_THREADS)
    return GroupSums(counts.astype(np.int64), cupy.asnumpy(sums), float((held * held).sum(dtype=np.float64)))


def _run(name: str, n_blocks: int, arguments: tuple[Any, ...], n_threads: int = _THREADS) -> None:
    """Run a kernel of cells.cu."""
    _kernel(name)((n_blocks,), (n_threads,), arguments)


@cache
def _kernel(name: str) -> Any:
    return _module().get_function(name)


@cache
def _module() -> Any:
    """Return cells.cu, compiled for the card in use; CuPy keeps it on disk."""
    code = (resources.files("hirag_dist.compute") / "cells.cu").read_text(encoding="utf-8")
    defined = tuple(f"-D{name}={value!r}" for name, value in _CONSTANTS.items())
    return cupy.RawModule(code=code, options=("--fmad=false", *defined))  # fused products round otherwise than a CPU


def _offsets(counts: IntVector) -> IntVector:
    """Return (n + 1,) int64 the sums before each count, and of all."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _parts(n_bytes: Sequence[int]) -> Iterator[slice]:
    """Yield slices of things whose bytes fit a batch together, or one that does not by itself."""
    begin, room = 0, _BATCH_BYTES
    for at, needed in enumerate(n_bytes):
        if at > begin and needed > room:
            yield slice(begin, at)
            begin, room = at, _BATCH_BYTES
        room -= needed
    if n_bytes:
        yield slice(begin, len(n_bytes))
