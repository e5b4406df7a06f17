"""Selection of the entities and relations of each community report, and grouping of reports into calls.

Ids and numbers only, on arrays: what a report shows is bounded here, before any text is read. Reports depend on those
of sub-communities, so communities are gathered by trees: whole subtrees of the hierarchy, several small ones together.
A community with more below it than a tree may hold is written afterwards, above its trees.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hirag_dist.core.graph.communities import membership
from hirag_dist.core.graph.csr import relation_ends, rows_of
from hirag_dist.core.groupby import bounds_of, distinct_values, lists
from hirag_dist.core.key_sets import KeySets
from hirag_dist.core.prompts.packing import packs
from hirag_dist.core.row_changes import one_array
from hirag_dist.types import IntVector

MIN_ENTITIES = 4  # of a community whose report a model writes


@dataclass(frozen=True, slots=True)
class ReportChoice:
    """Rule that chooses the reports that are written with an index.

    Attributes:
        share: Share of the communities that take a call, 0 to 1, rounded up.
        min_entities: Minimum entities of a community that takes a call. Reports of smaller ones list their members.
    """

    share: float = 1.0
    min_entities: int = MIN_ENTITIES

    def chosen(self, outlines: pa.Table) -> NDArray[np.bool_]:
        """Choose the reports that are written: (n_communities,) bool, in the order of the rows.

        Communities without sub-communities come first, since a question reaches the deepest community of each entity
        that it finds, and larger ones before smaller ones, since they hold more of these entities. Ties go by level,
        then by id.
        """
        sizes = outlines["n_entities"].to_numpy()
        small: NDArray[np.bool_] = sizes < self.min_entities
        if self.share == 1:
            return np.ones(len(small), np.bool_)
        rows = np.flatnonzero(~small)
        ids = outlines["community_id"].combine_chunks().take(pa.array(rows))
        by_id = np.empty(len(rows), np.int64)
        by_id[pc.sort_indices(ids).to_numpy()] = np.arange(len(rows))
        has_children = pc.list_value_length(outlines["children"]).to_numpy()[rows] > 0
        level = outlines["level"].to_numpy()[rows]
        order = np.lexsort((by_id, level, -sizes[rows], has_children))
        chosen: NDArray[np.bool_] = small.copy()
        chosen[rows[order[: math.ceil(self.share * len(rows))]]] = True
        return chosen


def missing_reports(communities: pa.Table, reported: pa.ChunkedArray, min_entities: int) -> NDArray[np.bool_]:
    """Find the communities that take a call and have neither a report nor a dead letter: (n_communities,) bool.

    Args:
        communities: community_id and n_entities.
        reported: ids of communities with a report or a dead letter.
    """
    known = pc.is_in(communities["community_id"], value_set=reported.combine_chunks()).to_numpy()
    missing: NDArray[np.bool_] = ~known & (communities["n_entities"].to_numpy() >= min_entities)
    return missing


_BLOCK_ROWS = 8192  # communities whose outlines are made at a time
_PLACE_ROWS = 1 << 16  # entities, and relations, whose places are made at a time
CHILD = pa.struct(
    [
        ("community_id", pa.string()),
        ("n_entities", pa.int64()),
        ("entity_ids", pa.list_(pa.string())),  # of those that the community above shows
    ]
)
OUTLINES = pa.schema(
    [
        pa.field("tree", pa.string(), nullable=False),
        pa.field("community_id", pa.string(), nullable=False),
        pa.field("level", pa.int32(), nullable=False),
        pa.field("parent_id", pa.string()),
        pa.field("parent_tree", pa.string()),  # where the report above is written in another tree than this one
        pa.field("n_entities", pa.int64(), nullable=False),
        pa.field("entity_ids", pa.list_(pa.string()), nullable=False),  # shown, most prominent first
        pa.field("relation_ids", pa.list_(pa.string()), nullable=False),
        pa.field("children", pa.list_(CHILD), nullable=False),
    ]
)
ENTITY_PLACES = pa.schema(
    [
        pa.field("tree", pa.string(), nullable=False),
        pa.field("entity_id", pa.string(), nullable=False),
        pa.field("degree", pa.int64(), nullable=False),  # in the whole graph
    ]
)
RELATION_PLACES = pa.schema(
    [
        pa.field("tree", pa.string(), nullable=False),
        pa.field("relation_id", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class ReportOutlines:
    """Arrow tables.

    Attributes:
        below: OUTLINES of communities in trees of limited size.
        above: OUTLINES of the communities that hold several such trees.
        entities: ENTITY_PLACES, an entity once for each tree that shows it.
        entity_rows: rows of the entities that are shown, by row of `below`, then of `above`; in the order shown.
        relation_rows: rows of the relations, alike.
    """

    below: pa.Table
    above: pa.Table
    entities: pa.Table
    relations: pa.Table
    entity_rows: KeySets
    relation_rows: KeySets


def report_outlines(
    communities: pa.Table,
    entity_ids: pa.ChunkedArray,
    relations: pa.Table,
    degree: IntVector,
    max_lines: int,
    max_tree: int,
    ends: tuple[IntVector, IntVector] | None = None,
    joined: Callable[[Iterable[pa.Table], pa.Schema], pa.Table] = lambda parts, schema: pa.concat_tables(
        [schema.empty_table(), *parts]
    ),
) -> ReportOutlines:
    """Return the material of each community report: its most connected members and heaviest relations.

    Args:
        communities: COMMUNITIES, sorted by (level, id).
        entity_ids: of all entities, in row order; ties go to the lower row.
        relations: relation_id, source_id, target_id, weight; ties go to the earlier one.
        degree: (n_entities,) distinct neighbours.
        max_lines: members, and relations, of one community at most.
        max_tree: communities that are written together, at most.
        ends: `relation_ends` of the relations, where they are known.
        joined: returns tables of a schema one after another as one, in memory or mapped from a file.
    """
    n, n_communities = len(entity_ids), communities.num_rows
    entity_ids = pa.chunked_array([one_array(entity_ids)])
    level = communities["level"].to_numpy()
    parent = rows_of(communities["parent_id"], communities["community_id"])
    indptr, rows = membership(communities, entity_ids)
    owner = np.repeat(np.arange(n_communities), np.diff(indptr))
    community_at = np.full((int(level.max(initial=-1)) + 1, n), -1, np.int32)
    community_at[level[owner], rows] = owner
    shown = _first(owner, np.lexsort((rows, -degree[rows], owner)), max_lines)
    members, shown_rows = owner[shown], rows[shown].astype(np.int64)
    del owner, rows, shown
    source, target = ends or relation_ends(entity_ids, relations)
    links = _heaviest(community_at, source, target, relations["weight"].to_numpy(), max_lines)
    tree, is_above = _trees(communities["community_id"], level, parent, max_tree)

    # what a report can name: members that are shown, and the ends of relations that are, where not all members are
    partly = np.diff(indptr)[links[0]] > max_lines
    at_ends = [links[0][partly] * n + side[links[1][partly]] for side in (source, target)]
    named = distinct_values(np.concatenate([members * n + shown_rows, *at_ends]))
    who, node = named // n, named % n
    deeper = np.minimum(level[who] + 1, len(community_at) - 1)
    child = np.where(deeper > level[who], community_at[deeper, node], -1)
    placed = distinct_values(tree[who] * n + node)
    del named, at_ends, partly, who, deeper, community_at, source, target
    linked = distinct_values(tree[links[0]] * max(relations.num_rows, 1) + links[1])
    names = one_array(communities["community_id"])
    parent_tree = pa.array(tree[parent], mask=is_above | (parent < 0) | ~is_above[parent])
    above: list[pa.Table] = []

    def below() -> Iterator[pa.Table]:
        for first in range(0, n_communities, _BLOCK_ROWS):  # the lists of all communities take much memory
            some = communities.slice(first, _BLOCK_ROWS)
            last = first + some.num_rows
            columns = [
                names.take(pa.array(tree[first:last])),
                some["community_id"],
                some["level"],
                some["parent_id"],
                names.take(parent_tree.slice(first, some.num_rows)),
                some["n_entities"],
                _lists(members, shown_rows, entity_ids, first, last),
                _lists(*links, relations["relation_id"], first, last),
                _children(communities, parent, child, node, entity_ids, first, last),
            ]
            block = pa.table(columns, schema=OUTLINES)
            above.append(block.filter(pa.array(is_above[first:last])))
            yield block.filter(pa.array(~is_above[first:last]))

    entity_places = (
        pa.table([names.take(tree), _take(entity_ids, row), degree[row]], schema=ENTITY_PLACES)
        for tree, row in _tree_rows(placed, n)
    )
    relation_places = (
        pa.table([names.take(tree), _take(relations["relation_id"], row)], schema=RELATION_PLACES)
        for tree, row in _tree_rows(linked, relations.num_rows)
    )
    in_order = np.concatenate([np.flatnonzero(~is_above), np.flatnonzero(is_above)])
    return ReportOutlines(
        joined(below(), OUTLINES),
        joined(above, OUTLINES),
        joined(entity_places, ENTITY_PLACES),
        joined(relation_places, RELATION_PLACES),
        KeySets(bounds_of(members, n_communities), shown_rows).take(in_order),
        KeySets(bounds_of(links[0], n_communities), links[1]).take(in_order),
    )


def _tree_rows(keys: IntVector, n_rows: int) -> Iterator[tuple[pa.Array, IntVector]]:
    """Yield the trees and the rows of keys, a block at a time; a key is its tree times `n_rows`, plus its row."""
    for first in range(0, len(keys), _PLACE_ROWS):
        tree, row = np.divmod(keys[first : first + _PLACE_ROWS], n_rows)
        yield pa.array(tree), row


def _first(owner: IntVector, order: IntVector, limit: int) -> IntVector:
    """Return the first `limit` items of each owner; `order` sorts them by owner first."""
    sizes = np.bincount(owner)
    starts = np.cumsum(sizes) - sizes
    return order[np.arange(len(order)) - starts[owner[order]] < limit]


def _heaviest(
    community_at: NDArray[np.int32], source: IntVector, target: IntVector, weight: NDArray[np.float64], limit: int
) -> tuple[IntVector, IntVector]:
    """Return (community, relation) of the relations inside each community that it may show, by community."""
    known = np.flatnonzero((source >= 0) & (target >= 0)).astype(np.int32)  # half of the memory of IntVector
    known = known[np.argsort(-weight[known], kind="stable")]
    found: list[tuple[IntVector, IntVector]] = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    for labels in community_at:  # communities are numbered by level, so these are in order together
        own = labels[source[known]]
        inside = np.flatnonzero((own >= 0) & (own == labels[target[known]]))
        chosen = inside[_first(own[inside], np.argsort(own[inside], kind="stable"), limit)]
        found.append((own[chosen].astype(np.int64), known[chosen].astype(np.int64)))
    return np.concatenate([own for own, _ in found]), np.concatenate([rows for _, rows in found])


def _trees(
    ids: pa.ChunkedArray, level: NDArray[np.int32], parent: IntVector, max_tree: int
) -> tuple[IntVector, NDArray[np.bool_]]:
    """Return the tree of each community, named by one of its communities, and which stand above trees.

    Whole subtrees, in the order of their roots' ids, share a tree while there is room, the next begins a new one: where
    two builds begin a tree at the same root, those that follow are the same while their communities are.
    """
    n_levels = int(level.max(initial=-1)) + 1
    below = np.ones(len(level), np.int64)  # communities of each subtree
    for depth in range(n_levels - 1, 0, -1):
        here = np.flatnonzero(level == depth)
        below += np.bincount(parent[here], weights=below[here], minlength=len(level)).astype(np.int64)
    is_above = below > max_tree
    root = np.arange(len(level))
    for depth in range(1, n_levels):
        here = np.flatnonzero((level == depth) & (is_above == is_above[parent]))
        root[here] = root[parent[here]]
    roots = np.flatnonzero((root == np.arange(len(level))) & ~is_above)
    roots = roots[pc.sort_indices(_take(ids, roots)).to_numpy()]
    tree_of = np.arange(len(level))
    for together in packs(below[roots].tolist(), max_tree, len(roots)):
        tree_of[roots[together.start : together.stop]] = roots[together.start]
    return tree_of[root], is_above


def _children(
    communities: pa.Table,
    parent: IntVector,
    child: IntVector,
    node: IntVector,
    entity_ids: pa.ChunkedArray,
    first: int,
    last: int,
) -> pa.ListArray:
    """Return the sub-communities of some communities in a row, with those of their members that these name."""
    kids = np.flatnonzero((parent >= first) & (parent < last))
    kids = kids[np.argsort(parent[kids], kind="stable")]
    place = np.full(communities.num_rows, -1, np.int64)
    place[kids] = np.arange(len(kids))
    inside = np.flatnonzero(child >= 0)
    inside = inside[place[child[inside]] >= 0]
    inside = inside[np.lexsort((node[inside], place[child[inside]]))]
    fields = [
        _take(communities["community_id"], kids),
        _take(communities["n_entities"], kids),
        _lists(place[child[inside]], node[inside], entity_ids, 0, len(kids)),
    ]
    structs = pa.StructArray.from_arrays(fields, fields=list(CHILD))
    return lists(bounds_of(parent[kids] - first, last - first), structs)


def _lists(owner: IntVector, rows: IntVector, ids: pa.ChunkedArray, first: int, last: int) -> pa.ListArray:
    """Return the ids of the rows of each owner from `first` to before `last`; both sorted by owner."""
    some = slice(*np.searchsorted(owner, [first, last]))
    return lists(bounds_of(owner[some] - first, last - first), _take(ids, rows[some]))


def _take(values: pa.ChunkedArray, rows: IntVector) -> pa.Array:
    return one_array(values).take(pa.array(rows))
