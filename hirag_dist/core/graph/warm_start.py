"""Communities of a graph that changed in part, from those of the graph before."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import GroupedPartition, level_labels
from hirag_dist.core.graph.csr import entries_of, rows_of
from hirag_dist.core.graph.leiden import leiden
from hirag_dist.types import CsrGraph, IntVector, WarmStart


def warm_start(previous: pa.Table, changed: pa.ChunkedArray | None, entity_ids: pa.ChunkedArray) -> WarmStart:
    """Return communities of an earlier graph as labels of the rows of this one.

    Args:
        previous: COMMUNITIES of the earlier graph.
        changed: ids of entities that are new, whose relations changed, or that were related to an entity that is
            gone; unknown ids are left out. None: not known, every entity counts as changed.
        entity_ids: (n_nodes,) ids in row order.
    """
    levels = level_labels(previous, entity_ids)
    if changed is None:
        return WarmStart(tuple(levels), np.ones(len(entity_ids), np.bool_))
    mask = levels[0] < 0 if levels else np.ones(len(entity_ids), np.bool_)
    rows = rows_of(changed, entity_ids)
    mask[rows[rows >= 0]] = True
    return WarmStart(tuple(levels), mask)


def warm_partition(
    graph: CsrGraph, resolution: float, order_keys: NDArray[np.uint64], warm: WarmStart
) -> GroupedPartition:
    """Return a partition for `nested_labels` that starts each level from the labels of an earlier graph.

    A group whose members and inner edges are those of an earlier community keeps that community's subdivision. In
    other groups, nodes without an earlier label of the level start alone.
    """
    unknown = np.full(graph.n_nodes, -1, np.int64)

    def labels_at(level: int) -> IntVector:
        return warm.levels[level] if level < len(warm.levels) else unknown

    def partition(part: CsrGraph, groups: IntVector, level: int) -> NDArray[np.int64]:
        before = labels_at(level)
        if level == 0:
            return leiden(part, groups, resolution, order_keys, before, warm.changed)
        changed = warm.changed | _changed_inside(graph, groups, labels_at(level - 1))
        touched = np.zeros(int(groups.max(initial=-1)) + 1, np.bool_)
        touched[groups[changed & (groups >= 0)]] = True
        kept = (groups >= 0) & ~touched[groups]
        labels = leiden(part, np.where(kept, -1, groups), resolution, order_keys, before, changed)
        first_kept = int(labels.max(initial=-1)) + 1
        undivided = int(before.max(initial=-1)) + 1
        return np.where(kept, first_kept + np.where(before >= 0, before, undivided + groups), labels)

    return partition


def _changed_inside(graph: CsrGraph, groups: IntVector, before: IntVector) -> NDArray[np.bool_]:
    """Return the nodes with an edge that is inside a group and was not inside an earlier community, or vice versa."""
    changed = np.zeros(graph.n_nodes, np.bool_)
    members = np.flatnonzero(groups >= 0)
    if not len(members):
        return changed
    n_groups = int(groups.max()) + 1
    earlier_of = np.full(n_groups, -1, np.int64)
    earlier_of[groups[members]] = before[members]  # of one member of each group
    differs = np.zeros(n_groups, np.bool_)
    differs[groups[members[before[members] != earlier_of[groups[members]]]]] = True
    sizes = np.bincount(before[before >= 0], minlength=1)
    differs |= (earlier_of < 0) | (np.bincount(groups[members], minlength=n_groups) != sizes[earlier_of])
    nodes = members[differs[groups[members]]]
    at, entries = entries_of(graph, nodes)
    head, tail = nodes[at], graph.indices[entries]
    was = (before[head] >= 0) & (before[head] == before[tail])
    changed[head[was != (groups[head] == groups[tail])]] = True
    return changed
