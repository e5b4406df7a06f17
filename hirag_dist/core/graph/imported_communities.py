"""Communities imported from another tool, extended by the summary entities of the layers above.

Inside, entities and communities are row numbers: a million relations are two arrays, not a million pairs of texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.text.ids import content_ids
from hirag_dist.schemas import COMMUNITIES, REPORTS
from hirag_dist.types import IntVector

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
    own = entities["entity_id"].combine_chunks()
    members = communities["entity_ids"].combine_chunks()
    strangers = pc.unique(members.flatten().filter(pc.invert(pc.is_in(members.flatten(), value_set=own))))
    order = pa.concat_arrays([own, strangers])
    layers = np.zeros(len(order), np.int32)
    layers[: len(own)] = entities["layer"].to_numpy()
    ends = np.stack([_rows(relations[end], order) for end in ("source_id", "target_id")])
    levels = communities["level"].to_numpy()
    homes = _homes(levels, members, order)
    _add_summaries(homes, layers, ends[:, pc.equal(relations["kind"], "summary").to_numpy()])
    lists = _members(homes, len(levels), order)
    ids = np.empty(len(levels), object)
    for level in np.unique(levels).tolist():
        places = np.flatnonzero(levels == level)
        ids[places] = content_ids(["community", str(level)], lists.take(pa.array(places)))
    renamed = dict(zip(communities["community_id"].to_pylist(), ids.tolist(), strict=True))
    columns = {name: communities[name] for name in COMMUNITIES.names} | {
        "community_id": pa.array(ids.tolist(), pa.string()),
        "parent_id": pa.array([renamed.get(each) for each in communities["parent_id"].to_pylist()], pa.string()),
        "n_entities": lists.value_lengths().cast(pa.int64()),
        "n_relations": pa.array(_inside(homes, ends, len(levels))),
        "entity_ids": lists,
    }
    found = pa.table(list(columns.values()), schema=COMMUNITIES)
    return found.sort_by([("level", "ascending"), ("community_id", "ascending")]), renamed


def renamed_reports(reports: pa.Table, ids: Mapping[str, str]) -> pa.Table:
    """Return REPORTS under the new ids of their communities."""
    own = [ids[each] for each in reports["community_id"].to_pylist()]
    return reports.set_column(0, REPORTS.field("community_id"), pa.array(own, pa.string())).cast(REPORTS)


def _rows(ids: pa.ChunkedArray | pa.Array, order: pa.Array) -> IntVector:
    """Return the places of ids in `order`, -1 for those that are not there."""
    places: IntVector = pc.fill_null(pc.index_in(ids, value_set=order), -1).to_numpy(zero_copy_only=False)
    return places.astype(np.int64)


def _homes(levels: NDArray[Any], members: pa.ListArray, order: pa.Array) -> Homes:
    homes = np.full((int(levels.max(initial=-1)) + 1, len(order)), -1, np.int32)
    community = pc.list_parent_indices(members).to_numpy()
    homes[levels[community], _rows(members.flatten(), order)] = community
    return homes


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
    sizes = np.bincount(community[held], minlength=n_communities)
    rows = by_name[held % max(len(order), 1)]
    offsets = pa.array(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, order.take(pa.array(rows)))


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
