"""Visibility of the rows of an index: by the labels that a caller holds, and by the documents that meet a filter.

Labels decide what may be seen, a filter selects what is relevant. Under a filter the state of every row is computed
from its chunks, and arrays of numbers 0, 1, 2, … take the place of label patterns, so that searches and paths under a
filter are those under labels. The vector of an entity some of whose mentions a filter leaves out is the stored one, its
text is not. Texts of partially visible rows are rebuilt from the visible mentions, as a build without the other
documents would write them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hirag_dist.core.access import HIDDEN, PARTIAL, VISIBLE, Flags, description_of
from hirag_dist.core.access import read_only as read_only_filter
from hirag_dist.core.arrays import read_only
from hirag_dist.core.entities.merging import (
    CHARS_PER_TOKEN,
    EntityMention,
    RelationMention,
    entity_texts,
    relation_description,
)
from hirag_dist.core.graph.pagerank import VisibleEdges
from hirag_dist.core.metadata.columns import LabelStates, Provenance, row_states
from hirag_dist.retrieval.view.index import MappedIndex
from hirag_dist.storage.label_files import OF_ENTITIES, OF_RELATIONS, LabelFiles, Mentions
from hirag_dist.storage.metadata_files import MetadataFiles
from hirag_dist.storage.serving.text_columns import TextColumns
from hirag_dist.types import AccessFilter, IntVector

TextRows = list[dict[str, str]]  # column → text, of each row
_MAX_CACHED = 1024  # rows


@dataclass(frozen=True)
class Visibility:
    """Visibility of rows in a view.

    Attributes:
        chunks: (n_chunks,) whether a chunk is visible.
        chunk_access: the filter in the form in which chunk vectors are searched.
        communities: (n_communities,) whether a community's report is visible.
        partial_entities, partial_relations: rows → whether the text of each comes from a part of its mentions.
        entity_texts, relation_texts: such rows → the columns that differ.
        is_by_row: whether the patterns of `access` are rows.
    """

    access: AccessFilter
    chunks: Flags
    chunk_access: AccessFilter
    communities: Flags
    partial_entities: Callable[[IntVector], Flags]
    partial_relations: Callable[[IntVector], Flags]
    entity_texts: Callable[[IntVector], TextRows]
    relation_texts: Callable[[IntVector], TextRows]
    is_by_row: bool = False


def label_visibility(files: LabelFiles, in_reach: Flags) -> Visibility:
    """Return the visibility of rows for a caller who reaches some label sets.

    Args:
        in_reach: (n_sets + 1,) whether the documents of a label set are visible; the last is that of unknown ones.
    """
    access = read_only_filter(
        AccessFilter(
            in_reach,
            files.entities.of,
            files.entities.states(in_reach),
            files.relations.of,
            files.relations.states(in_reach),
            files.part_entities,
            files.part_sets,
            files.part_vectors,
            files.statements.rows,
            files.statements.indptr,
            files.statements.sets,
            files.statements.numbers,
        )
    )
    # A chunk is of one document, so its label set is its pattern, and it is never partially visible.
    by_set = np.where(in_reach, VISIBLE, HIDDEN).astype(np.uint8)
    return Visibility(
        access=access,
        chunks=in_reach[files.chunk_sets],
        chunk_access=read_only_filter(access._replace(entity_patterns=files.chunk_sets, entity_states=by_set)),
        communities=files.communities.states(in_reach)[files.communities.of] == VISIBLE,
        partial_entities=lambda rows: access.entity_states[access.entity_patterns[rows]] == PARTIAL,
        partial_relations=lambda rows: access.relation_states[access.relation_patterns[rows]] == PARTIAL,
        entity_texts=partial(visible_entity_text, files.mentions, in_reach, files.max_tokens),
        relation_texts=partial(visible_relation_text, files.statements, in_reach, files.max_tokens),
    )


def _without_labels(dim: int) -> AccessFilter:
    """Return a filter of no rows, in the types of arrays that labels have."""
    none, no_states = np.zeros(0, np.int32), np.zeros(0, np.uint8)
    no_vectors, no_strengths = np.zeros((0, dim), np.float32), np.zeros(0, np.float64)
    no_sets, indptr = np.zeros(0, np.bool_), np.zeros(1, np.int64)
    return read_only_filter(
        AccessFilter(
            no_sets, none, no_states, none, no_states, none, none, no_vectors, none, indptr, none, no_strengths
        )
    )


def full_visibility(index: MappedIndex) -> Visibility:
    """Return the visibility of all rows of an index without labels, in the types of arrays that labels have."""
    n_chunks, visible = len(index.chunk_documents), np.full(1, VISIBLE, np.uint8)
    access = read_only_filter(
        _without_labels(index.vectors.shape[1])._replace(
            sets=np.ones(1, np.bool_),
            entity_patterns=np.zeros(len(index.layers), np.int32),
            entity_states=visible,
            relation_patterns=np.zeros(len(index.ends), np.int32),
            relation_states=visible,
        )
    )
    return Visibility(
        access=access,
        chunks=np.ones(n_chunks, np.bool_),
        chunk_access=read_only_filter(access._replace(entity_patterns=np.zeros(n_chunks, np.int32))),
        communities=np.ones(len(index.communities.levels), np.bool_),
        partial_entities=lambda rows: np.zeros(len(rows), np.bool_),
        partial_relations=lambda rows: np.zeros(len(rows), np.bool_),
        entity_texts=lambda rows: [],
        relation_texts=lambda rows: [],
    )


class FilteredRows:
    """Visibility of the rows of an index whose documents have metadata.

    Attributes:
        view_bytes: memory of one view, about.
    """

    def __init__(self, index: MappedIndex, metadata: MetadataFiles, max_tokens: int) -> None:
        """Map what filters of an unfiltered index need. Raises SnapshotCorrupt where a file cannot be read."""
        files, walk = index.files, index.walk_graph
        self._mentions = Mentions.mapped(files.serving, OF_ENTITIES, "chunks")
        self._statements = Mentions.mapped(files.serving, OF_RELATIONS, "chunks")
        self._max_tokens = max_tokens
        self._chunk_documents = index.chunk_documents
        self._without_labels = _without_labels(index.vectors.shape[1])
        arrays: tuple[NDArray[Any], ...] = (
            walk.entity_indptr,
            walk.entity_chunks,
            metadata.entity_provenance,
            metadata.summary_indptr,
            metadata.summary_members,
            index.provenance.relation_indptr,
            index.provenance.relation_chunks,
            metadata.relation_provenance,
            index.communities.indptr,
            index.communities.members,
        )
        self._provenance = Provenance(*(read_only(array) for array in arrays))
        n_chunks, n_entities, n_relations = len(index.chunk_documents), len(index.layers), len(index.ends)
        self._entity_rows, self._relation_rows, self._chunk_rows = (
            np.arange(n, dtype=np.int32) for n in (n_entities, n_relations, n_chunks)
        )
        chunks = self._statements.sets
        self._statement_chunks = np.where(chunks < 0, n_chunks, chunks).astype(np.int32)  # the last: an unknown one
        edges = VisibleEdges.unknown(walk)
        self.view_bytes = 6 * n_entities + n_relations + 4 * n_chunks + 9 * len(index.communities.levels) + 1
        self.view_bytes += edges.degrees.nbytes + edges.bits.nbytes

    def visibility(self, documents: Flags, by_labels: Visibility | None) -> Visibility:
        """Return the visibility of rows that come from some documents.

        Args:
            documents: (n_documents,) those that are searched.
            by_labels: what the caller may see; None: everything.
        """
        matching = np.append(documents, False)[self._chunk_documents]
        visible = matching if by_labels is None else matching & by_labels.chunks
        labels = self._without_labels if by_labels is None else by_labels.access
        label_states = LabelStates(
            labels.entity_patterns, labels.entity_states, labels.relation_patterns, labels.relation_states
        )
        states = row_states(self._provenance, label_states, visible, matching)
        by_chunk = np.append(visible, False)
        access = read_only_filter(
            AccessFilter(
                np.concatenate([labels.sets, by_chunk]),
                self._entity_rows,
                states.entities,
                self._relation_rows,
                states.relations,
                labels.part_entities,  # by label set: their vectors are those of what the caller may see
                labels.part_sets,
                labels.part_vectors,
                self._statements.rows,
                self._statements.indptr,
                self._statement_chunks + np.int32(len(labels.sets)),
                self._statements.numbers,
            )
        )
        by_row = np.where(visible, VISIBLE, HIDDEN).astype(np.uint8)
        partial_entities, relation_states = states.partial_entities, access.relation_states
        return Visibility(
            access=access,
            chunks=visible,
            chunk_access=read_only_filter(access._replace(entity_patterns=self._chunk_rows, entity_states=by_row)),
            communities=states.communities if by_labels is None else states.communities & by_labels.communities,
            partial_entities=lambda rows: partial_entities[rows],
            partial_relations=lambda rows: relation_states[rows] == PARTIAL,
            entity_texts=partial(visible_entity_text, self._mentions, by_chunk, self._max_tokens),
            relation_texts=partial(visible_relation_text, self._statements, by_chunk, self._max_tokens),
            is_by_row=True,
        )


def visible_entity_text(mentions: Mentions, in_reach: Flags, max_tokens: int, rows: IntVector) -> TextRows:
    """Return name, type and description of partially visible entities.

    Args:
        in_reach: by label set, or by chunk, as of `mentions.sets`; the last one is that of unknown documents.
        rows: ascending.
    """
    found: TextRows = []
    for visible in mentions.by_row(rows, in_reach, ("chunk_id", "name", "type", "description")):
        name, kind, description = entity_texts(map(EntityMention._make, visible))
        found.append({"name": name, "type": kind, "description": description_of(description, max_tokens)})
    return found


def visible_relation_text(statements: Mentions, in_reach: Flags, max_tokens: int, rows: IntVector) -> TextRows:
    """Return the description of partially visible relations; the arguments are those of `visible_entity_text`."""
    groups = statements.by_row(rows, in_reach, ("chunk_id", "description"))
    max_chars = max_tokens * CHARS_PER_TOKEN
    return [{"description": relation_description(map(RelationMention._make, visible), max_chars)} for visible in groups]


class FilteredTextColumns(TextColumns):
    """Columns of text in which the values of partially visible rows are replaced."""

    def __init__(
        self,
        stored: TextColumns,
        is_partial: Callable[[IntVector], Flags],
        rebuild: Callable[[IntVector], TextRows],
    ) -> None:
        """Replace the values of rows of stored columns that are partially visible by those that are rebuilt."""
        self.n_rows = stored.n_rows
        self._stored = stored
        self._is_partial = is_partial
        self._rebuild = rebuild
        self._cache: dict[int, dict[str, str]] = {}

    def value(self, name: str, row: int) -> str:
        """Return one value."""
        return self.values(name, [row])[0]

    def values(self, name: str, rows: Iterable[int]) -> list[str]:
        """Return the values of some rows, in their order."""
        rows = list(rows)
        values = self._stored.values(name, rows)
        partial = np.flatnonzero(self._is_partial(np.asarray(rows, np.int64))).tolist()
        rebuilt = self._rebuilt({rows[position] for position in partial})
        for position in partial:
            values[position] = rebuilt[rows[position]].get(name, values[position])
        return values

    def _rebuilt(self, rows: set[int]) -> dict[int, dict[str, str]]:
        cache = self._cache  # replaced and never changed, since several threads may read it
        missing = sorted(rows - cache.keys())
        if missing:
            if len(cache) + len(missing) > _MAX_CACHED:
                cache = {row: cache[row] for row in rows & cache.keys()}
            cache = cache | dict(zip(missing, self._rebuild(np.array(missing, np.int64)), strict=True))
            self._cache = cache
        return cache
