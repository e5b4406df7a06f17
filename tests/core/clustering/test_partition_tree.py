"""A large layer in cells: covered, the same in shards and in any order, near to what one mixture finds."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import add

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.clustering.gaussian_mixture import sample_numbers
from hirag_dist.core.clustering.partition_tree import (
    ClusterSettings,
    PartitionNode,
    assign_cells,
    fit_cells,
    sample_size,
)
from hirag_dist.core.clustering.soft_clusters import (
    join_cells,
    layer_height,
    responsibilities,
    soft_clusters,
)
from hirag_dist.core.clustering.ward import row_tree
from hirag_dist.types import GroupSums, LabelledCell, Mixture
from tests.core.clustering.test_soft_clusters import check_promises, same
from tests.core.planted_rows import Rows, blobs, isotropic_mixture

KERNELS = CpuKernels()
SETTINGS = ClusterSettings(20, 40, 0.1, 0, cell_rows=500, shard_rows=1000)


def test_every_row_is_in_a_cell_and_cells_are_near_the_size_they_should_have() -> None:
    rows, _ = blobs(200, 15, 8, seed=1, spread=0.3)
    sample = rows[sample_numbers(len(rows), sample_size(len(rows), SETTINGS), 0)]
    cells = fit_cells(KERNELS, each_of(rows), sample, len(rows), SETTINGS)
    found = assign_cells(KERNELS, rows, cells)
    assert (np.bincount(found.rows[found.is_home], minlength=len(rows)) == 1).all()
    assert len(rows) / SETTINGS.cell_rows <= found.cells.max() + 1 <= n_leaves(cells)
    assert np.bincount(found.cells[found.is_home]).max() <= 1.2 * SETTINGS.cell_rows
    assert len(found.rows) < 3.5 * len(rows)
    assert (np.lexsort((found.cells, found.rows)) == np.arange(len(found.rows))).all()


def test_a_row_has_in_a_nested_cell_its_share_of_the_share_of_the_node() -> None:
    """Normal densities on a line, about 0 for one cell and about 4 for a node with cells about 3 and 4."""
    rows = np.linspace(-3, 9, 60, dtype=np.float32)[:, None]
    mixtures, shares = [], []
    for means in ([0.0, 4.0], [3.0, 4.0]):
        mixtures.append(isotropic_mixture(np.array(means, np.float32)[:, None], 1.0, np.full(2, 0.5), 1e-6))
        densities = np.exp(-((rows - means) ** 2) / 2)
        densities[densities < 0.02 * densities.sum(axis=1, keepdims=True)] = 0
        shares.append(densities / densities.sum(axis=1, keepdims=True))
    root, below = mixtures
    found = assign_cells(KERNELS, rows, PartitionNode(root, (0, PartitionNode(below, (1, 2)))))
    of_cells = np.column_stack([shares[0][:, 0], shares[0][:, 1:] * shares[1]])
    at, cells = np.nonzero(of_cells >= 0.02)
    assert (found.rows.tolist(), found.cells.tolist()) == (at.tolist(), cells.tolist())
    assert found.cells[found.is_home].tolist() == of_cells.argmax(axis=1).tolist()


def test_shares_are_those_among_the_cells_that_see_a_row() -> None:
    """Of a row in the middle of all components the shares are their weights; 0.03 of a half would be too little."""

    def mixture(*weights: float) -> Mixture:
        return isotropic_mixture(np.zeros((len(weights), 1), np.float32), 1.0, np.array(weights), 1e-6)

    node = PartitionNode(mixture(0.97, 0.03), (0, 1))
    root = PartitionNode(mixture(0.5, *[0.01] * 50), (node, *range(2, 52)))
    found = assign_cells(KERNELS, np.zeros((1, 1), np.float32), root)
    assert found.cells.tolist() == [0, 1]


def n_leaves(node: PartitionNode | int | None) -> int:
    return sum(map(n_leaves, node.children)) if isinstance(node, PartitionNode) else 1


def each_of(rows: Rows) -> Callable[[Rows], GroupSums]:
    shards = [rows[first : first + SETTINGS.shard_rows] for first in range(0, len(rows), SETTINGS.shard_rows)]
    return lambda means: reduce(add, (KERNELS.nearest_sums(shard, means) for shard in shards))


def test_parts_on_any_worker_in_any_order_give_the_clusters_of_one_process() -> None:
    """As in a distributed engine: rows by shard, cells through pickles and from the last to the first."""
    rows = np.random.default_rng(3).normal(size=(2600, 5)).astype(np.float32)
    sample = rows[sample_numbers(len(rows), sample_size(len(rows), SETTINGS), SETTINGS.seed)]
    partition = pickle.loads(pickle.dumps(fit_cells(KERNELS, each_of(rows), sample, len(rows), SETTINGS)))
    entries: dict[int, list[tuple[int, bool]]] = {}
    for first in (2000, 0, 1000):
        found = assign_cells(KERNELS, rows[first : first + 1000], partition)
        for row, cell, is_home in zip(found.rows.tolist(), found.cells.tolist(), found.is_home.tolist(), strict=True):
            entries.setdefault(cell, []).append((first + row, is_home))
    cells = [tuple(np.array(column) for column in zip(*sorted(entries[cell]), strict=True)) for cell in sorted(entries)]
    assert len({row for numbers, _ in cells for row in numbers.tolist()}) < sum(len(numbers) for numbers, _ in cells)
    trees = [pickle.loads(pickle.dumps(row_tree(rows[numbers]))) for numbers, _ in cells[::-1]][::-1]
    weights = [tree.weights(is_home) for tree, (_, is_home) in zip(trees, cells, strict=True)]
    height = layer_height([tree.heights for tree in trees], weights, len(rows), 5, SETTINGS)
    parts = []
    for (numbers, is_home), tree in zip(cells[::-1], trees[::-1], strict=True):
        cell = LabelledCell(rows[numbers], tree.labels(height), is_home)
        parts.append((numbers, pickle.loads(pickle.dumps(KERNELS.memberships([cell], SETTINGS.threshold)[0]))))
    assert same(join_cells(rows, parts[::-1], SETTINGS), soft_clusters(rows, SETTINGS, KERNELS))


def test_responsibilities_of_a_row_add_up_to_one_over_cells() -> None:
    rows, _ = blobs(150, 15, 6, seed=2, spread=3.0)
    found = soft_clusters(rows, replace(SETTINGS, threshold=0.001, cell_rows=400), KERNELS)
    sums = np.bincount(found.rows, found.responsibilities)
    assert 0.98 < sums.min() <= sums.max() <= 1 + 1e-5
    assert np.bincount(found.rows).max() > 1


def test_responsibilities_are_the_posterior_of_all_cells_components() -> None:
    """Row 0 is seen by two cells, with densities of 1 to 3; row 1 by one."""
    found = responsibilities(
        np.array([0, 0, 1, 0]),
        np.array([0, 0, 0, 1]),
        np.array([0.75, 0.25, 1.0, 1.0], np.float32),
        np.log([1e-300, 1e-300, 5.0, 3e-300]),
    )
    assert found == pytest.approx([0.75 / 4, 0.25 / 4, 1, 0.75])


def test_layers_beyond_a_cell_are_clustered_as_well_as_below() -> None:
    scores = []
    for n_blobs in (26, 27, 65):  # 494, 513 and 1,235 rows, in groups that touch
        rows, labels = blobs(n_blobs, 19, 16, seed=4, spread=3.0)
        found = soft_clusters(rows, SETTINGS, KERNELS)
        check_promises(found, len(rows), 40, 0.1)
        scores.append(adjusted_rand_score(labels[found.rows[found.best]], found.clusters[found.best]))
    assert min(scores) > max(scores) - 0.1
    assert min(scores) > 0.8


ROWS = np.random.default_rng(0).normal(size=(1200, 4))


@pytest.mark.parametrize(
    "rows",
    [
        np.concatenate([np.zeros((1150, 4)), ROWS[:50]]),
        np.repeat(ROWS[:3], 400, axis=0),
        np.where(ROWS > 2, np.nan, ROWS),
        ROWS * [1, 0, 0, 0],
        ROWS + np.array([1e4, 0, 0, 0]),
        np.concatenate([ROWS, np.full((1, 4), 1e12)]),
    ],
    ids=["mostly zeros", "three points", "NaN", "constant columns", "off centre", "far outlier"],
)
def test_bad_input_is_cut_all_the_same(rows: NDArray[np.float64]) -> None:
    check_promises(soft_clusters(rows.astype(np.float32), SETTINGS, KERNELS), len(rows), 40, 0.1)
