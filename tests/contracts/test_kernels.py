"""Contract of Kernels, against scikit-learn, the CPU and slow versions.

`cupy` and `gpu` run against stand-ins for CuPy and RAPIDS, everywhere; `a GPU` is the real thing, where there is one.
They differ in who finds communities: the CPU, and cuGraph.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.decomposition import PCA
from sklearn.metrics.cluster import pair_confusion_matrix

from hirag_dist.compute.kernels import CpuKernels, resolve_kernels
from hirag_dist.core.clustering.gaussian_mixture import standardised
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import soft_clusters
from hirag_dist.core.graph.csr import by_lowest_node
from hirag_dist.errors import BackendUnavailable
from hirag_dist.protocols import Kernels
from hirag_dist.types import LabelledCell, WarmStart
from tests.core.graphs import csr, order_keys
from tests.core.planted_rows import blobs, fitted_mixture
from tests.standin_cupy import standin_gpu

MODULARITY_MARGIN = 0.02  # below the CPU's, at most


A_GPU = pytest.param("a GPU", marks=pytest.mark.gpu)
finding_communities = pytest.mark.parametrize("kernels", ["cpu", "gpu", A_GPU], indirect=True)  # `cupy` has the CPU's
beside_the_cpus = pytest.mark.parametrize("kernels", ["cupy", A_GPU], indirect=True)  # `gpu` has those of `cupy`


@pytest.fixture(params=["cpu", "cupy", A_GPU])
def kernels(request: pytest.FixtureRequest) -> Iterator[Kernels]:
    if request.param == "cpu":
        yield CpuKernels()
    elif request.param == "a GPU":
        try:
            name = resolve_kernels("gpu")
        except BackendUnavailable as error:
            pytest.skip(str(error))
        from hirag_dist.compute import gpu

        yield gpu.GpuKernels(0) if name == "gpu" else gpu.CupyKernels(0)
    else:
        with standin_gpu() as gpu:
            yield gpu.GpuKernels(0) if request.param == "gpu" else gpu.CupyKernels(0)


def planted(groups: int, size: int, seed: int = 1) -> nx.Graph:
    return nx.convert_node_labels_to_integers(
        nx.random_partition_graph([size] * groups, min(1.0, 8 / size), 0.3 / size / groups, seed=seed)
    )


def as_sets(labels: NDArray[np.int64]) -> list[set[int]]:
    return [set(np.flatnonzero(labels == label).tolist()) for label in range(int(labels.max()) + 1)]


@pytest.mark.parametrize(("rows", "dim", "kept"), [(300, 24, 6), (9_000, 12, 4), (5, 24, 4), (40, 3, 3)])
def test_pca_is_scikit_learns_up_to_sign(kernels: Kernels, rows: int, dim: int, kept: int) -> None:
    random = np.random.default_rng(rows)
    vectors = (random.normal(size=(rows, dim)) * np.geomspace(4, 0.1, dim) + 2).astype(np.float32)
    found = kernels.pca(vectors, kept, 0)
    expected = PCA(kept, svd_solver="full").fit_transform(vectors.astype(np.float64))
    assert (found.shape, found.dtype) == ((rows, kept), np.float32)
    for column in range(kept):
        sign = np.sign(np.dot(found[:, column], expected[:, column]))
        assert sign * found[:, column] == pytest.approx(expected[:, column], abs=2e-3)
    variances = found.var(axis=0)
    assert (np.diff(variances) <= 1e-6).all()


def test_pca_takes_what_is_not_finite_for_zeros(kernels: Kernels) -> None:
    vectors = np.random.default_rng(0).normal(size=(30, 6)).astype(np.float32)
    clean = vectors.copy()
    clean[4] = 0
    vectors[4] = [np.nan, np.inf, -np.inf, np.nan, np.nan, np.nan]
    assert np.array_equal(kernels.pca(vectors, 2, 0), kernels.pca(clean, 2, 0))


GRAPHS = {
    "planted groups": planted(6, 40),
    "a ring": nx.cycle_graph(60),
    "a star": nx.star_graph(50),
    "two parts and lone nodes": nx.disjoint_union(nx.complete_graph(7), nx.empty_graph(5)),
    "one edge": nx.path_graph(2),
    "no edge": nx.empty_graph(9),
    "one node": nx.empty_graph(1),
    "heavy tails": nx.barabasi_albert_graph(400, 2, seed=3),
}


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("max_size", [2, 15])
@finding_communities
def test_communities_cover_connect_and_nest(kernels: Kernels, name: str, max_size: int) -> None:
    graph = GRAPHS[name]
    levels = kernels.leiden(csr(graph), max_size, 1.0, order_keys(len(graph), 7))
    if name == "planted groups":
        again = kernels.leiden(csr(graph), max_size, 1.0, order_keys(len(graph), 7))
        assert [labels.tolist() for labels in levels] == [labels.tolist() for labels in again]
    assert (levels[0] >= 0).all()  # every node is in one
    for level, labels in enumerate(levels):
        assert labels.shape == (len(graph),)
        for community in as_sets(labels):
            assert community
            assert nx.is_connected(graph.subgraph(community))
            above = {int(levels[level - 1][node]) for node in community} if level else {0}
            assert len(above) == 1
            assert -1 not in above
            split = {int(levels[level + 1][node]) >= 0 for node in community} if level + 1 < len(levels) else {False}
            assert len(split) == 1  # wholly split, or not at all
            assert split == {False} or len(community) > max_size


@finding_communities
def test_finds_planted_groups_and_splits_them_to_size(kernels: Kernels) -> None:
    graph = planted(6, 40)
    levels = kernels.leiden(csr(graph), 1000, 1.0, order_keys(240, 0))
    assert len(levels) == 1
    planted_sets = [set(range(first, first + 40)) for first in range(0, 240, 40)]
    quality = nx.community.modularity(graph, as_sets(levels[0]))
    assert quality > nx.community.modularity(graph, planted_sets) - 0.03
    smaller = kernels.leiden(csr(graph), 12, 1.0, order_keys(240, 0))
    deepest = np.stack(smaller)
    last = [tuple(column[column >= 0]) for column in deepest.T]
    sizes = {key: last.count(key) for key in set(last)}
    assert max(sizes.values()) <= 12


@finding_communities
def test_a_warm_start_keeps_the_communities_that_no_change_is_near(kernels: Kernels) -> None:
    graph = planted(6, 40)
    keys = order_keys(240, 0)
    levels = kernels.leiden(csr(graph), 12, 1.0, keys)
    unchanged = WarmStart(tuple(levels), np.zeros(240, np.bool_))
    for before, after in zip(levels, kernels.leiden(csr(graph), 12, 1.0, keys, unchanged), strict=True):
        assert np.array_equal(before, after)
    graph.remove_edges_from([(0, other) for other in list(graph[0])])
    near = WarmStart(tuple(levels), np.arange(240) < 40)
    found = kernels.leiden(csr(graph), 12, 1.0, keys, near)
    far = [labels[40:] for labels in (levels[0], found[0])]
    assert np.array_equal(by_lowest_node(far[0]), by_lowest_node(far[1]))
    assert (found[0] == found[0][0]).sum() == 1


@finding_communities
def test_weights_count(kernels: Kernels) -> None:
    """A ring of eight whose heavy edges pair its nodes."""
    graph = nx.Graph()
    for node in range(8):
        graph.add_edge(node, (node + 1) % 8, weight=50.0 if node % 2 == 0 else 1.0)
    (labels,) = kernels.leiden(csr(graph), 1000, 4.0, order_keys(8, 0))
    assert sorted(map(sorted, as_sets(labels))) == [[0, 1], [2, 3], [4, 5], [6, 7]]


@pytest.mark.parametrize("kernels", ["gpu", A_GPU], indirect=True)
def test_communities_are_as_good_as_the_cpus(kernels: Kernels) -> None:
    graph = planted(12, 50, seed=4)
    ours, cpus = (
        nx.community.modularity(graph, as_sets(each.leiden(csr(graph), 1000, 1.0, order_keys(600, 5))[0]))
        for each in (kernels, CpuKernels())
    )
    assert ours >= cpus - MODULARITY_MARGIN


@pytest.mark.parametrize("name", [*GRAPHS, "a long path"])
def test_bfs_counts_the_fewest_hops(kernels: Kernels, name: str) -> None:
    graph = GRAPHS.get(name, nx.path_graph(300))
    sources = np.random.default_rng(0).integers(len(graph), size=70)  # more than share a walk, some of them twice
    found = kernels.bfs(csr(graph), sources)
    assert (found.shape, found.dtype) == ((70, len(graph)), np.int32)
    for row, source in zip(found, sources.tolist(), strict=True):
        reached = nx.single_source_shortest_path_length(graph, source)
        assert row.tolist() == [reached.get(node, -1) for node in range(len(graph))]


@beside_the_cpus
def test_assignments_of_one_mixture_are_the_cpus(kernels: Kernels) -> None:
    rows = standardised(blobs(5, 1_200, 4, seed=9)[0])[0]
    fitted = fitted_mixture(rows, 5, 0)
    for threshold in (0.1, 1.0):
        found, expected = (each.assign(rows, fitted, threshold) for each in (kernels, CpuKernels()))
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.components.tolist() == expected.components.tolist()
        assert found.shares == pytest.approx(expected.shares, abs=1e-3)
        assert found.log_densities == pytest.approx(expected.log_densities, abs=1e-3)


def planted_cells() -> list[LabelledCell]:
    """Cells of many sizes with touching groups, a fifth of whose rows are at home elsewhere."""
    found = []
    for number, (n_groups, per_group) in enumerate([(1, 30), (3, 20), (6, 25), (7, 30), (20, 30)]):
        rows, labels = blobs(n_groups, per_group, 5, seed=number, spread=3.0)
        found.append(LabelledCell(rows, labels, np.arange(len(rows)) % 5 > 0))
    return found


@beside_the_cpus
def test_memberships_of_cells_are_the_cpus(kernels: Kernels) -> None:
    cells = planted_cells()
    for ours, cpus in zip(*(each.memberships(cells, 0.1) for each in (kernels, CpuKernels())), strict=True):
        assert ours.n_components == cpus.n_components
        one, other = (
            dict(zip(zip(each.rows.tolist(), each.components.tolist(), strict=True), each.shares.tolist(), strict=True))
            for each in (ours, cpus)
        )
        assert all(abs(one.get(key, 0.1) - other.get(key, 0.1)) < 2e-3 for key in one | other)
        best = [each.evidence[np.unique(each.rows, return_index=True)[1]] for each in (ours, cpus)]
        assert best[0] == pytest.approx(best[1], abs=5e-3)


@beside_the_cpus
def test_trees_of_groups_are_the_cpus(kernels: Kernels) -> None:
    """To the last bit, ties among them: rows that stand for themselves, and such that stand for several."""
    random = np.random.default_rng(0)
    ties = random.integers(3, size=(70, 5)).astype(np.float32)
    groups = [ties, ties[:1], ties[:2], *(cell.rows for cell in planted_cells())]
    for sizes in (None, [random.integers(1, 20, len(rows)) for rows in groups]):
        for ours, cpus in zip(*(each.trees(groups, sizes) for each in (kernels, CpuKernels())), strict=True):
            assert np.array_equal(ours, cpus)


@beside_the_cpus
def test_k_means_spread_as_little_as_the_cpus(kernels: Kernels) -> None:
    rows = standardised(blobs(12, 100, 8, seed=5, spread=8.0)[0])[0]
    ours, cpus = (each.kmeans(rows, 16, 0)[1].spread for each in (kernels, CpuKernels()))
    assert ours == pytest.approx(cpus, rel=0.01)


def test_what_is_computed_twice_is_the_same_to_the_last_bit(kernels: Kernels) -> None:
    rows = standardised(blobs(8, 40, 6, seed=3, spread=6.0)[0])[0]
    settings = ClusterSettings(target_size=20, max_size=40, threshold=0.1, seed=0, cell_rows=150)
    first, second = (soft_clusters(rows, settings, kernels) for _ in range(2))
    for name in ("clusters", "rows", "responsibilities", "best"):
        assert np.array_equal(getattr(first, name), getattr(second, name))


@beside_the_cpus
def test_clusters_are_the_cpus(kernels: Kernels) -> None:
    """Pairs of rows that share a best cluster: F1 of at least 0.99 in a layer of several cells, in touching groups."""
    rows, _ = blobs(50, 20, 8, seed=3, spread=3.0)
    settings = ClusterSettings(target_size=20, max_size=40, threshold=0.1, seed=0, cell_rows=250)
    labels = []
    for each in (kernels, CpuKernels()):
        found = soft_clusters(rows, settings, each)
        labels.append(np.empty(len(rows), np.int64))
        labels[-1][found.rows[found.best]] = found.clusters[found.best]
    (_, false), (missed, true) = pair_confusion_matrix(labels[1], labels[0])
    assert 2 * true / (2 * true + false + missed) >= 0.99


@beside_the_cpus
def test_the_nearest_mean_of_each_row_is_found(kernels: Kernels, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two blocks and a rest; of equal means the first."""
    monkeypatch.setattr(sys.modules[type(kernels).__module__], "block_rows", lambda n_means: 300)
    rows, labels = blobs(7, 100, 4, seed=6)
    means = np.stack([rows[labels == label].mean(axis=0) for label in range(7)])
    for given in (means, np.concatenate([means, means])):
        found, expected = (each.nearest_sums(rows, given) for each in (kernels, CpuKernels()))
        assert found.counts.tolist() == expected.counts.tolist() == [100] * 7 + [0] * (len(given) - 7)
        assert found.sums == pytest.approx(expected.sums, rel=1e-4, abs=1.0)
        assert found.squares == pytest.approx(expected.squares, rel=1e-5)


def test_umap_keeps_neighbours_together_where_there_is_a_gpu(kernels: Kernels) -> None:
    rows, labels = blobs(5, 30, 12, seed=2, spread=0.1)
    if kernels.name == "cpu":
        with pytest.raises(BackendUnavailable, match=r"umap-cu12.*reduction: pca"):
            kernels.umap(rows, 3, 0)
        return
    if find_spec("cuml") is None:
        pytest.skip("cuML is not installed")
    found = kernels.umap(rows, 3, 0)
    assert (found.shape, found.dtype) == ((150, 3), np.float32)
    apart = np.linalg.norm(found[:, None] - found[None], axis=2)
    np.fill_diagonal(apart, np.inf)
    assert np.mean(labels[apart.argmin(axis=1)] == labels) > 0.95
    assert found.tobytes() == kernels.umap(rows, 3, 0).tobytes()
