"""Hierarchical partitions as the COMMUNITIES table (paper §4.1; levels as in the GraphRAG paper).

Communities imported from another tool are extended by the summary entities above them: inside, entities and communities
are row numbers: a million relations are two arrays, not a million pairs of texts.

Those of a graph that changed in part are found from those of the graph before (`warm_start`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count, pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.csr import by_lowest_node, components, entries_of, heads, rows_of, subgraph, within
from hirag_dist.core.graph.leiden import leiden
from hirag_dist.core.groupby import bounds_of, lists, shared_counts
from hirag_dist.core.id_rows import IdRows
from hirag_dist.core.row_changes import one_array
from hirag_dist.core.text.ids import content_id, content_ids
from hirag_dist.schemas import COMMUNITIES, REPORTS
from hirag_dist.types import CsrGraph, IntVector, WarmStart

Partition = Callable[[CsrGraph, int], NDArray[np.int64]]
GroupedPartition = Callable[[CsrGraph, IntVector, int], NDArray[np.int64]]
_MIN_JACCARD = 0.5


def nested_labels(graph: CsrGraph, partition: GroupedPartition, max_size: int) -> list[NDArray[np.int64]]:
    """Return one array of labels a level, coarsest first; −1 where a node's community is not split further.

    Every community is connected: one that is not is cut into its components. One of more than `max_size` nodes is
    partitioned again by itself, until it fits or cannot be split.

    Args:
        partition: gives each node of a group a label within that group; −1 stands for no group, and stays. The graph
            it is given has all edges inside groups, and none of others is to count. Its third argument is the level.
    """
    groups = np.zeros(graph.n_nodes, np.int64)
    levels: list[NDArray[np.int64]] = []
    while True:
        parts = partition(graph, groups, len(levels))
        graph = within(graph, parts)
        labels = by_lowest_node(np.where(groups >= 0, components(graph), -1))
        if levels:  # a group that has one part only is not split further
            _, first = np.unique(labels, return_index=True)
            n_parts = np.bincount(groups[first[groups[first] >= 0]], minlength=int(groups.max(initial=-1)) + 1)
            labels = by_lowest_node(np.where((groups >= 0) & (n_parts[groups] > 1), labels, -1))
            if labels.max(initial=-1) < 0:
                return levels
        levels.append(labels)
        large = np.bincount(labels[labels >= 0]) > max_size
        if not large.any():
            return levels
        groups = np.where((labels >= 0) & large[labels], labels, -1)


def hierarchical_labels(graph: CsrGraph, partition: Partition, max_size: int) -> list[NDArray[np.int64]]:
    """Return `nested_labels` with a flat partition that takes one graph at a time.

    Args:
        partition: a flat partition of a graph; its second argument numbers the call, for a seed.
    """
    calls = count()

    def each_by_itself(graph: CsrGraph, groups: IntVector, _level: int) -> NDArray[np.int64]:
        labels = np.full(graph.n_nodes, -1, np.int64)
        chosen = np.flatnonzero(groups >= 0)
        order = chosen[np.argsort(groups[chosen], kind="stable")]
        blocks = subgraph(within(graph, groups), order)
        bounds = np.append(np.flatnonzero(np.diff(groups[order], prepend=-1)), len(order)).tolist()
        following = 0
        for first, last in pairwise(bounds):
            found = partition(_block(blocks, first, last), next(calls))
            labels[order[first:last]] = found + following
            following += int(found.max()) + 1
        return labels

    return nested_labels(graph, each_by_itself, max_size)


def _block(graph: CsrGraph, first: int, last: int) -> CsrGraph:
    """Return the graph of consecutive nodes that have no edges to others."""
    start, stop = graph.indptr[first], graph.indptr[last]
    return CsrGraph(
        graph.indptr[first : last + 1] - start,
        (graph.indices[start:stop] - first).astype(np.int32),
        graph.weights[start:stop],
        graph.relation_rows[start:stop],
    )


def community_table(
    levels: Sequence[NDArray[np.int64]],
    graph: CsrGraph,
    entity_ids: pa.ChunkedArray,
    previous: pa.Table | None = None,
) -> pa.Table:
    """Return COMMUNITIES, sorted by (level, id).

    An id is the hash of the level and the sorted members, unless the community continues one of `previous`.

    Args:
        levels: labels of each level as of `nested_labels`.
        entity_ids: (n_nodes,) ids in row order.
        previous: COMMUNITIES of an earlier graph. A community has the id of the one of the same level with which it
            shares more than half of the members of the larger of the two. No two can continue the same one.
    """
    previous = COMMUNITIES.empty_table() if previous is None else previous
    continued = _continued(levels, entity_ids, previous)
    ids = one_array(entity_ids)
    by_name = pc.sort_indices(ids).to_numpy()
    start = heads(graph)
    above: pa.Array = pa.array([], pa.string())
    tables = [COMMUNITIES.empty_table()]
    for level, labels in enumerate(levels):
        named = by_name[labels[by_name] >= 0]
        named = named[np.argsort(labels[named], kind="stable")]
        sizes = np.bincount(labels[named])
        bounds = np.concatenate([[0], np.cumsum(sizes)])
        if bounds[-1] == 0:
            break
        members = pa.ListArray.from_arrays(pa.array(bounds, pa.int32()), ids.take(pa.array(named)))
        one = named[bounds[:-1]]  # a member of each
        inner = (labels[start] >= 0) & (labels[start] == labels[graph.indices])
        deeper = levels[level + 1][one] >= 0 if level + 1 < len(levels) else np.zeros(len(one), bool)
        own = _ids(level, members, continued[level], previous)
        parents = above.take(pa.array(levels[level - 1][one])) if level else pa.nulls(len(one), pa.string())
        columns = [
            own,
            pa.array(np.full(len(one), level, np.int32)),
            parents,
            pa.array(~deeper),
            pa.array(sizes.astype(np.int64)),
            pa.array(np.bincount(labels[start[inner]], minlength=len(one)) // 2),
            members,
        ]
        tables.append(pa.table(columns, names=COMMUNITIES.names).cast(COMMUNITIES).sort_by("community_id"))
        above = own
    return pa.concat_tables(tables).combine_chunks()


def level_labels(communities: pa.Table, entity_ids: pa.ChunkedArray) -> list[NDArray[np.int64]]:
    """Return one array of labels a level, coarsest first: the row in COMMUNITIES of each entity's community.

    Returns:
        (n_entities,) int64 for each level; −1 where an entity is in no community of it.
    """
    members = one_array(communities["entity_ids"])
    rows = rows_of(members.flatten(), entity_ids)
    owner = pc.list_parent_indices(members).to_numpy()
    owner, rows = owner[rows >= 0], rows[rows >= 0]
    level_of = communities["level"].to_numpy()
    found = []
    for level in range(int(level_of.max(initial=-1)) + 1):
        here = level_of[owner] == level
        labels = np.full(len(entity_ids), -1, np.int64)
        labels[rows[here]] = owner[here]
        found.append(labels)
    return found


def _continued(
    levels: Sequence[NDArray[np.int64]], entity_ids: pa.ChunkedArray, previous: pa.Table
) -> list[NDArray[np.int64]]:
    """Return the row in `previous` of the community that each community of each level continues, −1 for none."""
    known = level_labels(previous, entity_ids)
    sizes_before = previous["n_entities"].to_numpy()
    found = []
    for level, labels in enumerate(levels):
        sizes = np.bincount(labels[labels >= 0])
        rows = np.full(len(sizes), -1, np.int64)
        if level < len(known):
            in_both = (labels >= 0) & (known[level] >= 0)
            pairs, shared = np.unique(labels[in_both] * len(sizes_before) + known[level][in_both], return_counts=True)
            own, before = np.divmod(pairs, len(sizes_before))
            same = 2 * shared > np.maximum(sizes[own], sizes_before[before])
            rows[own[same]] = before[same]
        found.append(rows)
    return found


def _ids(level: int, members: pa.ListArray, continued: IntVector, previous: pa.Table) -> pa.Array:
    """Return the ids of a level's communities: that of the continued one, else a hash that is no earlier id."""
    earlier, continues = previous["community_id"].combine_chunks(), pa.array(continued >= 0)
    hashed = pa.array(content_ids(["community", str(level)], members), pa.string())
    ids = pc.if_else(continues, earlier.take(pa.array(continued, mask=continued < 0)), hashed)
    equal = pc.and_(pc.invert(continues), pc.is_in(hashed, value_set=earlier)).to_numpy(zero_copy_only=False)
    if not equal.any():
        return ids
    names, taken = ids.to_pylist(), set(earlier.to_pylist())
    for at in np.flatnonzero(equal).tolist():
        salt = 0
        while names[at] in taken:
            salt += 1
            names[at] = content_id("community", str(level), f"salt {salt}", *members[at].as_py())
        taken.add(names[at])
    return pa.array(names, pa.string())


