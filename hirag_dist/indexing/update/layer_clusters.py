"""The clusters of one layer after a change: anchored in those of the base."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.compute.cpu import CpuKernels
from hirag_dist.core.clustering.anchored import AnchoredMemberships, PreviousClusters, anchored_clusters
from hirag_dist.core.clustering.loose_clusters import loose_clusters
from hirag_dist.core.clustering.partition_tree import largest_of_row
from hirag_dist.core.clustering.pca import moments, principal_axes, project
from hirag_dist.core.clustering.soft_clusters import soft_clusters
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.indexing.layer_clustering import LayerClusteringOptions
from hirag_dist.indexing.stages.memberships import (
    NAMED_LINKS,
    ClusterStats,
    cluster_id,
    cluster_stats,
    described,
    grouped,
)
from hirag_dist.indexing.stages.reduce import n_axes
from hirag_dist.indexing.update.base import UpdateBase
from hirag_dist.indexing.update.base_layer import LayerEntities
from hirag_dist.types import FloatMatrix, IntVector

_SAMPLE_ROWS = 65_536  # that the axes of a layer are fitted to
_CHECKED_ROWS = 4_096  # a layer that is always compared with clusters made from nothing: some seconds
_MAX_CHECKED_ROWS = 32_768
_CHECKED_TURNOVER = 0.1  # members that joined or left, of all, from which a larger layer is compared


@dataclass(frozen=True)
class UpdatedClusters:
    """Clusters of a layer after a change.

    Attributes:
        clusters: CLUSTERS, sorted by (cluster, entity).
        members: CLUSTER_MEMBERS, sorted by cluster.
        stats: figures of the layer.
        n_turned: (n_clusters,) members that joined or left since each cluster was founded, by row of `members`.
    """

    clusters: pa.Table
    members: pa.Table
    stats: ClusterStats
    n_turned: IntVector


def update_clusters(
    base: UpdateBase,
    options: LayerClusteringOptions,
    layer: int,
    entities: LayerEntities,
    hints: dict[str, str],
    max_loose: int | None,
) -> UpdatedClusters:
    """Return the clusters of a layer that the base has clustered.

    Args:
        options: of the clustering.
        hints: new entity → cluster of the base that it should join if it is near enough.
        max_loose: clusters that are made again at most because they have become loose; None for no limit.
    """
    links = base.table("clusters")
    links = links.filter(pc.equal(links["layer"], layer))
    state = base.table("summaries", ["layer", "cluster_id", "n_founded", "n_turned"])
    state = state.filter(pc.equal(state["layer"], layer))
    names = pc.unique(links["cluster_id"].combine_chunks()).sort()
    ids = entities.table["entity_id"]
    number = rows_of(links["cluster_id"], pa.chunked_array([names]))
    row = rows_of(links["entity_id"], ids)
    there = row >= 0
    at = rows_of(pa.chunked_array([names]), state["cluster_id"])
    sizes = np.bincount(number, minlength=len(names))
    founded = np.where(at >= 0, _column(state, "n_founded")[at], sizes) if state.num_rows else sizes
    turned = np.where(at >= 0, _column(state, "n_turned")[at], 0) if state.num_rows else np.zeros(len(names), np.int64)
    before = PreviousClusters(
        number[there],
        row[there],
        links["responsibility"].to_numpy()[there].astype(np.float32),
        len(names),
        np.bincount(number[~there], minlength=len(names)),
        founded.astype(np.int64),
        turned.astype(np.int64),
    )
    wanted = rows_of(pa.chunked_array([pa.array(list(hints), pa.string())]), ids)
    targets = rows_of(pa.chunked_array([pa.array(list(hints.values()), pa.string())]), pa.chunked_array([names]))
    hinted = np.full(len(ids), -1, np.int64)
    hinted[wanted[wanted >= 0]] = targets[wanted >= 0]

    def group(rows: IntVector) -> tuple[IntVector, IntVector, NDArray[np.float32]]:
        return _group(options, entities.vectors, rows)

    max_size = options.settings.max_size
    found = anchored_clusters(entities.vectors, before, entities.moved, hinted, max_size, group)
    is_changed = bool(before.n_lost.any() or entities.moved.any() or len(np.unique(before.rows)) < len(ids))
    if is_changed and max_loose != 0 and _is_checked(found, before, len(ids)):
        everything = np.arange(len(ids))
        clusters, rows, shares = _group(options, entities.vectors, everything)
        shadow, labels = (
            _best(rows, clusters, shares, len(ids)),
            _best(found.rows, found.clusters, found.responsibilities, len(ids)),
        )
        previous = np.where(found.previous >= 0, found.previous, before.n_clusters)[labels]
        loose = loose_clusters(entities.vectors, previous, shadow, before.n_clusters + 1, max_loose)[:-1]
        if loose.any():
            found = anchored_clusters(entities.vectors, before, entities.moved, hinted, max_size, group, loose)
    return _named(layer, options, entities, found, names)


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
    options: LayerClusteringOptions, vectors: FloatMatrix, rows: IntVector
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
    names: pa.Array,
) -> UpdatedClusters:
    """Return clusters under their ids: those that continue keep theirs, new ones hash layer and members."""
    ids = np.array(entities.table["entity_id"].to_pylist(), object)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(found.clusters))])
    known = names.to_pylist()
    own: list[str] = []
    live = {known[number] for number in found.previous.tolist() if number >= 0}
    for number, previous in enumerate(found.previous.tolist()):
        if previous >= 0:
            own.append(known[previous])
            continue
        members = sorted(ids[found.rows[bounds[number] : bounds[number + 1]]])
        name, salt = cluster_id(layer, members), 0
        while name in live:
            salt += 1
            name = cluster_id(layer, [*members, f"#{salt}"])
        live.add(name)
        own.append(name)
    columns = [
        pa.array(np.array(own, object)[found.clusters], pa.string()),
        entities.table["entity_id"].take(pa.array(found.rows)),
        pa.array(found.responsibilities, pa.float32()),
        pa.array(found.best),
    ]
    rows = described(pa.table(columns, schema=NAMED_LINKS), entities.table, options.description_chars)
    clusters, members_table = grouped(rows, layer)
    sizes = np.diff(bounds)
    stats = cluster_stats(sizes, len(ids), len(own))
    turned = found.n_turned[rows_of(members_table["cluster_id"], pa.chunked_array([pa.array(own, pa.string())]))]
    return UpdatedClusters(clusters, members_table, stats, turned)


def _column(table: pa.Table, name: str) -> IntVector:
    found: IntVector = table[name].to_numpy().astype(np.int64)
    return found
