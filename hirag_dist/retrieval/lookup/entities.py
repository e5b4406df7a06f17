"""Entities, communities and documents of a snapshot, as a caller may see them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import visible_rows
from hirag_dist.core.graph.shortest_paths import PathFinder
from hirag_dist.core.groupby import spans
from hirag_dist.core.retrieval.bridge import further_relations
from hirag_dist.core.retrieval.levels import RankedCommunity
from hirag_dist.errors import NotFound
from hirag_dist.retrieval.deadline import CooperativeDeadline
from hirag_dist.retrieval.lookup.names import find_entity, short, visible
from hirag_dist.retrieval.lookup.tables import LookupTables
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.types import (
    CommunityDetails,
    CommunityItem,
    CsrGraph,
    DocumentPart,
    EntityDetails,
    EntityItem,
    IntVector,
    PathDetails,
)

_MAX_CHILDREN = 1000


def find_community(view: MappedIndex | None, tables: LookupTables, wanted: str) -> tuple[MappedIndex, int]:
    """Return the view and the row of a community in it.

    Args:
        view: the index as the caller may see it; None where no document is visible.

    Raises:
        NotFound: there is none that the caller may see.
    """
    row = None if view is None else tables.row("communities", wanted)
    if view is None or row is None or not view.fully_visible()[row]:
        raise NotFound(
            f"community_id: none that this caller may see has the id {short(wanted)}; a search shows the ids of "
            "communities, which change when the index is updated"
        )
    return view, row


def community_details(view: MappedIndex, row: int, max_members: int, misses_reports: bool) -> CommunityDetails:
    """Return a visible community with its members, its parent and its children."""
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
    return CommunityItem(
        view.files.community_texts.value("community_id", row), level, "", "", 0.0, 0, 0.0, report_missing=misses_reports
    )


def find_document(view: MappedIndex | None, tables: LookupTables, wanted: str) -> tuple[MappedIndex, int]:
    """Return the view and the row of a document in it.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        wanted: id of the document, or of a chunk of it.

    Raises:
        NotFound: there is none that the caller may see.
    """
    row = None if view is None else tables.row("documents", wanted)
    if view is not None and row is None and (chunk := tables.row("chunks", wanted)) is not None:
        row = int(view.chunk_documents[chunk]) if view.chunk_documents[chunk] >= 0 else None
    if view is None or row is None or not _is_visible(view, tables, row):
        raise NotFound(
            f"document_id: none that this caller may see has the id {short(wanted)}; a search shows the ids of "
            "documents and chunks"
        )
    return view, row


def document_part(view: MappedIndex, tables: LookupTables, row: int, start: int, max_chars: int) -> DocumentPart:
    """Return a part of the text of a visible document, from a character on.

    Raises:
        StoreError: the text cannot be read.
    """
    text = tables.text(row)
    part = text[start : start + max_chars]
    chunks = tables.chunks_of(row)
    first, last = view.files.spans[chunks].T
    inside = chunks[(first < start + max(len(part), 1)) & (last > start)]
    documents = view.files.documents
    found = view.sources([(at, 0.0) for at in (*inside.tolist(), *chunks[:1].tolist())])  # the last for the metadata
    return DocumentPart(
        document_id=documents.value("document_id", row),
        title=documents.value("title", row),
        uri=documents.value("uri", row),
        text=part,
        start=start,
        total_chars=len(text),
        chunks=tuple(replace(chunk, text="") for chunk in found[: len(inside)]),
        metadata=found[-1].metadata if found else {},
    )


def _is_visible(view: MappedIndex, tables: LookupTables, row: int) -> bool:
    """Return whether the caller may see a document. Its chunks have its labels; without chunks they are not known."""
    if view.visible_chunks is None:
        return True
    chunks = tables.chunks_of(row)
    return bool(len(chunks)) and bool(np.all(view.visible_chunks[chunks]))


_MAIN_ENTITIES, _EXAMPLE_TITLES = 6, 12
_MAX_RELATED = 100  # ancestors, and members


def entity_details(
    view: MappedIndex, tables: LookupTables, row: int, max_relations: int, max_sources: int, note: str = ""
) -> EntityDetails:
    """Return a visible entity with its surroundings, and a note on how it was found."""
    heads = view.graph.relation_rows[view.graph.indptr[row] : view.graph.indptr[row + 1]]
    all_relations = np.concatenate([heads, further_relations(view.parallel, heads)]).astype(np.int64)
    relations = view.visible_relations(all_relations)
    weights = view.relation_weights(relations)
    chosen = relations[np.lexsort((relations, -weights))][:max_relations]
    ends = view.ends[chosen]
    others = np.where(ends[:, 0] == row, ends[:, 1], ends[:, 0]).tolist()
    above = ancestors_of(view, tables, row)
    below = _joined_by_summaries(view, tables, np.array([row], np.int64), 0)
    chunks = source_chunks(view, tables, row)
    own = view.communities.of[view.communities.of_indptr[row] : view.communities.of_indptr[row + 1]]
    return EntityDetails(
        entity=entity_items(view, [row])[0],
        relations=view.triples([(relation, 0.0) for relation in chosen.tolist()]),
        neighbours=entity_items(view, list(dict.fromkeys(others))),
        ancestors=entity_items(view, above),
        members=entity_items(view, most_mentioned(view, below)[:_MAX_RELATED].tolist()),
        communities=community_items(view, own[::-1].tolist()),
        sources=view.sources([(chunk, 0.0) for chunk in chunks[:max_sources].tolist()]),
        relation_count=len(relations),
        source_count=len(chunks),
        member_count=len(below),
        note=note,
    )


def examples(view: MappedIndex) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return names of the most mentioned entities of layer 0, and titles of some documents, that a caller may see."""
    rows = np.flatnonzero(np.asarray(view.layers) == 0)
    if view.access is not None:
        rows = rows[visible_rows(view.access, rows)]
    names = [item.name for item in entity_items(view, most_mentioned(view, rows)[:_MAIN_ENTITIES].tolist())]
    seen = slice(None) if view.visible_chunks is None else view.visible_chunks
    documents = np.unique(view.chunk_documents[seen])
    first = documents[documents >= 0][:_EXAMPLE_TITLES].tolist()
    titles = (view.files.documents.value("title", row) for row in first)
    return tuple(names), tuple(sorted(filter(None, dict.fromkeys(titles))))