def membership(communities: pa.Table, entity_ids: pa.ChunkedArray) -> tuple[IntVector, NDArray[np.int32]]:
    """Return (indptr, rows): the member rows of each community, ascending."""
    members = one_array(communities["entity_ids"])
    rows = rows_of(members.flatten(), entity_ids)
    owner = pc.list_parent_indices(members).to_numpy()
    return bounds_of(owner, len(members)), rows[np.lexsort((rows, owner))].astype(np.int32)


def lineage(old: pa.Table, new: pa.Table) -> dict[str, str]:
    """Map each community of `new` to the one of `old` with the best Jaccard index of members, at least 0.5.

    Only communities whose id is not in `old` are listed; of equally good ones the last by id counts.

    Args:
        old: COMMUNITIES, or its `community_id` and `entity_ids`.
        new: the same of a later index.
    """
    new = new.filter(pc.invert(pc.is_in(new["community_id"], value_set=old["community_id"].combine_chunks())))
    if not new.num_rows or not old.num_rows:
        return {}
    old = old.sort_by("community_id")
    grouped = [table["entity_ids"].combine_chunks() for table in (old, new)]
    known = pc.unique(grouped[0].flatten())
    sizes = [each.value_lengths().to_numpy(zero_copy_only=False).astype(np.int64) for each in grouped]
    codes = (pc.index_in(each.flatten(), value_set=known) for each in grouped)
    members = [pc.fill_null(each, len(known)).to_numpy().astype(np.int64) for each in codes]
    owners = [np.repeat(np.arange(len(each)), each) for each in sizes]
    old_entities = members[1] < len(known)
    own, other, shared = shared_counts(owners[1][old_entities], members[1][old_entities], owners[0], members[0])
    jaccard = shared / (sizes[1][own] + sizes[0][other] - shared)
    close = np.flatnonzero(jaccard >= _MIN_JACCARD)
    order = close[np.lexsort((other[close], jaccard[close], own[close]))]
    last = order[np.flatnonzero(np.diff(own[order], append=-1))]
    names = new["community_id"].take(pa.array(own[last])).to_pylist()
    return dict(zip(names, old["community_id"].take(pa.array(other[last])).to_pylist(), strict=True))


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
    earlier_of[groups[members]] = before[members]  # the row before of one member of each group
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


