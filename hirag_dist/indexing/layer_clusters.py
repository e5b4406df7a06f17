"""The clusters of one layer: anchored in those of the base, or new, by one task or by stages of many tasks."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.compute.kernels import CpuKernels
from hirag_dist.core.clustering.anchored import AnchoredMemberships, PreviousClusters, anchored_clusters, loose_clusters
from hirag_dist.core.clustering.partition_tree import ClusterSettings, largest_of_row
from hirag_dist.core.clustering.pca import moments, principal_axes, project
from hirag_dist.core.clustering.soft_clusters import layer_height, soft_clusters
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.vectors import Vectors
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.base import UpdateBase
from hirag_dist.indexing.base_layer import LayerEntities
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.memberships import (
    NAMED_LINKS,
    ChooseMemberships,
    ClusterLayer,
    ClusterStats,
    DescribeMembers,
    GroupMembers,
    cluster_id,
    cluster_stats,
    described,
    grouped,
)
from hirag_dist.indexing.stages.partition import AssignCells, ClusterCells, FitCells, MergeCells, SplitClusters
from hirag_dist.indexing.stages.reduce import (
    MIN_UMAP_ROWS,
    FitProjection,
    ReduceByNeighbours,
    ReduceVectors,
    check_umap_rows,
    full_rows,
    n_axes,
)
from hirag_dist.schemas import CLUSTERS
from hirag_dist.types import IntVector

_CELL_TASKS = 64


@dataclass(frozen=True)
class LayerClusteringOptions:
    """Options of the clusters of a layer and of the prompt material of their members.

    Attributes:
        description_chars: maximum characters of a member in a prompt.
        reduction: pca, or umap before it.
    """

    settings: ClusterSettings
    dim: int
    reduce_dims: int
    description_chars: int
    kernels: str
    reduction: Literal["pca", "umap"] = "pca"


@dataclass(frozen=True)
class LayerClusters:
    """A layer's clusters: CLUSTERS, CLUSTER_MEMBERS, and their figures."""

    clusters: Dataset
    members: Dataset
    stats: ClusterStats


def cluster_layer(
    runner: StageRunner, how: LayerClusteringOptions, layer: int, vectors: Dataset, entities: Dataset
) -> LayerClusters:
    """Return the clusters of a layer: one of more than a shard of rows takes the many tasks, with the same result."""
    label = f"cluster layer {layer}"
    if how.reduction == "umap" and vectors.rows >= MIN_UMAP_ROWS:
        check_umap_rows(vectors.rows)
        dims = n_axes(how.dim, how.reduce_dims, vectors.rows)
        reduce = ReduceByNeighbours(how.dim, dims, how.settings.seed, how.kernels)
        vectors = runner.run(reduce, f"{label}: neighbours", vectors=vectors).scores
        how = replace(how, dim=dims)  # its components are all kept: from here there is one way
    if vectors.rows > how.settings.shard_rows:
        return _by_stages(runner, how, layer, label, vectors, entities)
    stage = ClusterLayer(layer, how.dim, how.reduce_dims, how.settings, how.description_chars, how.kernels)
    found = runner.run(stage, label, vectors=vectors, entities=entities)
    return LayerClusters(
        found.clusters, found.members, ClusterStats(**runner.datasets.read(found.stats).to_pylist()[0])
    )


