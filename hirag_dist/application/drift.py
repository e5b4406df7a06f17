"""Drift of a snapshot: its clusters and communities compared with a shadow clustering, without a model call.

The shadow groups the entities of the snapshot by the functions and settings of a build: the vectors of each layer are
reduced and clustered as a build clusters them, and communities are detected on the snapshot's graph without a warm
start. The shadow of an index that was built from nothing is the index itself where a layer's rows come in the order
of the snapshot, as they do up to one partition of a build.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.compute.kernels import CpuKernels, make_kernels, resolve_kernels
from hirag_dist.config.model import ClusteringConfig, CommunitiesConfig
from hirag_dist.config.sections import ConfigSection
from hirag_dist.core.clustering.partition_tree import ClusterSettings
from hirag_dist.core.clustering.soft_clusters import soft_clusters
from hirag_dist.core.drift import (
    MIN_SIZE,
    CommunityDrift,
    DriftReport,
    Groups,
    GroupSizes,
    LayerDrift,
    PartitionDrift,
    UpdateStaleness,
    compactness,
    groups_of_labels,
    stale_reports,
    stale_summaries,
    weighted_jaccard,
)
from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import rows_of
from hirag_dist.core.graph.hierarchy_metrics import modularity
from hirag_dist.core.graph.leiden import visiting_keys
from hirag_dist.errors import BackendUnavailable
from hirag_dist.indexing.stages.reduce import MIN_UMAP_ROWS, full_rows, n_axes, reduced
from hirag_dist.protocols import Kernels
from hirag_dist.storage.layout import REPORT_INPUTS, SUMMARIES
from hirag_dist.storage.snapshot.reader import Snapshot
from hirag_dist.types import FloatMatrix, IntVector

logger = logging.getLogger(__name__)
SectionT = TypeVar("SectionT", bound=ConfigSection)


@dataclass(frozen=True, slots=True)
class _Shadow:
    """Kernels and settings of the shadow: those of the build that made the snapshot."""

    kernels: Kernels
    clustering: ClusteringConfig
    communities: CommunitiesConfig
    seed: int

    @property
    def settings(self) -> ClusterSettings:
        config = self.clustering
        return ClusterSettings(config.target_size, config.max_size, config.threshold, self.seed)


def measure_drift(snapshot: Snapshot) -> DriftReport:
    """Return the drift of a snapshot."""
    shadow = _shadow(snapshot)
    index_kernels = str(snapshot.manifest.build.get("kernels") or CpuKernels.name)
    notes = []
    if shadow.kernels.name != index_kernels:
        notes.append(
            f"The index was built with kernels: {index_kernels}, which this machine does not have; the shadow is made "
            f"with kernels: {shadow.kernels.name}, whose clusters may differ."
        )
    entities = snapshot.table("entities", ["entity_id", "layer"])
    clusters = snapshot.table("clusters", ["cluster_id", "layer", "entity_id", "best"])
    summarised = [
        row["layer"] for row in snapshot.table("layers", ["layer", "n_summaries"]).to_pylist() if row["n_summaries"]
    ]
    clustered = sorted({*summarised, *pc.unique(clusters["layer"]).to_pylist()})  # or with summaries above them
    layers = tuple(_layer_drift(shadow, snapshot, layer, entities, clusters) for layer in clustered)
    communities = None
    if "imported" in pc.unique(snapshot.table("reports", ["origin"])["origin"]).to_pylist():
        notes.append("The communities were imported and are kept as they are, so they have no shadow.")
    elif snapshot.manifest.counts.get("communities"):
        communities = _community_drift(shadow, snapshot, entities)
    state = update_state(snapshot)
    if state is None:
        notes.append("The snapshot has no update state, so it is not known which texts are due.")
    return DriftReport(
        snapshot_id=snapshot.manifest.snapshot_id,
        kernels=shadow.kernels.name,
        index_kernels=index_kernels,
        layers=layers,
        communities=communities,
        update=state,
        notes=tuple(notes),
    )


def update_state(snapshot: Snapshot) -> UpdateStaleness | None:
    """Return the update that made a snapshot and the texts that are due; None where it has no update state.

    Memory: the texts of all summaries and reports.
    """
    note = snapshot.manifest.update
    if note is None or not snapshot.manifest.counts.keys() & {SUMMARIES, REPORT_INPUTS}:
        return None
    staleness = ["stale_share", "stale_since"]
    inputs = snapshot.table(REPORT_INPUTS, ["community_id", *staleness])
    reports = snapshot.table("reports", ["community_id", "title", "summary", "rating_explanation", "findings"])
    if snapshot.manifest.missing_reports:  # they have inputs, and no text that could be stale
        there = pc.is_in(inputs["community_id"], value_set=reports["community_id"].combine_chunks())
        inputs = inputs.filter(there)
    return UpdateStaleness(
        number=note.number,
        base=note.base,
        documents=dict(note.documents),
        debt={kind: part.model_dump() for kind, part in note.debt.items()},
        summaries=stale_summaries(snapshot.table(SUMMARIES, ["entities", "covers", *staleness])),
        reports=stale_reports(inputs, reports),
        other_changes=note.other_changes,
    )


def _shadow(snapshot: Snapshot) -> _Shadow:
    """Return the shadow's kernels, those of the CPU where this machine lacks those of the index, and its settings."""
    build = snapshot.manifest.build
    config = build.get("config", {})
    kernels: Kernels = CpuKernels()
    try:
        kernels = make_kernels(resolve_kernels(str(build.get("kernels") or CpuKernels.name)))
    except BackendUnavailable as error:
        logger.info("the shadow is made on the CPU: %s", error)
    return _Shadow(
        kernels,
        _section(config.get("clustering", {}), ClusteringConfig),
        _section(config.get("communities", {}), CommunitiesConfig),
        int(config.get("seed", 0)),
    )