Homes = NDArray[np.int32]  # (n_levels, n_entities) the row of the entity's community of that level; -1: none


def with_summaries(communities: pa.Table, entities: pa.Table, relations: pa.Table) -> tuple[pa.Table, dict[str, str]]:
    """Return the communities with summary entities as further members, and the new id of each by its old one.

    A summary entity is in each community that holds more than half of the entities right below it, and in none where
    its members are spread: Eq. 13 then finds a community by its summaries, and Eq. 14 draws key entities from all
    layers. Since sub-communities hold fewer, it stays nested. Entities that no community holds have none.

    Args:
        communities: COMMUNITIES of layer 0; an entity is in one of a level at most.
        entities: `entity_id` and `layer` of all layers.
        relations: `source_id`, `target_id`, `kind` of all layers; kind `summary` goes from a member to its summary.
    """
    own = one_array(entities["entity_id"])
    members = one_array(communities["entity_ids"])
    strangers = pc.unique(members.flatten().filter(pc.invert(pc.is_in(members.flatten(), value_set=own))))
    order = pa.concat_arrays([own, strangers])
    layers = np.zeros(len(order), np.int32)
    layers[: len(own)] = entities["layer"].to_numpy()
    places = IdRows(order)
    ends = np.stack([places.rows(relations[end]) for end in ("source_id", "target_id")])
    levels = communities["level"].to_numpy()
    homes = np.full((int(levels.max(initial=-1)) + 1, len(order)), -1, np.int32)
    community = pc.list_parent_indices(members).to_numpy()
    homes[levels[community], places.rows(members.flatten())] = community
    _add_summaries(homes, layers, ends[:, pc.equal(relations["kind"], "summary").to_numpy()])
    extended = _members(homes, len(levels), order)
    ids = np.empty(len(levels), object)
    for level in np.unique(levels).tolist():
        here = np.flatnonzero(levels == level)
        ids[here] = content_ids(["community", str(level)], extended.take(pa.array(here)))
    renamed = dict(zip(communities["community_id"].to_pylist(), ids.tolist(), strict=True))
    columns = {name: communities[name] for name in COMMUNITIES.names} | {
        "community_id": pa.array(ids.tolist(), pa.string()),
        "parent_id": pa.array([renamed.get(each) for each in communities["parent_id"].to_pylist()], pa.string()),
        "n_entities": extended.value_lengths().cast(pa.int64()),
        "n_relations": pa.array(_inside(homes, ends, len(levels))),
        "entity_ids": extended,
    }
    found = pa.table(list(columns.values()), schema=COMMUNITIES)
    return found.sort_by([("level", "ascending"), ("community_id", "ascending")]), renamed