def _by_stages(
    runner: StageRunner, how: LayerClusteringOptions, layer: int, label: str, vectors: Dataset, entities: Dataset
) -> LayerClusters:
    """Vectors → scores → cells → a tree of each cell → its clusters → memberships with what is shown → clusters.

    What a worker has in memory is a shard of rows, or the partition of a key with as many.
    """
    settings, kernels = how.settings, how.kernels
    rows = settings.shard_rows
    fit = FitProjection(how.dim, how.reduce_dims, full_rows(rows), kernels)
    projection = runner.run(fit, f"{label}: axes", vectors=vectors).projection
    reduce = ReduceVectors(how.dim, full_rows(rows), kernels)
    scores = runner.run(reduce, f"{label}: scores", vectors=vectors, projection=projection).scores
    dims = n_axes(how.dim, how.reduce_dims, vectors.rows)
    nodes = runner.run(FitCells(settings, dims, kernels), f"{label}: cut", scores=scores).nodes
    assign = AssignCells(rows, dims, kernels)
    in_cells = runner.run(assign, f"{label}: cells", scores=scores, nodes=nodes).rows
    # at least one cell and at most a shard; in between, about `_CELL_TASKS` tasks share the most expensive step
    rows_a_task = min(rows, max(settings.max_cell_rows, vectors.rows // _CELL_TASKS))
    merged = runner.run(MergeCells(dims, rows_a_task, kernels), f"{label}: trees", rows=in_cells)
    merges = runner.datasets.read(merged.heights).sort_by("cell")
    heights, weights = (
        [np.frombuffer(column, "<f8") for column in merges[name].to_pylist()] for name in ("heights", "weights")
    )
    height = layer_height(heights, weights, vectors.rows, dims, settings)
    cluster = ClusterCells(settings, height, dims, rows_a_task, kernels)
    found = runner.run(cluster, f"{label}: mixtures", rows=in_cells, trees=merged.trees)
    choose = ChooseMemberships(settings.threshold, rows)
    kept = runner.run(choose, f"{label}: memberships", links=found.links).links
    split = SplitClusters(layer, settings, dims, rows_a_task)
    links = runner.run(split, f"{label}: names", rows=in_cells, links=kept).links
    describe = DescribeMembers(how.description_chars, rows)
    members = runner.run(describe, f"{label}: members", links=links, entities=entities).rows
    grouped = runner.run(GroupMembers(layer, rows), f"{label}: clusters", rows=members)
    components = runner.datasets.read(found.components)["n_components"].to_numpy()
    counts = runner.datasets.read(grouped.sizes)
    sizes = np.repeat(counts["size"].to_numpy(), counts["n_clusters"].to_numpy())
    stats = cluster_stats(sizes, vectors.rows, int(components.sum()))
    return LayerClusters(grouped.clusters, grouped.members, stats)


def clustering_options(context: BuildContext) -> LayerClusteringOptions:
    """Return the options of clustering layers."""
    config = context.config.clustering
    return LayerClusteringOptions(
        ClusterSettings(config.target_size, config.max_size, config.threshold, context.config.seed),
        context.models.dim,
        config.reduce_dims,
        config.member_chars,
        context.models.kernels,
        config.reduction,
    )


_SAMPLE_ROWS = 65_536  # that the axes of a layer are fitted to
_CHECKED_ROWS = 4_096  # a layer that is always compared with clusters made from nothing: some seconds
_MAX_CHECKED_ROWS = 32_768
_MAX_ROUNDS = 3  # of making loose clusters again: the first may leave others loose
_CHECKED_TURNOVER = 0.1  # members that joined or left, of all, from which a larger layer is compared


@dataclass(frozen=True)
class UpdatedClusters:
    """Clusters of a layer after a change.

    Attributes:
        clusters: CLUSTERS, sorted by (cluster, entity).
        indptr: (n_clusters + 1,) int64 where the members of each begin.
        rows: (n_members,) int64 rows of the layer's entities, by row of `clusters`.
        touched: (n_clusters,) bool, those that the base does not have with the same members in the same words; others
            may be among them.
        n_turned: (n_clusters,) members that joined or left since each cluster was founded.
        shown: CLUSTER_MEMBERS of all clusters, of a layer that was clustered from nothing.
    """

    clusters: pa.Table
    ids: pa.Array
    indptr: IntVector
    rows: IntVector
    touched: NDArray[np.bool_]
    stats: ClusterStats
    n_turned: IntVector
    entities: pa.Table
    description_chars: int
    shown: Dataset | None = None

    @property
    def sizes(self) -> IntVector:
        """(n_clusters,) members."""
        return np.diff(self.indptr)

    def members(self, which: IntVector) -> pa.Table:
        """Return CLUSTER_MEMBERS of some clusters, rows of `ids` in any order, sorted by cluster."""
        at = KeySets(self.indptr, np.arange(len(self.rows))).take(np.sort(which)).keys
        links = self.clusters.select(NAMED_LINKS.names).take(pa.array(at))
        return grouped(described(links, self.entities, self.description_chars), 0)[1]


def update_clusters(
    base: UpdateBase,
    options: LayerClusteringOptions,
    layer: int,
    entities: LayerEntities,
    hints: dict[str, str],
    max_loose: int | None,
    is_refresh: bool = False,
) -> UpdatedClusters:
    """Return the clusters of a layer that the base has clustered.

    Args:
        hints: new entity → cluster of the base that it should join if it is near enough.
        max_loose: clusters that are made again at most because they have become loose; None for no limit.
        is_refresh: look for loose clusters in a layer of any size, whether or not it changed.
    """
    before, names = _previous(base, layer, entities)
    ids = entities.table["entity_id"]
    wanted = rows_of(pa.chunked_array([pa.array(list(hints), pa.string())]), ids)
    targets = rows_of(pa.chunked_array([pa.array(list(hints.values()), pa.string())]), pa.chunked_array([names]))
    hinted = np.full(len(ids), -1, np.int64)
    hinted[wanted[wanted >= 0]] = targets[wanted >= 0]
    group = partial(_group, options, entities.vectors)
    max_size = options.settings.max_size
    found = anchored_clusters(entities.vectors, before, entities.moved, hinted, max_size, group)
    is_changed = bool(
        before.n_lost.any() or entities.moved.any() or not np.bincount(before.rows, minlength=len(ids)).all()
    )
    is_checked = is_refresh or (is_changed and _is_checked(found, before, len(ids)))
    if is_checked and max_loose != 0:
        clusters, rows, shares = group(np.arange(len(ids)))
        shadow = _best(rows, clusters, shares, len(ids))
        loose = np.zeros(before.n_clusters, bool)
        for _ in range(_MAX_ROUNDS):
            labels = _best(found.rows, found.clusters, found.responsibilities, len(ids))
            previous = np.where(found.previous >= 0, found.previous, before.n_clusters)[labels]
            left = None if max_loose is None else max_loose - int(loose.sum())
            more = loose_clusters(entities.vectors, previous, shadow, before.n_clusters + 1, left)[:-1]
            if not more.any():
                break
            loose |= more
            found = anchored_clusters(entities.vectors, before, entities.moved, hinted, max_size, group, loose)
    return _named(layer, options, entities, found, before, names)


def new_clusters(
    entities: pa.Table, clusters: pa.Table, stats: ClusterStats, description_chars: int, shown: Dataset
) -> UpdatedClusters:
    """Return the clusters of a layer that the base has not clustered.

    Args:
        entities: ENTITIES of the layer, sorted by id.
        clusters: CLUSTERS, sorted by (cluster, entity).
        shown: CLUSTER_MEMBERS.
    """
    ids = pc.unique(clusters["cluster_id"].combine_chunks())
    sizes = np.bincount(rows_of(clusters["cluster_id"], pa.chunked_array([ids])), minlength=len(ids))
    return UpdatedClusters(
        clusters,
        ids,
        np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        rows_of(clusters["entity_id"], entities["entity_id"]),
        np.ones(len(ids), bool),
        stats,
        np.zeros(len(ids), np.int64),
        entities,
        description_chars,
        shown,
    )


def _previous(base: UpdateBase, layer: int, entities: LayerEntities) -> tuple[PreviousClusters, pa.Array]:
    """Return the clusters of the base over the rows of now, and their ids, sorted."""
    links, _ = base.layer_rows("clusters", layer)
    state, _ = base.layer_rows("summaries", layer)
    names = pc.unique(links["cluster_id"].combine_chunks()).sort()
    number = rows_of(links["cluster_id"], pa.chunked_array([names]))
    before = base.layer_entities(layer)[0]
    now = np.full(before.num_rows, -1, np.int64)
    known = np.flatnonzero(entities.places >= 0)
    now[entities.places[known]] = known
    row = now[rows_of(links["entity_id"], before["entity_id"])]
    there = row >= 0
    at = rows_of(pa.chunked_array([names]), state["cluster_id"])
    sizes = np.bincount(number, minlength=len(names))
    founded = np.where(at >= 0, _column(state, "n_founded")[at], sizes) if state.num_rows else sizes
    turned = np.where(at >= 0, _column(state, "n_turned")[at], 0) if state.num_rows else np.zeros(len(names), np.int64)
    previous = PreviousClusters(
        number[there],
        row[there],
        links["responsibility"].to_numpy()[there].astype(np.float32),
        len(names),
        np.bincount(number[~there], minlength=len(names)),
        founded.astype(np.int64),
        turned.astype(np.int64),
    )
    return previous, names


def _is_checked(found: AnchoredMemberships, before: PreviousClusters, n_rows: int) -> bool:
    """Return whether clusters are compared with ones made from nothing: where it is cheap, or where much has turned."""
    kept = found.previous[found.previous >= 0]
    turned = found.n_turned[found.previous >= 0].sum() / max(before.n_founded[kept].sum(), 1)
    return n_rows <= _CHECKED_ROWS or (n_rows <= _MAX_CHECKED_ROWS and turned > _CHECKED_TURNOVER)


def _best(rows: IntVector, clusters: IntVector, shares: NDArray[np.float32], n_rows: int) -> IntVector:
    """Return (n_rows,) the best cluster of each row."""
    best = largest_of_row(rows, shares)
    labels = np.zeros(n_rows, np.int64)
    labels[rows[best]] = clusters[best]
    return labels


def _group(
    options: LayerClusteringOptions, vectors: Vectors, rows: IntVector
) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
    """Return the clusters that some rows form among themselves, on the axes of the whole layer."""
    step = -(-len(vectors) // _SAMPLE_ROWS)
    sample = np.ascontiguousarray(vectors[::step])
    axes = principal_axes(moments(np, sample), n_axes(options.dim, options.reduce_dims, len(sample)))
    scores = project(np, vectors[rows], axes)
    soft = soft_clusters(scores, options.settings, CpuKernels())
    return soft.clusters, rows[soft.rows], soft.responsibilities


def _named(
    layer: int,
    options: LayerClusteringOptions,
    entities: LayerEntities,
    found: AnchoredMemberships,
    before: PreviousClusters,
    names: pa.Array,
) -> UpdatedClusters:
    """Return clusters under their ids: those that continue keep theirs, new ones hash layer and members."""
    ids = entities.table["entity_id"]
    bounds = np.concatenate([[0], np.cumsum(np.bincount(found.clusters))])
    is_new = found.previous < 0
    continued = names.take(pa.array(found.previous[~is_new]))
    live = set(continued.to_pylist()) if is_new.any() else set()
    own: list[str] = []
    for number in np.flatnonzero(is_new).tolist():
        members = sorted(ids.take(pa.array(found.rows[bounds[number] : bounds[number + 1]])).to_pylist())
        name, salt = cluster_id(layer, members), 0
        while name in live:
            salt += 1
            name = cluster_id(layer, [*members, f"#{salt}"])
        live.add(name)
        own.append(name)
    # continued clusters come first
    known = pa.concat_arrays([continued, pa.array(own, pa.string())])
    order = pc.sort_indices(known).to_numpy().astype(np.int64)
    sizes = np.diff(bounds)
    at = KeySets(bounds, np.arange(len(found.rows))).take(order)
    known, rows = known.take(pa.array(order)), found.rows[at.keys]
    columns = [
        known.take(pa.array(at.owners)),
        pa.array(np.full(len(rows), layer), pa.int32()),
        ids.take(pa.array(rows)),
        pa.array(found.responsibilities[at.keys], pa.float32()),
        pa.array(found.best[at.keys]),
    ]
    touched = is_new.copy()
    touched[~is_new] = found.n_turned[~is_new] != before.n_turned[found.previous[~is_new]]
    touched[found.clusters[entities.changed[found.rows]]] = True
    return UpdatedClusters(
        pa.table(columns, schema=CLUSTERS),
        known,
        at.indptr,
        rows,
        touched[order],
        cluster_stats(sizes, len(ids), len(order)),
        found.n_turned[order],
        entities.table,
        options.description_chars,
    )


def _column(table: pa.Table, name: str) -> IntVector:
    found: IntVector = table[name].to_numpy().astype(np.int64)
    return found