def entity_items(view: MappedIndex, rows: Collection[int]) -> tuple[EntityItem, ...]:
    """Return entities by row, without scores."""
    return view.entities([(row, None) for row in rows])


def ancestors_of(view: MappedIndex, tables: LookupTables, row: int) -> list[int]:
    """Return the visible summary entities above an entity, by layer and row (Eq. 10); of many, the lowest."""
    found: dict[int, None] = {}
    level = np.array([row], np.int64)
    while len(level) and len(found) < _MAX_RELATED:
        level = _joined_by_summaries(view, tables, level, 1)
        found |= dict.fromkeys(level.tolist())
    return list(found)[:_MAX_RELATED]


def source_chunks(view: MappedIndex, tables: LookupTables, row: int) -> IntVector:
    """Return the visible chunks that mention an entity, or the extracted entities that it summarises, ascending."""
    level = np.array([row], np.int64)
    for _ in range(int(view.layers[row])):
        level = _joined_by_summaries(view, tables, level, 0)
    walk = view.walk_graph
    _, entries = spans(walk.entity_indptr[level], walk.entity_indptr[level + 1])
    chunks = np.unique(walk.entity_chunks[entries]).astype(np.int64)
    return chunks if view.visible_chunks is None else chunks[view.visible_chunks[chunks]]


def _joined_by_summaries(view: MappedIndex, tables: LookupTables, rows: IntVector, end: int) -> IntVector:
    """Return the visible entities at one end of the summary relations at whose other end some entities are, ascending.

    Args:
        rows: entities of one layer.
        end: 0: the members of these entities; 1: the summary entities of which they are members.
    """
    graph = view.graph
    _, entries = spans(graph.indptr[rows], graph.indptr[rows + 1])
    step = 1 if end else -1
    layers = np.repeat(view.layers[rows], graph.indptr[rows + 1] - graph.indptr[rows])
    entries = entries[view.layers[graph.indices[entries]] == layers + step]
    # The graph has one relation of a pair; one of equal names may be heavier than the summary relation.
    heads = graph.relation_rows[entries]
    relations: NDArray[np.int64] = np.concatenate([heads, further_relations(view.parallel, heads)]).astype(np.int64)
    relations = view.visible_relations(relations[tables.summarises[relations]])
    found: IntVector = np.unique(view.ends[relations, end]).astype(np.int64)
    return found


async def path_details(
    view: MappedIndex | None,
    tables: LookupTables,
    finder: PathFinder,
    source: str,
    target: str,
    deadline: CooperativeDeadline,
) -> PathDetails:
    """Return a path between two entities, without entities where the visible graph does not connect them.

    Args:
        view: the index as the caller may see it; None where no document is visible.
        finder: of paths in the index; the calling thread's.

    Raises:
        NotFound: the caller may see no such entity.
        DeadlineExceeded: the deadline passed.
    """
    (seen, first, note), (_, last, other) = await deadline.run_in_thread(
        lambda: (find_entity(view, tables, source, "source"), find_entity(view, tables, target, "target"))
    )
    components = seen.components
    if components is None:
        components = await deadline.run_in_thread(seen.connect)
    (path,) = await deadline.run(finder.chain_steps([first, last], seen.access, components))
    relations = relations_between(seen.graph, path)
    named = seen.named({first, last, *path})
    return PathDetails(
        path=seen.paths([(first, last)], [path], named)[0],
        entities=seen.entities([(row, None) for row in path], named),
        triples=seen.triples([(row, 0.0) for row in relations], named),
        note=" ".join(filter(None, (note, other))),
    )


def relations_between(graph: CsrGraph, path: Sequence[int]) -> list[int]:
    """Return the relation that the graph has for each two consecutive entities of a path."""
    found = []
    for one, other in pairwise(path):
        first, last = graph.indptr[one], graph.indptr[one + 1]
        found.append(int(graph.relation_rows[first + np.searchsorted(graph.indices[first:last], other)]))
    return found
