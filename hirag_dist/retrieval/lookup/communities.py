"""A community with its report, its members and its neighbours in the hierarchy of communities."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from hirag_dist.core.access.filter import spans
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.errors import NotFound
from hirag_dist.retrieval.lookup.names import short, visible
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import CommunityDetails, CommunityItem, IntVector

_MAX_CHILDREN = 1000


def find_community(view: MappedIndex | None, tables: LookupTables, wanted: str) -> tuple[MappedIndex, int]:
    """Return the view and the row of a community in it.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        tables: of the index.
        wanted: id.

    Raises:
        NotFound: there is none that the caller may see.
    """
    row = None if view is None else tables.communities.row(wanted)
    if view is None or row is None or not view.fully_visible()[row]:
        raise NotFound(
            f"community_id: none that this caller may see has the id {short(wanted)}; a search shows the ids of "
            "communities, which change when the index is updated"
        )
    return view, row


def community_details(view: MappedIndex, row: int, max_members: int, misses_reports: bool = False) -> CommunityDetails:
    """Return a community with its members, its parent and its children.

    Args:
        view: the index as the caller may see it.
        row: of the community, which is visible.
        max_members: limit.
        misses_reports: whether reports were left out of the snapshot.
    """
    index = view.communities
    members = index.members[index.indptr[row] : index.indptr[row + 1]].astype(np.int64)
    members = members[visible(view, members)]
    level = int(index.levels[row])
    _, entries = spans(index.of_indptr[members], index.of_indptr[members + 1])
    related = np.unique(index.of[entries])
    parents = related[index.levels[related] == level - 1].tolist()
    children = related[index.levels[related] == level + 1][:_MAX_CHILDREN].tolist()
    return CommunityDetails(
        community=_item(view, row, misses_reports),
        members=view.entities([(member, None) for member in most_mentioned(view, members)[:max_members].tolist()]),
        parent=next((replace(item, report="") for item in community_items(view, parents[:1])), None),
        children=tuple(replace(item, report="") for item in community_items(view, children)),
        member_count=len(members),
    )


def community_items(view: MappedIndex, rows: Collection[int]) -> tuple[CommunityItem, ...]:
    """Return the visible ones of some communities, in their order."""
    seen = view.fully_visible()
    return tuple(_item(view, row) for row in rows if seen[row])


def most_mentioned(view: MappedIndex, rows: IntVector) -> IntVector:
    """Return entities by the number of visible chunks that mention them, the largest first, ties by row."""
    indptr = view.walk_graph.entity_indptr
    counts = indptr[rows + 1] - indptr[rows]
    if view.visible_chunks is not None:
        owner, entries = spans(indptr[rows], indptr[rows + 1])
        seen = view.visible_chunks[view.walk_graph.entity_chunks[entries]]
        counts = np.bincount(owner[seen], minlength=len(rows))
    ordered: IntVector = rows[np.lexsort((rows, -counts))]
    return ordered


def _item(view: MappedIndex, row: int, misses_reports: bool = False) -> CommunityItem:
    """Return a visible community, without title and report where its report is a dead letter or missing."""
    item = view.community(RankedCommunity(row, 0, 0.0))
    if item is not None:
        return item
    level = int(view.communities.levels[row])
    return CommunityItem(view.community_id(row), level, "", "", 0.0, 0, 0.0, report_missing=misses_reports)
