"""A large layer in cells: covered, the same in shards and in any order, near to what one mixture finds."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.core.clustering.gaussian_mixture import sample_numbers, statistics_of
from hirag_dist.core.clustering.partition_tree import ClusterSettings, assign_cells, fit_cells, sample_size
from hirag_dist.core.clustering.soft_clusters import (
    Memberships,
    Part,
    SoftClusters,
    cluster_cell,
    join_cells,
    soft_clusters,
)
from hirag_dist.types import Mixture, MixtureStatistics
from tests.core.clustering.test_soft_clusters import check_promises, same
from tests.core.planted_rows import Rows, blobs

KERNELS = CpuKernels()
SETTINGS = ClusterSettings(20, 40, 0.1, 0, cell_rows=300, whole_rows=500, shard_rows=1000)


def best_of(found: SoftClusters, n_rows: int) -> NDArray[np.int64]:
    best = np.empty(n_rows, np.int64)
    best[found.rows[found.best]] = found.clusters[found.best]
    return best


def test_cells_find_planted_blobs_and_keep_the_promises() -> None:
    rows, labels = blobs(200, 15, 8, seed=1, spread=0.3)
    found = soft_clusters(rows, SETTINGS, KERNELS)
    check_promises(found, len(rows), 40, 0.1)
    assert adjusted_rand_score(labels, best_of(found, len(rows))) > 0.9


def test_every_row_is_in_a_cell_and_cells_are_near_the_size_they_should_have() -> None:
    rows, _ = blobs(200, 15, 8, seed=1, spread=0.3)
    sample = rows[sample_numbers(len(rows), sample_size(len(rows), SETTINGS), 0)]
    cells = fit_cells(KERNELS, each_of(rows), sample, len(rows), SETTINGS)
    found = assign_cells(KERNELS, rows, cells)
    assert set(found.rows.tolist()) == set(range(len(rows)))
    assert cells.n_cells >= len(rows) / SETTINGS.cell_rows
    assert found.cells.max() < cells.n_cells
    assert np.bincount(found.cells).max() <= 4 * SETTINGS.cell_rows
    assert len(found.rows) < 2.5 * len(rows)
    largest = np.zeros(len(rows))
    np.maximum.at(largest, found.rows, found.shares)
    owned = found.shares == largest[found.rows]
    assert np.bincount(found.cells[owned]).max() <= 1.2 * SETTINGS.cell_rows
    sums = np.bincount(found.rows, found.shares)
    assert sums.max() <= 1 + 1e-5
    assert (np.lexsort((found.cells, found.rows)) == np.arange(len(found.rows))).all()


def each_of(rows: Rows) -> Callable[[Mixture], MixtureStatistics]:
    return lambda mixture: statistics_of(np, rows, mixture, SETTINGS.shard_rows)


def test_parts_on_any_worker_in_any_order_give_the_clusters_of_one_process() -> None:
    """As in a distributed engine: rows by shard, cells through pickles and from the last to the first."""
    rows = np.random.default_rng(3).normal(size=(2600, 5)).astype(np.float32)
    sample = rows[sample_numbers(len(rows), sample_size(len(rows), SETTINGS), SETTINGS.seed)]
    cells = pickle.loads(pickle.dumps(fit_cells(KERNELS, each_of(rows), sample, len(rows), SETTINGS)))
    entries: dict[int, list[tuple[int, float]]] = {}
    for first in (2000, 0, 1000):
        found = assign_cells(KERNELS, rows[first : first + 1000], cells)
        for row, cell, share in zip(found.rows.tolist(), found.cells.tolist(), found.shares.tolist(), strict=True):
            entries.setdefault(cell, []).append((first + row, share))
    parts = []
    for cell in sorted(entries, reverse=True):
        numbers, shares = (np.array(each) for each in zip(*sorted(entries[cell]), strict=True))
        part = cluster_cell(KERNELS, rows[numbers], shares.astype(np.float32), SETTINGS, SETTINGS.seed)
        parts.append((numbers, pickle.loads(pickle.dumps(part))))
    assert same(join_cells(parts[::-1], 0.1), soft_clusters(rows, SETTINGS, KERNELS))


def test_how_cells_are_spread_changes_nothing() -> None:
    rows = np.random.default_rng(3).normal(size=(1500, 5)).astype(np.float32)

    def backwards(function: Callable[[Part], Memberships], parts: Iterable[Part]) -> list[Memberships]:
        return [function(part) for part in list(parts)[::-1]][::-1]

    assert same(soft_clusters(rows, SETTINGS, KERNELS, backwards), soft_clusters(rows, SETTINGS, KERNELS))


def test_a_cluster_between_cells_is_kept_once_by_the_side_that_holds_more() -> None:
    """Rows 0–9 lie in both cells, by 0.8 in the first: seen whole in both, they are the first cell's cluster."""
    group = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    far = group + 100
    settings = ClusterSettings(10, 20, 0.1, 0)
    shares = np.concatenate([np.full(10, 0.8), np.ones(10)]).astype(np.float32)
    first = cluster_cell(KERNELS, np.concatenate([group, far]), shares, settings, 0)
    shares[:10] = 0.2
    second = cluster_cell(KERNELS, np.concatenate([group, -far]), shares, settings, 0)
    found = join_cells([(np.arange(20), first), (np.r_[0:10, 20:30], second)], 0.1)
    check_promises(found, 30, 20, 0.1)
    assert [np.flatnonzero(best_of(found, 30) == cluster).tolist() for cluster in range(3)] == [
        list(range(10)),
        list(range(10, 20)),
        list(range(20, 30)),
    ]
    assert len(found.rows) == 30, "no row twice"