def _section(recorded: Mapping[str, Any], section: type[SectionT]) -> SectionT:
    """Return a section of the recorded configuration; keys of other versions are left out."""
    return section.model_validate({key: value for key, value in recorded.items() if key in section.model_fields})


def _layer_drift(shadow: _Shadow, snapshot: Snapshot, layer: int, entities: pa.Table, clusters: pa.Table) -> LayerDrift:
    rows = np.flatnonzero(entities["layer"].to_numpy() == layer)
    first, last = int(rows[0]), int(rows[-1]) + 1  # entities are sorted by layer
    vectors = snapshot.entity_vectors[first:last]
    logger.info("layer %d: shadow clusters of %d entities", layer, last - first)
    made = soft_clusters(_scores(shadow, vectors), shadow.settings, shadow.kernels)
    made_labels = _labels(made.clusters[made.best], made.rows[made.best], len(vectors))

    ids = entities["entity_id"].slice(first, last - first)
    own = clusters.filter(pc.equal(clusters["layer"], layer))
    own = own.filter(pc.is_in(own["entity_id"], value_set=ids.combine_chunks()))
    groups = own["cluster_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    members = rows_of(own["entity_id"], ids)
    best = own["best"].combine_chunks().to_numpy(zero_copy_only=False)
    labels = _labels(groups[best], members[best], len(vectors))
    made_groups = Groups(made.clusters, made.rows)
    return LayerDrift(
        layer=layer,
        entities=len(vectors),
        orphans=int(np.sum(np.bincount(members, minlength=len(vectors)) == 0)),
        clusters=_partition_drift(Groups(groups, members), made_groups, shadow.clustering.max_size),
        compactness=compactness(vectors, labels),
        shadow_compactness=compactness(vectors, made_labels),
    )


def _scores(shadow: _Shadow, vectors: FloatMatrix) -> FloatMatrix:
    """Return the rows that a build clusters (`indexing.layer_clusters`)."""
    config = shadow.clustering
    if config.reduction == "umap" and len(vectors) >= MIN_UMAP_ROWS:
        dims = n_axes(vectors.shape[1], config.reduce_dims, len(vectors))
        vectors = shadow.kernels.umap(vectors, dims, shadow.seed)
    return reduced(vectors, config.reduce_dims, full_rows(shadow.settings.shard_rows), shadow.kernels)


def _community_drift(shadow: _Shadow, snapshot: Snapshot, entities: pa.Table) -> CommunityDrift:
    graph, config = snapshot.graph, shadow.communities
    communities = snapshot.table("communities", ["community_id", "level", "is_leaf", "entity_ids"])
    bounds, members = membership(communities, entities["entity_id"])
    groups = np.repeat(np.arange(communities.num_rows), np.diff(bounds))

    def labels_of(chosen: NDArray[np.bool_]) -> IntVector:
        inside = chosen[groups]
        return _labels(groups[inside], members[inside].astype(np.int64), graph.n_nodes)

    top = labels_of(communities["level"].to_numpy() == 0)
    leaves = labels_of(communities["is_leaf"].combine_chunks().to_numpy(zero_copy_only=False))
    logger.info("shadow communities of %d entities", graph.n_nodes)
    keys = visiting_keys(entities["entity_id"], shadow.seed)
    levels = shadow.kernels.leiden(graph, config.max_size, config.resolution, keys)
    return CommunityDrift(
        entities=graph.n_nodes,
        orphans=int(np.sum(top < 0)),
        top=_partition_drift(groups_of_labels(top), groups_of_labels(levels[0]), config.max_size),
        leaves=_partition_drift(groups_of_labels(leaves), groups_of_labels(_deepest(levels)), config.max_size),
        modularity=modularity(graph, top, config.resolution),
        shadow_modularity=modularity(graph, levels[0], config.resolution),
    )


def _deepest(levels: list[IntVector]) -> IntVector:
    """Return the label of each node's deepest community, distinct over all levels."""
    labels = np.full(len(levels[0]), -1, np.int64)
    following = 0
    for level in levels:
        named = level >= 0
        labels[named] = level[named] + following
        following += int(level.max(initial=-1)) + 1
    return labels


def _partition_drift(groups: Groups, shadow_groups: Groups, max_size: int) -> PartitionDrift:
    own, shadow = _sizes(groups.sizes, max_size), _sizes(shadow_groups.sizes, max_size)
    return PartitionDrift(own, shadow, weighted_jaccard(groups, shadow_groups))


def _labels(groups: IntVector, rows: IntVector, n_rows: int) -> IntVector:
    """Return (n_rows,) the group of each row, −1 where it has none."""
    labels = np.full(n_rows, -1, np.int64)
    labels[rows] = groups
    return labels


def _sizes(sizes: IntVector, max_size: int) -> GroupSizes:
    """Return the numbers of groups by size; a number without a member is no group."""
    n_small = np.sum((sizes > 0) & (sizes < MIN_SIZE))
    return GroupSizes(int(np.sum(sizes > 0)), int(n_small), int(np.sum(sizes > max_size)))