def renamed_reports(reports: pa.Table, ids: Mapping[str, str]) -> pa.Table:
    """Return REPORTS under the new ids of their communities."""
    own = [ids[each] for each in reports["community_id"].to_pylist()]
    return reports.set_column(0, REPORTS.field("community_id"), pa.array(own, pa.string())).cast(REPORTS)


def _add_summaries(homes: Homes, layers: NDArray[np.int32], ends: NDArray[np.int64]) -> None:
    """Give summary entities their communities, layer by layer: `ends` are (2, n) members and what summarises them."""
    n_below = np.bincount(ends[1][ends[1] >= 0], minlength=len(layers))
    ends = ends[:, (ends >= 0).all(axis=0)]
    for layer in range(1, int(layers.max(initial=0)) + 1):
        members, summaries = ends[:, layers[ends[1]] == layer]
        for level in homes:
            own = level[members].astype(np.int64)
            votes, counts = np.unique((summaries * (own.max(initial=0) + 1) + own)[own >= 0], return_counts=True)
            voted, community = np.divmod(votes, own.max(initial=0) + 1)
            most = 2 * counts > n_below[voted]
            level[voted[most]] = community[most]


def _members(homes: Homes, n_communities: int, order: pa.Array) -> pa.ListArray:
    """Return the ids of each community's members, ascending."""
    by_name = pc.sort_indices(order).to_numpy()
    community = homes[:, by_name].ravel()
    held = np.flatnonzero(community >= 0)
    held = held[np.argsort(community[held], kind="stable")]
    rows = by_name[held % max(len(order), 1)]
    return lists(bounds_of(community[held], n_communities), order.take(pa.array(rows)))


def _inside(homes: Homes, ends: NDArray[np.int64], n_communities: int) -> NDArray[np.int64]:
    """Return how many pairs of members of each community are joined."""
    low, high = ends.min(axis=0), ends.max(axis=0)
    n = homes.shape[1]
    pairs = np.unique((low * n + high)[(low >= 0) & (low != high)])
    low, high = pairs // max(n, 1), pairs % max(n, 1)
    counts = np.zeros(n_communities, np.int64)
    for level in homes:
        own = level[low]
        counts += np.bincount(own[(own == level[high]) & (own >= 0)], minlength=n_communities)
    return counts
