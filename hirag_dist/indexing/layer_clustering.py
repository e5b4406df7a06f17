"""The clusters of one layer: in one task where it fits a shard, by stages of many tasks where it does not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import layer_height
from hirag_dist.execution.dataset import Dataset
from hirag_dist.execution.runner import StageRunner
from hirag_dist.indexing.context import BuildContext
from hirag_dist.indexing.stages.cluster import ClusterLayer
from hirag_dist.indexing.stages.memberships import (
    ChooseMemberships,
    ClusterStats,
    DescribeMembers,
    GroupMembers,
    cluster_stats,
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

_CELL_TASKS = 64


@dataclass(frozen=True)
class LayerClusteringOptions:
    """Options of the clusters of a layer and of the prompt material of their members.

    Attributes:
        description_chars: of a member in a prompt.
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
    """Return the clusters of a layer; a layer of more than a shard of rows takes the many tasks, with the same result.

    Args:
        vectors: VECTORS of the layer.
        entities: ENTITIES of the layer.

    Raises:
        ConfigError: the layer is too large for UMAP.
    """
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