def test_equal_clusters_of_two_cells_are_one_with_the_larger_shares() -> None:
    def of(shares: list[float]) -> Memberships:
        return Memberships(np.zeros(2, np.int64), np.arange(2), np.array(shares, np.float32), 1)

    found = join_cells([(np.array([4, 7]), of([0.6, 0.3])), (np.array([4, 7]), of([0.4, 0.7]))], 0.1)
    assert found.rows.tolist() == [4, 7]
    assert found.responsibilities.tolist() == pytest.approx([0.6, 0.7])
    assert found.best.tolist() == [True, True]
    assert found.n_components == 2


def test_a_share_below_the_threshold_stays_only_where_it_is_the_best() -> None:
    one = Memberships(np.array([0, 0]), np.arange(2), np.array([0.9, 0.05], np.float32), 1)
    two = Memberships(np.array([0, 0]), np.arange(2), np.array([0.08, 0.02], np.float32), 1)
    found = join_cells([(np.array([0, 1]), one), (np.array([0, 1]), two)], 0.1)
    assert list(zip(found.clusters.tolist(), found.rows.tolist(), strict=True)) == [(0, 0), (0, 1)]


ROWS = np.random.default_rng(0).normal(size=(1200, 4))


@pytest.mark.parametrize(
    "rows",
    [
        np.zeros((1200, 4)),
        np.concatenate([np.zeros((1150, 4)), ROWS[:50]]),
        np.repeat(ROWS[:3], 400, axis=0),
        np.where(ROWS > 2, np.nan, ROWS),
        np.where(ROWS > 2, np.inf, ROWS),
        ROWS * [1, 0, 0, 0],
        ROWS + np.array([1e4, 0, 0, 0]),
        np.concatenate([ROWS, np.full((1, 4), 1e12)]),
        ROWS * 1e-20,
    ],
    ids=["zeros", "mostly zeros", "three points", "NaN", "infinite", "constant columns", "off centre", "far outlier",
         "tiny"],
)  # fmt: skip
def test_bad_input_is_cut_all_the_same(rows: NDArray[np.float64]) -> None:
    single = rows.astype(np.float32)
    found = soft_clusters(single, SETTINGS, KERNELS)
    check_promises(found, len(rows), 40, 0.1)
    assert same(found, soft_clusters(single, SETTINGS, KERNELS))


def test_a_tree_grows_where_a_child_has_too_many_rows() -> None:
    """Half of the rows lie in a lump, which the coarse mixture of all rows gives to a few children."""
    rng = np.random.default_rng(5)
    rows = np.concatenate([rng.normal(size=(1500, 3)) * 20, rng.normal(size=(1500, 3))]).astype(np.float32)
    settings = ClusterSettings(10, 20, 0.1, 0, cell_rows=150, whole_rows=200)
    cells = fit_cells(KERNELS, each_of(rows), rows, len(rows), settings)
    assert cells.root is not None
    assert any(not isinstance(child, int) for child in cells.root.children)
    leaves: list[int] = []
    nodes = [cells.root]
    while nodes:
        for child in nodes.pop().children:
            if isinstance(child, int):
                leaves.append(child)
            else:
                nodes.append(child)
    assert sorted(leaves) == list(range(cells.n_cells))
    found = assign_cells(KERNELS, rows, cells)
    assert set(found.rows.tolist()) == set(range(len(rows)))
    totals = np.bincount(found.rows, found.shares)
    assert totals.max() <= 1 + 1e-5
    assert totals.min() > 0.1  # of a row between several cells on two levels the largest stays
